//! Windows programs beside what other readers say of them: Microsoft's own (through Breakpad's `dump_syms`),
//! llvm-symbolizer and pdb-addr2line; real pairs of PE and PDB from package registries, and pairs made here.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod support;
mod windows;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use support::{addresses_in, fixtures, have, llvm_symbolizer_survived, lookup, skip};
use symseal_artifact::{ObjectFile, PdbFile, pdb_functions};
use windows::Module;

/// What a Breakpad file says: functions by start, and line records.
#[derive(Default)]
struct Breakpad {
    functions: Vec<(u64, u64, String)>,
    /// Start, size, line, file.
    lines: Vec<(u64, u64, u64, String)>,
}

fn breakpad(path: &Path) -> Breakpad {
    let text = std::fs::read(path).expect("a file");
    let mut parsed = Breakpad::default();
    let mut files: HashMap<String, String> = HashMap::new();
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    for line in String::from_utf8_lossy(&text).lines() {
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        match words.as_slice() {
            ["FILE", number, path @ ..] => {
                files.insert((*number).to_owned(), path.join(" "));
            }
            ["FUNC", "m", start, size, _, name @ ..] | ["FUNC", start, size, _, name @ ..] => {
                parsed.functions.push((hex(start), hex(size), name.join(" ")));
            }
            [start, size, line, file] if files.contains_key(*file) => {
                parsed.lines.push((hex(start), hex(size), line.parse().expect("a line"), files[*file].clone()));
            }
            _ => {}
        }
    }
    parsed
}

/// Microsoft's reader (DIA), on which Breakpad's `dump_syms` rests, has functions and lines of the same PDB, also of one
/// whose code was moved after linking.
#[test]
fn pdbs_agree_with_what_microsofts_reader_said() {
    let Some(folder) = fixtures() else { return };
    for (pdb, sym) in [
        ("breakpad/src/tools/windows/dump_syms/testdata/dump_syms_regtest.pdb", "sym"),
        ("breakpad/src/tools/windows/dump_syms/testdata/dump_syms_regtest64.pdb", "sym"),
        ("breakpad/src/tools/windows/dump_syms/testdata/omap_stretched.pdb", "sym"),
        ("symbolic/symbolic-testutils/fixtures/windows/crash.pdb", "sym"),
        ("symbolic/symbolic-testutils/fixtures/windows/CrashWithException.pdb", "pdb.sym"),
    ] {
        let path = folder.join(pdb);
        let bytes = std::fs::read(&path).expect("a PDB");
        let stream = pdb_functions(&PdbFile::parse(&bytes).expect("a PDB")).expect("functions");
        lookup::check_shape(&stream);
        let expected = breakpad(&path.with_extension(sym));
        let (mut starts, mut sizes) = (0, 0);
        for (start, size, name) in &expected.functions {
            let found = stream.functions.iter().find(|function| function.start.0 == *start);
            starts += u64::from(found.is_some());
            let is_equal = found.is_some_and(|found| found.size == *size);
            sizes += u64::from(is_equal);
            if !is_equal {
                println!(
                    "{start:#x} {size:#x} {name}: {:?}",
                    found.map(|found| (found.start, found.size, found.source))
                );
            }
        }
        let (mut lines, mut equal) = (0, 0);
        for (start, size, line, file) in &expected.lines {
            if *size == 0 {
                continue;
            }
            lines += 1;
            let frames = lookup::frames(&stream, *start);
            // A line of an inlined function is given to the function that it is in.
            let is_equal = frames.iter().any(|frame| frame.line == *line && frame.file.eq_ignore_ascii_case(file));
            equal += u64::from(is_equal);
            if !is_equal && lines - equal < 6 {
                println!("{start:#x} {line} {file}: {frames:?}");
            }
        }
        let all = expected.functions.len() as u64;
        println!(
            "{pdb}: {starts} of {all} functions, {sizes} of equal size; {equal} of {lines} lines; {:?}",
            stream.statistics
        );
        assert!(starts * 1000 >= all * 995 && equal * 1000 >= lines * 995, "{pdb}");
    }
}

/// Compares a pair at addresses spread over its code: at least so many must agree, 995 of 1000 of them.
#[track_caller]
fn check_pair(path: &Path, addresses: usize) {
    let module = Module::read(path);
    let text = ObjectFile::parse(&module.bytes).expect("a PE").unwind_inputs().text;
    let addresses = addresses_in(&text, addresses, 7);
    let expected = llvm_symbolizer_survived(path, &addresses);
    let comparison = module.compare(&expected, false);
    println!("{}: {:?}\n{comparison}", path.display(), module.stream.statistics);
    let least = comparison.depth_equal.min(comparison.lines_equal).min(comparison.names_equal);
    assert!(comparison.compared > 0 && least * 1000 >= comparison.compared * 995, "{}: {comparison}", path.display());
}

/// Runs a shell command that needs the network; says so where it does not succeed.
fn download(what: &str, command: &str, folder: &Path) -> bool {
    let full = format!("cd {} && timeout 120 bash -c '{command}' >log 2>&1", folder.display());
    let done = std::process::Command::new("bash").args(["-c", &full]).status().is_ok_and(|status| status.success());
    done || skip(what)
}

/// Files below a folder that have a PDB beside them.
fn pairs_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind != "pdb") && path.with_extension("pdb").is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn pairs_of_a_wheel_and_of_an_npm_package_agree() {
    if !have("llvm-symbolizer") || !have("llvm-undname") || !have("llvm-cxxfilt") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pip = "pip download --no-deps --only-binary=:all: --platform win_amd64 --python-version 3.11 debugpy==1.8.22";
    if have("pip") && have("unzip") && download("debugpy download", &format!("{pip} && unzip -q *.whl"), folder.path())
    {
        let pairs = pairs_below(folder.path());
        assert_eq!(pairs.len(), 6, "{pairs:?}");
        pairs.iter().for_each(|pair| check_pair(pair, 2500));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let npm = "npm pack node-pty@1.1.0 && tar -xzf *.tgz";
    if have("npm") && have("tar") && download("node-pty download", npm, folder.path()) {
        let pairs = pairs_below(folder.path());
        assert_eq!(pairs.len(), 10, "{pairs:?}");
        pairs.iter().for_each(|pair| check_pair(pair, 2500));
    }
}
