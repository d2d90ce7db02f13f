//! Code that other code jumps to with words of its own on the stack, and whose call frame information does not count them.
//!
//! On aarch64 the first entry of a linkage table pushes x16 and the link register, and goes on to the dynamic linker's `_dl_runtime_resolve`, which takes both words down with its
//! own. glibc's entry for it tells where the link register lies, and counts the CFA from the stack pointer that the function itself began with:
//! [CFA + 8]. Above the CFA a caller's frame has nothing of the kind. (AAPCS64, 6.4.5: the CFA of a call is its stack pointer, and the
//! function's frame is below it.) So the CFA is 16 higher: CFA' = CFA + 16, every place in bytes from the CFA 16 lower, and where CFA' = sp, all is as calls leave it.

use crate::arch::Arch;
use crate::rule::RuleSource;

use super::layout::{Layout, Place};
use super::pieces::Piece;
use super::rules::Rules;

/// Bytes of both words.
const PUSHED: i64 = 16;
/// Where the entry says the link register lies, in bytes from the CFA.
const ABOVE_CFA: Place = Place::AtCfa(8);

/// Corrects the rules of entries that say so. The pieces are sorted.
pub(super) fn correct(pieces: &mut [Piece], rules: &mut Rules) {
    let machine = Arch::Aarch64.machine();
    let layout_of = |piece: &Piece, rules: &Rules| {
        let (rule, slots) = rules.of(piece.rule);
        let is_told = matches!(rule.source()?, RuleSource::EhFrame | RuleSource::DebugFrame);
        Layout::of(rule, slots, machine).filter(|_| is_told)
    };
    for entry in pieces.chunk_by_mut(|one, next| one.origin == next.origin) {
        let is_above = |layout: Layout| layout.return_address == ABOVE_CFA;
        let Some(first_above) = entry.iter().position(|piece| layout_of(piece, rules).is_some_and(is_above)) else {
            continue;
        };
        for (at, piece) in entry.iter_mut().enumerate() {
            let Some(mut layout) = layout_of(piece, rules) else { continue };
            // Before the entry says where the register lies, both words are there as well.
            let is_before = at < first_above && layout == Layout::entry(machine);
            if !is_before && layout.return_address != ABOVE_CFA {
                continue;
            }
            layout.cfa += PUSHED;
            layout.return_address = Place::AtCfa(8 - PUSHED);
            for (_, place) in &mut layout.saved {
                *place -= PUSHED;
            }
            // Taken down: what lay there is below the stack pointer.
            if layout.base == machine.sp && layout.cfa == 0 {
                layout = Layout::entry(machine);
            }
            let source = rules.of(piece.rule).0.source().unwrap_or(RuleSource::EhFrame);
            if let Some((rule, slots)) = layout.rule(machine, source) {
                piece.rule = rules.number_of(rule, slots);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pieces::Origin;
    use super::*;
    use crate::rule::{Kind, ReturnAddress, Rule, Saved, Slots};
    use crate::source::SourceKind;
    use alloc::vec::Vec;

    #[test]
    fn what_lies_above_the_cfa_was_pushed_before() {
        let mut rules = Rules::default();
        let (at, link) = (ReturnAddress::AtCfa, ReturnAddress::InRegister(30));
        let mut piece = |start: u64, words: i64, ra, fp, entry| {
            let rule = Rule::new(Kind::Sp, RuleSource::EhFrame, 31, words, ra, fp).expect("a rule");
            Piece::new(start..start + 4, rules.number_of(rule, Slots::SAME), Origin::new(SourceKind::EhFrame, entry))
        };
        // As glibc's entry says: before it says anything, before its frame, in it, and when all is taken down. The others are another function's.
        let mut pieces = [
            piece(0, 0, link, Saved::Same, 0),
            piece(4, 0, at(1), Saved::Same, 0),
            piece(8, 26, at(1), Saved::Same, 0),
            piece(12, -2, at(1), Saved::Same, 0),
            piece(16, 0, link, Saved::Same, 8),
            piece(20, 4, at(-1), Saved::At(-2), 8),
        ];
        correct(&mut pieces, &mut rules);
        let told: Vec<(i64, ReturnAddress)> = pieces
            .iter()
            .map(|piece| rules.of(piece.rule).0)
            .map(|rule| (rule.offset(), rule.return_address().expect("a return address")))
            .collect();
        assert_eq!(told, [(2, at(-1)), (2, at(-1)), (28, at(-1)), (0, link), (0, link), (4, at(-1))]);
    }
}
