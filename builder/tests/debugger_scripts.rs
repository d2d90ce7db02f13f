//! Scripts that gdb would run on loading a file: with its auto-loading allowed, a real gdb runs those of the inputs, and
//! finds none in a directory that holds what our bundle holds.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::inputs::{SOURCE, build, compile, lay_out, run, tool};
use symseal_builder::BuildError;
use symseal_bundle::{Bundle, LayoutDir};

/// Loads `file` into gdb as a careless user does, with every directory declared safe, or with auto-loading off.
fn load(gdb: &Path, file: &Path, debug_directory: &Path, auto_load: &str) {
    let mut command = Command::new(gdb);
    command.args(["-nx", "-batch", "-iex"]).arg(format!("set auto-load {auto_load}"));
    command.args(["-iex", "set auto-load safe-path /", "-iex"]);
    command.arg(format!("set debug-file-directory {}", debug_directory.display()));
    command.args(["-ex", "info line add"]).arg(file).env("HOME", "/nonexistent").env_remove("DEBUGINFOD_URLS");
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("Line") && told.contains("add"), "{told}{}", String::from_utf8_lossy(&output.stderr));
}

fn touches(sentinel: &Path) -> String {
    format!("open({:?}, 'w').close()", sentinel.to_str().unwrap())
}

struct Scene {
    dir: tempfile::TempDir,
    gdb: PathBuf,
    cc: PathBuf,
}

