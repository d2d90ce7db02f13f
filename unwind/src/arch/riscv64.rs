//! 64-bit RISC-V on Linux: register numbers of the RISC-V ELF psABI, the kernel's signal frame, call instructions.
//!
//! The floating-point registers fs0–fs11, which functions keep too, have no slots: no frame is found through them.

use super::{Ahead, Arch, Call, FrameRecords, Machine, Target, Trampoline};

pub(crate) struct Riscv64;

impl Target for Riscv64 {
    const MACHINE: &'static Machine = &Machine {
        arch: Arch::Riscv64,
        word: 8,
        big_endian: false,
        sp: SP,
        fp: 8,
        return_address: LINK,
        pc: PC,
        registers: 32,
        slot_registers: &[9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27],
        convention_registers: &[],
        machine_frame_sp: None,
        link: Some(LINK),
        frame_records: FrameRecords::UnderPointer,
        // c.li s0, 0; li s0, 0
        clears_frame_pointer: &[&[0x01, 0x44], &[0x13, 0x04, 0, 0]],
        mode_bits: 0,
        signs_return_addresses: false,
        tag_bits: 0,
        slot_words: 3,
        function_alignment: 16,
        instruction_alignment: 2,
        names: &NAMES,
        longest_call: 8,
        call_before,
        keeps_stack,
        keeps_frame_pointer: |_| false,
        extent: |_| None,
        has_jump: |_, _| true,
        ahead: |_| Ahead::Unknown,
        context_slot,
        trampolines: &[Trampoline { code: &SIGRETURN, contexts: &[(0, CONTEXT), (4, CONTEXT)] }],
        is_padding,
    };
}

/// DWARF number of the stack pointer.
const SP: u8 = 2;
/// ra, the link register.
const LINK: u8 = 1;
/// The psABI's alternate frame return column, which stands for where a signal handler returns to.
const PC: u8 = 64;

const NAMES: [&str; 65] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6", "ft0", "ft1", "ft2", "ft3", "ft4",
    "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5", "fa6", "fa7", "fs2", "fs3", "fs4",
    "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8", "ft9", "ft10", "ft11", "pc",
];

/// From the stack pointer in the trampoline to `struct sigcontext`: 128 bytes of `siginfo_t`, and in `struct ucontext` 8 of flags, 8 of
/// a link, 24 of the stack, 128 of signal masks, and 8 that align to 16. (Linux, arch/riscv/kernel/signal.c, `rt_sigframe`)
const CONTEXT: i64 = 128 + 176;

/// `struct sigcontext` begins with `user_regs_struct`: pc, then x1–x31.
fn context_slot(register: u8) -> Option<u64> {
    match register {
        PC => Some(0),
        1..=31 => Some(8 * u64::from(register)),
        _ => None,
    }
}

/// `li a7, 139; ecall`, in the vDSO and wherever else a handler may return to.
const SIGRETURN: [u8; 8] = [0x93, 0x08, 0xb0, 0x08, 0x73, 0, 0, 0];

/// Bytes of the instruction that begins with this halfword. (Unprivileged specification, "Base Instruction-Length Encoding")
pub(crate) const fn length(first: u16) -> usize {
    if first & 3 == 3 { 4 } else { 2 }
}

/// The instructions of `code` from its first byte on, widened to 32 bits; a cut one is `None`.
fn instructions(mut code: &[u8]) -> impl Iterator<Item = Option<u32>> {
    core::iter::from_fn(move || {
        let first =
            u16::from_le_bytes(*code.first_chunk::<2>().or(if code.is_empty() { None } else { Some(&[3, 0]) })?);
        let (word, bytes) = match length(first) {
            2 => (Some(u32::from(first)), 2),
            bytes => (code.first_chunk::<4>().map(|word| u32::from_le_bytes(*word)), bytes),
        };
        code = code.get(bytes..).unwrap_or_default();
        Some(word)
    })
}

/// `nop` and `c.nop`, and the zeros that no instruction begins with.
fn is_padding(code: &[u8]) -> bool {
    instructions(code).all(|word| matches!(word, Some(0x13 | 1 | 0)))
}

/// `jal` and `jalr` that link to ra or to the other link register, t0; `c.jalr`. An `auipc` before a `jalr` tells where it leads.
/// (Unprivileged specification, "Control Transfer Instructions")
fn call_before(code: &[u8], address: u64) -> Option<Call> {
    if let Some(half) = code.last_chunk::<2>().map(|half| u16::from_le_bytes(*half))
        && half & 0xf07f == 0x9002
        && half >> 7 & 31 != 0
    {
        return Some(Call::Indirect);
    }
    let word = u32::from_le_bytes(*code.last_chunk::<4>()?);
    let links = matches!(word >> 7 & 31, 1 | 5);
    match word & 0x7f {
        0x6f if links => Some(Call::To(address.wrapping_sub(4).wrapping_add_signed(jump_distance(word)))),
        0x67 if links && word >> 12 & 7 == 0 => {
            let low = i64::from(word as i32 >> 20);
            let before = code.get(..code.len().checked_sub(4)?).and_then(|code| code.last_chunk::<4>());
            let auipc = before.map(|word| u32::from_le_bytes(*word));
            let auipc = auipc.filter(|auipc| auipc & 0x7f == 0x17 && auipc >> 7 & 31 == word >> 15 & 31);
            Some(auipc.map_or(Call::Indirect, |auipc| {
                let high = i64::from((auipc & 0xffff_f000) as i32);
                Call::To(address.wrapping_sub(8).wrapping_add_signed(high + low))
            }))
        }
        _ => None,
    }
}

