//! Where glibc's `swapcontext` and `setcontext` leave one stack for another's. Their entries speak of those instructions as if nothing had happened yet, or
//! as if everything had.
//!
//! * From the instruction that takes the other stack to the one behind which its return address is where a call leaves it: no rule is true.
//! * From there to the jump or return: as at the first instruction of a function (x86: CFA = sp + word, RA = [CFA - word]; others: CFA = sp, RA in the
//!   link register).

mod aarch64;
mod mips;
mod x86;

use alloc::vec::Vec;
use core::ops::Range;

use super::layout::Layout;
use super::pieces::{Origin, Piece};
use super::rules::Rules;
use super::trampoline::{piece_at, replace};
use crate::arch::Arch;
use crate::rule::{Kind, Rule, RuleSource, Slots};
use crate::source::SourceKind;

/// Why there is no rule where a stack was left.
pub(super) const ANOTHER_STACK: &str = "the stack is another context's, before its return address is where it belongs";

/// Instructions, by their places in the bytes that were searched, and what is true at them.
type Part = (Range<usize>, Truth);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Truth {
    Nothing,
    /// All is as at the first instruction of a function.
    AsEntered,
}

/// Corrects the `pieces` (sorted). Gives where nothing is true.
pub(super) fn correct(
    arch: Arch,
    code: &[(u64, &[u8])],
    pieces: &mut Vec<Piece>,
    rules: &mut Rules,
) -> Vec<Range<u64>> {
    let machine = arch.machine();
    let entered = Layout::entry(machine).rule(machine, RuleSource::Instructions);
    let unsupported = (Rule::bare(Kind::Unsupported, RuleSource::Instructions), Slots::SAME);
    let mut untrue = Vec::new();
    for (start, bytes) in code {
        for (range, truth) in parts(arch, bytes) {
            let Some(range) = placed(*start, range) else { continue };
            let found = match truth {
                Truth::Nothing => Some(unsupported),
                Truth::AsEntered => entered,
            };
            let Some((rule, slots)) = found else { continue };
            let before = piece_at(pieces, range.start).map(|piece| rules.of(piece.rule).0.kind());
            // An entry may say itself, by a distance from a register, that there is nothing.
            let is_told = before == Some(Some(Kind::Unsupported)) && truth == Truth::Nothing;
            if before.is_none() || is_told {
                continue;
            }
            let number = rules.number_of(rule, slots);
            replace(pieces, Piece::new(range.clone(), number, Origin::new(SourceKind::Instructions, range.start)));
            if truth == Truth::Nothing {
                untrue.push(range);
            }
        }
    }
    untrue
}

fn parts(arch: Arch, bytes: &[u8]) -> Vec<Part> {
    match arch {
        Arch::X86_64 => x86::x86_64(bytes),
        Arch::I686 => x86::i686(bytes),
        Arch::Aarch64 => aarch64::parts(bytes),
        Arch::Mips32 => mips::big(bytes),
        Arch::Mips32Little => mips::little(bytes),
        _ => Vec::new(),
    }
}

fn placed(start: u64, range: Range<usize>) -> Option<Range<u64>> {
    Some(start.checked_add(range.start as u64)?..start.checked_add(range.end as u64)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::ReturnAddress;

    /// Where rules begin in `code`, and how they find the return address, of an entry that says nothing; and how often nothing is true.
    pub(super) fn told(arch: Arch, code: &[u8]) -> (Vec<(u64, Option<ReturnAddress>)>, usize) {
        let machine = arch.machine();
        let mut rules = Rules::default();
        let (rule, slots) = Layout::entry(machine).rule(machine, RuleSource::EhFrame).expect("a rule");
        let number = rules.number_of(rule, slots);
        let end = 0x1000 + code.len() as u64;
        let mut pieces = Vec::from([Piece::new(0x1000..end, number, Origin::new(SourceKind::EhFrame, 0))]);
        let untrue = correct(arch, &[(0x1000, code)], &mut pieces, &mut rules);
        let found = pieces.iter().map(|piece| {
            let rule = rules.of(piece.rule).0;
            (piece.start() - 0x1000, rule.return_address().filter(|_| rule.kind() == Some(Kind::Sp)))
        });
        (found.collect(), untrue.len())
    }

    #[test]
    fn code_without_a_rule_gets_none() {
        let mut pieces = Vec::new();
        let code = [0x8b, 0x60, 0x30, 0x51];
        assert!(correct(Arch::I686, &[(0x1000, &code)], &mut pieces, &mut Rules::default()).is_empty());
        assert!(pieces.is_empty());
    }
}
