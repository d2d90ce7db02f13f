//! Rules of procedure linkage tables, from their bytes: linkers describe them with expressions or not at all.

mod aarch64;
mod arm;
mod mips32;
mod retpoline;
mod riscv64;
mod x86;

use alloc::vec::Vec;
use core::ops::Range;

use super::Plt;
use super::programs::Programs;
use crate::arch::Arch;
use crate::rule::Rule;

/// The rules of `plt` by rising address; `None` where its form is not known.
pub(super) fn rules(arch: Arch, plt: &Plt<'_>, programs: &mut Programs) -> Option<Vec<(Range<u64>, Rule)>> {
    match arch {
        Arch::X86_64 => retpoline::rules(plt, programs).or_else(|| x86::rules(plt, arch)),
        Arch::I686 => x86::rules(plt, arch),
        Arch::Aarch64 => aarch64::rules(plt),
        Arch::Mips32 | Arch::Mips32Little => mips32::rules(plt, arch.is_big_endian()),
        Arch::Riscv64 => riscv64::rules(plt),
        Arch::Arm => arm::rules(plt),
    }
}

/// The words of 4 bytes of a table; `None` where its bytes are not all of them, or not at multiples of four.
fn words<'a>(plt: &Plt<'a>) -> Option<&'a [[u8; 4]]> {
    let expected = plt.range.end.checked_sub(plt.range.start).filter(|bytes| *bytes > 0)?;
    let (words, rest) = plt.bytes.as_chunks::<4>();
    let is_whole = plt.bytes.len() as u64 == expected && rest.is_empty() && plt.range.start.is_multiple_of(4);
    is_whole.then_some(words)
}

/// Appends a range, joined with the last one where the rule is the same.
fn push(rules: &mut Vec<(Range<u64>, Rule)>, range: Range<u64>, rule: Rule) {
    match rules.last_mut() {
        Some((last, same)) if *same == rule && last.end == range.start => last.end = range.end,
        _ => rules.push((range, rule)),
    }
}
