//! Signal trampolines that call frame information does not describe, as in musl and in static programs.

use alloc::vec::Vec;
use core::ops::Range;

use super::pieces::Piece;
use crate::arch::{SIGRETURN, SP};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};
use crate::source::SourceKind;

const NOP: u8 = 0x90;

/// Gives the trampolines in `code` that lie in `text` their rule, over whatever other rule `pieces` (sorted) have there: the
/// instructions do nothing but return from a signal handler. The byte before goes with them if it is padding,
/// because a handler returns to the first instruction and return addresses are looked up one byte lower. Gives
/// how many there were.
pub(super) fn mark(code: &[(u64, &[u8])], text: &[Range<u64>], pieces: &mut Vec<Piece>) -> usize {
    let mut marked = 0;
    for (start, bytes) in code {
        for at in find(bytes) {
            let Some(address) = start.checked_add(at as u64) else { continue };
            let Some(end) = address.checked_add(SIGRETURN.len() as u64) else { continue };
            let is_code = |address: u64| text.iter().any(|text| text.contains(&address));
            let described = piece_at(pieces, address).is_some_and(|piece| piece.rule.kind() == Some(Kind::Signal));
            if described || !is_code(address) || !is_code(end - 1) {
                continue;
            }
            let before = address.wrapping_sub(1);
            let is_padding = at.checked_sub(1).and_then(|at| bytes.get(at)) == Some(&NOP);
            let with_byte_before = is_code(before) && (is_padding || piece_at(pieces, before).is_none());
            let source = RuleSource::Trampoline;
            let rule = Rule::new(Kind::Signal, source, SP, 0, ReturnAddress::AtCfa(0), Saved::Same);
            let Some(rule) = rule else { continue };
            let range = if with_byte_before { before } else { address }..end;
            replace(pieces, Piece { range, rule, slots: Slots::SAME, source: (SourceKind::Trampoline, address) });
            marked += 1;
        }
    }
    marked
}

fn find(bytes: &[u8]) -> impl Iterator<Item = usize> {
    // A comparison of the last byte first: 0x05 after 0x0f is rare.
    bytes
        .windows(SIGRETURN.len())
        .enumerate()
        .filter(|(_, window)| window.last() == Some(&5) && **window == SIGRETURN)
        .map(|(at, _)| at)
}

fn piece_at(pieces: &[Piece], address: u64) -> Option<&Piece> {
    let at = pieces.partition_point(|piece| piece.range.end <= address);
    pieces.get(at).filter(|piece| piece.range.contains(&address))
}

/// Puts `new` in place of whatever lies in its range.
fn replace(pieces: &mut Vec<Piece>, new: Piece) {
    let from = pieces.partition_point(|piece| piece.range.end <= new.range.start);
    let to = pieces.partition_point(|piece| piece.range.start < new.range.end);
    let range = new.range.clone();
    let replaced = pieces.get(from..to.max(from)).unwrap_or_default();
    let below = replaced.first().filter(|piece| piece.range.start < range.start).cloned();
    let above = replaced.last().filter(|piece| piece.range.end > range.end).cloned();
    let below = below.map(|piece| Piece { range: piece.range.start..range.start, ..piece });
    let above = above.map(|piece| Piece { range: range.end..piece.range.end, ..piece });
    pieces.splice(from..to.max(from), below.into_iter().chain([new]).chain(above));
}
