//! A build that is killed leaves what it had taken out of archives; the next one removes that.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{command, compile_c, symseal_path, tool};

/// A build of an archive that stores nothing; what it takes out lies among the temporary files, in `scratch`.
fn build(archive: &Path, scratch: &Path) -> Command {
    let mut build = command("symseal");
    build.args(["bundle", "build", "--dry-run", "--name", "app", "--version", "1.0", "--output", "none"]).arg(archive);
    build.current_dir(scratch.parent().expect("a folder")).env("TMPDIR", scratch).stdout(Stdio::null());
    build
}

#[test]
fn what_a_killed_build_left_is_removed_by_the_next() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(small) = compile_c(dir.path(), "small", "int main(void) { return 0; }\n", &["-g"]) else { return };
    let Some(tar) = tool("tar") else { return };
    let at = |name: &str| dir.path().join(name);
    let pack = |archive: &str, file: &Path| {
        let (folder, name) = (file.parent().expect("a folder"), file.file_name().expect("a name"));
        let packed = Command::new(&tar).arg("-chf").arg(at(archive)).arg("-C").arg(folder).arg(name).status();
        assert!(packed.expect("it starts").success());
    };
    // Large enough to be killed in the midst of it.
    pack("large.tar", symseal_path());
    pack("small.tar", &small);
    let scratch = at("scratch");
    std::fs::create_dir(&scratch).expect("a folder");
    let left = || std::fs::read_dir(&scratch).expect("a folder").count();

    let mut running = build(&at("large.tar"), &scratch).spawn().expect("it starts");
    let began = Instant::now();
    while left() == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was taken out");
        std::thread::sleep(Duration::from_millis(1));
    }
    // What another build has in use stays.
    assert!(build(&at("small.tar"), &scratch).status().expect("it starts").success());
    let was_running = running.try_wait().expect("a status").is_none();
    assert!(!was_running || left() == 1, "{}", left());
    running.kill().expect("it is killed");
    running.wait().expect("it ends");
    if !was_running {
        eprintln!("skipped: the build had ended before it was killed");
        return;
    }
    assert!(build(&at("small.tar"), &scratch).status().expect("it starts").success());
    assert_eq!(left(), 0, "the next build removes it");
}
