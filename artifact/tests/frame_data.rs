//! Frame data of PDBs, beside the `STACK WIN` records that other programs made of them.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use support::{Chance, fixtures};
use symseal_artifact::{FrameData, FrameRule, PdbFile};

/// A PDB and the symbol file that was made of it.
const PAIRS: [(&str, &str); 5] = [
    ("dump_syms/test_data/windows/basic32-min.pdb", "dump_syms/test_data/windows/basic32-min.sym"),
    (
        "symbolic/symbolic-testutils/fixtures/windows/crash.pdb",
        "symbolic/symbolic-testutils/fixtures/windows/crash.sym",
    ),
    (
        "breakpad/src/tools/windows/dump_syms/testdata/dump_syms_regtest.pdb",
        "breakpad/src/tools/windows/dump_syms/testdata/dump_syms_regtest.sym",
    ),
    (
        "breakpad/src/tools/windows/dump_syms/testdata/omap_stretched.pdb",
        "breakpad/src/tools/windows/dump_syms/testdata/omap_stretched.sym",
    ),
    ("npm-pypi-msvc/attach_x86.pdb", ""),
];

/// Address, size, parameters, saved registers, locals, and the program's words.
type Record = (u32, u32, u32, u32, u32, Vec<String>);

fn words(program: &str) -> Vec<String> {
    program.split_whitespace().map(str::to_owned).collect()
}

fn ours(frame: &FrameData) -> Record {
    let program = match &frame.rule {
        FrameRule::Program(program) => words(program),
        FrameRule::Sizes { .. } => Vec::new(),
    };
    (frame.rva, frame.code_size, frame.params_size, frame.saved_size, frame.locals_size, program)
}

/// The `STACK WIN` records of a symbol file.
fn theirs(text: &str) -> BTreeSet<Record> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.strip_prefix("STACK WIN ")?.splitn(11, ' ').collect();
        let number = |at: usize| u32::from_str_radix(fields[at], 16).expect("a number");
        let program = if fields[9] == "1" { words(fields[10]) } else { Vec::new() };
        Some((number(1), number(2), number(5), number(6), number(7), program))
    };
    text.lines().filter_map(read).collect()
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).expect("a file")
}

#[test]
fn frame_data_is_what_dump_syms_and_breakpad_made_records_of() {
    let Some(folder) = fixtures() else { return };
    for (pdb, symbols) in PAIRS {
        let bytes = read(&folder, pdb);
        let frames = PdbFile::parse(&bytes).expect("a PDB").frame_data().expect("streams");
        assert!(frames.is_sorted_by_key(|frame| frame.rva), "{pdb}");
        if symbols.is_empty() {
            assert!(frames.len() > 200, "{pdb}: {}", frames.len());
            continue;
        }
        let found: BTreeSet<Record> = frames.iter().map(ours).collect();
        let expected = theirs(&String::from_utf8_lossy(&read(&folder, symbols)));
        // Where a tool moved code, Breakpad takes stretches apart that we have in one.
        let holds = |ours: &Record, theirs: &Record| {
            let is_same = (&ours.2, &ours.3, &ours.4, &ours.5) == (&theirs.2, &theirs.3, &theirs.4, &theirs.5);
            is_same && ours.0 <= theirs.0 && theirs.0 + theirs.1 <= ours.0 + ours.1
        };
        let missing: Vec<&Record> =
            expected.iter().filter(|theirs| !found.iter().any(|ours| holds(ours, theirs))).collect();
        let more: Vec<&Record> = found.difference(&expected).collect();
        println!("{pdb}: {} records, {} missing, {} more", expected.len(), missing.len(), more.len());
        missing.iter().take(8).for_each(|record| println!("  missing {record:x?}"));
        more.iter().take(8).for_each(|record| println!("  more {record:x?}"));
        assert!(!expected.is_empty());
        let allowed = if pdb.contains("omap") { expected.len() / 100 } else { 0 };
        assert!(missing.len() <= allowed, "{pdb}");
        // Both programs leave out some records of a few bytes.
        assert!(pdb.contains("omap") || more.len() * 50 <= expected.len(), "{pdb}");
    }
}

#[test]
fn damaged_frame_data_gives_fewer_records() {
    let Some(folder) = fixtures() else { return };
    let bytes = read(&folder, "symbolic/symbolic-testutils/fixtures/windows/crash.pdb");
    let mut chance = Chance::new(11);
    for _ in 0..200 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + chance.below(64) {
            let at = usize::try_from(chance.below(damaged.len() as u64)).expect("a place");
            damaged[at] = chance.next() as u8;
        }
        if let Ok(pdb) = PdbFile::parse(&damaged) {
            let _ = pdb.frame_data();
        }
    }
}
