//! 32-bit MIPS on Linux, calling convention o32: register numbers, the kernel's two signal frames, call instructions.
//!
//! A return address is that of the instruction after the delay slot: what is looked up for it lies in the delay slot.

use super::{Ahead, Arch, Call, FrameRecords, Machine, Target, Trampoline, is_all, is_without, word_before};

pub(crate) struct Mips32Big;
pub(crate) struct Mips32Little;

impl Target for Mips32Big {
    const MACHINE: &'static Machine = &Machine {
        arch: Arch::Mips32,
        big_endian: true,
        call_before: |code, address| call_before(code, address, true),
        keeps_stack: |code| is_without(code, true, moves_stack),
        // The lower half of each 64-bit slot comes last.
        context_slot: |register| context_slot(register).map(|slot| slot + 4),
        trampolines: &[
            Trampoline { code: &RT_SIGRETURN_BIG, contexts: &[(0, RT_CONTEXT), (4, RT_CONTEXT)] },
            Trampoline { code: &SIGRETURN_BIG, contexts: &[(0, CONTEXT), (4, CONTEXT)] },
        ],
        ..LITTLE
    };
}

impl Target for Mips32Little {
    const MACHINE: &'static Machine = &LITTLE;
}

const LITTLE: Machine = Machine {
    arch: Arch::Mips32Little,
    word: 4,
    big_endian: false,
    sp: 29,
    fp: 30,
    return_address: LINK,
    pc: PC,
    registers: 32,
    slot_registers: &[16, 17, 18, 19, 20, 21, 22, 23, 28],
    convention_registers: &[],
    machine_frame_sp: None,
    link: Some(LINK),
    frame_records: FrameRecords::None,
    clears_frame_pointer: &[],
    // MIPS16 and microMIPS. (MIPS architecture, volume II-B, "ISA mode bit")
    mode_bits: 1,
    signs_return_addresses: false,
    tag_bits: 0,
    slot_words: 2,
    function_alignment: 16,
    instruction_alignment: 4,
    names: &NAMES,
    longest_call: 8,
    call_before: |code, address| call_before(code, address, false),
    keeps_stack: |code| is_without(code, false, moves_stack),
    keeps_frame_pointer: |_| false,
    extent: |_| None,
    has_jump: |_, _| true,
    ahead: |_| Ahead::Unknown,
    context_slot,
    trampolines: &[
        Trampoline { code: &RT_SIGRETURN_LITTLE, contexts: &[(0, RT_CONTEXT), (4, RT_CONTEXT)] },
        Trampoline { code: &SIGRETURN_LITTLE, contexts: &[(0, CONTEXT), (4, CONTEXT)] },
    ],
    is_padding: |code| is_all(code, [0; 4]),
};

/// $31, the link register.
const LINK: u8 = 31;
/// The number that debuggers give the program counter.
const PC: u8 = 37;

const NAMES: [&str; 38] = [
    "zero", "at", "v0", "v1", "a0", "a1", "a2", "a3", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "s0", "s1", "s2",
    "s3", "s4", "s5", "s6", "s7", "t8", "t9", "k0", "k1", "gp", "sp", "s8", "ra", "sr", "lo", "hi", "bad", "cause",
    "pc",
];

/// From the stack pointer in the trampoline to `struct sigcontext`: 16 bytes for arguments, 8 of padding. (Linux,
/// arch/mips/kernel/signal.c, `sigframe`)
const CONTEXT: i64 = 24;
/// The same with 128 bytes of `siginfo_t`, and 24 of `struct ucontext` before the context. (`rt_sigframe`)
const RT_CONTEXT: i64 = 24 + 128 + 24;

/// In `struct sigcontext` two words come first, then in 8 bytes each the program counter and the 32 registers.
fn context_slot(register: u8) -> Option<u64> {
    match register {
        0..=31 => Some(16 + 8 * u64::from(register)),
        PC => Some(8),
        _ => None,
    }
}

/// `li $v0, 4193; syscall`.
const RT_SIGRETURN_BIG: [u8; 8] = [0x24, 0x02, 0x10, 0x61, 0, 0, 0, 0x0c];
const RT_SIGRETURN_LITTLE: [u8; 8] = [0x61, 0x10, 0x02, 0x24, 0x0c, 0, 0, 0];
/// `li $v0, 4119; syscall`.
const SIGRETURN_BIG: [u8; 8] = [0x24, 0x02, 0x10, 0x17, 0, 0, 0, 0x0c];
const SIGRETURN_LITTLE: [u8; 8] = [0x17, 0x10, 0x02, 0x24, 0x0c, 0, 0, 0];

