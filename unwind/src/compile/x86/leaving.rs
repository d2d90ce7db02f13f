//! The last instructions of a frame, where its entry speaks of them as if nothing had happened yet.
//!
//! * glibc's `swapcontext` and `setcontext` of x86_64 take the stack pointer of another context, and push the return address there some instructions later.
//!   In between nothing is on the stack that would lead on: no rule is true.
//! * Returns against load value injection (`-mlvi-cfi`): `pop R; lfence; jmp *R`. Behind the `pop` CFA = rsp and RA = R. (LLVM,
//!   `X86LoadValueInjectionRetHardening`)

use alloc::vec::Vec;
use core::ops::Range;

use memchr::memmem;

use crate::arch::Arch;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Slots};
use crate::source::SourceKind;

use super::super::pieces::{Origin, Piece};
use super::super::rules::Rules;
use super::super::trampoline::{piece_at, replace};

/// `mov rsp, [rdx + 0xa0]`: the stack pointer of a `ucontext_t`.
const TAKES_STACK: [u8; 7] = [0x48, 0x8b, 0xa2, 0xa0, 0, 0, 0];
/// `mov rcx, [rdx + 0xa8]; push rcx`: where it goes on.
const PUSHES: [u8; 8] = [0x48, 0x8b, 0x8a, 0xa8, 0, 0, 0, 0x51];
/// Bytes between the two: the registers that calls keep.
const MOST_BETWEEN: usize = 64;
const LFENCE: [u8; 3] = [0x0f, 0xae, 0xe8];
/// DWARF numbers by those of the processor.
const NUMBERS: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// Why there is no rule where a context was left.
pub(in super::super) const ANOTHER_STACK: &str =
    "the stack pointer is another context's, before its return address is pushed";

/// Corrects the `pieces` (sorted). Gives where nothing is true.
pub(in super::super) fn tell_leaving(
    code: &[(u64, &[u8])],
    pieces: &mut Vec<Piece>,
    rules: &mut Rules,
) -> Vec<Range<u64>> {
    let mut untrue = Vec::new();
    for (start, bytes) in code {
        for range in switches(bytes).filter_map(|range| placed(*start, range)) {
            // That of `setcontext` may say so itself, by its distance from a register.
            let kind = piece_at(pieces, range.start).and_then(|piece| rules.of(piece.rule).0.kind());
            if kind == Some(Kind::Unsupported) {
                continue;
            }
            let rule = rules.number_of(Rule::bare(Kind::Unsupported, RuleSource::Instructions), Slots::SAME);
            replace(pieces, Piece::new(range.clone(), rule, Origin::new(SourceKind::Instructions, range.start)));
            untrue.push(range);
        }
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
    untrue
}

fn placed(start: u64, range: Range<usize>) -> Option<Range<u64>> {
    Some(start.checked_add(range.start as u64)?..start.checked_add(range.end as u64)?)
}

/// From behind the instruction that takes another stack to the end of the one that pushes.
fn switches(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memmem::find_iter(bytes, &TAKES_STACK).filter_map(|at| {
        let from = at + TAKES_STACK.len();
        let behind = bytes.get(from..)?;
        let behind = behind.get(..behind.len().min(MOST_BETWEEN))?;
        let pushes = memmem::find(behind, &PUSHES)?;
        Some(from..from + pushes + PUSHES.len())
    })
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
    use crate::rule::Saved;

    /// Where rules begin in `code`, and how they find the return address, of an entry that says nothing of it.
    fn told(code: &[u8], words: i64) -> (Vec<(u64, Option<ReturnAddress>)>, usize) {
        let mut rules = Rules::default();
        let rule = Rule::new(Kind::Sp, RuleSource::EhFrame, 7, words, ReturnAddress::AtCfa(-1), Saved::Same);
        let number = rules.number_of(rule.expect("a rule"), Slots::SAME);
        let end = 0x1000 + code.len() as u64;
        let mut pieces = Vec::from([Piece::new(0x1000..end, number, Origin::new(SourceKind::EhFrame, 0))]);
        let untrue = tell_leaving(&[(0x1000, code)], &mut pieces, &mut rules);
        let found = pieces.iter().map(|piece| {
            let rule = rules.of(piece.rule).0;
            (piece.start() - 0x1000, rule.return_address().filter(|_| rule.kind() == Some(Kind::Sp)))
        });
        (found.collect(), untrue.len())
    }

    #[test]
    fn behind_a_pop_of_the_return_address_it_is_in_the_register() {
        let on_stack = Some(ReturnAddress::AtCfa(-1));
        let held = |register| Some(ReturnAddress::InRegister(register));
        // xor eax, eax; pop rcx; lfence; jmp *rcx; nop
        let code = [0x31, 0xc0, 0x59, 0x0f, 0xae, 0xe8, 0xff, 0xe1, 0x90];
        assert_eq!(told(&code, 1), (Vec::from([(0, on_stack), (3, held(2)), (8, on_stack)]), 0));
        // pop r11; lfence; jmp *r11
        let code = [0x41, 0x5b, 0x0f, 0xae, 0xe8, 0x41, 0xff, 0xe3];
        assert_eq!(told(&code, 1), (Vec::from([(0, on_stack), (2, held(11))]), 0));
        // Another register; something else on the stack.
        let other = [0x59, 0x0f, 0xae, 0xe8, 0xff, 0xe2];
        assert_eq!(told(&other, 1).0, [(0, on_stack)]);
        assert_eq!(told(&[0x59, 0x0f, 0xae, 0xe8, 0xff, 0xe1], 3).0, [(0, on_stack)]);
    }

    #[test]
    fn on_the_stack_of_another_context_nothing_is_true_before_its_return_address_is_pushed() {
        let on_stack = Some(ReturnAddress::AtCfa(-1));
        // mov rbp, [rdx + 0x78] between, and mov rdi, [rdx + 0x68] behind.
        let code = [&TAKES_STACK[..], &[0x48, 0x8b, 0x6a, 0x78], &PUSHES, &[0x48, 0x8b, 0x7a, 0x68]].concat();
        assert_eq!(told(&code, 1), (Vec::from([(0, on_stack), (7, None), (19, on_stack)]), 1));
        let apart = [&TAKES_STACK[..], &[0x90; MOST_BETWEEN], &PUSHES].concat();
        assert_eq!(told(&apart, 1), (Vec::from([(0, on_stack)]), 0));
    }
}
