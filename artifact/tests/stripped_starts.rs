//! Stripped files still tell where some functions begin: the entry, and what the loader runs.

use std::process::Command;
use symseal_artifact::ObjectFile;

/// Debian's cross tools by the beginnings of their names.
const TRIPLES: [&str; 4] = ["mipsel-linux-gnu", "mips-linux-gnu", "arm-linux-gnueabihf", "riscv64-linux-gnu"];

#[test]
fn the_entry_of_a_stripped_program_is_a_function() {
    let directory = tempfile::tempdir().expect("a directory");
    let (source, path) = (directory.path().join("main.c"), directory.path().join("main"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("a file");
    for triple in TRIPLES {
        let compiler = Command::new(format!("{triple}-gcc")).arg("-s").arg("-o").arg(&path).arg(&source).status();
        if !compiler.is_ok_and(|status| status.success()) {
            println!("SKIP {triple}-gcc: not found");
            continue;
        }
        let bytes = std::fs::read(&path).expect("a program");
        // `e_entry`, gABI chapter 4.
        let word = |at: usize, length: usize| {
            let bytes = bytes.get(at..at + length).expect("a header").iter();
            let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
            if triple.starts_with("mips-") { bytes.fold(0, add) } else { bytes.rev().fold(0, add) }
        };
        let entry = word(24, if triple.starts_with("riscv64") { 8 } else { 4 });
        let object = ObjectFile::parse(&bytes).expect("a program");
        let functions = object.unwind_inputs().functions;
        assert!(functions.contains(&entry), "{triple}: {entry:#x} of {functions:x?}");
    }
}
