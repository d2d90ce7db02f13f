//! What a Go program's unwind table says of its runtime: from its own debug information, from that in a debug file beside it, and nothing without any.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::inputs::{build, run, tool};
use symseal_builder::{Rederived, rederive};
use symseal_bundle::{Bundle, FileRole, LayoutDir};
use symseal_module::Rva;
use symseal_unwind::{GoRuntime, Table};

/// A Go program with its debug information.
fn program(dir: &Path) -> Option<PathBuf> {
    let (go, source, output) = (tool("go")?, dir.join("main.go"), dir.join("program"));
    std::fs::write(&source, "package main\n\nfunc main() { println(1) }\n").unwrap();
    let built = Command::new(go)
        .args(["build", "-ldflags=-B gobuildid", "-o"])
        .args([&output, &source])
        .envs([("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    std::fs::remove_file(source).unwrap();
    Some(output)
}

/// What the table of the program in a bundle of `paths` says; the table is the one that the files give again.
fn told(paths: &[PathBuf]) -> Option<GoRuntime<Rva>> {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path().join("bundle")).unwrap();
    let built = build(paths, &layout).unwrap();
    let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
    let again = rederive(&bundle, paths, None).unwrap();
    assert!(!again.is_empty() && again.iter().all(|table| table.outcome == Rederived::Same), "{again:?}");
    let (_, _, module) = bundle.index().modules().next().unwrap();
    let file = module.file(FileRole::UnwindTable).unwrap();
    assert_eq!(file.derived_from.len(), paths.len(), "{file:?}");
    let bytes = bundle.read(file).unwrap();
    let table = Table::open(&bytes).unwrap();
    assert_eq!(table.verify(), Ok(()));
    table.go_runtime()
}

#[test]
fn the_table_has_the_runtime_wherever_the_debug_information_stands() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(program), Some(objcopy)) = (program(dir.path()), tool("objcopy")) else { return };
    let whole = told(std::slice::from_ref(&program)).expect("a runtime");
    assert!(whole.switches.len() == 3 && !whole.c_calls.is_empty(), "{whole:?}");

    let (debug, stripped) = (dir.path().join("program.debug"), dir.path().join("stripped"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    run(&objcopy, &["--only-keep-debug", &text(&program), &text(&debug)]);
    run(&objcopy, &["--strip-all", &text(&program), &text(&stripped)]);
    assert_eq!(told(&[stripped.clone(), debug]), Some(whole));
    assert_eq!(told(&[stripped]), None);
}
