//! Breakpad's symbol files, as other people's `dump_syms` wrote them.

use std::path::PathBuf;

use crate::support::expected::case_of;
use crate::support::lookup::{check_shape, frames};
use crate::support::{Chance, fixtures};
use symseal_artifact::BreakpadFile;
use symseal_module::Svma;
use symseal_symx::{Table, TableInput};

/// Symbol files of the lent inputs, and what llvm-symbolizer says of the file that each was made of, with its image base.
const PAIRS: [(&str, &str, u64); 5] = [
    ("dump_syms/test_data/linux/basic.full.inlines.sym", "dump_syms__test_data__linux__basic.full", 0),
    ("dump_syms/test_data/linux/basic.dwz.inlines.sym", "dump_syms__test_data__linux__basic.dwz", 0),
    ("dump_syms/test_data/linux/basic.full.sym", "dump_syms__test_data__linux__basic.full", 0),
    (
        "symbolic/symbolic-testutils/fixtures/macos/crash.inlines.sym",
        "symbolic__symbolic-testutils__fixtures__macos__crash.dSYM__Contents__Resources__DWARF__crash",
        0x1_0000_0000,
    ),
    (
        "symbolic/symbolic-testutils/fixtures/windows/CrashWithException.pdb.sym",
        "symbolic__symbolic-testutils__fixtures__windows__CrashWithException.exe",
        0x1_4000_0000,
    ),
];

#[test]
fn lines_and_inlined_calls_are_those_that_llvm_symbolizer_finds_in_the_module_itself() {
    let Some(folder) = fixtures() else { return };
    for (symbols, expected, base) in PAIRS {
        let bytes = std::fs::read(folder.join(symbols)).expect("a symbol file");
        let stream = BreakpadFile::parse(&bytes).expect("a head").functions();
        check_shape(&stream);
        let case = case_of(&folder.join(format!("expected/{expected}.symbolizer.json")), str::to_owned);
        let has_inlines = symbols.contains("inlines");
        let (mut same, mut compared) = (0, 0);
        for (address, wanted) in &case.entries {
            let found = frames(&stream, address - base);
            // Without inlined calls `dump_syms` writes the line of the function itself.
            let depth = if has_inlines { wanted.len() } else { 1 };
            let own = wanted.get(wanted.len() - depth..).unwrap_or_default();
            let expected: Vec<u64> = own.iter().map(|frame| frame.line).collect();
            // Code that the symbol file has no function of, and lines that a compiler made up.
            if found.is_empty()
                || found.iter().all(|frame| frame.line == 0)
                || wanted.iter().any(|frame| frame.line == 0)
            {
                continue;
            }
            compared += 1;
            let ours: Vec<u64> = found.iter().map(|frame| frame.line).collect();
            if ours == expected {
                same += 1;
            } else {
                println!("{symbols} {address:#x}: {ours:?}, expected {expected:?}");
            }
        }
        println!("{symbols}: {same} of {compared} addresses, {:?}", stream.statistics.skipped);
        assert!(compared > 30 && same == compared, "{symbols}: {same} of {compared}");
    }
}

fn all() -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = fixtures().into_iter().collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sym") {
                let bytes = std::fs::read(&path).expect("a file");
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

/// The table of a symbol file, if it has a head.
fn table(bytes: &[u8]) -> Option<Vec<u8>> {
    let file = BreakpadFile::parse(bytes).ok()?;
    let id = file.debug_id().ok()?;
    let stream = file.functions();
    let input = TableInput {
        debug_id: &id,
        image_base: Svma(0),
        source_sha256: [0; 32],
        producer: "test",
        strings: &stream.strings,
        functions: &stream.functions,
    };
    Some(symseal_symx::write(&input).expect("records in order"))
}

#[test]
fn every_lent_file_becomes_a_table_and_so_do_damaged_ones() {
    let mut chance = Chance::new(7);
    let mut tables = 0;
    for (path, bytes) in all() {
        let has_head = BreakpadFile::is_one(&bytes);
        let made = table(&bytes);
        if has_head && !path.ends_with("basic64-dwarf.sym") {
            let made = made.unwrap_or_else(|| panic!("{}", path.display()));
            Table::open(&made).expect("a table").verify().expect("a sound table");
            tables += 1;
        }
        // The beginning is enough to break.
        let beginning = bytes.get(..bytes.len().min(20_000)).unwrap_or_default();
        for _ in 0..60 {
            let mut damaged = beginning.to_vec();
            for _ in 0..1 + chance.below(20) {
                let at = usize::try_from(chance.below(damaged.len() as u64)).expect("a place");
                let byte = b"0123456789abcdefF mFUNC\n-\xff"[chance.below(26) as usize];
                damaged[at] = byte;
            }
            if let Some(made) = table(&damaged) {
                Table::open(&made).expect("a table").verify().expect("a sound table");
            }
        }
    }
    assert!(fixtures().is_none() || tables > 14, "{tables} tables");
}

#[test]
fn what_overlaps_is_cut_and_public_symbols_fill_the_gaps() {
    let text = "MODULE Linux x86_64 20AD60B0B4C68177552708AA192E77390 a\n\
        FILE 1 a.c\nINLINE_ORIGIN 0 inner\n\
        FUNC 1000 40 0 first\nINLINE 0 7 1 0 1010 10\n1000 10 5 1\n1010 10 9 1\n1020 20 6 1\n\
        FUNC 1030 10 0 second\n1030 10 20 1\n\
        FUNC 1030 10 0 again\n\
        PUBLIC 1000 0 alias\nPUBLIC 1008 0 within\nPUBLIC 2000 0 public\nPUBLIC 3000 0 last\n";
    let stream = BreakpadFile::parse(text.as_bytes()).expect("a head").functions();
    check_shape(&stream);
    let told = |rva: u64| -> Vec<(String, u64)> {
        frames(&stream, rva).into_iter().map(|frame| (frame.name, frame.line)).collect()
    };
    let named = |name: &str, line: u64| (name.to_owned(), line);
    assert_eq!(told(0x1000), [named("first", 5)]);
    assert_eq!(told(0x1018), [named("inner", 9), named("first", 7)]);
    assert_eq!(told(0x102f), [named("first", 6)]);
    assert_eq!(told(0x1030), [named("second", 20)]);
    assert_eq!(told(0x1040), []);
    assert_eq!(told(0x2fff), [named("public", 0)]);
    assert_eq!((told(0x3fff), told(0x4000)), (vec![named("last", 0)], vec![]));
    assert_eq!(frames(&stream, 0x1000)[0].aliases, ["alias"]);
    let skipped: u64 = stream.statistics.skipped.values().sum();
    assert_eq!(skipped, 3, "{:?}", stream.statistics.skipped);
}
