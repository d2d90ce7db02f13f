//! Function starts and exports of Mach-O files as llvm-objdump lists them.

use super::{any_of, lookup, run};
use std::path::Path;
use symseal_artifact::{Arch, DebugFiles, FunctionStream, ObjectFile, functions};

/// `llvm-objdump --macho --function-starts`: an address of 16 digits on each line.
fn objdump_starts(path: &Path, arch: &str) -> Option<Vec<u64>> {
    let tool = any_of(&["llvm-objdump-19", "llvm-objdump"])?;
    let text =
        run(tool, &["--macho", "--arch", arch, "--function-starts", &path.display().to_string()], Path::new("."))?;
    Some(text.lines().filter_map(|line| u64::from_str_radix(line.trim(), 16).ok()).collect())
}

/// `llvm-objdump --macho --exports-trie`: `0x100003F50  _main` on each line; none where they say more than an address.
fn objdump_exports(path: &Path, arch: &str) -> Option<Vec<(u64, String)>> {
    let tool = any_of(&["llvm-objdump-19", "llvm-objdump"])?;
    let text = run(tool, &["--macho", "--arch", arch, "--exports-trie", &path.display().to_string()], Path::new("."))?;
    let exports = text.lines().filter_map(|line| {
        let (address, name) = line.trim().split_once("  ")?;
        let name = name.strip_prefix('_')?.split_whitespace().next()?;
        Some((u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?, name.to_owned()))
    });
    Some(exports.collect())
}

/// What a stripped library tells: each function start begins a record, each export of code names one.
#[track_caller]
pub(crate) fn check_starts_and_exports(path: &Path, arch: &str, slice: &ObjectFile<'_>) -> FunctionStream {
    let stream = functions(slice, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    let text = slice.unwind_inputs().text;
    let in_code = |address: &u64| text.iter().any(|range| range.contains(address));
    let record = |address: u64| {
        let rva = address - slice.image_base().0;
        let at = stream.functions.binary_search_by_key(&rva, |function| function.start.0);
        stream.functions.get(at.ok()?)
    };
    let mut starts = objdump_starts(path, arch).unwrap_or_default();
    if slice.arch() == Arch::Arm {
        // llvm-objdump leaves bit 0, which says Thumb.
        starts.iter_mut().for_each(|start| *start &= !1);
    }
    for start in starts.iter().filter(|start| in_code(start)) {
        assert!(record(*start).is_some(), "{}: no record at {start:#x}", path.display());
    }
    let exports = objdump_exports(path, arch).unwrap_or_default();
    let mut named = 0;
    for (address, name) in exports.iter().filter(|(address, _)| in_code(address)) {
        let record = record(*address).unwrap_or_else(|| panic!("{}: no record at {address:#x}", path.display()));
        let mut names = std::iter::once(&record.symbol).chain(&record.aliases);
        assert!(names.any(|id| stream.strings.get(*id) == name), "{}: {name} is not at {address:#x}", path.display());
        named += 1;
    }
    println!(
        "{} {arch}: {} function starts, {named} of {} exports in code; {:?}, {} of {} bytes covered",
        path.display(),
        starts.len(),
        exports.len(),
        stream.statistics.functions,
        stream.statistics.covered_bytes,
        stream.statistics.text_bytes
    );
    stream
}
