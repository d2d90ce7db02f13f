//! 32-bit ARM on Linux, little-endian, in both instruction sets: register numbers of AADWARF32, the kernel's two signal frames, call
//! instructions.
//!
//! Bit 0 of an address that code jumps to says that Thumb instructions are there, and is no part of it. The registers d8–d15, which functions keep too,
//! have no slots: no frame is found through them.

use super::{Ahead, Arch, Call, FrameRecords, Machine, Target, Trampoline};

pub(crate) struct Arm;

impl Target for Arm {
    const MACHINE: &'static Machine = &Machine {
        arch: Arch::Arm,
        word: 4,
        big_endian: false,
        sp: 13,
        fp: 11,
        return_address: LINK,
        pc: PC,
        registers: 15,
        slot_registers: &[4, 5, 6, 7, 8, 9, 10],
        convention_registers: &[],
        machine_frame_sp: None,
        link: Some(LINK),
        // What AAPCS32 calls frame records. GCC's code keeps others, or none.
        frame_records: FrameRecords::InFrame,
        // mov fp, #0, in either instruction set
        clears_frame_pointer: &[&[0, 0xb0, 0xa0, 0xe3], &[0x4f, 0xf0, 0, 0x0b]],
        mode_bits: 1,
        signs_return_addresses: false,
        tag_bits: 0,
        slot_words: 2,
        function_alignment: 16,
        instruction_alignment: 2,
        names: &NAMES,
        longest_call: 4,
        call_before,
        // Which instructions there are is not known.
        keeps_stack: <[u8]>::is_empty,
        keeps_frame_pointer: |_| false,
        extent: |_| None,
        has_jump: |_, _| true,
        ahead: |_| Ahead::Unknown,
        context_slot,
        trampolines: &[
            Trampoline { code: &THUMB_RT_SIGRETURN, contexts: &[(0, RT_CONTEXT), (4, RT_CONTEXT)] },
            Trampoline { code: &THUMB_SIGRETURN, contexts: &[(0, CONTEXT), (4, CONTEXT)] },
            Trampoline { code: &SHORT_RT_SIGRETURN, contexts: &[(0, RT_CONTEXT), (2, RT_CONTEXT)] },
            Trampoline { code: &SHORT_SIGRETURN, contexts: &[(0, CONTEXT), (2, CONTEXT)] },
            Trampoline { code: &ARM_RT_SIGRETURN, contexts: &[(0, RT_CONTEXT), (4, RT_CONTEXT)] },
            Trampoline { code: &ARM_SIGRETURN, contexts: &[(0, CONTEXT), (4, CONTEXT)] },
            Trampoline { code: &KERNEL_RT_SIGRETURN, contexts: &[(0, RT_CONTEXT), (4, RT_CONTEXT)] },
            Trampoline { code: &KERNEL_SIGRETURN, contexts: &[(0, CONTEXT), (4, CONTEXT)] },
        ],
        is_padding,
    };
}

/// The link register.
const LINK: u8 = 14;
/// The program counter.
const PC: u8 = 15;

const NAMES: [&str; 16] =
    ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "ip", "sp", "lr", "pc"];

/// From the stack pointer in the trampoline to `struct sigcontext`: 20 bytes of `struct ucontext`. (Linux, arch/arm/kernel/signal.c,
/// `sigframe`)
const CONTEXT: i64 = 20;
/// The same behind 128 bytes of `siginfo_t`. (`rt_sigframe`)
const RT_CONTEXT: i64 = 128 + 20;

/// `struct sigcontext` begins with three words about the trap, then r0–r15.
fn context_slot(register: u8) -> Option<u64> {
    (register <= PC).then(|| 12 + 4 * u64::from(register))
}

/// `mov.w r7, #173; svc 0`, as C libraries have it in Thumb code.
const THUMB_RT_SIGRETURN: [u8; 6] = [0x4f, 0xf0, 0xad, 0x07, 0x00, 0xdf];
/// `mov.w r7, #119; svc 0`.
const THUMB_SIGRETURN: [u8; 6] = [0x4f, 0xf0, 0x77, 0x07, 0x00, 0xdf];
/// `movs r7, #173; svc 0`, as the kernel has it.
const SHORT_RT_SIGRETURN: [u8; 4] = [0xad, 0x27, 0x00, 0xdf];
/// `movs r7, #119; svc 0`.
const SHORT_SIGRETURN: [u8; 4] = [0x77, 0x27, 0x00, 0xdf];
/// `mov r7, #173; svc 0`, as C libraries have it in ARM code.
const ARM_RT_SIGRETURN: [u8; 8] = [0xad, 0x70, 0xa0, 0xe3, 0, 0, 0, 0xef];
/// `mov r7, #119; svc 0`.
const ARM_SIGRETURN: [u8; 8] = [0x77, 0x70, 0xa0, 0xe3, 0, 0, 0, 0xef];
/// `mov r7, #173; svc 0x9000ad`, as the kernel has it, for either convention of system calls.
const KERNEL_RT_SIGRETURN: [u8; 8] = [0xad, 0x70, 0xa0, 0xe3, 0xad, 0, 0x90, 0xef];
/// `mov r7, #119; svc 0x900077`.
const KERNEL_SIGRETURN: [u8; 8] = [0x77, 0x70, 0xa0, 0xe3, 0x77, 0, 0x90, 0xef];