impl Scene {
    fn new() -> Option<Self> {
        let scene = Self { gdb: tool("gdb")?, cc: tool("cc")?, dir: tempfile::tempdir().unwrap() };
        // A gdb without Python runs no Python.
        let python = Command::new(&scene.gdb).args(["-nx", "-batch", "-ex", "python print(6*7)"]).output().unwrap();
        if !String::from_utf8_lossy(&python.stdout).contains("42") {
            println!("SKIP gdb: it has no Python");
            return None;
        }
        std::fs::create_dir(scene.path("input")).unwrap();
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

#[test]
fn a_script_beside_a_library_is_run_by_gdb_there_and_is_in_no_bundle() {
    let Some(scene) = Scene::new() else { return };
    let (input, sentinel) = (scene.path("input"), scene.path("sentinel"));
    let library = compile(&scene.cc, &input, "libfoo.so", SOURCE, &["-g", "-Wl,--build-id=0xee01020304"]);
    std::fs::write(input.join("libfoo.so-gdb.py"), touches(&sentinel)).unwrap();
    load(&scene.gdb, &library, &input, "no");
    assert!(!sentinel.exists(), "gdb ran a script although it was told not to");
    load(&scene.gdb, &library, &input, "python-scripts on");
    assert!(sentinel.exists(), "the control: this gdb runs the script");
    std::fs::remove_file(&sentinel).unwrap();

    let layout = LayoutDir::create(scene.path("layout")).unwrap();
    build(std::slice::from_ref(&input), &layout).unwrap();
    let pulled = scene.path("pulled");
    lay_out(&layout, &pulled);
    for title in [".build-id/ee/01020304", ".build-id/ee/01020304.debug"] {
        load(&scene.gdb, &pulled.join(title), &pulled, "python-scripts on");
        assert!(!sentinel.exists(), "{title}: gdb ran something out of the bundle");
    }
}

#[test]
fn a_script_within_a_library_is_run_by_gdb_and_refused_by_us() {
    let Some(scene) = Scene::new() else { return };
    let (input, sentinel) = (scene.path("input"), scene.path("sentinel"));
    // An entry of kind 4: a name, a line feed, Python. (GDB manual, "The .debug_gdb_scripts section")
    let script: Vec<String> =
        format!("\u{4}inline\n{}\n\0", touches(&sentinel)).bytes().map(|byte| byte.to_string()).collect();
    let source = format!(
        "{SOURCE}\nasm(\".pushsection .debug_gdb_scripts, \\\"MS\\\",@progbits,1\\n.byte {}\\n.popsection\");",
        script.join(",")
    );
    let library = compile(&scene.cc, &input, "libbar.so", &source, &["-g", "-Wl,--build-id=0xef01020304"]);
    load(&scene.gdb, &library, &input, "no");
    assert!(!sentinel.exists(), "gdb ran a script although it was told not to");
    load(&scene.gdb, &library, &input, "python-scripts on");
    assert!(sentinel.exists(), "the control: this gdb runs the script");
    std::fs::remove_file(&sentinel).unwrap();

    let layout = LayoutDir::create(scene.path("layout")).unwrap();
    let error = build(std::slice::from_ref(&input), &layout).unwrap_err();
    assert!(matches!(&error, BuildError::DebuggerScript { .. }), "{error}");
    assert!(error.to_string().contains("libbar.so"), "{error}");
    assert!(layout.manifests().unwrap().is_empty());

    // Without the section it is taken, and nothing is run.
    let Some(objcopy) = tool("objcopy") else { return };
    run(&objcopy, &["--remove-section", ".debug_gdb_scripts", library.to_str().unwrap()]);
    build(std::slice::from_ref(&input), &layout).unwrap();
    let pulled = scene.path("pulled");
    lay_out(&layout, &pulled);
    load(&scene.gdb, &pulled.join(".build-id/ef/01020304"), &pulled, "python-scripts on");
    assert!(!sentinel.exists());
}

/// gdb reads the section from every format that BFD reads.
#[test]
fn a_script_within_a_windows_program_is_run_by_gdb_and_refused_by_us() {
    let Some(scene) = Scene::new() else { return };
    let Some(cc) = tool("x86_64-w64-mingw32-gcc") else { return };
    let (input, sentinel) = (scene.path("input"), scene.path("sentinel"));
    let script: Vec<String> =
        format!("\u{4}inline\n{}\n\0", touches(&sentinel)).bytes().map(|byte| byte.to_string()).collect();
    let source = format!(
        "{SOURCE}\nasm(\".section .debug_gdb_scripts, \\\"n\\\"\\n.byte {}\\n.text\");\nint DllMainCRTStartup(void) {{ return 1; }}",
        script.join(",")
    );
    let library = compile(&cc, &input, "bar.dll", &source, &["-g", "-Wl,--build-id"]);
    load(&scene.gdb, &library, &input, "no");
    assert!(!sentinel.exists(), "gdb ran a script although it was told not to");
    load(&scene.gdb, &library, &input, "python-scripts on");
    if !sentinel.exists() {
        println!("SKIP gdb: this one reads no PE files");
    }
    let layout = LayoutDir::create(scene.path("layout")).unwrap();
    let error = build(std::slice::from_ref(&input), &layout).unwrap_err();
    assert!(matches!(&error, BuildError::DebuggerScript { .. }), "{error}");
    // As a file of a dSYM bundle too, which is taken whatever it is.
    let resources = input.join("App.dSYM/Contents/Resources");
    std::fs::create_dir_all(&resources).unwrap();
    std::fs::rename(&library, resources.join("bar.dll")).unwrap();
    let error = build(std::slice::from_ref(&input), &layout).unwrap_err();
    assert!(matches!(&error, BuildError::DebuggerScript { .. }), "{error}");
    assert!(layout.manifests().unwrap().is_empty());
}

/// gdb runs `NAME-gdb.py`, `.scm` and `.gdb` alone: a debugger's own program is called `arm-none-eabi-gdb.exe`, and is a module as others are.
#[test]
fn a_program_called_as_a_debugger_is_taken_and_a_script_that_begins_like_a_program_is_not() {
    let Some(scene) = Scene::new() else { return };
    let (input, sentinel) = (scene.path("input"), scene.path("sentinel"));
    let library = compile(&scene.cc, &input, "libfoo.so", SOURCE, &["-g", "-Wl,--build-id=0xee01020304"]);
    // An id of one byte, whose files have their names in their titles.
    compile(
        &scene.cc,
        &input,
        "libfoo.so-gdb.exe",
        &format!("{SOURCE}\nint more = 1;"),
        &["-g", "-Wl,--build-id=0xe1"],
    );
    // A PE file by its first bytes, and Python.
    std::fs::write(input.join("libfoo.so-gdb.py"), format!("MZ = 0\n{}\n", touches(&sentinel))).unwrap();
    load(&scene.gdb, &library, &input, "python-scripts on");
    assert!(sentinel.exists(), "the control: this gdb runs the script");
    std::fs::remove_file(&sentinel).unwrap();

    let layout = LayoutDir::create(scene.path("layout")).unwrap();
    let built = build(std::slice::from_ref(&input), &layout).unwrap();
    let refused: Vec<&str> = built.report.inputs.refused.iter().map(|one| one.place.as_str()).collect();
    assert!(refused.len() == 1 && refused[0].ends_with("/libfoo.so-gdb.py"), "{refused:?}");
    let bundle = Bundle::open(layout.clone(), None).unwrap();
    let titles: Vec<&str> = bundle.index().files().map(|file| file.path.as_str()).collect();
    assert!(titles.contains(&"executable/e1/libfoo.so%2Dgdb.exe"), "{titles:?}");
    assert!(bundle.index().modules().any(|(_, _, module)| module.name == "libfoo.so-gdb.exe"));

    let pulled = scene.path("pulled");
    lay_out(&layout, &pulled);
    for title in [".build-id/ee/01020304", "executable/e1/libfoo.so%2Dgdb.exe"] {
        load(&scene.gdb, &pulled.join(title), &pulled, "python-scripts on");
        assert!(!sentinel.exists(), "{title}: gdb ran something out of the bundle");
    }
}

/// `docs/formats/bundle.md`, "Names from inputs": the text that the index has of a name, and of that text the title.
#[test]
fn names_that_are_not_utf_8_have_titles_by_the_stated_rule() {
    use std::os::unix::ffi::OsStrExt as _;
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (made, input) = (dir.path().join("made"), dir.path().join("input"));
    std::fs::create_dir(&made).unwrap();
    std::fs::create_dir(&input).unwrap();
    let names: [(&[u8], &str, &str); 4] = [
        (b"caf\xe9.elf", r"caf\xe9.elf", "caf%5Cxe9.elf"),
        (br"caf\xe9.elf", r"caf\\xe9.elf", "caf%5C%5Cxe9.elf"),
        (b"a\x01b.elf", r"a\x01b.elf", "a%5Cx01b.elf"),
        (r"a\b.elf".as_bytes(), r"a\b.elf", "a%5Cb.elf"),
    ];
    for (number, (name, ..)) in names.iter().enumerate() {
        let id = format!("-Wl,--build-id=0xa{number}");
        let file = compile(&cc, &made, "made", &format!("{SOURCE}\nint number = {number};"), &["-g", &id]);
        std::fs::rename(file, input.join(std::ffi::OsStr::from_bytes(name))).unwrap();
    }
    let layout = LayoutDir::create(dir.path().join("layout")).unwrap();
    build(&[input], &layout).unwrap();
    let bundle = Bundle::open(layout, None).unwrap();
    for (number, (_, name, part)) in names.iter().enumerate() {
        let id = format!("a{number}");
        let (_, _, module) = bundle.index().modules().find(|(_, text, _)| *text == id).unwrap();
        assert_eq!(module.name, *name);
        let title = format!("executable/{id}/{part}");
        assert!(module.files.iter().any(|file| file.path == title), "{title}: {:?}", module.files);
    }
}
