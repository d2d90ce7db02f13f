//! Files that debuggers know by other names than a build-id: in the directory that `oras pull` leaves, and in exported trees, gdb, llvm-symbolizer
//! and lldb find them by themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{LLDB, any_tool, peer, symseal, tool};
use crate::three_systems::run;

const MAIN: &str = "int twice(int v);\nint main(int argc, char **argv) { return twice(argc); }\n";
const OTHER: &str = "static inline __attribute__((always_inline)) int thrice(int x) { return x * 3 + 1; }
__attribute__((noinline)) int twice(int v) { volatile int w = thrice(v); return w * 2; }\n";

struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { dir: tempfile::tempdir().expect("a folder") };
        for folder in ["work/obj", "in"] {
            std::fs::create_dir_all(scene.at(folder)).expect("a folder");
        }
        std::fs::write(scene.at("work/a.c"), MAIN).expect("a file");
        std::fs::write(scene.at("work/b.c"), OTHER).expect("a file");
        scene
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn work(&self, program: &Path, arguments: &[&str]) {
        run(Command::new(program).current_dir(self.at("work")).args(arguments));
    }

    /// Builds a bundle of `in`, and pulls it.
    fn pull(&self) -> Option<PathBuf> {
        let text = |name: &str| self.at(name).display().to_string();
        symseal([
            "bundle",
            "build",
            &text("in"),
            "--name",
            "app",
            "--version",
            "1",
            "--output",
            &text("bundle"),
            "--strict",
        ])
        .ok();
        let oras = peer("oras")?;
        let layout = format!("{}:1", text("bundle"));
        run(Command::new(oras).args(["pull", "--oci-layout", &layout, "--output", &text("pulled")]));
        Some(self.at("pulled"))
    }

    fn export(&self, kind: &str) -> PathBuf {
        let to = self.at(&format!("exported{kind}"));
        symseal(["bundle", "export", &self.at("bundle").display().to_string(), kind, &to.display().to_string()]).ok();
        to
    }
}

fn gdb(gdb: &Path, tree: &Path, file: &Path, ask: &str) -> String {
    run(Command::new(gdb)
        .env_remove("DEBUGINFOD_URLS")
        .current_dir("/")
        .args(["-nx", "-batch", "-iex", "set auto-load no", "-iex"])
        .arg(format!("set debug-file-directory {}", tree.display()))
        .arg(file)
        .args(["-ex", ask]))
}

/// A program with split DWARF, stripped, with its debug file and either its package or its units. The compiler's files are gone.
fn split(scene: &Scene, version: &str, as_package: bool) -> Option<(PathBuf, String)> {
    let (clang, objcopy) = (tool("clang")?, tool("objcopy")?);
    for name in ["a", "b"] {
        let (from, to) = (format!("{name}.c"), format!("obj/{name}.o"));
        scene.work(&clang, &[version, "-gsplit-dwarf", "-O1", "-c", &from, "-o", &to]);
    }
    scene.work(&clang, &["obj/a.o", "obj/b.o", "-o", "app", "-Wl,--build-id=0xd101020304"]);
    if as_package {
        let dwp = any_tool(&["llvm-dwp", "llvm-dwp-14", "llvm-dwp-19"])?;
        scene.work(&dwp, &["-e", "app", "-o", "../in/app.dwp"]);
    } else {
        for name in ["a.dwo", "b.dwo"] {
            std::fs::copy(scene.at("work/obj").join(name), scene.at("in").join(name)).expect("a copy");
        }
    }
    let symbols = run(Command::new(tool("nm")?).arg(scene.at("work/app")));
    let address = symbols.lines().find_map(|line| line.strip_suffix(" T twice")).expect("the function").to_owned();
    scene.work(&objcopy, &["--only-keep-debug", "app", "../in/app.debug"]);
    scene.work(&objcopy, &["--strip-all", "app", "../in/app"]);
    std::fs::remove_dir_all(scene.at("work")).expect("gone");
    Some((scene.at("in/app"), format!("0x{address}")))
}

