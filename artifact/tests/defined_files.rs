//! Files that the instructions of a line table define, as DWARF before version 5 allows.

use crate::support::lookup::frames;
use crate::support::{have, llvm_symbolizer, run};
use std::path::{Path, PathBuf};
use symseal_artifact::{DebugFiles, ObjectFile, functions, source_files};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/defined_files/program.s");

/// The program with tables of this version, and where its function begins.
fn library(folder: &Path, version: u16) -> PathBuf {
    let define = format!("-Wa,--defsym,VERSION={version}");
    run("gcc", &["-shared", "-nostdlib", "-Wl,--build-id", &define, PROGRAM, "-o", "lib.so"], folder).expect("gcc");
    folder.join("lib.so")
}

#[test]
fn rows_and_calls_of_files_that_instructions_define_have_their_paths() {
    if !have("gcc") || !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for version in 2..=4 {
        let library = library(folder.path(), version);
        let bytes = std::fs::read(&library).expect("the library");
        let object = ObjectFile::parse(&bytes).expect("an object");
        let stream = functions(&object, &DebugFiles::default()).expect("functions");
        let start = stream.functions.first().expect("a function").start.0;
        let addresses: Vec<u64> = (start..start + 4).collect();
        let theirs = llvm_symbolizer(&library, &addresses);
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
    }
}

#[test]
fn files_that_instructions_define_are_among_those_that_a_line_table_names() {
    if !have("gcc") || !have("readelf") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for version in 2..=4 {
        let library = library(folder.path(), version);
        let bytes = std::fs::read(&library).expect("the library");
        let object = ObjectFile::parse(&bytes).expect("an object");
        let mut found = Vec::new();
        source_files(&object, &DebugFiles::default(), &mut |path, checksum| {
            assert!(checksum.is_none());
            found.push(path.to_owned());
        })
        .expect("its files");
        let text = run("readelf", &["--debug-dump=rawline", "lib.so"], folder.path()).expect("readelf");
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
    }
}
