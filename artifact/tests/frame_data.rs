//! Frame data of PDBs, beside the `STACK WIN` records that other programs made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::msf::Pdb;
use crate::support::{Chance, fixtures};
use symseal_artifact::{FrameData, FrameKind, FrameRule, FrameTable, PdbFile};

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

fn ours(table: &FrameTable, frame: &FrameData) -> Record {
    let program = match frame.rule {
        FrameRule::Program(program) => words(table.program(program)),
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
        let table = PdbFile::parse(&bytes).expect("a PDB").frame_data().expect("streams");
        let frames = table.frames();
        assert!(frames.is_sorted_by_key(|frame| frame.rva), "{pdb}");
        if symbols.is_empty() {
            assert!(frames.len() > 200, "{pdb}: {}", frames.len());
            continue;
        }
        let found: BTreeSet<Record> = frames.iter().map(|frame| ours(&table, frame)).collect();
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

/// A record of the newer form: a stretch of code and the place of its program.
fn with_program(rva: u32, code_size: u32, program: usize) -> [u8; 32] {
    let mut record = [0; 32];
    for (at, value) in [(0, rva), (4, code_size), (20, program as u32)] {
        record[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    record
}

/// Reads the frames of a PDB whose size they must be in proportion to.
#[track_caller]
fn in_proportion(pdb: &Pdb) -> FrameTable {
    let bytes = pdb.write();
    let started = Instant::now();
    let table = PdbFile::parse(&bytes).expect("a PDB").frame_data().expect("streams");
    let took = started.elapsed();
    let mut programs = BTreeMap::new();
    let mut written_out = 0;
    for frame in table.frames() {
        if let FrameRule::Program(program) = frame.rule {
            let text = table.program(program);
            programs.insert(program, text.len());
            written_out += text.len();
        }
    }
    let held = programs.values().sum::<usize>();
    println!(
        "{} bytes, {} frames, {held} bytes of programs, {written_out} written out, {took:?}",
        bytes.len(),
        table.frames().len()
    );
    assert!(table.frames().len() <= bytes.len() / 8, "{}", table.frames().len());
    assert!(held <= bytes.len(), "{held}");
    assert!(written_out <= 8 * bytes.len(), "{written_out}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    table
}

#[test]
fn frames_that_name_one_long_program_a_hundred_thousand_times_are_read_in_proportion() {
    let names = [&[0], &[b'a'; 1000][..], &[0]].concat();
    let new_frames = (0..200_000).flat_map(|at| with_program(0x1000 + 16 * at, 16, 1)).collect();
    let table = in_proportion(&Pdb { names, new_frames, ..Pdb::default() });
    assert!(table.frames().len() > 10_000);
}

#[test]
fn programs_that_are_the_ends_of_each_other_are_read_in_proportion() {
    let names = [&[0][..], &[&[b'a'; 1000][..], &[0]].concat().repeat(1000)].concat();
    let new_frames = (0..1_000_000).flat_map(|at: u32| with_program(0x1000 + at, 1, 1 + at as usize)).collect();
    assert!(!in_proportion(&Pdb { names, new_frames, ..Pdb::default() }).frames().is_empty());
}

#[test]
fn a_text_without_an_end_is_not_looked_through_for_each_frame() {
    let names = vec![b'a'; 8 << 20];
    let new_frames = (0..1 << 20).flat_map(|at: u32| with_program(0x1000 + at, 1, at as usize)).collect();
    assert!(in_proportion(&Pdb { names, new_frames, ..Pdb::default() }).frames().is_empty());
}

#[test]
fn frames_over_all_of_code_that_was_taken_apart_are_read_in_proportion() {
    // Each stretch lies before the one that it followed.
    let moved: Vec<(u32, u32)> = (0..10_000).map(|at| (0x1000 + 16 * at, 0x100_0000 - 32 * at)).collect();
    let names = b"\0$T0 .raSearch =\0".to_vec();
    let new_frames = (0..10_000).flat_map(|at| with_program(0x1000, 160_000 - at, 1)).collect();
    let table = in_proportion(&Pdb { names, new_frames, moved, ..Pdb::default() });
    assert!(table.frames().len() >= 10_000);
}

#[test]
fn records_without_a_program_keep_their_kind_of_frame() {
    let record = |at: u32, bits: u16| {
        let words = [0x1000 + 16 * at, 16, 2].map(u32::to_le_bytes).concat();
        [&words[..], &1_u16.to_le_bytes(), &bits.to_le_bytes()].concat()
    };
    // cbProlog 5, cbRegs 2; fUseBP in the second one.
    let old_frames =
        [record(0, 0x0205), record(1, 0x1205), record(2, 0x4205), record(3, 0x8205), record(4, 0xc205)].concat();
    let bytes = Pdb { old_frames, ..Pdb::default() }.write();
    let table = PdbFile::parse(&bytes).expect("a PDB").frame_data().expect("streams");
    let rules: Vec<FrameRule> = table.frames().iter().map(|frame| frame.rule).collect();
    let of = |kind, uses_base_pointer| FrameRule::Sizes { kind, uses_base_pointer };
    let expected = [
        of(FrameKind::Fpo, false),
        of(FrameKind::Fpo, true),
        of(FrameKind::Trap, false),
        of(FrameKind::Tss, false),
        of(FrameKind::Standard, false),
    ];
    assert_eq!(rules, expected);
    let first = table.frames()[0];
    assert_eq!((first.rva, first.code_size, first.prolog_size, first.params_size), (0x1000, 16, 5, 4));
    assert_eq!((first.saved_size, first.locals_size), (8, 8));
}
