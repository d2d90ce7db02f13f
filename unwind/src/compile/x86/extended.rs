//! What compilers leave out of the call frame information of asynchronous functions of Swift's convention on x86_64.
//!
//! Such a function marks the frame pointer in `bts rbp, 60; push rbp; push r14; lea rbp, [rsp + 8]`, where r14, or a zero in its place, is the asynchronous
//! context, and ends in `pop rbp; btr rbp, 60`. (LLVM, `X86FrameLowering`, "extended frame record") LLVM's information does not speak of the
//! push of the context, and gives the rule of the body up to behind the last of them. So behind that push CFA = rsp + 24, behind the `lea`
//! CFA = rbp + 16, and at the `btr` CFA = rsp + 8. The instructions say so, wherever the entry has the rules around them that go with it.

use alloc::vec::Vec;

use crate::arch::Arch;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};

use super::super::pieces::Piece;
use super::super::rules::Rules;

/// `bts rbp, 60; push rbp`.
const MARKED: [u8; 6] = [0x48, 0x0f, 0xba, 0xed, 0x3c, 0x55];
/// `push r14`; `push 0`.
const CONTEXT: [[u8; 2]; 2] = [[0x41, 0x56], [0x6a, 0x00]];
/// `lea rbp, [rsp + 8]`.
const SET: [u8; 5] = [0x48, 0x8d, 0x6c, 0x24, 0x08];
/// `pop rbp; btr rbp, 60`.
const UNMARKED: [u8; 6] = [0x5d, 0x48, 0x0f, 0xba, 0xf5, 0x3c];
/// Bytes of the last instruction of those.
const UNMARK: u64 = 5;

/// Splits the `pieces` where such a function begins and ends.
pub(in super::super) fn tell_extended(code: &[(u64, &[u8])], pieces: &mut Vec<Piece>, rules: &mut Rules) {
    let bytes = |start: u64, size: usize| {
        code.iter().find_map(|(section, bytes)| {
            let from = usize::try_from(start.checked_sub(*section)?).ok()?;
            bytes.get(from..from.checked_add(size)?)
        })
    };
    let mut told: Vec<(usize, Vec<Piece>)> = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        told.extend(split(piece, rules, bytes).map(|parts| (at, parts)));
    }
    // From the end on, so that the numbers stay right.
    for (at, parts) in told.into_iter().rev() {
        pieces.splice(at..=at, parts);
    }
}

/// The parts of a piece that is not right to its end.
fn split<'c>(piece: &Piece, rules: &mut Rules, bytes: impl Fn(u64, usize) -> Option<&'c [u8]>) -> Option<Vec<Piece>> {
    let machine = Arch::X86_64.machine();
    let (of_piece, slots) = rules.of(piece.rule);
    if !matches!(of_piece.source()?, RuleSource::EhFrame | RuleSource::DebugFrame | RuleSource::Jit) {
        return None;
    }
    let is_frame = of_piece.offset() == 2 && of_piece.frame_pointer() == Saved::At(-2);
    if !is_frame || of_piece.return_address()? != ReturnAddress::AtCfa(-1) {
        return None;
    }
    let instructions = RuleSource::Instructions;
    let rule = |kind, register, words, fp| Rule::new(kind, instructions, register, words, ReturnAddress::AtCfa(-1), fp);
    let (start, end) = (piece.start(), piece.end());
    // The last part is the one that reaches to the end of the piece.
    let parts = match of_piece.kind()? {
        Kind::Sp => {
            let before = bytes(start.checked_sub(MARKED.len() as u64)?, MARKED.len())?;
            let [first, second, set @ ..] = bytes(start, CONTEXT[0].len() + SET.len())? else { return None };
            if before != MARKED || !CONTEXT.contains(&[*first, *second]) || set != SET {
                return None;
            }
            let pushed = start.checked_add(CONTEXT[0].len() as u64)?;
            let set = pushed.checked_add(SET.len() as u64)?;
            let pushed = (pushed, rule(Kind::Sp, machine.sp, 3, Saved::At(-2))?, slots);
            let set = (set, rule(Kind::Fp, machine.fp, 2, Saved::At(-2))?, slots);
            [Some((start, of_piece, slots)), Some(pushed), Some(set)]
        }
        Kind::Fp => {
            let unmark = end.checked_sub(UNMARK).filter(|unmark| start < *unmark)?;
            if bytes(unmark.checked_sub(1)?, UNMARKED.len())? != UNMARKED {
                return None;
            }
            // All registers are the caller's again.
            let popped = (unmark, rule(Kind::Sp, machine.sp, 1, Saved::Same)?, Slots::SAME);
            [Some((start, of_piece, slots)), Some(popped), None]
        }
        _ => return None,
    };
    let parts: Vec<_> = parts.into_iter().flatten().filter(|(from, ..)| *from < end).collect();
    let ends = parts.iter().skip(1).map(|(from, ..)| *from).chain([end]);
    let pieces = parts.iter().zip(ends);
    let pieces =
        pieces.map(|((from, rule, slots), to)| Piece::new(*from..to, rules.number_of(*rule, *slots), piece.origin));
    Some(pieces.collect())
}