/// `nop` of both sets, the short one's two lengths included, and `mov r8, r8`.
fn is_padding(mut code: &[u8]) -> bool {
    while !code.is_empty() {
        code = match code {
            [0x00, 0xbf, rest @ ..] | [0xc0, 0x46, rest @ ..] => rest,
            [0xaf, 0xf3, 0x00, 0x80, rest @ ..] => rest,
            [0x00, 0xf0, 0x20, 0xe3, rest @ ..] | [0x00, 0x00, 0xa0, 0xe1, rest @ ..] => rest,
            _ => return false,
        };
    }
    true
}

/// `bl`, `blx` of both sets. Which set it is, the bit told that is no longer there: a word that is a call in either counts. (Arm ARM
/// for ARMv7-A, A8.8.25 and A8.8.26)
fn call_before(code: &[u8], address: u64) -> Option<Call> {
    let wrap = |address: u64| address & 0xffff_ffff;
    if let Some(word) = code.last_chunk::<4>().map(|word| u32::from_le_bytes(*word)) {
        let (high, low) = (word & 0xffff, word >> 16);
        if high >> 11 == 0b11110 && low >> 14 == 0b11 {
            let distance = thumb_distance(high, low);
            // `blx` leads to ARM code, which lies at whole words.
            let is_exchange = low & 0x1000 == 0;
            let from = if is_exchange { address & !3 } else { address };
            return Some(Call::To(wrap(from.wrapping_add_signed(distance))));
        }
        let from = address.wrapping_add(4);
        let distance = i64::from((word << 8) as i32 >> 6);
        match word >> 24 {
            0xeb => return Some(Call::To(wrap(from.wrapping_add_signed(distance)))),
            0xfa | 0xfb => {
                let half = i64::from(word >> 24 & 1) * 2;
                return Some(Call::To(wrap(from.wrapping_add_signed(distance + half))));
            }
            // Conditional calls.
            _ if word >> 24 & 15 == 0xb && word >> 28 < 14 => {
                return Some(Call::To(wrap(from.wrapping_add_signed(distance))));
            }
            _ if word & 0x0fff_fff0 == 0x012f_ff30 && word >> 28 < 15 => return Some(Call::Indirect),
            _ => {}
        }
    }
    let half = u16::from_le_bytes(*code.last_chunk::<2>()?);
    (half & 0xff87 == 0x4780).then_some(Call::Indirect)
}

/// The distance of a `bl`, `blx` or wide `b` of Thumb from the address behind it. (A8.8.25, encoding T1)
pub(crate) fn thumb_distance(high: u32, low: u32) -> i64 {
    let sign = high >> 10 & 1;
    let (first, second) = (!((low >> 13) ^ sign) & 1, !((low >> 11) ^ sign) & 1);
    let bits = sign << 24 | first << 23 | second << 22 | (high & 0x3ff) << 12 | (low & 0x7ff) << 1;
    i64::from((bits << 7) as i32 >> 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_instructions_of_both_sets_are_known_by_their_bytes() {
        let check = |code: &[u8], expected| assert_eq!(call_before(code, 0x1004), expected, "{code:x?}");
        check(&[0x00, 0xf0, 0x02, 0xf8], Some(Call::To(0x1008))); // bl .+8
        check(&[0xff, 0xf7, 0xfe, 0xff], Some(Call::To(0x1000))); // bl .
        check(&[0x00, 0xf0, 0x04, 0xe8], Some(Call::To(0x100c))); // blx .+12
        check(&[0x00, 0xbf, 0x98, 0x47], Some(Call::Indirect)); // blx r3
        check(&[0x00, 0x00, 0x00, 0xeb], Some(Call::To(0x1008))); // bl .+8, of ARM
        check(&[0x33, 0xff, 0x2f, 0xe1], Some(Call::Indirect)); // blx r3, of ARM
        check(&[0x00, 0x00, 0x00, 0xfb], Some(Call::To(0x100a))); // blx .+10, of ARM
        check(&[0x00, 0xbf, 0x70, 0x47], None); // bx lr
        check(&[0x1e, 0xff, 0x2f, 0xe1], None); // bx lr, of ARM
        check(&[0x00, 0x00, 0x00, 0xea], None); // b
    }

    #[test]
    fn the_context_has_every_register_where_the_kernel_puts_it() {
        assert_eq!(
            (context_slot(0), context_slot(13), context_slot(PC), context_slot(16)),
            (Some(12), Some(64), Some(72), None)
        );
    }
}
