//! Libraries for macOS as their authors publish them on PyPI: stripped Rust, and C++ with its symbols.

use crate::support::accuracy::measure;
use crate::support::compare::Comparison;
use crate::support::downloads::{Download, KIWISOLVER, ORJSON_STRIPPED};
use crate::support::objdump::check_starts_and_exports;
use crate::support::{any_of, have, lookup, run, symbolizer};
use std::path::{Path, PathBuf};
use symseal_artifact::{Arch, ReleaseFile};
use symseal_symx::SymbolSource;

/// The library in a wheel, both slices of it; None, said out loud, where the wheel is not to be had.
fn library(folder: &Path, package: &Download, member: &str) -> Option<PathBuf> {
    let wheel = package.file()?;
    if !have("unzip") {
        return None;
    }
    run("unzip", &["-oq", &wheel.display().to_string()], folder).expect("unzip");
    Some(folder.join(member))
}

const SLICES: [(Arch, &str); 2] = [(Arch::X86_64, "x86_64"), (Arch::Aarch64, "arm64")];

#[test]
fn a_stripped_rust_library_has_function_starts_and_exports() {
    let folder = tempfile::tempdir().expect("a folder");
    let member = "orjson/orjson.cpython-311-darwin.so";
    let Some(path) = library(folder.path(), &ORJSON_STRIPPED, member) else { return };
    let bytes = std::fs::read(&path).expect("a library");
    let Ok(ReleaseFile::Fat(slices)) = ReleaseFile::parse(&bytes) else { panic!("a universal file") };
    assert_eq!(slices.len(), SLICES.len());
    for (slice, (arch, name)) in slices.iter().zip(SLICES) {
        assert_eq!(slice.arch(), arch);
        assert!(slice.is_stripped());
        let stream = check_starts_and_exports(&path, name, slice);
        assert!(stream.statistics.functions.get(&SymbolSource::FunctionStarts).is_some_and(|count| *count > 150));
        // Almost all of the code lies behind some function start, which names nothing.
        let bytes = |is_counted: fn(SymbolSource) -> bool| -> u64 {
            let counted = stream.functions.iter().filter(|function| is_counted(function.source));
            counted.map(|function| function.size).sum()
        };
        assert!(bytes(|_| true) * 100 > stream.statistics.text_bytes * 95);
        assert_eq!(stream.statistics.covered_bytes, bytes(|source| source != SymbolSource::FunctionStarts));
        assert!(stream.statistics.covered_bytes * 10 < stream.statistics.text_bytes, "{:?}", stream.statistics);
    }
}

#[test]
fn a_library_with_symbols_alone_agrees_with_llvm_symbolizer() {
    let Some(tool) = any_of(&["llvm-symbolizer-19", "llvm-symbolizer"]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let member = "kiwisolver/_cext.cpython-311-darwin.so";
    let Some(path) = library(folder.path(), &KIWISOLVER, member) else { return };
    let bytes = std::fs::read(&path).expect("a library");
    let Ok(ReleaseFile::Fat(slices)) = ReleaseFile::parse(&bytes) else { panic!("a universal file") };
    for (slice, (_, name)) in slices.iter().zip(SLICES) {
        let stream = check_starts_and_exports(&path, name, slice);
        let default = format!("--default-arch={name}");
        let measured = measure(&slice.unwind_inputs().text, |addresses| {
            let mut comparison = Comparison::default();
            for (address, expected) in addresses.iter().zip(symbolizer(tool, &[&default], &path, addresses)) {
                let found = lookup::frames(&stream, address - slice.image_base().0);
                if matches!(found.as_slice(), [only] if only.symbol.is_empty()) {
                    // LLVM does not read function starts: the symbol before reaches over it.
                    comparison.rule("(rule) a function start without a name ends the symbol before it");
                } else {
                    comparison.add(*address, &expected, &found);
                }
            }
            comparison
        });
        measured.print("macOS: symbols alone", &format!("kiwisolver 1.4.5 (PyPI), {name}"));
        println!("kiwisolver {name}: {}", measured.comparison);
        assert_eq!(measured.verdict(name), None);
    }
}
