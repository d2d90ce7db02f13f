//! Functions of aarch64 that keep their return address in another register, and whose call frame information says so from the first instruction on.
//!
//! An entry names the register of the return address once, for all of its function. glibc's `rawmemchr` moves it to x15 on one of its paths, and
//! has an entry that names x15; but calls leave it in x30, and up to the move x15 has whatever there was. So up to and with that instruction the return address
//! is in x30. (`mov xN, x30`; code before it, by address, leaves x30 alone: the entry has no other rows.)

use alloc::vec::Vec;

use crate::arch::Arch;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Slots};

use super::pieces::Piece;
use super::rules::Rules;

/// The link register.
const LINK: u8 = 30;
/// `mov x0, x30`.
const MOVE: u32 = 0xaa1e_03e0;

/// Splits the `pieces` (sorted) of such entries at the move.
pub(super) fn correct(code: &[(u64, &[u8])], pieces: &mut Vec<Piece>, rules: &mut Rules) {
    let mut told: Vec<(usize, Piece)> = Vec::new();
    for (at, piece) in pieces.iter_mut().enumerate() {
        let (rule, slots) = rules.of(piece.rule);
        let Some(moved) = column(rule, slots).and_then(|register| behind_move(piece, register, code)) else { continue };
        let Some(entered) = entered(rule) else { continue };
        let behind = Piece::new(moved..piece.end(), piece.rule, piece.origin);
        *piece = Piece::new(piece.start()..moved, rules.number_of(entered, slots), piece.origin);
        if behind.start() < behind.end() {
            told.push((at + 1, behind));
        }
    }
    if told.is_empty() {
        return;
    }
    let mut rest = told.into_iter().peekable();
    let mut all = Vec::with_capacity(pieces.len() + rest.len());
    for (at, piece) in pieces.drain(..).enumerate() {
        all.push(piece);
        all.extend(rest.next_if(|(before, _)| *before == at + 1).map(|(_, behind)| behind));
    }
    *pieces = all;
}

/// The register that a rule without a frame names for the return address, if calls leave it in another one.
fn column(rule: Rule, slots: Slots) -> Option<u8> {
    let is_told = matches!(rule.source()?, RuleSource::EhFrame | RuleSource::DebugFrame);
    let has_no_frame = rule.kind() == Some(Kind::Sp) && rule.offset() == 0 && slots == Slots::SAME;
    match rule.return_address()? {
        ReturnAddress::InRegister(register) if is_told && has_no_frame && register != LINK => Some(register),
        _ => None,
    }
}

/// The same rule with the return address where calls leave it.
fn entered(rule: Rule) -> Option<Rule> {
    let in_link = ReturnAddress::InRegister(LINK);
    Rule::new(Kind::Sp, rule.source()?, Arch::Aarch64.machine().sp, 0, in_link, rule.frame_pointer())
}

/// Behind the first instruction of the piece that moves the return address to `register`.
fn behind_move(piece: &Piece, register: u8, code: &[(u64, &[u8])]) -> Option<u64> {
    let bytes = code.iter().find_map(|(start, bytes)| {
        let from = usize::try_from(piece.start().checked_sub(*start)?).ok()?;
        let size = usize::try_from(piece.end().checked_sub(piece.start())?).ok()?;
        bytes.get(from..from.checked_add(size)?)
    })?;
    let (words, _) = bytes.as_chunks::<4>();
    let at = words.iter().position(|word| u32::from_le_bytes(*word) == MOVE | u32::from(register))?;
    piece.start().checked_add(4 * (at as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::super::pieces::Origin;
    use super::*;
    use crate::rule::Saved;
    use crate::source::SourceKind;

    /// The rules of an entry for `code` at 0x1000 that names `register`: where each begins, and the register of its return address.
    fn told(code: &[u32], register: u8) -> Vec<(u64, Option<ReturnAddress>)> {
        let mut rules = Rules::default();
        let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
        let in_register = ReturnAddress::InRegister(register);
        let rule = Rule::new(Kind::Sp, RuleSource::EhFrame, 31, 0, in_register, Saved::Same).expect("a rule");
        let origin = Origin::new(SourceKind::EhFrame, 0);
        let end = 0x1000 + bytes.len() as u64;
        let mut pieces = Vec::from([Piece::new(0x1000..end, rules.number_of(rule, Slots::SAME), origin)]);
        correct(&[(0x1000, &bytes)], &mut pieces, &mut rules);
        assert_eq!(pieces.last().map(Piece::end), Some(end));
        pieces.iter().map(|piece| (piece.start() - 0x1000, rules.of(piece.rule).0.return_address())).collect()
    }

    #[test]
    fn the_return_address_is_in_the_link_register_up_to_its_move() {
        let in_register = |register| Some(ReturnAddress::InRegister(register));
        // cbz w1, 1f; b memchr; 1: mov x15, x30; mov x14, x0; bl strlen; ret x15
        let code = [0x3400_0041, 0x1400_0100, 0xaa1e_03ef, 0xaa00_03ee, 0x9400_0100, 0xd65f_01e0];
        assert_eq!(told(&code, 15), [(0, in_register(30)), (12, in_register(15))]);
        // Nothing is moved to that register.
        assert_eq!(told(&code, 14), [(0, in_register(14))]);
        assert_eq!(told(&code, 30), [(0, in_register(30))]);
        assert_eq!(told(&code[..3], 15), [(0, in_register(30))]);
    }
}
