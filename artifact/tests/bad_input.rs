//! Damaged files: an error that says what was expected, or a stream with less in it; never a panic, never without end.

use crate::support::{Chance, fixtures, have, lookup, run};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use symseal_artifact::{ArtifactError, DebugFiles, ObjectFile, functions};

const SOURCE: &str = r#"
#include <vector>
namespace a { struct B { int c(int x); }; int B::c(int x) { return x ? x * 2 : -1; } }
template <typename T> T sum(const std::vector<T> &all) { T total = 0; for (T x : all) total += x; return total; }
int main(int argc, char **) { a::B b; std::vector<int> v(argc); return b.c(argc) + sum(v); }
"#;

/// What one file may take. A hundred times what is needed, as the machine may be busy.
const LONGEST: Duration = Duration::from_secs(20);

/// Small files of several kinds.
fn inputs(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut inputs = Vec::new();
    if have("g++") {
        std::fs::write(folder.join("main.cpp"), SOURCE).expect("a source");
        for (name, flags) in [
            ("dwarf5", &["-O2", "-gdwarf-5"][..]),
            ("dwarf4", &["-O2", "-gdwarf-4"]),
            ("zlib", &["-O2", "-g", "-gz=zlib"]),
            ("sections", &["-O1", "-gdwarf-5", "-ffunction-sections", "-Wl,--build-id=none"]),
        ] {
            let mut arguments = vec!["main.cpp", "-o", name];
            arguments.extend(flags);
            if run("g++", &arguments, folder).is_some() {
                inputs.push((name.to_owned(), std::fs::read(folder.join(name)).expect("a file")));
            }
        }
    }
    if let Some(fixtures) = fixtures() {
        for name in
            ["elf-var/gz-zstd", "elf-var/dwarf2", "elf-var/a1.debug", "elf-var/split/split5", "emu/elf-arm64/fix"]
        {
            let path: PathBuf = fixtures.join(name);
            inputs.push((name.to_owned(), std::fs::read(path).expect("a file")));
        }
    }
    if inputs.is_empty() {
        let own = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
        inputs.push(("this test".to_owned(), own));
    }
    inputs
}

/// Everything that the room does with a file.
fn exercise(name: &str, bytes: &[u8]) -> Result<u64, ArtifactError> {
    let start = Instant::now();
    let object = ObjectFile::parse(bytes)?;
    let _ =
        (object.debug_info_kind(), object.has_inline_debugger_scripts(), object.is_executable(), object.is_debuginfo());
    let _ = (object.debug_link(), object.debug_alt_link(), object.unwind_inputs());
    let stream = functions(&object, &DebugFiles::default())?;
    lookup::check_shape(&stream);
    assert!(start.elapsed() < LONGEST, "{name} took {:?}", start.elapsed());
    Ok(stream.statistics.skipped.values().sum())
}

#[test]
fn a_file_cut_anywhere_is_refused_with_what_was_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut chance = Chance::new(3);
    for (name, bytes) in inputs(folder.path()) {
        exercise(&name, &bytes).expect("the whole file is fine");
        for _ in 0..60 {
            let length = chance.below(bytes.len() as u64) as usize;
            let error = exercise(&name, &bytes[..length]).expect_err("a file cut short").to_string();
            assert!(error.contains("expected"), "{name} cut to {length} bytes: {error}");
        }
    }
}

#[test]
fn a_cut_file_names_the_part_and_the_size() {
    let own = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
    let error = ObjectFile::parse(&own[..own.len() - 1]).expect_err("cut short").to_string();
    assert!(
        error.contains("section header table") && error.contains(&format!("{:#x} bytes", own.len() - 1)),
        "{error}"
    );
    let error = ObjectFile::parse(&own[..40]).expect_err("cut short").to_string();
    assert!(error.contains("ELF header"), "{error}");
}

#[test]
fn what_is_no_object_file_is_called_by_its_name() {
    for (bytes, expected) in [
        (&b""[..], "an empty file"),
        (b"!<arch>\n", "ar archive"),
        (b"#!/bin/sh\n", "script"),
        (b"hello", "68 65 6c 6c"),
        (b"\x7fEL", "7f 45 4c"),
    ] {
        let error = ObjectFile::parse(bytes).expect_err("no object file").to_string();
        assert!(error.contains("expected an ELF, PE, PDB or Mach-O file") && error.contains(expected), "{error}");
    }
}

#[test]
fn changed_bytes_do_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut chance = Chance::new(5);
    let (mut refused, mut read) = (0, 0);
    for (name, bytes) in inputs(folder.path()) {
        for round in 0..150 {
            let mut changed = bytes.clone();
            // Few changes get deep into a file, many try its headers.
            let start = if round % 3 == 0 { 0 } else { bytes.len() / 4 };
            for _ in 0..1 + chance.below(1 << (round % 9)) {
                let at = start + chance.below((bytes.len() - start) as u64) as usize;
                changed[at] = match chance.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => changed[at] ^ (1 << chance.below(8)),
                    _ => chance.next() as u8,
                };
            }
            match exercise(&name, &changed) {
                Ok(_) => read += 1,
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("expected"), "{error}");
                }
            }
        }
    }
    println!("{read} changed files were read, {refused} refused");
}

