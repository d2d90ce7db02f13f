//! Files that are called so that a debugger, a shell or a script of theirs would do something on reading the name: a real gdb is led over every
//! file of the bundle at its title, in each way in which people and scripts name files to it.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use crate::inputs::{SOURCE, build, compile, lay_out, tool};
use symseal_bundle::{Bundle, FileRole, LayoutDir};

/// What a name may do where it is not escaped: each would make the file `sentinel` in gdb's directory.
const NAMES: [&[u8]; 12] = [
    b"\nshell touch sentinel\n.so",
    b"a.so\rshell touch sentinel\r",
    b"$(touch sentinel).so",
    b"`touch sentinel`.so",
    b"a.so; touch sentinel; .so",
    b"| touch sentinel",
    b"-ex=shell touch sentinel",
    b"--eval-command=shell touch sentinel",
    b"'\nshell touch sentinel\n'.so",
    b"\xff\xfe\nshell touch sentinel\n",
    b"\x1b]2;touch sentinel\x07.so",
    b".gdbinit.so\npython open('sentinel', 'w').close()\n",
];

/// gdb in a directory, as a careless user starts it: every place is safe to load from. What it prints.
fn gdb(gdb: &Path, directory: &Path, arguments: &[&OsStr]) -> String {
    let mut command = Command::new(gdb);
    command.args(["-nx", "-batch", "-iex", "set auto-load safe-path /", "-iex", "set auto-load python-scripts on"]);
    command.args(arguments).current_dir(directory).env("HOME", "/nonexistent").env_remove("DEBUGINFOD_URLS");
    let output = command.output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// The commands by which a script lets gdb read a file of this name.
fn commands(name: &[u8]) -> Vec<u8> {
    [b"file " as &[u8], name, b"\ninfo line add\nsymbol-file ", name, b"\n"].concat()
}

#[test]
fn no_title_of_a_file_makes_gdb_do_anything() {
    let (Some(debugger), Some(cc)) = (tool("gdb"), tool("cc")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (made, input, pulled) = (at("made"), at("input"), at("pulled"));
    std::fs::create_dir(&made).unwrap();
    std::fs::create_dir(&input).unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        // Ids of one byte, whose files have their names in their titles.
        let id = format!("-Wl,--build-id=0x{:02x}", 0xa0 + number);
        let file = compile(&cc, &made, "made", &format!("{SOURCE}\nint number = {number};"), &["-g", &id]);
        std::fs::rename(file, input.join(OsStr::from_bytes(name))).unwrap();
    }
    // The control: by the name that the first one came with, such a script of commands makes the file. (One that fails ends the script.)
    let script = at("commands.gdb");
    std::fs::write(&script, commands(NAMES[0])).unwrap();
    gdb(&debugger, &input, &[OsStr::new("-x"), script.as_os_str()]);
    let made_by_the_name = input.join("sentinel");
    assert!(made_by_the_name.exists(), "the control: this gdb does what the name says");
    std::fs::remove_file(made_by_the_name).unwrap();

    let layout = LayoutDir::create(at("layout")).unwrap();
    build(&[input], &layout).unwrap();
    lay_out(&layout, &pulled);
    let bundle = Bundle::open(layout, None).unwrap();
    let files = bundle.index().files();
    // The others are called by their ids.
    let files = files.filter(|file| matches!(file.role, FileRole::Executable | FileRole::Debuginfo));
    let titles: Vec<String> = files.map(|file| file.path.clone()).collect();
    assert!(!titles.concat().bytes().any(|byte| byte.is_ascii_control()), "{titles:?}");
    // Each as a program and as a debug file.
    assert_eq!(titles.len(), 2 * NAMES.len(), "{titles:?}");
    let mut read = 0;
    for title in &titles {
        let file = Path::new(title);
        let (directory, name) = (pulled.join(file.parent().unwrap()), file.file_name().unwrap());
        std::fs::write(&script, commands(title.as_bytes())).unwrap();
        gdb(&debugger, &pulled, &[OsStr::new("-x"), script.as_os_str()]);
        // As an argument, from the tree and beside it, where a name may begin like an option; and through a shell, as people quote names.
        let told = gdb(&debugger, &pulled, &[OsStr::new("-ex"), OsStr::new("info line add"), OsStr::new(title)]);
        read += usize::from(told.contains("Line") && told.contains("starts at address"));
        gdb(&debugger, &directory, &[OsStr::new("--args"), name]);
        let quoted = format!("\"{}\" -nx -batch -ex 'info files' '{title}'", debugger.display());
        if !title.contains('\'') {
            Command::new("sh").args(["-c", &quoted]).current_dir(&pulled).output().unwrap();
        }
        for place in [&pulled, &directory] {
            assert!(!place.join("sentinel").exists(), "{title}: gdb did what the name says");
        }
    }
    assert_eq!(read, titles.len(), "gdb reads what lies at these titles: {titles:?}");
}
