//! The stream is the same whatever the number of threads.

use crate::support::{LIBC, fixtures, libc_debug};
use std::num::NonZeroUsize;
use std::path::Path;
use symseal_artifact::{DebugFiles, ObjectFile, functions, functions_on};

/// Everything in a stream, the numbers of its texts among it.
fn printed(threads: usize, binary: &[u8], debug: Option<&[u8]>, split: &[Vec<u8>]) -> String {
    let object = ObjectFile::parse(binary).expect("an object");
    let debug = debug.map(|bytes| ObjectFile::parse(bytes).expect("an object"));
    let split: Vec<ObjectFile<'_>> = split.iter().map(|bytes| ObjectFile::parse(bytes).expect("an object")).collect();
    let with = DebugFiles { debug: debug.as_ref(), split: &split, ..DebugFiles::default() };
    let stream = match NonZeroUsize::new(threads) {
        Some(threads) => functions_on(threads, &object, &with),
        None => functions(&object, &with),
    };
    let stream = stream.expect("functions");
    let texts: Vec<&str> = stream.functions.iter().map(|function| stream.strings.get(function.name)).collect();
    let last = (0..stream.strings.len() as u32).map(|text| stream.strings.get(symseal_symx::StrId(text)));
    format!("{:?}{:?}{:?}{texts:?}{:?}", stream.functions, stream.sources, stream.statistics, last.collect::<Vec<_>>())
}

#[track_caller]
fn check(name: &str, binary: &[u8], debug: Option<&[u8]>, split: &[Vec<u8>]) {
    let expected = printed(0, binary, debug, split);
    for threads in [1, 2, 7] {
        // Not compared by `assert_eq`, which would print some hundred megabytes.
        assert!(printed(threads, binary, debug, split) == expected, "{name} differs on {threads} threads");
    }
}

#[test]
fn a_stream_does_not_depend_on_the_number_of_threads() {
    let own = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
    check("this test", &own, None, &[]);
    if let Some(debug) = libc_debug() {
        let [binary, debug] = [Path::new(LIBC), &debug].map(|path| std::fs::read(path).expect("a file"));
        check("libc", &binary, Some(&debug), &[]);
    }
    if let Some(folder) = fixtures() {
        let [binary, package] = ["split5", "split5.dwp"]
            .map(|name| std::fs::read(folder.join("elf-var/split").join(name)).expect("a file"));
        check("split5", &binary, None, &[package]);
    }
}

#[test]
fn damaged_entries_give_the_same_on_every_number_of_threads() {
    let mut own = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
    // Every so often a byte somewhere behind the code.
    let start = own.len() / 2;
    for at in (start..own.len() - (1 << 16)).step_by(own.len() / 2000) {
        own[at] ^= 0x55;
    }
    if ObjectFile::parse(&own).is_ok() {
        check("this test, damaged", &own, None, &[]);
    }
}