/// An ELF file of 64 bits with one section of that name, flags and content.
fn with_section(name: &str, flags: u64, content: &[u8]) -> Vec<u8> {
    let names = format!("\0{name}\0.shstrtab\0").into_bytes();
    let mut file = vec![0_u8; 64];
    file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    file[16] = 3;
    file[18] = 62;
    file[58] = 64;
    file[60] = 3;
    file[62] = 2;
    let content_at = file.len() as u64;
    file.extend(content);
    let names_at = file.len() as u64;
    file.extend(&names);
    let table = file.len() as u64;
    file[40..48].copy_from_slice(&table.to_le_bytes());
    let mut header = |name: u32, kind: u32, flags: u64, at: u64, size: u64| {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        for value in [flags, 0, at, size, 0, 1, 0] {
            file.extend(value.to_le_bytes());
        }
    };
    header(0, 0, 0, 0, 0);
    header(1, 1, flags, content_at, content.len() as u64);
    header(name.len() as u32 + 2, 3, 0, names_at, names.len() as u64);
    file
}

#[test]
fn a_section_that_claims_to_be_huge_is_not_believed() {
    const SHF_COMPRESSED: u64 = 0x800;
    for kind in [1_u32, 2] {
        let mut content = Vec::new();
        content.extend(kind.to_le_bytes());
        content.extend([0; 4]);
        content.extend((1_u64 << 46).to_le_bytes());
        content.extend([1; 8]);
        content.extend([0x55; 40]);
        let file = with_section(".debug_info", SHF_COMPRESSED, &content);
        let object = ObjectFile::parse(&file).expect("headers are fine");
        let stream = functions(&object, &DebugFiles::default()).expect("functions");
        assert_eq!(stream.statistics.skipped.len(), 1, "{:?}", stream.statistics);
    }
    let mut old = b"ZLIB".to_vec();
    old.extend((1_u64 << 46).to_be_bytes());
    let file = with_section(".zdebug_info", 0, &old);
    let stream = functions(&ObjectFile::parse(&file).expect("headers"), &DebugFiles::default()).expect("functions");
    assert_eq!(stream.statistics.skipped.len(), 1);
}

/// A loaded file with code and many symbols that all name parts of one long text.
fn with_long_names(count: u64, length: usize) -> Vec<u8> {
    let mut file = vec![0_u8; 64];
    file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    file[16] = 3;
    file[18] = 62;
    file[58] = 64;
    file[60] = 4;
    let symbols_at = file.len() as u64;
    for number in 0..count {
        // Each name is one byte shorter than the one before.
        file.extend((number as u32 + 1).to_le_bytes());
        file.extend([0x12, 0, 1, 0]);
        file.extend((0x1000 + number * 16).to_le_bytes());
        file.extend(16_u64.to_le_bytes());
    }
    let names_at = file.len() as u64;
    file.push(0);
    file.extend(std::iter::repeat_n(b'a', length));
    file.push(0);
    let table = file.len() as u64;
    file[40..48].copy_from_slice(&table.to_le_bytes());
    let mut header = |kind: u32, flags: u64, address: u64, at: u64, size: u64, link: u32, entry: u64| {
        file.extend(0_u32.to_le_bytes());
        file.extend(kind.to_le_bytes());
        for value in [flags, address, at, size] {
            file.extend(value.to_le_bytes());
        }
        file.extend(link.to_le_bytes());
        file.extend(0_u32.to_le_bytes());
        file.extend(1_u64.to_le_bytes());
        file.extend(entry.to_le_bytes());
    };
    header(0, 0, 0, 0, 0, 0, 0);
    header(8, 6, 0x1000, 0, count * 16, 0, 0);
    header(2, 0, 0, symbols_at, count * 24, 3, 24);
    header(3, 0, 0, names_at, length as u64 + 2, 0, 0);
    file
}

#[test]
fn names_that_share_one_long_text_do_not_fill_the_memory() {
    // 10,000 names of up to 500 kB would be 5 GB.
    let file = with_long_names(10_000, 500_000);
    let start = Instant::now();
    let stream = functions(&ObjectFile::parse(&file).expect("headers"), &DebugFiles::default()).expect("functions");
    let bytes: usize = stream.functions.iter().map(|function| stream.strings.get(function.symbol).len()).sum();
    assert!(bytes < 100 * file.len(), "{bytes} bytes of names from {}", file.len());
    assert_eq!(stream.statistics.skipped.get("symbol beyond the work limit"), Some(&1));
    assert!(start.elapsed() < LONGEST);
}

/// Found by fuzzing: the map of named streams says where a name begins, far behind all of them.
#[test]
fn a_stream_of_a_program_database_whose_name_is_not_there_has_none() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/pdb/name_beyond_the_texts");
    let bytes = std::fs::read(path).expect("a seed");
    let texts = symseal_artifact::PdbFile::parse(&bytes).expect("a PDB").build_texts();
    assert!(texts.embedded_sources.is_empty() && texts.source_links.is_empty(), "{texts:?}");
}
