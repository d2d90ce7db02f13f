//! Damaged Mach-O files: an error that says what was expected, or a stream with less in it; never a panic, never without
//! end.

use crate::support::macho_file::{BASE, Maker, TEXT, fat};
use crate::support::{Chance, fixtures, lookup};
use std::time::{Duration, Instant};
use symseal_artifact::{ArtifactError, DebugFiles, ObjectFile, ReleaseFile, functions};

/// What one file may take. A hundred times what is needed, as the machine may be busy.
const LONGEST: Duration = Duration::from_secs(20);

/// Small files of several kinds.
fn inputs() -> Vec<(String, Vec<u8>)> {
    let narrow = Maker { is_64: false, is_little: false, cpu: 18, ..Maker::default() }.make();
    let wide = Maker::default().make();
    let size = wide.len() as u64;
    let table = [(0x0100_0007, 3, 0x1000, size), (18, 3, 0x2000, narrow.len() as u64)];
    let both = fat(true, &table, &[(0x1000, &wide), (0x2000, &narrow)]);
    let mut inputs = vec![("narrow".to_owned(), narrow), ("wide".to_owned(), wide), ("universal".to_owned(), both)];
    if let Some(folder) = fixtures() {
        for name in [
            "emu/mac-arm64/fix",
            "emu/mac-x86_64/fix.dSYM/Contents/Resources/DWARF/fix",
            "mac-fat/fix.dSYM/Contents/Resources/DWARF/fix",
            "object-testfiles/macho/base-x86_64-debug.o",
            "object-testfiles/macho/libexports.dylib",
            "object-testfiles/macho/fixup-chains-armv7k.dylib",
            "object-testfiles/macho/static-x86",
        ] {
            inputs.push((name.to_owned(), std::fs::read(folder.join(name)).expect("a file")));
        }
    }
    inputs
}

/// Everything that the room does with a file.
fn exercise(name: &str, bytes: &[u8]) -> Result<u64, ArtifactError> {
    let start = Instant::now();
    let slices = match ReleaseFile::parse(bytes)? {
        ReleaseFile::Object(object) => vec![object],
        ReleaseFile::Fat(slices) => slices,
        _ => Vec::new(),
    };
    let mut skipped = 0;
    for slice in &slices {
        let _ = (slice.debug_info_kind(), slice.is_executable(), slice.is_debuginfo(), slice.is_stripped());
        let _ = (slice.object_map_count(), slice.go_build_id(), slice.has_encrypted_code(), slice.unwind_inputs());
        let _ = slice.build_paths();
        let stream = functions(slice, &DebugFiles::debug(Some(slice)))?;
        lookup::check_shape(&stream);
        skipped += stream.statistics.skipped.values().sum::<u64>();
    }
    assert!(start.elapsed() < LONGEST, "{name} took {:?}", start.elapsed());
    Ok(skipped)
}

#[test]
fn a_file_cut_anywhere_is_refused_with_what_was_expected_or_read_in_part() {
    let mut chance = Chance::new(3);
    for (name, bytes) in inputs() {
        exercise(&name, &bytes).expect("the whole file is fine");
        for _ in 0..60 {
            let length = chance.below(bytes.len() as u64) as usize;
            // The signature at the end, and padding, are nothing that is read.
            if let Err(error) = exercise(&name, &bytes[..length]) {
                assert!(error.to_string().contains("expected"), "{name} cut to {length} bytes: {error}");
            } else {
                assert!(length * 10 > bytes.len() * 5, "{name} of {} cut to {length} is read", bytes.len());
            }
        }
    }
}

#[test]
fn changed_bytes_do_no_harm() {
    let mut chance = Chance::new(5);
    let (mut refused, mut read) = (0, 0);
    for (name, bytes) in inputs() {
        for round in 0..200 {
            let mut changed = bytes.clone();
            // Headers, everything, and the tables at the end.
            let range = match round % 3 {
                0 => 0..bytes.len().min(0x1000),
                1 => 0..bytes.len(),
                _ => bytes.len() / 2..bytes.len(),
            };
            for _ in 0..1 + chance.below(1 << (round % 9)) {
                let at = range.start + chance.below(range.len() as u64) as usize;
                changed[at] = match chance.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => changed[at] ^ (1 << chance.below(8)),
                    _ => chance.next() as u8,
                };
            }
            match exercise(&name, &changed) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{refused} refused, {read} read");
    assert!(refused > 0 && read > 0);
}

/// A program with 200,000 symbols of two kinds in turn, which share one name of 4 MB.
fn sharing_one_name(kinds: [u8; 2]) -> Vec<u8> {
    let long: &'static str = Box::leak("x".repeat(4 << 20).into_boxed_str());
    let mut bytes = Maker { symbols: vec![(TEXT, 0x0f, 0, long)], ..Maker::default() }.make();
    let (table_at, count) = (bytes.len() as u32, 200_000_u32);
    for at in 0..count {
        let kind = kinds[at as usize % 2];
        bytes.extend(
            [&(1 + at).to_le_bytes()[..], &[kind, 1, 0, 0], &(TEXT + u64::from(at % 64)).to_le_bytes()].concat(),
        );
    }
    let symtab = bytes.windows(8).position(|window| window == [2, 0, 0, 0, 24, 0, 0, 0]).expect("LC_SYMTAB");
    bytes[symtab + 8..symtab + 12].copy_from_slice(&table_at.to_le_bytes());
    bytes[symtab + 12..symtab + 16].copy_from_slice(&count.to_le_bytes());
    bytes
}

#[test]
fn symbols_that_share_one_long_name_do_not_take_forever() {
    // Half of them undefined, whose names nobody needs: 200,000 times 4 MB would be 800 GB.
    let bytes = sharing_one_name([0x01, 0x0f]);
    let start = Instant::now();
    let object = ObjectFile::parse(&bytes).expect("a program");
    assert!(!object.is_stripped());
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    let names: usize = stream.functions.iter().map(|function| stream.strings.get(function.symbol).len()).sum();
    assert!(names < 100 * bytes.len() && object.image_base().0 == BASE);
    assert!(start.elapsed() < LONGEST, "{:?}", start.elapsed());
}

#[test]
fn a_debug_map_that_shares_one_long_name_does_not_take_forever() {
    // Object files and sources.
    let bytes = sharing_one_name([0x66, 0x64]);
    let start = Instant::now();
    let paths = ObjectFile::parse(&bytes).expect("a program").build_paths();
    assert!(paths.iter().map(String::len).sum::<usize>() < 3 * bytes.len());
    assert!(start.elapsed() < LONGEST, "{:?}", start.elapsed());
}
