//! What LLVM's call frame information leaves out where a function takes the arguments of a call off the stack.
//!
//! To save bytes (`-Oz`), clang does so by `pop` of registers that it does not need, one for each word, and says that the CFA has changed behind the last
//! of them. So where a row ends with the stack pointer 8·n bytes higher in the next one, and its last n instructions are such, then in front of the k-th of them
//! CFA = rsp + offset − 8·(k − 1). (LLVM, `X86FrameLowering::adjustStackWithPops`)

use alloc::vec::Vec;

use crate::arch::Arch;
use crate::rule::{Kind, Rule, RuleSource};

use super::super::pieces::Piece;
use super::super::rules::Rules;

/// Words that are taken off at once: each by an instruction, of which no more are shorter than an addition to the stack pointer.
const MOST: usize = 4;

/// Splits the `pieces` (sorted) that end with such instructions.
pub(in super::super) fn tell_pops(code: &[(u64, &[u8])], pieces: &mut Vec<Piece>, rules: &mut Rules) {
    let mut told: Vec<(usize, Vec<Piece>)> = Vec::new();
    for (at, pair) in pieces.windows(2).enumerate() {
        if let [piece, next] = pair
            && piece.origin == next.origin
            && piece.end() == next.start()
        {
            told.extend(split(piece, next, code, rules).map(|parts| (at, parts)));
        }
    }
    // From the end on, so that the numbers stay right.
    for (at, parts) in told.into_iter().rev() {
        pieces.splice(at..=at, parts);
    }
}

/// The parts of a piece that ends so, and behind which `next` holds.
fn split(piece: &Piece, next: &Piece, code: &[(u64, &[u8])], rules: &mut Rules) -> Option<Vec<Piece>> {
    let ((rule, slots), (behind, slots_behind)) = (rules.of(piece.rule), rules.of(next.rule));
    let is_told = |rule: Rule| matches!(rule.source(), Some(RuleSource::EhFrame | RuleSource::DebugFrame));
    let is_on_sp = |rule: Rule| rule.kind() == Some(Kind::Sp) && is_told(rule);
    let words = usize::try_from(rule.offset().checked_sub(behind.offset())?).ok()?;
    // Registers that are restored are popped as well, and each of those has a row.
    let is_same = (rule.return_address(), rule.frame_pointer(), slots)
        == (behind.return_address(), behind.frame_pointer(), slots_behind);
    if !is_on_sp(rule) || !is_on_sp(behind) || !is_same || !(2..=MOST).contains(&words) {
        return None;
    }
    let bytes = code.iter().find_map(|(section, bytes)| {
        let at = |address: u64| usize::try_from(address.checked_sub(*section)?).ok();
        bytes.get(at(piece.start())?..at(piece.end())?)
    })?;
    // Where the last instructions begin, from the end on.
    let mut starts = Vec::with_capacity(words);
    let mut rest = bytes;
    for _ in 0..words {
        rest = without_pop(rest)?;
        starts.push(piece.start().checked_add(rest.len() as u64)?);
    }
    let mut parts = Vec::with_capacity(words);
    let (mut from, mut number) = (piece.start(), piece.rule);
    // The first of them changes what holds behind it.
    for (popped, start) in (1i64..).zip(starts.iter().rev().skip(1)) {
        parts.push(Piece::new(from..*start, number, piece.origin));
        (from, number) = (*start, rules.number_of(lower(rule, popped)?, slots));
    }
    parts.push(Piece::new(from..piece.end(), number, piece.origin));
    Some(parts)
}

/// The rule with a CFA that is so many words nearer to the stack pointer.
fn lower(rule: Rule, words: i64) -> Option<Rule> {
    let register = Arch::X86_64.machine().sp;
    let offset = rule.offset().checked_sub(words)?;
    Rule::new(Kind::Sp, RuleSource::Instructions, register, offset, rule.return_address()?, rule.frame_pointer())
}

/// The code before a `pop` of a general register that it ends with.
fn without_pop(code: &[u8]) -> Option<&[u8]> {
    match code {
        [before @ .., 0x41, 0x58..=0x5f] | [before @ .., 0x58..=0x5f] => Some(before),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::pieces::Origin;
    use super::*;
    use crate::rule::{ReturnAddress, Saved, Slots};
    use crate::source::SourceKind;

    /// Where rules begin, and their offsets, of a body with `before` words and code behind it with `after`.
    fn told(code: &[u8], before: i64, after: i64, fp_after: Saved) -> Vec<(u64, i64)> {
        let mut rules = Rules::default();
        let mut piece = |start: u64, end: u64, words: i64, fp| {
            let rule =
                Rule::new(Kind::Sp, RuleSource::EhFrame, 7, words, ReturnAddress::AtCfa(-1), fp).expect("a rule");
            Piece::new(start..end, rules.number_of(rule, Slots::SAME), Origin::new(SourceKind::EhFrame, 0))
        };
        let end = 0x1000 + code.len() as u64;
        let mut pieces =
            [piece(0x1000, end, before, Saved::At(-2)), piece(end, end + 8, after, fp_after)].into_iter().collect();
        tell_pops(&[(0x1000, code)], &mut pieces, &mut rules);
        pieces.iter().map(|piece| (piece.start() - 0x1000, rules.of(piece.rule).0.offset())).collect()
    }

    #[test]
    fn each_word_that_is_taken_off_counts_behind_its_instruction() {
        let kept = Saved::At(-2);
        // call; pop %rcx; pop %rdx
        assert_eq!(told(&[0xe8, 0, 0, 0, 0, 0x59, 0x5a], 6, 4, kept), [(0, 6), (6, 5), (7, 4)]);
        // call; pop %rcx; pop %r8; pop %rdx
        assert_eq!(told(&[0xe8, 0, 0, 0, 0, 0x59, 0x41, 0x58, 0x5a], 6, 3, kept), [(0, 6), (6, 5), (8, 4), (9, 3)]);
    }

    #[test]
    fn what_is_taken_off_otherwise_stays_as_the_entry_says() {
        let kept = Saved::At(-2);
        // add $16, %rsp
        assert_eq!(told(&[0x48, 0x83, 0xc4, 0x10], 6, 4, kept), [(0, 6), (4, 4)]);
        // One instruction, and one before it that is none.
        assert_eq!(told(&[0x90, 0x5a], 6, 4, kept), [(0, 6), (2, 4)]);
        assert_eq!(told(&[0x59, 0x5a], 6, 5, kept), [(0, 6), (2, 5)]);
        // A register that is restored.
        assert_eq!(told(&[0x59, 0x5d], 6, 4, Saved::Same), [(0, 6), (2, 4)]);
    }
}