/// `jal`, `jalr` to $31, `bal` and its conditional forms, before a delay slot. (MIPS32 Architecture, volume II)
fn call_before(code: &[u8], address: u64, big_endian: bool) -> Option<Call> {
    let word = word_before(code, 4, big_endian)?;
    let delay_slot = address.wrapping_sub(4) & 0xffff_ffff;
    let call = match word >> 26 {
        3 => Some(Call::To(delay_slot & 0xf000_0000 | u64::from(word & 0x03ff_ffff) << 2)),
        // bltzal, bgezal and their likely forms; bal is one of them.
        1 if matches!(word >> 16 & 31, 16..=19) => {
            Some(Call::To(delay_slot.wrapping_add_signed(i64::from(word as u16 as i16) * 4) & 0xffff_ffff))
        }
        0 if word & 0x001f_f83f == 0x0000_f809 => Some(Call::Indirect),
        _ => None,
    };
    // `bal` to the next instruction is how code learns its own address.
    call.filter(|call| *call != Call::To(address))
}

/// Whether the stack pointer is what an instruction writes: rd of register forms, rt of immediate ones and of loads.
fn moves_stack(word: u32) -> bool {
    let sp = 29;
    match word >> 26 {
        0 | 28 => word >> 11 & 31 == sp,
        8..=15 | 31..=38 | 48 => word >> 16 & 31 == sp,
        _ => false,
    }
}

/// What the header of an ELF file of MIPS says of its code (`e_flags`), in the names of binutils' `include/elf/mips.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MipsFlags(pub u32);

impl MipsFlags {
    /// Addresses of 32 bits in registers of 64, with other rules for calls (n32).
    const ABI2: u32 = 0x20;
    const ABI: u32 = 0xf000;
    const ABI_O32: u32 = 0x1000;
    const ARCH: u32 = 0xf000_0000;
    const ARCH_32R6: u32 = 0x9000_0000;
    const ARCH_64R6: u32 = 0xa000_0000;
    const ASE_M16: u32 = 0x0400_0000;
    const ASE_MICROMIPS: u32 = 0x0200_0000;

    /// Whether functions call each other, and instructions are encoded, as [`Arch::Mips32`] has it. Old files do not name their convention.
    pub fn is_o32(self) -> bool {
        let Self(flags) = self;
        flags & Self::ABI2 == 0
            && matches!(flags & Self::ABI, 0 | Self::ABI_O32)
            && !matches!(flags & Self::ARCH, Self::ARCH_32R6 | Self::ARCH_64R6)
    }

    /// Whether some of the code is MIPS16 or microMIPS. It would be read as what it is not; what a compiler said of it holds.
    pub fn has_short_instructions(self) -> bool {
        self.0 & (Self::ASE_M16 | Self::ASE_MICROMIPS) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_conventions_and_encodings_are_told_by_the_flags() {
        // mips-linux-gnu-gcc; an old file; n32; o64; release 6.
        for (flags, is_ours) in
            [(0x7000_1007, true), (0, true), (0x2000_0027, false), (0x2000_2007, false), (0x9000_1407, false)]
        {
            assert_eq!(MipsFlags(flags).is_o32(), is_ours, "{flags:#x}");
        }
        assert!(MipsFlags(0x7400_1007).has_short_instructions() && !MipsFlags(0x7000_1007).has_short_instructions());
    }

    #[test]
    fn call_instructions_are_known_by_their_bytes() {
        let check = |word: u32, expected| {
            let code = [word.to_be_bytes(), [0; 4]].concat();
            assert_eq!((Mips32Big::MACHINE.call_before)(&code, 0x1008), expected, "{word:x}");
            let code = [word.to_le_bytes(), [0; 4]].concat();
            assert_eq!((Mips32Little::MACHINE.call_before)(&code, 0x1008), expected, "{word:x}");
        };
        check(0x0c10_0400, Some(Call::To(0x40_1000))); // jal 0x401000
        check(0x0411_0002, Some(Call::To(0x100c))); // bal .+12
        check(0x0411_0001, None); // bal .+8
        check(0x0411_ffff, Some(Call::To(0x1000))); // bal .
        check(0x0320_f809, Some(Call::Indirect)); // jalr $t9
        check(0x0320_fc09, Some(Call::Indirect)); // jalr.hb $t9
        check(0x03e0_0008, None); // jr $ra
        check(0x0320_0009, None); // jalr $zero, $t9: a jump
        check(0x0810_0400, None); // j
        assert_eq!((Mips32Big::MACHINE.call_before)(&[0; 4], 4), None);
    }

    #[test]
    fn the_context_has_every_register_where_the_kernel_puts_it() {
        assert_eq!((context_slot(0), context_slot(29), context_slot(PC)), (Some(16), Some(248), Some(8)));
        assert_eq!((Mips32Big::MACHINE.context_slot)(31), Some(16 + 8 * 31 + 4));
        assert_eq!(context_slot(32), None);
    }
}
