//! Real inputs with expected frames that llvm-symbolizer 19 gave and addr2line does not contradict.

use crate::support::beside::companions;
use crate::support::compare::Comparison;
use crate::support::expected::{case_of, closed, demangle};
use crate::support::lookup::Found;
use crate::support::{Expected, fixtures, have, lookup};
use serde_json::Value;
use std::collections::BTreeMap;
use symseal_artifact::{DebugFiles, ObjectFile, functions};

/// Inputs whose expected frames were made without the files beside them: one frame for each address, of the function
/// that is called, with a line that may be that of the call.
const EXPECTED_ALONE: [&str; 3] = [
    "samply/fixtures/other/ls-linux/260a3e6e46db57abf718f6a3562c6eedccf269.debug",
    "samply/fixtures/other/simple-example/out/dwp-debuglink/main.dbg",
    "samply/fixtures/other/simple-example/out/with-dwo/main",
];

/// Made without the supplementary file, in which its compilation directory stands.
const WITHOUT_SUPPLEMENT: &str = "elfutils/tests/testfile_multi_main";

/// Objects with several executable sections, which LLVM lays over each other at 0: its names may be those of another
/// section. Where it has a line and we a function, ours must be the same; `relocatable.rs` asks section by section.
const OVERLAID: [&str; 6] = [
    "elf-var/split/fix4.o",
    "elf-var/split/fix5.o",
    "samply/fixtures/other/simple-example/out/with-dwo/file1.o",
    "samply/fixtures/other/simple-example/out/with-dwo/file2.o",
    "samply/fixtures/other/simple-example/out/with-dwo/file3.o",
    "samply/fixtures/other/simple-example/out/with-dwo/main.o",
];

/// The innermost position alone, under the expected name.
fn position_alone(found: &[Found], expected: &[Expected]) -> Vec<Found> {
    let (Some(inner), Some(first)) = (found.first(), expected.first()) else { return found.to_vec() };
    vec![Found { symbol: first.function.clone(), ..inner.clone() }]
}

/// The frames as one: the function that is called, at the line of the frame that the expected one is at.
fn without_inlined(found: &[Found], expected: &[Expected]) -> Vec<Found> {
    let (Some(outer), [only]) = (found.last(), expected) else { return found.to_vec() };
    let at = found.iter().find(|frame| frame.line == only.line).unwrap_or(outer);
    let Found { file, line, column, .. } = at.clone();
    vec![Found { file, line, column, ..outer.clone() }]
}

#[test]
fn fixtures_give_the_expected_frames() {
    let Some(folder) = fixtures() else { return };
    if !have("llvm-cxxfilt") {
        return;
    }
    let mut paths: Vec<_> = std::fs::read_dir(folder.join("expected"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.display().to_string().contains(".symbolizer.json"))
        .collect();
    paths.sort();
    let mut unsupported: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (mut files, mut entries, mut worse) = (0, 0, Vec::new());
    for path in paths {
        let case = case_of(&path, closed);
        let bytes = std::fs::read(folder.join(&case.file)).expect("the input");
        if !bytes.starts_with(b"\x7fELF") {
            unsupported.entry("not ELF").or_default().push(case.file);
            continue;
        }
        let object = ObjectFile::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", case.file));
        let (supplementary, split) = companions(&case.file);
        let supplementary = supplementary.filter(|_| case.file != WITHOUT_SUPPLEMENT);
        let read = |name: &&str| std::fs::read(folder.join(name)).expect("a companion");
        let (supplementary, split) = (supplementary.as_ref().map(read), split.iter().map(read).collect::<Vec<_>>());
        let parse = |bytes| ObjectFile::parse(bytes).expect("a companion");
        let supplementary = supplementary.as_deref().map(parse);
        let split: Vec<ObjectFile<'_>> = split.iter().map(|bytes| parse(bytes)).collect();
        let with = DebugFiles { supplementary: supplementary.as_ref(), split: &split, ..DebugFiles::default() };
        let stream = functions(&object, &with).unwrap_or_else(|error| panic!("{}: {error}", case.file));
        lookup::check_shape(&stream);
        let mut comparison = Comparison::default();
        let mut found: Vec<Vec<Found>> = Vec::new();
        for (address, _) in &case.entries {
            found.push(lookup::frames(&stream, address.wrapping_sub(object.image_base().0)));
        }
        demangle(&mut found, closed);
        for ((address, expected), found) in case.entries.iter().zip(&found) {
            if EXPECTED_ALONE.contains(&case.file.as_str()) {
                comparison.add(*address, expected, &without_inlined(found, expected));
                continue;
            }
            if OVERLAID.contains(&case.file.as_str()) {
                if let Some(first) = expected.first().filter(|first| first.line > 0 && !found.is_empty()) {
                    comparison.add(*address, std::slice::from_ref(first), &position_alone(found, expected));
                }
                continue;
            }
            comparison.add(*address, expected, found);
        }
        files += 1;
        entries += comparison.compared;
        println!("{}: {:?}\n{comparison}", case.file, stream.statistics.skipped);
        // One address of old aarch64 glibc is padding, to which LLVM extends a label without a size.
        let equal = comparison.depth_equal.min(comparison.lines_equal).min(comparison.names_equal);
        if equal * 100 < comparison.compared * 99 {
            worse.push(format!("{}: {comparison}", case.file));
        }
    }
    println!("{files} files and {entries} addresses agree; not read:");
    for (reason, files) in &unsupported {
        println!("  {reason}: {}", files.join(" "));
    }
    assert!(worse.is_empty(), "{}", worse.join("\n"));
    assert!(files > 0 && entries > 0);
}

#[test]
fn every_elf_fixture_is_identified_or_refused_with_a_reason() {
    let Some(folder) = fixtures() else { return };
    let manifest = std::fs::read(folder.join("MANIFEST.json")).expect("the manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    let (mut parsed, mut ids) = (0, 0);
    for entry in manifest.as_array().expect("a list") {
        let name = entry["file"].as_str().expect("a name");
        let bytes = std::fs::read(folder.join(name)).expect("the input");
        if !bytes.starts_with(b"\x7fELF") {
            continue;
        }
        match ObjectFile::parse(&bytes) {
            Ok(object) => {
                parsed += 1;
                let _ = object.unwind_inputs();
                let _ = object.debug_info_kind();
                if let Some(expected) = entry["ids"]["build_id"].as_str() {
                    ids += 1;
                    assert_eq!(object.debug_id().map(ToString::to_string).as_deref(), Some(expected), "{name}");
                }
            }
            Err(error) => println!("{name}: {error}"),
        }
    }
    println!("{parsed} ELF files read, {ids} build-ids as the manifest has them");
    assert!(parsed > 0 && ids > 0);
}
