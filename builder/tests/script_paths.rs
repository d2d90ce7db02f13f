//! An object file may lead gdb to a script by a path, and the script may lie in what was pulled with it: a real gdb runs it, and neither is in a
//! bundle.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::inputs::{SOURCE, build, compile, lay_out, report, tool};
use symseal_builder::BuildError;
use symseal_bundle::LayoutDir;

const SCRIPT: &str = "dSYM/D6FEA1B2C3D4E5F60718293A4B5C6D7E/fix.dSYM/Contents/Resources/evil.py";

fn library(cc: &Path, dir: &Path, name: &str, entry: &str) -> PathBuf {
    let entry: Vec<String> = entry.bytes().chain([0]).map(|byte| byte.to_string()).collect();
    let section = format!(
        "asm(\".pushsection .debug_gdb_scripts, \\\"MS\\\",@progbits,1\\n.byte 1,{}\\n.popsection\");",
        entry.join(",")
    );
    compile(cc, dir, name, &format!("{SOURCE}\n{section}"), &["-g", "-Wl,--build-id=0xe101020304"])
}

/// Loads a file as somebody does who works in the pulled directory and trusts it.
fn load(gdb: &Path, file: &Path, tree: &Path) {
    let mut command = Command::new(gdb);
    command.args(["-nx", "-batch", "-iex"]).arg(format!("set auto-load safe-path {}", tree.display())).arg(file);
    command.args(["-iex", &format!("add-auto-load-safe-path {}", file.display())]);
    command.current_dir(tree).env("HOME", "/nonexistent").env_remove("DEBUGINFOD_URLS");
    assert!(command.output().unwrap().status.success());
}

#[test]
fn a_path_leads_to_no_script_in_a_bundle() {
    let (Some(gdb), Some(cc)) = (tool("gdb"), tool("cc")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (sentinel, tree) = (at("sentinel"), at("tree"));
    let touch = format!("open({:?}, 'w').close()", sentinel.to_str().unwrap());
    let script = tree.join(SCRIPT);
    std::fs::create_dir_all(script.parent().unwrap()).unwrap();
    std::fs::write(&script, &touch).unwrap();
    std::fs::create_dir(at("input")).unwrap();
    let found = library(&cc, &at("input"), "libevil.so", SCRIPT);
    load(&gdb, &found, &tree);
    if !sentinel.exists() {
        println!("SKIP gdb: this one runs no Python");
        return;
    }
    std::fs::remove_file(&sentinel).unwrap();
    // A name that is none of a script may be that of any file of a dSYM.
    let layout = LayoutDir::create(at("layout")).unwrap();
    library(&cc, &at("input"), "libevil.so", "dSYM/ID/fix.dSYM/Contents/Info.plist");
    let error = build(&[at("input")], &layout).unwrap_err();
    assert!(matches!(&error, BuildError::DebuggerScript { .. }), "{error}");

    // Scripts among the files of a dSYM are left out and told, so that no path leads to one.
    library(&cc, &at("input"), "libevil.so", SCRIPT);
    let resources = at("input").join("fix.dSYM/Contents/Resources");
    std::fs::create_dir_all(&resources).unwrap();
    for name in ["evil.py", "evil.PY", "evil.scm", "evil.gdb"] {
        std::fs::write(resources.join(name), &touch).unwrap();
    }
    let told = report(&[at("input")]);
    assert_eq!(told.inputs.refused.len(), 4, "{:?}", told.inputs.refused);
    build(&[at("input")], &layout).unwrap();
    let pulled = at("pulled");
    lay_out(&layout, &pulled);
    load(&gdb, &pulled.join(".build-id/e1/01020304"), &pulled);
    assert!(!sentinel.exists(), "gdb ran something out of the bundle");
}