/// The distance of a `jal`, in bytes from itself.
pub(crate) const fn jump_distance(word: u32) -> i64 {
    let (high, middle) = ((word as i32 >> 31) as i64, word & 0xff000);
    (high << 20) | middle as i64 | ((word >> 20 & 1) << 11) as i64 | ((word >> 21 & 0x3ff) << 1) as i64
}

/// Whether no instruction of `code` writes the stack pointer: rd of the wide forms that have one, and the short ones by their form.
fn keeps_stack(code: &[u8]) -> bool {
    instructions(code).all(|word| word.is_some_and(|word| !writes_stack(word)))
}

fn writes_stack(word: u32) -> bool {
    let rd = word >> 7 & 31;
    let sp = u32::from(SP);
    match word & 3 {
        // Stores and branches have no rd there; system instructions write one or none.
        3 => rd == sp && !matches!(word & 0x7f, 0x23 | 0x27 | 0x63),
        // c.addi, c.li, c.addi16sp or c.lui; c.slli, c.lwsp, c.ldsp; c.mv, c.add
        1 => rd == sp && word >> 13 & 7 <= 3,
        2 => rd == sp && matches!(word >> 13 & 7, 0 | 2 | 3 | 4),
        // The registers of the others are s0–s1 and a0–a5.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn bytes(words: &[u32]) -> Vec<u8> {
        let of = |word: &u32| word.to_le_bytes().into_iter().take(length(*word as u16)).collect::<Vec<u8>>();
        words.iter().flat_map(of).collect()
    }

    #[test]
    fn call_instructions_are_known_by_their_bytes() {
        let check = |words: &[u32], expected| assert_eq!(call_before(&bytes(words), 0x1008), expected, "{words:x?}");
        check(&[0x0080_00ef], Some(Call::To(0x100c))); // jal ra, .+8
        check(&[0xffdf_f0ef], Some(Call::To(0x1000))); // jal ra, .-4
        check(&[0x0080_02ef], Some(Call::To(0x100c))); // jal t0, .+8
        check(&[0x0000_1097, 0x0100_80e7], Some(Call::To(0x2010))); // auipc ra, 1; jalr 16(ra)
        check(&[0xffff_f097, 0xff00_80e7], Some(Call::To(0xffff_ffff_ffff_fff0))); // auipc ra, -1; jalr -16(ra)
        check(&[0x0007_80e7], Some(Call::Indirect)); // jalr a5
        check(&[0x9782], Some(Call::Indirect)); // c.jalr a5
        check(&[0x8782], None); // c.jr a5
        check(&[0x9002], None); // c.ebreak
        check(&[0x0080_006f], None); // j .+8
        check(&[0x0000_8067], None); // ret
    }

    #[test]
    fn instructions_that_move_the_stack_pointer_are_known_by_their_bytes() {
        let moving = [
            0x7139,      // addi sp, sp, -64
            0x6121,      // addi sp, sp, 64
            0x1141,      // addi sp, sp, -16
            0xfc01_0113, // addi sp, sp, -64
            0x4051_0133, // sub sp, sp, t0
            0x0001_3103, // ld sp, 0(sp)
            0x8122,      // mv sp, s0
        ];
        let others = [
            0xe406,      // sd ra, 8(sp)
            0x60a2,      // ld ra, 8(sp)
            0x0800,      // addi s0, sp, 16
            0x00113423,  // sd ra, 8(sp)
            0x0020_8463, // beq ra, sp, .+8
            0x8082,      // ret
            0x892a,      // mv s2, a0
        ];
        for word in moving {
            assert!(!keeps_stack(&bytes(&[word])), "{word:x}");
        }
        for word in others {
            assert!(keeps_stack(&bytes(&[word])), "{word:x}");
        }
        assert!(!keeps_stack(&[0x13]) && !keeps_stack(&[0x13, 0]) && keeps_stack(&[]));
    }

    #[test]
    fn the_context_has_every_register_where_the_kernel_puts_it() {
        assert_eq!((context_slot(PC), context_slot(LINK), context_slot(SP)), (Some(0), Some(8), Some(16)));
        assert_eq!((context_slot(31), context_slot(0), context_slot(32)), (Some(248), None, None));
    }
}
