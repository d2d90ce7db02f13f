//! Functions of Mach-O files: real inputs beside what llvm-symbolizer says of them.

use crate::support::compare::Comparison;
use crate::support::expected::{case_of, demangle, without_parentheses};
use crate::support::objdump::check_starts_and_exports;
use crate::support::slices::{dsym_of, slices_of};
use crate::support::{fixtures, have, lookup};
use symseal_artifact::{Arch, DebugFiles, FileKind, FunctionStream, ObjectFile, functions, sniff};

/// The functions of a slice, with those of its dSYM.
fn stream_of(slice: &ObjectFile<'_>, dsym: &[ObjectFile<'_>]) -> FunctionStream {
    let debug = dsym.iter().find(|debug| debug.debug_id() == slice.debug_id());
    assert_eq!(debug.is_some(), !dsym.is_empty());
    let stream = functions(slice, &DebugFiles::debug(debug)).expect("functions");
    lookup::check_shape(&stream);
    stream
}

#[test]
fn macho_fixtures_give_the_expected_frames() {
    let Some(folder) = fixtures() else { return };
    if !have("llvm-cxxfilt") {
        return;
    }
    let entries = std::fs::read_dir(folder.join("expected")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = paths.filter(|path| path.display().to_string().contains(".symbolizer.json")).collect();
    paths.sort();
    let mut all = Comparison::default();
    let (mut files, mut worse) = (0, Vec::new());
    for path in paths {
        let case = case_of(&path, without_parentheses);
        let binary = folder.join(&case.file);
        let bytes = std::fs::read(&binary).expect("the input");
        if !matches!(sniff(&bytes), FileKind::Macho | FileKind::MachoFat) {
            continue;
        }
        let dsym = dsym_of(&binary).map(|path| std::fs::read(path).expect("the dSYM"));
        let (slices, dsym) = (slices_of(&bytes), dsym.as_deref().map(slices_of).unwrap_or_default());
        // llvm-symbolizer was not told which slice: it took the host's, the first.
        let slice = slices.first().expect("a slice");
        let stream = stream_of(slice, &dsym);
        let mut found: Vec<_> = Vec::new();
        for (address, _) in &case.entries {
            found.push(lookup::frames(&stream, address.wrapping_sub(slice.image_base().0)));
        }
        demangle(&mut found, without_parentheses);
        let mut comparison = Comparison::default();
        for ((address, expected), found) in case.entries.iter().zip(&found) {
            comparison.add(*address, expected, found);
            all.add(*address, expected, found);
        }
        println!("{}: {:?} {:?}\n{comparison}", case.file, stream.statistics.functions, stream.statistics.skipped);
        let equal = comparison.depth_equal.min(comparison.lines_equal).min(comparison.names_equal);
        if equal * 1000 < comparison.compared * 995 {
            worse.push(format!("{}: {comparison}", case.file));
        }
        files += 1;
    }
    println!("{files} files: {all}");
    assert!(worse.is_empty(), "{}", worse.join("\n"));
    assert!(files > 0 && all.compared > 2000);
}

/// What Apple's tools call a slice of this processor.
fn apple_name(slice: &ObjectFile<'_>) -> &'static str {
    match slice.arch() {
        Arch::Aarch64 => "arm64",
        Arch::X86 => "i386",
        // The one fixture of this processor.
        Arch::Arm => "armv7k",
        other => other.code(),
    }
}

#[test]
fn function_starts_and_exports_of_fixtures_are_those_of_llvm_objdump() {
    let Some(folder) = fixtures() else { return };
    let manifest = std::fs::read(folder.join("MANIFEST.json")).expect("the manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    let mut slices = 0;
    for entry in manifest.as_array().expect("a list") {
        let path = folder.join(entry["file"].as_str().expect("a name"));
        let bytes = std::fs::read(&path).expect("an input");
        if !matches!(sniff(&bytes), FileKind::Macho | FileKind::MachoFat) {
            continue;
        }
        for slice in slices_of(&bytes) {
            if slice.is_executable() {
                check_starts_and_exports(&path, apple_name(&slice), &slice);
                slices += 1;
            }
        }
    }
    assert!(slices > 20, "{slices}");
}
