//! Damaged PE files, PDBs and portable PDBs: an error that says what was expected, or a stream with less in it; never a
//! panic, never without end.

use crate::support::{Chance, fixtures, lookup};
use std::path::Path;
use std::time::{Duration, Instant};
use symseal_artifact::{
    ArtifactError, DebugFiles, FunctionStream, ObjectFile, ReleaseFile, functions, is_damaged_unit, pdb_functions,
};

/// What one file may take. A hundred times what is needed, as the machine may be busy.
const LONGEST: Duration = Duration::from_secs(20);

/// The seeds of the fuzz targets, which stand in the tree, and real files where there are any.
fn inputs() -> Vec<(String, Vec<u8>)> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut inputs = Vec::new();
    for kind in ["pe", "pdb"] {
        for entry in std::fs::read_dir(seeds.join(kind)).expect("seeds") {
            let path = entry.expect("an entry").path();
            inputs.push((path.display().to_string(), std::fs::read(&path).expect("a seed")));
        }
    }
    if let Some(fixtures) = fixtures() {
        for name in ["emu/win-arm64/fix.dll", "emu/win-arm64/fix.pdb", "wine-win64/walk.pdb"] {
            inputs.push((name.to_owned(), std::fs::read(fixtures.join(name)).expect("a file")));
        }
    }
    inputs.sort();
    inputs
}

/// Everything that the room does with a file.
fn exercise(name: &str, bytes: &[u8]) -> Result<u64, ArtifactError> {
    let start = Instant::now();
    let stream = match ReleaseFile::parse(bytes)? {
        ReleaseFile::Object(object) => {
            let _ = (object.debug_info_kind(), object.code_id(), object.pdb_reference(), object.unwind_inputs());
            let _ = object.build_paths();
            functions(&object, &DebugFiles::default())?
        }
        ReleaseFile::Pdb(pdb) => {
            let _ = (pdb.debug_id(), pdb.arch(), pdb.is_stripped());
            pdb_functions(&pdb)?
        }
        _ => return Ok(0),
    };
    lookup::check_shape(&stream);
    assert!(start.elapsed() < LONGEST, "{name} took {:?}", start.elapsed());
    Ok(stream.statistics.skipped.values().sum())
}

#[test]
fn a_file_cut_anywhere_is_refused_with_what_was_expected() {
    let mut chance = Chance::new(3);
    for (name, bytes) in inputs() {
        exercise(&name, &bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        // Behind the last section of a PE file there may be a symbol table that nothing needs.
        let needed = if bytes.starts_with(b"MZ") { bytes.len() / 2 } else { bytes.len() };
        for _ in 0..100 {
            let length = chance.below(needed as u64) as usize;
            let error = exercise(&name, &bytes[..length]).expect_err("a file cut short").to_string();
            assert!(error.contains("expected"), "{name} cut to {length} bytes: {error}");
        }
    }
}

#[test]
fn changed_bytes_do_no_harm() {
    let mut chance = Chance::new(5);
    let (mut refused, mut read) = (0, 0);
    for (name, bytes) in inputs() {
        for round in 0..400 {
            let mut changed = bytes.clone();
            // Few changes get deep into a file, many try its headers.
            let start = if round % 3 == 0 { 0 } else { bytes.len() / 8 };
            for _ in 0..1 + chance.below(1 << (round % 9)) {
                let at = start + chance.below((bytes.len() - start) as u64) as usize;
                changed[at] = match chance.below(5) {
                    0 => 0,
                    1 => 0xff,
                    2 => changed[at] ^ (1 << chance.below(8)),
                    3 => changed[at].wrapping_add(1),
                    _ => chance.next() as u8,
                };
            }
            match exercise(&name, &changed) {
                Ok(_) => read += 1,
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("expected"), "{name}: {error}");
                }
            }
        }
    }
    println!("{read} changed files were read, {refused} refused");
}

/// Where a page of the seed's container stands, by its bytes.
fn place(bytes: &[u8], content: &[u8]) -> usize {
    bytes.windows(content.len()).position(|window| window == content).expect("the bytes")
}

