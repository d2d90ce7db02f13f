//! A reader in another language, written from `docs/formats/symx.md` alone, agrees with this crate.

use crate::model::{Module, OwnedFrame, module};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const TABLES: usize = 60;

/// Runs the Python reader, one JSON value a line of its output; `None` where there is no Python.
fn python(arguments: &[&str]) -> Option<Vec<Value>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracles/symx_reader.py");
    let output = match Command::new("python3").arg(script).args(arguments).output() {
        Ok(output) => output,
        Err(_) => {
            let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|tool| tool == "python3"), "python3 is required and was not found");
            println!("SKIP python3: not found");
            return None;
        }
    };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the Python reader refused the table: {text}{errors}");
    Some(text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

fn modules() -> Vec<Module> {
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[42; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), seed);
    (0..TABLES).map(|_| module().new_tree(&mut runner).expect("a module").current()).collect()
}

fn frames(frames: &[OwnedFrame]) -> Value {
    let frame = |frame: &OwnedFrame| {
        json!({
            "function": frame.function, "symbol": frame.symbol, "file": frame.file,
            "line": frame.line, "column": frame.column, "inlined": frame.inlined,
        })
    };
    frames.iter().map(frame).collect()
}

/// What the records say, as the Python reader prints it.
fn expected(module: &Module) -> Value {
    let text = |id| module.strings.get(id);
    let functions = module.functions.iter().map(|function| {
        json!({
            "start": format!("{:#x}", function.start.0), "size": function.size,
            "name": text(function.name), "symbol": text(function.symbol),
            "aliases": function.aliases.iter().map(|alias| text(*alias)).collect::<Vec<_>>(),
            "source": function.source.code(), "approximate": function.flags.approximate,
            "folded": function.flags.folded, "part": function.flags.part,
            "file": text(function.file), "line": (function.line > 0).then_some(function.line),
        })
    });
    let rows = module.answers().into_iter().map(|answer| {
        json!({
            "start": format!("{:#x}", answer.start), "end": format!("{:#x}", answer.end),
            "frames": frames(&answer.frames),
        })
    });
    json!({
        "debug_id": module.debug_id.to_string(), "image_base": format!("{:#x}", module.image_base.0),
        "source_sha256": "07".repeat(32), "producer": module.producer,
        "functions": functions.collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>(),
    })
}

fn write_all(directory: &Path, modules: &[Module]) -> Vec<PathBuf> {
    let write = |(number, module): (usize, &Module)| {
        let path = directory.join(format!("{number}.symx"));
        std::fs::write(&path, module.write()).expect("a file");
        path
    };
    modules.iter().enumerate().map(write).collect()
}

#[test]
fn the_python_reader_dumps_what_was_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let modules = modules();
    let paths = write_all(directory.path(), &modules);
    let mut arguments = vec!["dump"];
    arguments.extend(paths.iter().map(|path| path.to_str().expect("a plain path")));
    let Some(dumps) = python(&arguments) else { return };
    assert_eq!(dumps.len(), modules.len());
    for (dump, module) in dumps.iter().zip(&modules) {
        assert_eq!(*dump, expected(module));
    }
}

#[test]
fn the_python_reader_finds_the_same_frames() {
    let directory = tempfile::tempdir().expect("a directory");
    let modules: Vec<Module> = modules().into_iter().take(TABLES / 3).collect();
    for (path, module) in write_all(directory.path(), &modules).iter().zip(&modules) {
        let answers = module.answers();
        let edges = answers.iter().flat_map(|answer| [answer.start.wrapping_sub(1), answer.start, answer.end]);
        let addresses: Vec<u64> = edges.chain([0, u64::MAX]).collect();
        let texts: Vec<String> = addresses.iter().map(|address| format!("{address:#x}")).collect();
        let mut arguments = vec!["lookup", path.to_str().expect("a plain path")];
        arguments.extend(texts.iter().map(String::as_str));
        let Some(found) = python(&arguments) else { return };
        for (address, found) in addresses.iter().zip(found) {
            let answer = answers.iter().find(|answer| (answer.start..answer.end).contains(address));
            assert_eq!(found, answer.map_or(Value::Null, |answer| frames(&answer.frames)), "at {address:#x}");
        }
    }
}
