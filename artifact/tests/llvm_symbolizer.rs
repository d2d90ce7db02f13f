//! llvm-symbolizer as the oracle for frames, lines and names.

use crate::support::compare::Comparison;
use crate::support::{LIBC, addresses_in, have, libc_debug, llvm_symbolizer, lookup};
use std::path::Path;
use symseal_artifact::{DebugFiles, ObjectFile, functions};

const ADDRESSES: usize = 12_000;

/// Compares at addresses spread over the binary's code.
fn compare(binary: &Path, debug: Option<&Path>, addresses: usize) -> Comparison {
    let binary_bytes = std::fs::read(binary).expect("the binary");
    let debug_bytes = debug.map(|path| std::fs::read(path).expect("the debug file"));
    let object = ObjectFile::parse(&binary_bytes).expect("an object");
    let debug_object = debug_bytes.as_deref().map(|bytes| ObjectFile::parse(bytes).expect("an object"));
    let stream = functions(&object, &DebugFiles::debug(debug_object.as_ref())).expect("functions");
    lookup::check_shape(&stream);
    println!("{}: {:?}", binary.display(), stream.statistics);
    let addresses = addresses_in(&object.unwind_inputs().text, addresses, 42);
    let expected = llvm_symbolizer(debug.unwrap_or(binary), &addresses);
    let mut comparison = Comparison::default();
    for (address, expected) in addresses.iter().zip(&expected) {
        comparison.add(*address, expected, &lookup::frames(&stream, address - object.image_base().0));
    }
    println!("{comparison}");
    comparison
}

#[test]
fn the_c_library_agrees_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") {
        return;
    }
    let Some(debug) = libc_debug() else { return };
    compare(Path::new(LIBC), Some(&debug), ADDRESSES).check(10_000);
}

#[test]
fn a_rust_program_agrees_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") {
        return;
    }
    let program = std::env::current_exe().expect("a path");
    compare(&program, None, ADDRESSES).check(10_000);
}
