//! How far a function without rules reaches, and whether its instructions lead out of it otherwise than by calls.

use super::jumps::{Jumping, jump};
use super::length::{Mode, parts};
use crate::arch::Extent;

/// Follows the instructions at the front of `code`, which a function begins with, to the last one that a jump among them leads to: up to a return, a jump or
/// a trap with nothing behind it that was jumped over. `None` where an instruction is not known, or the function does not end in `code`.
pub(in super::super) fn extent(code: &[u8], mode: Mode) -> Option<Extent> {
    let (mut at, mut furthest, mut leaves) = (0usize, 0usize, false);
    loop {
        let rest = code.get(at..)?;
        let parts = parts(rest, mode)?;
        let next = at.checked_add(parts.length)?;
        let jump = jump(rest, &parts);
        // A jump within is one to what lies between the function's beginning and the end of what is at hand.
        if let Some(Jumping { distance, .. }) = jump {
            let target = distance.and_then(|distance| usize::try_from(next as i64 + distance).ok());
            match target.filter(|target| *target < code.len()) {
                Some(target) => furthest = furthest.max(target),
                None => leaves = true,
            }
        }
        let opcode = rest.get(parts.opcode..).unwrap_or_default();
        let returns = matches!(opcode, [0xc2 | 0xc3 | 0xca | 0xcb | 0xcf | 0xf4 | 0xcc, ..] | [0x0f, 0x0b, ..]);
        let ends = returns || jump.is_some_and(|jump| !jump.is_conditional);
        if ends && next > furthest {
            return Some(Extent { bytes: next as u64, leaves });
        }
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &[u8], expected: Option<(u64, bool)>) {
        let found = extent(code, Mode::Bits64).map(|extent| (extent.bytes, extent.leaves));
        assert_eq!(found, expected, "{code:x?}");
    }

    #[test]
    fn a_function_reaches_to_the_end_that_nothing_jumps_over() {
        check(&[0xc3, 0x90], Some((1, false)));
        // test %edi, %edi; je to the second ret; ret; ret
        check(&[0x85, 0xff, 0x74, 1, 0xc3, 0xc3, 0x90], Some((6, false)));
        check(&[0x0f, 0x84, 1, 0, 0, 0, 0xc3, 0xf3, 0xc3, 0x90], Some((9, false)));
        // A loop: dec %edi; jne back; ret
        check(&[0xff, 0xcf, 0x75, 0xfc, 0xc3], Some((5, false)));
        check(&[0x0f, 0x0b], Some((2, false)));
        // call; ret
        check(&[0xe8, 0, 1, 0, 0, 0xc3], Some((6, false)));
    }

    #[test]
    fn jumps_out_of_it_are_told() {
        check(&[0xe9, 0xf0, 0xff, 0xff, 0xff], Some((5, true))); // back
        check(&[0xe9, 0, 1, 0, 0], Some((5, true))); // beyond what is at hand
        check(&[0x74, 0x70, 0xc3], Some((3, true)));
        check(&[0xff, 0xe0], Some((2, true))); // jmp *%rax
        check(&[0x3e, 0xff, 0x24, 0xc5, 0, 0, 0, 0], Some((8, true))); // notrack jmp *(,%rax,8)
    }

    #[test]
    fn what_does_not_end_or_is_not_known_tells_nothing() {
        check(&[0x90; 16], None);
        check(&[0x74, 2, 0xc3], Some((3, true)));
        check(&[0x48, 0x8b], None);
        check(&[], None);
    }
}
