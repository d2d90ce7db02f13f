//! What AMD64 and IA-32 encode alike: calls, the padding between functions, and what lies ahead of an instruction. (Intel 64 and IA-32 Architectures Software
//! Developer's Manual, volume 2)

mod ahead;
mod extent;
mod jumps;
mod length;
mod realigned;
mod record;

pub(crate) use ahead::is_clear_of_frame_pointer;
pub(super) use ahead::{ahead, keeps_frame_pointer, keeps_stack};
pub(super) use extent::extent;
pub(super) use jumps::has_jump;
pub(crate) use length::Mode;
#[cfg(feature = "compile")]
pub(crate) use length::Parts;
pub(crate) use realigned::{
    AROUND, CallerStack, begins_by_copying, caller_stack, has_copied, registers as realigned_registers,
};
pub(crate) use record::points_elsewhere;
#[cfg(feature = "compile-elf")]
pub(crate) use {jumps::jump, length::length, length::parts};

use super::Call;

/// Longest call instruction, in bytes: an indirect call with prefix, SIB byte and 32-bit displacement.
pub(super) const LONGEST_CALL: usize = 8;

/// The call that returns to `address`, if one ends where `code` ends.
pub(super) fn call_before(code: &[u8], address: u64) -> Option<Call> {
    if let Some([0xe8, a, b, c, d]) = code.last_chunk::<5>() {
        let distance = i32::from_le_bytes([*a, *b, *c, *d]);
        return Some(Call::To(address.wrapping_add_signed(i64::from(distance))));
    }
    // FF /2 with every form of ModRM; the length must come out right, so that it ends exactly here.
    (2..=7usize).find_map(|length| {
        let instruction = code.get(code.len().checked_sub(length)?..)?;
        let [0xff, modrm, rest @ ..] = instruction else { return None };
        if modrm >> 3 & 7 != 2 {
            return None;
        }
        let (mode, rm) = (modrm >> 6, modrm & 7);
        let sib = usize::from(mode != 3 && rm == 4);
        let base = if sib == 1 { rest.first().map_or(0, |sib| sib & 7) } else { rm };
        let displacement = match mode {
            0 if base == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        (rest.len() == sib + displacement).then_some(Call::Indirect)
    })
}

/// Whether `code` is made of `int3` and of what `nop` measures, from its first byte to its last.
pub(super) fn is_made_of(mut code: &[u8], nop: impl Fn(&[u8]) -> Option<usize>) -> bool {
    while let Some(first) = code.first() {
        let length = if *first == 0xcc { Some(1) } else { nop(code) };
        match length.and_then(|length| code.get(length..)) {
            Some(rest) => code = rest,
            None => return false,
        }
    }
    true
}

/// Bytes of the `nop` at the front: `90`, or `0f 1f /0` with any operand, behind any of the prefixes 66 and 2e.
pub(super) fn nop_length(code: &[u8]) -> Option<usize> {
    let mut code = code.iter();
    let mut prefixes = 0;
    let opcode = loop {
        match code.next()? {
            0x66 | 0x2e => prefixes += 1,
            byte => break byte,
        }
    };
    if *opcode == 0x90 {
        return Some(prefixes + 1);
    }
    let (0x0f, 0x1f, modrm) = (*opcode, *code.next()?, *code.next()?) else { return None };
    let operand = match modrm {
        0x00 => 0,
        0x40 => 1,
        0x44 => 2,
        0x80 => 4,
        0x84 => 5,
        _ => return None,
    };
    Some(prefixes + 3 + operand)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_instructions_are_known_by_their_bytes() {
        let check = |code: &[u8], expected| assert_eq!(call_before(code, 0x1000), expected, "{code:x?}");
        check(&[0x90, 0xe8, 1, 0, 0, 0], Some(Call::To(0x1001)));
        check(&[0xff, 0xd0], Some(Call::Indirect)); // call *%rax
        check(&[0x41, 0xff, 0xd4], Some(Call::Indirect)); // call *%r12
        check(&[0xff, 0x10], Some(Call::Indirect)); // call *(%rax)
        check(&[0xff, 0x50, 0x08], Some(Call::Indirect)); // call *8(%rax)
        check(&[0xff, 0x14, 0xd8], Some(Call::Indirect)); // call *(%rax,%rbx,8)
        check(&[0xff, 0x15, 1, 2, 3, 4], Some(Call::Indirect)); // call *x(%rip)
        check(&[0xff, 0x94, 0x24, 1, 2, 3, 4], Some(Call::Indirect)); // call *x(%rsp)
        check(&[0xff, 0xe0], None); // jmp *%rax
        check(&[0xff, 0x15, 1, 2, 3], None);
        check(&[0xc3], None);
        check(&[], None);
    }

    #[test]
    fn padding_is_known_by_its_bytes() {
        let is_padding = |code: &[u8]| is_made_of(code, nop_length);
        assert!(is_padding(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0]));
        assert!(is_padding(&[0x66, 0x90, 0x90, 0xcc, 0xcc]));
        for code in [&[0x0f, 0x1f, 0x44, 0][..], &[0], &[0xc3], &[0x90, 0x66], &[0x0f, 0x0b], &[0x0f, 0x1f, 0xc0]] {
            assert!(!is_padding(code), "{code:x?}");
        }
    }
}
