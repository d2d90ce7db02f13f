//! Debug sections of more than 4 GiB, beside llvm-symbolizer. `tests/certify huge` makes the programs and says where they
//! are; without it there is nothing to do here.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod support;

use std::path::{Path, PathBuf};
use support::compare::Comparison;
use support::{llvm_symbolizer_in, lookup};
use symseal_artifact::{DebugFiles, ObjectFile, functions};

/// 2^32, the first offset that DWARF's 32-bit format cannot say.
const FOUR_GIB: u64 = 1 << 32;

#[test]
fn debug_information_behind_4_gib_agrees() {
    let Some(folder) = std::env::var_os("SYMSEAL_HUGE").map(PathBuf::from) else {
        println!("SKIP huge inputs: SYMSEAL_HUGE is not set (tests/certify huge)");
        return;
    };
    for name in ["entries", "tables", "ranges", "old", "packed"] {
        let path = folder.join(name);
        let start = std::time::Instant::now();
        let bytes = std::fs::read(&path).expect("a program");
        let object = ObjectFile::parse(&bytes).expect("an object");
        let stream = functions(&object, &DebugFiles::default()).expect("functions");
        let took = start.elapsed().as_secs_f64();
        lookup::check_shape(&stream);
        assert!(stream.statistics.dwarf_bytes > 2 * FOUR_GIB, "{name}: {:?}", stream.statistics);
        assert!(stream.statistics.skipped.is_empty(), "{name}: {:?}", stream.statistics);
        let (text, base) = (object.unwind_inputs().text, object.image_base().0);
        let addresses: Vec<u64> = text.into_iter().flatten().collect();
        let mut comparison = Comparison::default();
        for (address, expected) in addresses.iter().zip(llvm_symbolizer_in(Path::new("."), &path, &addresses)) {
            comparison.add(*address, &expected, &lookup::frames(&stream, address - base));
        }
        println!(
            "{name}: {} bytes of DWARF in a file of {}, read in {took:.1} s, {} of memory at the highest so far; {comparison}",
            stream.statistics.dwarf_bytes,
            bytes.len(),
            highest_memory(),
        );
        comparison.check(2000);
        let both = ["before::work<9>", "behind::work<9>"];
        for wanted in both {
            let is_it = |name| stream.strings.get(name) == wanted;
            assert!(stream.functions.iter().any(|function| is_it(function.name)), "{name}: {wanted}");
        }
    }
}

/// The most memory that this process ever had. (proc(5), `VmHWM`)
fn highest_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap_or("an unknown amount").trim().to_owned()
}
