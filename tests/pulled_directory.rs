//! What `oras pull` leaves is a directory that gdb, llvm-symbolizer, lldb and a symbol path use as it is.

use crate::three_systems;
use std::path::PathBuf;
use std::process::Command;

use crate::program::{LLDB, RunningServer, any_tool, peer, symseal, tool};
use crate::three_systems::run;
use serde_json::Value;

/// A pulled bundle of programs for three systems.
struct Pulled {
    dir: tempfile::TempDir,
    index: Value,
}

impl Pulled {
    /// `None`, with a word about it, where a tool is missing.
    fn make() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let inputs = dir.path().join("inputs");
        std::fs::create_dir(&inputs).expect("a folder");
        three_systems::make(&inputs)?;
        let text = |name: &str| dir.path().join(name).display().to_string();
        let build =
            ["bundle", "build", &text("inputs"), "--name", "app", "--version", "1.0", "--output", &text("bundle")];
        symseal(build).ok();
        let server = RunningServer::start(&dir.path().join("data"));
        let reference = format!("{}/team/app:1.0", server.address);
        symseal(["bundle", "push", &text("bundle"), &reference]).ok();
        let oras = peer("oras")?;
        let output = text("pulled");
        run(Command::new(oras).args(["pull", "--plain-http", &reference, "--output", &output]));
        let index = std::fs::read(dir.path().join("pulled/symbol_index.json")).expect("an index");
        Some(Self { dir, index: serde_json::from_slice(&index).expect("JSON") })
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("pulled")
    }

    fn input(&self, name: &str) -> PathBuf {
        self.dir.path().join("inputs").join(name)
    }

    /// The one module of the platform.
    fn module(&self, platform: &str) -> (&str, &Value) {
        let modules = self.index[platform].as_object().expect("modules");
        assert_eq!(modules.len(), 1, "{platform}");
        modules.iter().map(|(id, module)| (id.as_str(), module)).next().expect("a module")
    }
}

/// The address of a function, from the module's own index.
fn address(pulled: &Pulled, platform: &str) -> String {
    let (id, _) = pulled.module(platform);
    let path = pulled.folder().join("symbol_index").join(format!("{}.json", id.replace(':', "-")));
    let index: Value = serde_json::from_slice(&std::fs::read(path).expect("an index")).expect("JSON");
    let functions = index["functions"].as_array().expect("functions");
    let found = functions.iter().find(|function| function["name"] == "innermost_of_the_test").expect("the function");
    found["address"].as_str().expect("an address").to_owned()
}

#[test]
fn gdb_and_llvm_symbolizer_use_the_directory_by_build_id() {
    let Some(pulled) = Pulled::make() else { return };
    if let Some(gdb) = tool("gdb") {
        let text = run(Command::new(gdb)
            .env_remove("DEBUGINFOD_URLS")
            .args(["-nx", "-batch", "-iex", "set auto-load no", "-iex"])
            .arg(format!("set debug-file-directory {}", pulled.folder().display()))
            .args(["-ex", "info line innermost_of_the_test"])
            .arg(pulled.input("app")));
        assert!(text.contains("Line 1 of") && text.contains("whole.c"), "{text}");
    }
    if let Some(symbolizer) = tool("llvm-symbolizer") {
        let text = run(Command::new(symbolizer)
            .env_remove("DEBUGINFOD_URLS")
            .arg(format!("--debug-file-directory={}", pulled.folder().display()))
            .arg(format!("--obj={}", pulled.input("app").display()))
            .arg(address(&pulled, "linux")));
        assert!(text.contains("innermost_of_the_test") && text.contains("whole.c:1"), "{text}");
    }
}

#[test]
fn lldb_uses_the_dsym_as_it_lies() {
    let Some(pulled) = Pulled::make() else { return };
    let Some(lldb) = any_tool(LLDB) else { return };
    let (id, _) = pulled.module("macos");
    let uuid = id.trim_start_matches("uuid:");
    let folder = pulled.folder();
    // A copy of the binary alone: beside the original lies its dSYM.
    let image = folder.join("macho").join(uuid).join("app.dylib");
    let dsym = folder.join("dSYM").join(uuid).join("app.dylib.dSYM");
    assert!(dsym.join("Contents/Info.plist").is_file(), "every member of the dSYM is there");
    let text = run(Command::new(lldb)
        .args(["--no-lldbinit", "--batch", "-o"])
        .arg(format!("target create {}", image.display()))
        .arg("-o")
        .arg(format!("target symbols add {}", dsym.join("Contents/Resources/DWARF/app.dylib").display()))
        .args(["-o", &format!("image lookup --verbose --address {}", address(&pulled, "macos"))]));
    assert!(text.contains("innermost_of_the_test") && text.contains("mac.c:1"), "{text}");
}

#[test]
fn a_symbol_path_finds_image_and_database_by_their_ids() {
    let Some(pulled) = Pulled::make() else { return };
    let (Some(readobj), Some(pdbutil)) = (tool("llvm-readobj"), tool("llvm-pdbutil")) else { return };
    let dll = pulled.input("app.dll");
    let headers = run(Command::new(readobj).args(["--file-headers", "--coff-debug-directory"]).arg(&dll));
    let field = |name: &str| headers.lines().find_map(|line| line.trim().strip_prefix(name)).expect("a field").trim();
    let stamp = field("TimeDateStamp:").rsplit_once("(0x").expect("hex").1.trim_end_matches(')').to_uppercase();
    let size: u32 = field("SizeOfImage:").parse().expect("a number");
    let image = pulled.folder().join(format!("app.dll/{stamp:0>8}{size:x}/app.dll"));
    assert_eq!(
        std::fs::read(&image).expect("the image lies where symbol servers have it"),
        std::fs::read(dll).expect("it")
    );

    let text = run(Command::new(pdbutil).args(["dump", "--summary"]).arg(pulled.input("app.pdb")));
    let field = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).expect("a field").trim();
    let guid = field("GUID:").trim_matches(['{', '}']).replace('-', "");
    let (id, module) = pulled.module("windows");
    let age = module["pdb"]["age"].as_u64().expect("an age");
    assert_eq!(id, format!("{guid}-{age:x}"));
    let database = pulled.folder().join(format!("app.pdb/{guid}{age:x}/app.pdb"));
    assert_eq!(std::fs::read(database).expect("a PDB"), std::fs::read(pulled.input("app.pdb")).expect("it"));

    // llvm-symbolizer finds the database beside the image, as the debuggers do when they have followed the symbol path.
    let Some(symbolizer) = tool("llvm-symbolizer") else { return };
    let together = pulled.dir.path().join("together");
    std::fs::create_dir(&together).expect("a folder");
    std::fs::copy(image, together.join("app.dll")).expect("a copy");
    let folder = pulled.folder();
    std::fs::copy(folder.join(format!("app.pdb/{guid}{age:x}/app.pdb")), together.join("app.pdb")).expect("a copy");
    let object = format!("--obj={}", together.join("app.dll").display());
    let text = run(Command::new(symbolizer).args([&object, &address(&pulled, "windows")]));
    assert!(text.contains("innermost_of_the_test") && text.contains("win.c:1"), "{text}");
}
