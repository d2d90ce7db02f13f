//! Directories that are served where they lie, by a server that may open few files.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::program::{program, tool};
use crate::scene::{get, wait_until};

#[test]
fn more_folders_than_files_that_may_be_open_are_all_read() {
    let (Some(shell), Some(_)) = (tool("sh"), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let tree = root.path().join("tree");
    for number in 0..400 {
        let folder = tree.join(format!("folder-{number}/in"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("notes"), "no release file").unwrap();
    }
    let mut server = Command::new(shell);
    server.args(["-c", "ulimit -n 100; exec \"$0\" \"$@\""]).arg(program("symseal"));
    server.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(root.path().join("data"));
    let mut server = server.arg("--index").arg(&tree).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.rsplit("://").next().unwrap().trim().to_owned();
    let read = || {
        let metrics = String::from_utf8(get(&address, "/metrics").body).unwrap();
        metrics.lines().any(|line| line == "symseal_tree_files 400")
    };
    let checked = std::panic::catch_unwind(|| wait_until("every folder is read", read));
    server.kill().unwrap();
    server.wait().unwrap();
    checked.unwrap();
}
