//! Returns against load value injection (`-mlvi-cfi`): `pop R; lfence; jmp *R`. The entry speaks of them as if nothing had been popped yet. Behind the `pop`
//! CFA = rsp and RA = R. (LLVM, `X86LoadValueInjectionRetHardening`)

use alloc::vec::Vec;
use core::ops::Range;

use memchr::memmem;

use crate::arch::Arch;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource};
use crate::source::SourceKind;

use super::super::pieces::{Origin, Piece};
use super::super::rules::Rules;
use super::super::trampoline::{piece_at, replace};

const LFENCE: [u8; 3] = [0x0f, 0xae, 0xe8];
/// DWARF numbers by those of the processor.
const NUMBERS: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// Corrects the `pieces` (sorted).
pub(in super::super) fn tell_returns(code: &[(u64, &[u8])], pieces: &mut Vec<Piece>, rules: &mut Rules) {
    for (start, bytes) in code {
        for (range, register) in returns(bytes) {
            let Some(range) = placed(*start, range) else { continue };
            let Some((rule, slots)) = piece_at(pieces, range.start).map(|piece| rules.of(piece.rule)) else { continue };
            let is_at_return = rule.kind() == Some(Kind::Sp)
                && rule.offset() == 1
                && rule.return_address() == Some(ReturnAddress::AtCfa(-1));
            let of = ReturnAddress::InRegister(register);
            let sp = Arch::X86_64.machine().sp;
            let popped = Rule::new(Kind::Sp, RuleSource::Instructions, sp, 0, of, rule.frame_pointer());
            if let Some(popped) = popped.filter(|_| is_at_return) {
                let rule = rules.number_of(popped, slots);
                replace(pieces, Piece::new(range.clone(), rule, Origin::new(SourceKind::Instructions, range.start)));
            }
        }
    }
}

fn placed(start: u64, range: Range<usize>) -> Option<Range<u64>> {
    Some(start.checked_add(range.start as u64)?..start.checked_add(range.end as u64)?)
}

/// From behind the `pop` to the end of the jump, and the register.
fn returns(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, u8)> {
    memmem::find_iter(bytes, &LFENCE).filter_map(|at| {
        let (before, behind) = (bytes.get(..at)?, bytes.get(at + LFENCE.len()..)?);
        let (register, jump) = match behind {
            [0xff, jump @ 0xe0..=0xe7, ..] => (jump & 7, 2),
            [0x41, 0xff, jump @ 0xe0..=0xe7, ..] => (jump & 7 | 8, 3),
            _ => return None,
        };
        let is_popped = match register {
            8.. => before.ends_with(&[0x41, 0x50 | register]),
            _ => before.ends_with(&[0x58 | register]) && !before.ends_with(&[0x41, 0x58 | register]),
        };
        let number = *NUMBERS.get(usize::from(register))?;
        is_popped.then_some((at..at + LFENCE.len() + jump, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Saved, Slots};

    /// Where rules begin in `code`, and how they find the return address, of an entry that says nothing of it.
    fn told(code: &[u8], words: i64) -> Vec<(u64, Option<ReturnAddress>)> {
        let mut rules = Rules::default();
        let rule = Rule::new(Kind::Sp, RuleSource::EhFrame, 7, words, ReturnAddress::AtCfa(-1), Saved::Same);
        let number = rules.number_of(rule.expect("a rule"), Slots::SAME);
        let end = 0x1000 + code.len() as u64;
        let mut pieces = Vec::from([Piece::new(0x1000..end, number, Origin::new(SourceKind::EhFrame, 0))]);
        tell_returns(&[(0x1000, code)], &mut pieces, &mut rules);
        let found = pieces.iter().map(|piece| {
            let rule = rules.of(piece.rule).0;
            (piece.start() - 0x1000, rule.return_address().filter(|_| rule.kind() == Some(Kind::Sp)))
        });
        found.collect()
    }

    #[test]
    fn behind_a_pop_of_the_return_address_it_is_in_the_register() {
        let on_stack = Some(ReturnAddress::AtCfa(-1));
        let held = |register| Some(ReturnAddress::InRegister(register));
        // xor eax, eax; pop rcx; lfence; jmp *rcx; nop
        let code = [0x31, 0xc0, 0x59, 0x0f, 0xae, 0xe8, 0xff, 0xe1, 0x90];
        assert_eq!(told(&code, 1), [(0, on_stack), (3, held(2)), (8, on_stack)]);
        // pop r11; lfence; jmp *r11
        let code = [0x41, 0x5b, 0x0f, 0xae, 0xe8, 0x41, 0xff, 0xe3];
        assert_eq!(told(&code, 1), [(0, on_stack), (2, held(11))]);
        // Another register; something else on the stack.
        let other = [0x59, 0x0f, 0xae, 0xe8, 0xff, 0xe2];
        assert_eq!(told(&other, 1), [(0, on_stack)]);
        assert_eq!(told(&[0x59, 0x0f, 0xae, 0xe8, 0xff, 0xe1], 3), [(0, on_stack)]);
    }
}
