//! Streams of a PDB that are not what was written: what is lost is told, and none of it is taken for what a linker does.

use crate::support::lookup;
use std::path::Path;
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, PdbFile, functions, is_damaged_unit};

/// Streams with fixed numbers. (LLVM, "The PDB File Format")
const TYPES: usize = 2;
const IDS: usize = 4;

fn seed(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name)).expect("a seed")
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
}

/// Where the pages of each stream start. (LLVM, "The MSF File Format")
fn streams(pdb: &[u8]) -> Vec<Vec<usize>> {
    let page = word(pdb, 32);
    let pages = |bytes: usize| bytes.div_ceil(page);
    let map = word(pdb, 52) * page;
    let directory: Vec<u8> = (0..pages(word(pdb, 44)))
        .flat_map(|at| {
            let start = word(pdb, map + 4 * at) * page;
            pdb[start..start + page].to_vec()
        })
        .collect();
    let count = word(&directory, 0);
    let mut next = 4 + 4 * count;
    let mut stream = |number: usize| {
        let found = (0..pages(word(&directory, 4 + 4 * number))).map(|at| word(&directory, next + 4 * at) * page);
        let found: Vec<usize> = found.collect();
        next += 4 * found.len();
        found
    };
    (0..count).map(&mut stream).collect()
}

/// The number of the first stream that begins so.
fn beginning(pdb: &[u8], bytes: &[u8]) -> usize {
    let begins = |pages: &Vec<usize>| pages.first().is_some_and(|at| pdb[*at..].starts_with(bytes));
    streams(pdb).iter().position(begins).expect("a stream")
}

/// Each page of a stream filled with one byte.
fn filled(pdb: &[u8], stream: usize, byte: u8) -> Vec<u8> {
    let (page, mut filled) = (word(pdb, 32), pdb.to_vec());
    for start in &streams(pdb)[stream] {
        filled[*start..*start + page].fill(byte);
    }
    filled
}

fn stream(pe: &[u8], pdb: &[u8]) -> FunctionStream {
    let (object, pdb) = (ObjectFile::parse(pe).expect("a PE"), PdbFile::parse(pdb).expect("a PDB"));
    let found = functions(&object, &DebugFiles { pdb: Some(&pdb), ..DebugFiles::default() }).expect("functions");
    lookup::check_shape(&found);
    found
}

/// Looks for one reason, which has to be damage, with the stream full of ones and full of zeros.
fn check(number: impl Fn(&[u8]) -> usize, reason: &str, look: impl Fn(&FunctionStream)) {
    let (pe, pdb) = (seed("pe/x86_64"), seed("pdb/x86_64"));
    let whole = stream(&pe, &pdb);
    assert!(!whole.statistics.skipped.keys().any(|reason| is_damaged_unit(reason)), "{:?}", whole.statistics);
    for byte in [0xff, 0] {
        let damaged = stream(&pe, &filled(&pdb, number(&pdb), byte));
        let skipped = &damaged.statistics.skipped;
        assert!(skipped.contains_key(reason) && is_damaged_unit(reason), "{byte:#x}: {skipped:?}");
        look(&damaged);
    }
}

fn lines(stream: &FunctionStream) -> usize {
    stream.functions.iter().flat_map(|function| &function.rows).filter(|row| row.line != 0).count()
}

#[test]
fn names_of_files_that_are_lost_are_told_and_lines_stay() {
    let whole = lines(&stream(&seed("pe/x86_64"), &seed("pdb/x86_64")));
    let names = |pdb: &[u8]| beginning(pdb, &0xeffe_effe_u32.to_le_bytes());
    check(names, "source file outside of a PDB's lists of files and names", |damaged| {
        assert!(damaged.sources.is_empty());
        assert_eq!(lines(damaged), whole);
    });
}

#[test]
fn sections_that_are_not_the_images_are_told_and_nothing_was_dropped() {
    let headers = |pdb: &[u8]| beginning(pdb, b".text\0\0\0");
    for reason in [
        "section headers of a PDB that are not those of its PE file",
        "function outside of the code, as are all of the PDB",
    ] {
        check(headers, reason, |damaged| {
            let dropped = "function outside of the code (dropped by the linker)";
            assert!(!damaged.statistics.skipped.contains_key(dropped), "{:?}", damaged.statistics);
        });
    }
}

#[test]
fn ids_and_types_that_name_inlined_functions_are_missed() {
    check(|_| IDS, "damaged list of a PDB's ids", |_| ());
    check(|_| TYPES, "damaged list of a PDB's types", |_| ());
}

#[test]
fn symbols_and_lines_of_a_module_are_missed() {
    // The signature, and the symbol that has the object's name (`S_OBJNAME`).
    let module = |pdb: &[u8]| {
        let all = streams(pdb);
        let begins = |pages: &Vec<usize>| {
            pages.first().is_some_and(|at| word(pdb, *at) == 4 && pdb[*at + 6..*at + 8] == [0x01, 0x11])
        };
        all.iter().position(begins).expect("a module")
    };
    check(module, "damaged symbols of a PDB module", |_| ());
    check(module, "damaged lines of a PDB module", |_| ());
}
