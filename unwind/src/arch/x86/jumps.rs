//! The jumps among the instructions of a function. (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: Jcc, JMP, LOOP, JCXZ)

use super::length::{Mode, Parts, parts};
use crate::arch::{CountsJump, Jump};

/// The jump that an instruction is, and whether the next one may run too.
pub(crate) struct Jumping {
    /// Bytes from the end of the instruction; `None` for a jump through a register or memory.
    pub(crate) distance: Option<i64>,
    pub(crate) is_conditional: bool,
}

/// The jump that the instruction at the front of `code` is.
#[inline(never)]
pub(crate) fn jump(code: &[u8], parts: &Parts) -> Option<Jumping> {
    let direct = |distance: i64, is_conditional| Some(Jumping { distance: Some(distance), is_conditional });
    match code.get(parts.opcode..)? {
        [0xe9, a, b, c, d, ..] => direct(i64::from(i32::from_le_bytes([*a, *b, *c, *d])), false),
        [0xeb, distance, ..] => direct(i64::from(*distance as i8), false),
        [0x70..=0x7f | 0xe0..=0xe3, distance, ..] => direct(i64::from(*distance as i8), true),
        [0x0f, 0x80..=0x8f, a, b, c, d, ..] => direct(i64::from(i32::from_le_bytes([*a, *b, *c, *d])), true),
        // A table of jumps, or another function.
        [0xff, modrm, ..] if matches!(modrm >> 3 & 7, 4 | 5) => Some(Jumping { distance: None, is_conditional: false }),
        // To another segment, of IA-32 alone.
        [0xea, ..] => Some(Jumping { distance: None, is_conditional: false }),
        _ => None,
    }
}

/// Whether a jump in `code`, which begins with an instruction, `counts`; also where an instruction is not known, and what is behind it is not either.
pub(in super::super) fn has_jump(code: &[u8], mode: Mode, counts: &mut CountsJump<'_>) -> bool {
    let mut at = 0;
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(parts) = parts(rest, mode) else { return true };
        let next = at + parts.length;
        let jump = jump(rest, &parts).map(|jump| match jump.distance {
            Some(distance) => Jump::To(next as i64 + distance),
            None => Jump::Anywhere,
        });
        if jump.is_some_and(|jump| counts(at, jump)) {
            return true;
        }
        at = next;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn jumps(code: &[u8], mode: Mode) -> (Vec<Jump>, bool) {
        let mut found = Vec::new();
        let is_unknown = has_jump(code, mode, &mut |_, jump| {
            found.push(jump);
            false
        });
        (found, is_unknown)
    }

    #[test]
    fn jumps_are_told_from_bytes_that_look_like_them() {
        // je +2; mov $0xe9ebff, %eax; jmp -7; loop +0; jne 0x100 on
        let code = [0x74, 2, 0xb8, 0xff, 0xeb, 0xe9, 0, 0xeb, 0xf7, 0xe2, 0, 0x0f, 0x85, 0, 1, 0, 0];
        let expected = [Jump::To(4), Jump::To(0), Jump::To(11), Jump::To(0x111)];
        assert_eq!(jumps(&code, Mode::Bits64), (expected.to_vec(), false));
        // bnd jmp, notrack jmp *(,%rax,8), call *%rax
        let code = [0xf2, 0xe9, 0, 1, 0, 0, 0x3e, 0xff, 0x24, 0xc5, 0, 0, 0, 0, 0xff, 0xd0];
        assert_eq!(jumps(&code, Mode::Bits64), ([Jump::To(0x106), Jump::Anywhere].to_vec(), false));
        assert_eq!(jumps(&[0xc3], Mode::Bits64), (Vec::new(), false));
    }

    #[test]
    fn an_unknown_instruction_may_be_anything() {
        assert_eq!(jumps(&[0x90, 0x06], Mode::Bits64), (Vec::new(), true));
        assert_eq!(jumps(&[0x06], Mode::Bits32), (Vec::new(), false));
        assert_eq!(jumps(&[0xe9, 0], Mode::Bits64), (Vec::new(), true));
        // A far jump leads somewhere that is not to be told.
        assert_eq!(jumps(&[0xff, 0x28], Mode::Bits32), ([Jump::Anywhere].to_vec(), false));
    }

    #[test]
    fn the_first_that_counts_is_enough() {
        let mut asked = 0;
        assert!(has_jump(&[0xeb, 0, 0xeb, 0], Mode::Bits64, &mut |_, _| {
            asked += 1;
            true
        }));
        assert_eq!(asked, 1);
    }
}
