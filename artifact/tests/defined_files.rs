//! Files that the instructions of a line table define, as DWARF before version 5 allows.

use crate::support::lookup::{check_shape, frames};
use crate::support::{Chance, have, llvm_symbolizer, run};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use symseal_artifact::{DebugFiles, ObjectFile, functions, source_files};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/defined_files/program.s");

/// The program with tables of this version.
fn library(folder: &Path, version: u16) -> PathBuf {
    let define = format!("-Wa,--defsym,VERSION={version}");
    run("gcc", &["-shared", "-nostdlib", "-Wl,--build-id", &define, PROGRAM, "-o", "lib.so"], folder).expect("gcc");
    folder.join("lib.so")
}

/// Shows it with the tables of each version, where the machine can make it and has `oracle`.
fn with_each_version(oracle: &str, check: impl Fn(u16, &Path, &ObjectFile<'_>)) {
    if !have("gcc") || !have(oracle) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for version in 2..=4 {
        let library = library(folder.path(), version);
        let bytes = std::fs::read(&library).expect("the library");
        check(version, &library, &ObjectFile::parse(&bytes).expect("an object"));
    }
}

#[test]
fn rows_and_calls_of_files_that_instructions_define_have_their_paths() {
    with_each_version("llvm-symbolizer", |version, library, object| {
        let stream = functions(object, &DebugFiles::default()).expect("functions");
        let start = stream.functions.first().expect("a function").start.0;
        let addresses: Vec<u64> = (start..start + 4).collect();
        let theirs = llvm_symbolizer(library, &addresses);
        for (address, expected) in addresses.into_iter().zip(theirs) {
            let expected: Vec<_> = expected.into_iter().map(|frame| (frame.function, frame.file, frame.line)).collect();
            let found: Vec<_> =
                frames(&stream, address).into_iter().map(|frame| (frame.name, frame.file, frame.line)).collect();
            assert_eq!(found, expected, "version {version} at {address:#x}");
        }
        // Both are not silent together.
        let inlined = frames(&stream, start + 1);
        let files: Vec<&str> = inlined.iter().map(|frame| frame.file.as_str()).collect();
        assert_eq!(files, ["/build/include/made.h", "/build/call.h"], "version {version}");
        assert_eq!(stream.statistics.skipped.len(), 0, "{:?}", stream.statistics.skipped);
    });
}

#[test]
fn files_that_instructions_define_are_among_those_that_a_line_table_names() {
    with_each_version("readelf", |version, library, object| {
        let mut found = Vec::new();
        source_files(object, &DebugFiles::default(), &mut |path, checksum| {
            assert!(checksum.is_none());
            found.push(path.to_owned());
        })
        .expect("its files");
        let text =
            run("readelf", &["--debug-dump=rawline", "lib.so"], library.parent().expect("a folder")).expect("readelf");
        // Entry, directory, time, size, name.
        let mut entries = text.lines().filter_map(|line| {
            let mut fields = line.split_whitespace();
            let number = fields.next()?.parse::<u32>().ok()?;
            let name = fields.nth(3)?;
            (number > 0 && fields.next().is_none()).then(|| name.to_owned())
        });
        assert_eq!(entries.next().as_deref(), Some("main.c"), "{text}");
        let names: Vec<String> = entries.collect();
        assert_eq!(names, ["made.h", "/else/made.x", "call.h", "unused.h"], "{text}");
        let expected =
            ["/build/main.c", "/build/include/made.h", "/else/made.x", "/build/call.h", "/build/include/unused.h"];
        assert_eq!(found, expected, "version {version}");
        let texts = object.build_texts();
        let told: Vec<&String> = texts.debug_paths.iter().filter(|path| path.ends_with("unused.h")).collect();
        assert_eq!(told, ["/build/include/unused.h"], "version {version}");
    });
}

#[test]
fn changed_bytes_in_such_a_line_table_do_no_harm() {
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/elf_functions/defined-files");
    let bytes = std::fs::read(seed).expect("a seed");
    let name = b"made.h\0";
    let at = bytes.windows(name.len()).position(|window| window == name).expect("a definition");
    let mut chance = Chance::new(11);
    let mut most = 0;
    for _ in 0..3000 {
        let mut changed = bytes.clone();
        for _ in 0..1 + chance.below(4) {
            changed[at - 24 + chance.below(100) as usize] = chance.next() as u8;
        }
        let Ok(object) = ObjectFile::parse(&changed) else { continue };
        let mut named = 0;
        let _ = source_files(&object, &DebugFiles::default(), &mut |_, _| named += 1);
        most = most.max(named);
        if let Ok(stream) = functions(&object, &DebugFiles::default()) {
            check_shape(&stream);
        }
    }
    assert!((5..200).contains(&most), "{most} files");
}

/// Units that each name a file of one table, which defines it: the work is not that of the units times that of the table.
#[test]
fn many_units_that_share_a_table_of_many_definitions_are_read_in_proportion() {
    if !have("gcc") {
        return;
    }
    const MOST: Duration = Duration::from_secs(20);
    let folder = tempfile::tempdir().expect("a folder");
    let source = r#".text
f: .skip 20000, 0x90
.section .debug_abbrev, "", @progbits
.byte 1, 0x11, 1, 0x10, 0x17, 0x11, 0x01, 0x12, 0x01, 0, 0
.byte 2, 0x2e, 0, 0x03, 0x08, 0x3a, 0x05, 0x3b, 0x0b, 0x11, 0x01, 0x12, 0x01, 0, 0, 0
.section .debug_info, "", @progbits
.set at, 0
.rept 20000
.4byte 2f - 1f
1: .2byte 4
.4byte 0
.byte 8, 1
.4byte 0
.8byte f + at, f + at + 1
.byte 2
.asciz "f"
.2byte 50000
.byte 1
.8byte f + at, f + at + 1
.byte 0
2: .set at, at + 1
.endr
.section .debug_line, "", @progbits
.4byte 5f - 3f
3: .2byte 4
.4byte 4f - . - 4
.byte 1, 1, 1, -5, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0
4: .rept 60000
.byte 0, 7, 3, 'a', 'b', 0, 0, 0, 0
.endr
5:
"#;
    std::fs::write(folder.path().join("many.s"), source).expect("a source");
    let options = ["-shared", "-nostdlib", "-Wl,--build-id", "many.s", "-o", "many.so"];
    run("gcc", &options, folder.path()).expect("gcc");
    let bytes = std::fs::read(folder.path().join("many.so")).expect("the library");
    let started = Instant::now();
    let object = ObjectFile::parse(&bytes).expect("an object");
    let read = functions(&object, &DebugFiles::default()).map(|stream| stream.functions.len());
    let mut named = 0_u64;
    source_files(&object, &DebugFiles::default(), &mut |path, _| {
        assert_eq!(path, "ab");
        named += 1;
    })
    .expect("its files");
    let took = started.elapsed();
    assert_eq!(named, 60_000);
    assert!(took < MOST, "{took:?}, {read:?} functions");
}