#[test]
fn a_package_of_split_dwarf_is_found_by_every_debugger() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let scene = Scene::new();
        let Some((app, address)) = split(&scene, version, true) else { return };
        let Some(pulled) = scene.pull() else { return };
        // Without what lay beside the program.
        std::fs::remove_file(scene.at("in/app.dwp")).expect("gone");
        std::fs::remove_file(scene.at("in/app.debug")).expect("gone");
        for tree in [pulled, scene.export("--build-id")] {
            for name in ["llvm-symbolizer-14", "llvm-symbolizer-19", "llvm-symbolizer"] {
                let Some(symbolizer) = tool(name) else { continue };
                let directory = format!("--debug-file-directory={}", tree.display());
                let object = format!("--obj={}", app.display());
                let told =
                    run(Command::new(symbolizer).env_remove("DEBUGINFOD_URLS").args([&directory, &object, &address]));
                assert!(told.starts_with("thrice\n") && told.contains("\ntwice\n"), "{name}: {told}");
            }
            // By the installed program's name, and by that of the one in the tree. gdb 13 dies of packages that llvm-dwp makes of DWARF 5, wherever they
            // lie.
            let debugger = tool("gdb").filter(|_| version == "-gdwarf-4");
            for (debugger, file) in
                debugger.iter().flat_map(|gdb| [(gdb, app.clone()), (gdb, tree.join(".build-id/d1/01020304"))])
            {
                let told = gdb(debugger, &tree, &file, "info scope twice");
                assert!(told.contains("Symbol x is"), "{}: {told}", file.display());
            }
            let Some(lldb) = any_tool(LLDB) else { continue };
            let told = run(Command::new(lldb)
                .args(["--no-lldbinit", "--batch", "-o"])
                .arg(format!("settings set target.debug-file-search-paths {}", tree.display()))
                .args([
                    "-o",
                    &format!("target create {}", app.display()),
                    "-o",
                    "image lookup --verbose --name twice",
                ]));
            assert!(told.contains("name = \"w\""), "{told}");
        }
    }
}

#[test]
fn units_of_split_dwarf_are_found_by_gdb_by_the_names_that_the_compiler_gave() {
    let scene = Scene::new();
    let Some((app, _)) = split(&scene, "-gdwarf-5", false) else { return };
    let Some(pulled) = scene.pull() else { return };
    assert!(pulled.join(".build-id/d1/obj/b.dwo").is_file());
    let Some(debugger) = tool("gdb") else { return };
    for tree in [pulled, scene.export("--build-id")] {
        let told = gdb(&debugger, &tree, &app, "info scope twice");
        assert!(told.contains("Symbol x is"), "{told}");
    }
}

#[test]
fn the_debug_file_of_a_windows_program_with_dwarf_is_found_by_gdb_by_its_guid() {
    let scene = Scene::new();
    let (Some(cc), Some(objcopy)) = (tool("x86_64-w64-mingw32-gcc"), tool("x86_64-w64-mingw32-objcopy")) else {
        return;
    };
    scene.work(&cc, &["-g", "-O1", "a.c", "b.c", "-o", "app.exe", "-Wl,--build-id"]);
    scene.work(&objcopy, &["--only-keep-debug", "app.exe", "../in/app.exe.debug"]);
    scene.work(&objcopy, &["--strip-all", "app.exe", "../in/app.exe"]);
    let Some(pulled) = scene.pull() else { return };
    std::fs::remove_file(scene.at("in/app.exe.debug")).expect("gone");
    let index = std::fs::read(pulled.join("symbol_index.json")).expect("an index");
    let index: serde_json::Value = serde_json::from_slice(&index).expect("JSON");
    let (id, module) = index["windows"].as_object().expect("modules").iter().next().expect("a module");
    let hex = id.split('-').next().expect("a GUID").to_lowercase();
    let debug = module["files"].as_array().expect("files").iter().find(|file| file["role"] == "debuginfo").expect("it");
    assert_eq!(debug["path"], format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..]));
    let served = scene.export("--debuginfod").join(format!("buildid/{hex}"));
    assert!(served.join("debuginfo").is_file() && served.join("executable").is_file());
    let Some(debugger) = tool("gdb") else { return };
    for tree in [pulled, scene.export("--build-id")] {
        let told = gdb(&debugger, &tree, &scene.at("in/app.exe"), "info line twice");
        assert!(told.contains("Line 2 of \"b.c\""), "{told}");
    }
}

#[test]
fn the_debug_file_of_a_program_without_an_id_is_found_by_its_name_beside_the_program() {
    let scene = Scene::new();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    scene.work(&cc, &["-g", "-O1", "a.c", "b.c", "-o", "app", "-Wl,--build-id=none"]);
    scene.work(&objcopy, &["--only-keep-debug", "app", "../in/app.dbg"]);
    scene.work(&objcopy, &["--strip-all", "--add-gnu-debuglink=../in/app.dbg", "app", "../in/app"]);
    let Some(pulled) = scene.pull() else { return };
    let Some(debugger) = tool("gdb") else { return };
    for tree in [pulled, scene.export("--build-id")] {
        let folder = std::fs::read_dir(tree.join(".build-id")).expect("it").next().expect("one").expect("it").path();
        let mut files = std::fs::read_dir(folder).expect("it").map(|entry| entry.expect("it").path());
        let program = files.find(|path| path.extension().is_none() && path.is_file()).expect("the program");
        let told = gdb(&debugger, &tree, &program, "info line twice");
        assert!(told.contains("of \"b.c\" starts at"), "{told}");
    }
}