#[test]
fn a_stream_that_claims_pages_again_and_again_does_not_fill_the_memory() {
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/pdb/x86_64");
    let mut bytes = std::fs::read(seed).expect("a seed");
    // The first size in the directory that stands for the info stream becomes almost 4 GiB.
    let map = u32::from_le_bytes(bytes[52..56].try_into().expect("4 bytes")) as usize * 512;
    let directory = u32::from_le_bytes(bytes[map..map + 4].try_into().expect("4 bytes")) as usize * 512;
    bytes[directory + 8..directory + 12].copy_from_slice(&0xffff_fe00_u32.to_le_bytes());
    let error = exercise("a huge stream", &bytes).expect_err("no such stream").to_string();
    assert!(error.contains("PDB info stream") && error.contains("expected"), "{error}");
}

#[test]
fn a_function_that_is_inlined_in_itself_ends() {
    // An id whose scope is the id itself.
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/pdb/x86_64");
    let mut bytes = std::fs::read(seed).expect("a seed");
    let name = place(&bytes, b"thrice\0");
    // Kind, scope, type and name: the scope is 8 bytes before the name.
    for id in 0x1000_u32..0x1020 {
        bytes[name - 8..name - 4].copy_from_slice(&id.to_le_bytes());
        exercise("a scope in itself", &bytes).expect("functions");
    }
}

#[test]
fn a_symbol_whose_end_is_not_known_costs_the_rest_of_its_module_which_is_told() {
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/pdb/x86_64");
    let mut bytes = std::fs::read(seed).expect("a seed");
    let stream = |bytes: &[u8]| {
        let Ok(ReleaseFile::Pdb(pdb)) = ReleaseFile::parse(bytes) else { panic!("a PDB") };
        pdb_functions(&pdb).expect("functions")
    };
    let whole = stream(&bytes);
    assert!(!whole.statistics.skipped.keys().any(|reason| is_damaged_unit(reason)));
    // The length of the first procedure's record (S_GPROC32), whose name is 39 bytes behind it.
    let is_procedure = |at: &usize| bytes[at + 2..at + 4] == [0x10, 0x11] && bytes[at + 39].is_ascii_lowercase();
    let at = (0..bytes.len() - 64).step_by(4).find(is_procedure).expect("a procedure");
    bytes[at..at + 2].copy_from_slice(&0xfffe_u16.to_le_bytes());
    let cut = stream(&bytes);
    // Public symbols name some of the others, and do not say where they end.
    let sized = |stream: &FunctionStream| stream.functions.iter().filter(|found| !found.flags.approximate).count();
    assert!(sized(&cut) < sized(&whole));
    assert_eq!(cut.statistics.skipped["rest of a PDB module, behind a damaged symbol"], 1);
    assert!(cut.statistics.skipped.keys().any(|reason| is_damaged_unit(reason)));
}

#[test]
fn a_pdb_of_another_file_is_refused_with_both_ids() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let read = |name: &str| std::fs::read(seeds.join(name)).expect("a seed");
    let (dll, pdb, other) = (read("pe/x86_64"), read("pdb/x86_64"), read("pdb/i686"));
    let object = ObjectFile::parse(&dll).expect("a PE");
    let with = |bytes: &[u8]| {
        let Ok(ReleaseFile::Pdb(pdb)) = ReleaseFile::parse(bytes) else { panic!("a PDB") };
        let id = pdb.debug_id().to_string();
        (functions(&object, &DebugFiles { pdb: Some(&pdb), ..DebugFiles::default() }).map(|_| ()), id)
    };
    with(&pdb).0.expect("its own");
    let (error, id) = with(&other);
    let error = error.expect_err("another's").to_string();
    assert!(error.contains(&object.debug_id().expect("an id").to_string()) && error.contains(&id), "{error}");
    let gnu = read("pe/mingw");
    let object = ObjectFile::parse(&gnu).expect("a PE");
    if object.pdb_reference().is_none() {
        let Ok(ReleaseFile::Pdb(pdb)) = ReleaseFile::parse(&pdb) else { panic!("a PDB") };
        let with = DebugFiles { pdb: Some(&pdb), ..DebugFiles::default() };
        assert!(functions(&object, &with).expect_err("none is named").to_string().contains("names none"));
    }
}