#[cfg(test)]
mod tests {
    use super::super::super::pieces::Origin;
    use super::*;
    use crate::source::SourceKind;
    use alloc::string::{String, ToString};

    fn told(code: &[u8], ranges: &[(u64, u64, Kind)]) -> Vec<(u64, String)> {
        let mut rules = Rules::default();
        let piece = |(start, end, kind): &(u64, u64, Kind)| {
            let register = if *kind == Kind::Sp { 7 } else { 6 };
            let rule = Rule::new(*kind, RuleSource::EhFrame, register, 2, ReturnAddress::AtCfa(-1), Saved::At(-2))
                .expect("a rule");
            Piece::new(*start..*end, rules.number_of(rule, Slots::SAME), Origin::new(SourceKind::EhFrame, 0))
        };
        let mut pieces: Vec<Piece> = ranges.iter().map(piece).collect();
        tell_extended(&[(0x1000, code)], &mut pieces, &mut rules);
        let told = pieces.iter().map(|piece| (piece.start(), rules.of(piece.rule).0.display(Arch::X86_64).to_string()));
        told.collect()
    }

    const CODE: [u8; 24] = [
        0x48, 0x0f, 0xba, 0xed, 0x3c, 0x55, 0x41, 0x56, 0x48, 0x8d, 0x6c, 0x24, 0x08, 0x48, 0x83, 0xec, 0x08, 0x90,
        0x5d, 0x48, 0x0f, 0xba, 0xf5, 0x3c,
    ];

    #[test]
    fn what_the_information_leaves_out_is_told_by_the_instructions() {
        let told = told(&CODE, &[(0x1006, 0x1011, Kind::Sp), (0x1011, 0x1018, Kind::Fp)]);
        let starts: Vec<u64> = told.iter().map(|(start, _)| *start).collect();
        assert_eq!(starts, [0x1006, 0x1008, 0x100d, 0x1011, 0x1013], "{told:?}");
        let rules: Vec<&str> = told.iter().map(|(_, rule)| rule.split(';').next().expect("a CFA")).collect();
        assert_eq!(rules, ["CFA = rsp+16", "CFA = rsp+24", "CFA = rbp+16", "CFA = rbp+16", "CFA = rsp+8"]);
    }

    #[test]
    fn other_code_stays_as_its_information_says() {
        for (at, byte) in [(0, 0x49), (5, 0x56), (6, 0x40), (12, 0x10), (18, 0x5b), (23, 0x3d)] {
            let mut code = CODE;
            code[at] = byte;
            let told = told(&code, &[(0x1006, 0x1011, Kind::Sp), (0x1011, 0x1018, Kind::Fp)]);
            assert!(told.len() < 5, "{at}: {told:?}");
        }
        // Right already.
        assert_eq!(told(&CODE, &[(0x1006, 0x1008, Kind::Sp)]).len(), 1);
        assert_eq!(told(&CODE, &[(0x1000, 0x1003, Kind::Sp), (0x1013, 0x1018, Kind::Fp)]).len(), 2);
        assert_eq!(told(&[], &[(0x1006, 0x1011, Kind::Sp), (0x1011, 0x1018, Kind::Fp)]).len(), 2);
    }
}
