//! Names of symbols around the length at which they are cut, in each format.

use crate::support::{any_of, have, run};
use std::path::Path;
use symseal_artifact::{DebugFiles, ObjectFile, functions};

const LONGEST: usize = 128 << 10;
const CUT: &str = "…[cut at 131072 bytes]";

/// The symbols that begin so, of the object or image with these bytes, and how many were cut.
fn found(bytes: &[u8]) -> (Vec<String>, u64) {
    let object = ObjectFile::parse(bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    let names = stream.functions.iter().map(|function| stream.strings.get(function.symbol).to_owned());
    let cut = stream.statistics.skipped.iter().filter(|(reason, _)| reason.starts_with("end of a symbol's name"));
    (names.filter(|name| name.starts_with("zz")).collect(), cut.map(|(_, count)| count).sum())
}

/// A name of so many bytes.
fn name(bytes: usize) -> String {
    format!("zz{}", "y".repeat(bytes - 2))
}

/// As it is told where it is cut.
fn cut(name: &str) -> String {
    format!("{}{CUT}", &name[..LONGEST])
}

#[test]
fn a_name_beyond_the_bound_is_cut_with_a_mark_and_counted() {
    if !have("clang") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let names = [name(LONGEST), name(LONGEST + 1), name(LONGEST + 4096)];
    for (target, before) in [("x86_64-linux-gnu", ""), ("x86_64-pc-windows-msvc", ""), ("x86_64-apple-macos11", "_")] {
        for name in &names {
            let text = format!(".globl {before}{name}\n{before}{name}:\n  ret\n");
            let text = if target.contains("linux") { format!("{text}.type {name}, @function\n") } else { text };
            std::fs::write(folder.join("long.s"), text).expect("a source");
            run("clang", &["-target", target, "-c", "long.s", "-o", "long.o"], folder).expect("clang assembles");
            let object = folder.join("long.o");
            let bytes = match target {
                "x86_64-pc-windows-msvc" => match exported(folder, name) {
                    Some(bytes) => bytes,
                    None => continue,
                },
                _ => std::fs::read(&object).expect("an object"),
            };
            if let Some(nm) = any_of(&["llvm-nm-19", "llvm-nm"]) {
                let text = run(nm, &["long.o"], folder).expect("nm");
                assert!(text.contains(&format!(" {before}{name}\n")), "{target}: the name is whole in the file");
            }
            let is_cut = name.len() > LONGEST;
            let expected = if is_cut { cut(name) } else { name.clone() };
            let (found, count) = found(&bytes);
            assert!(found == [expected], "{target}, {} bytes: {} names", name.len(), found.len());
            assert_eq!(count, u64::from(is_cut), "{target}, {} bytes", name.len());
        }
    }
}

/// A library that exports the function of `long.o`.
fn exported(folder: &Path, name: &str) -> Option<Vec<u8>> {
    std::fs::write(folder.join("long.def"), format!("EXPORTS\n  {name}\n")).expect("a file");
    let options = ["/dll", "/noentry", "/nodefaultlib", "/def:long.def", "/out:long.dll", "long.o"];
    have("lld-link").then(|| run("lld-link", &options, folder).expect("lld-link links"))?;
    Some(std::fs::read(folder.join("long.dll")).expect("a library"))
}

#[test]
fn a_cut_does_not_divide_a_character() {
    if !have("clang") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    // The bound is at each byte of a character of three.
    for shift in 0..3 {
        let kept = name(LONGEST - 3 + shift);
        let name = format!("{kept}€€€");
        std::fs::write(folder.join("long.s"), format!(".globl \"{name}\"\n\"{name}\":\n  ret\n")).expect("a source");
        run("clang", &["-target", "x86_64-linux-gnu", "-c", "long.s", "-o", "long.o"], folder)
            .expect("clang assembles");
        let expected = if shift == 0 { format!("{kept}€{CUT}") } else { format!("{kept}{CUT}") };
        let (found, _) = found(&std::fs::read(folder.join("long.o")).expect("an object"));
        assert!(found == [expected], "{shift}");
    }
}
