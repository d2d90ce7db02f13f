//! `_init` and `_fini`, which crti.o begins and crtn.o ends and which call frame information leaves out. (System V gABI, "Initialization
//! and Termination Functions"); and where the loader of glibc begins a process.

mod i686;
#[cfg(feature = "compile")]
pub(super) mod loader;
mod x86_64;

use alloc::vec::Vec;
use core::ops::Range;

use crate::arch::Arch;
use crate::rule::{Rule, Slots};

/// Rules by rising address.
type Rules = Vec<(Range<u64>, Rule, Slots)>;

/// The rules of a section that is such a function as a whole; `None` for any other code.
pub(super) fn rules(arch: Arch, start: u64, code: &[u8]) -> Option<Rules> {
    match arch {
        Arch::X86_64 => x86_64::rules(start, code),
        Arch::I686 => i686::rules(start, code),
        _ => None,
    }
}
