//! Go programs without DWARF beside the same programs with it, and beside Go's own runtime.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod support;

use std::path::Path;
use support::compare::Comparison;
use support::{addresses_in, llvm_symbolizer, lookup};
use symseal_artifact::{DebugFiles, ObjectFile, functions};

#[test]
fn quick() {
    let folder = Path::new("/tmp/gotest");
    for version in ["1.15", "1.17", "1.19", "1.21", "1.26"] {
        let full = folder.join(format!("full-{version}"));
        let bytes = std::fs::read(folder.join(format!("stripped-{version}"))).expect("a file");
        let object = ObjectFile::parse(&bytes).expect("an object");
        let stream = functions(&object, &DebugFiles::default()).expect("functions");
        lookup::check_shape(&stream);
        println!("{:?}", stream.statistics);
        let addresses = addresses_in(&object.unwind_inputs().text, 4000, 42);
        let expected = llvm_symbolizer(&full, &addresses);
        let mut comparison = Comparison::default();
        for (address, expected) in addresses.iter().zip(&expected) {
            comparison.add(*address, expected, &lookup::frames(&stream, address - object.image_base().0));
        }
        println!("{version} {comparison}");
    }
}
