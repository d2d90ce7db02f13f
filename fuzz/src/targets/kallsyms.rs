//! /proc/kallsyms.

use symseal_module::Avma;
use symseal_process::{KernelSymbols, is_kernel_address};

pub(super) fn run(bytes: &[u8]) {
    let Ok(kernel) = KernelSymbols::parse(bytes) else { return };
    assert!(!kernel.is_empty());
    for address in [0xffff_ffff_8100_0010, 0xffff_ffff_c000_1010, u64::MAX].map(Avma) {
        let hit = kernel.find(address);
        assert!(hit.is_none_or(|hit| hit.start <= address && is_kernel_address(hit.start)));
    }
    assert!(kernel.find(Avma(0x1000)).is_none());
}
