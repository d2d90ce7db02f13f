//! 64-bit ARM on Linux: DWARF for the Arm 64-bit Architecture (AADWARF64) register numbers, AAPCS64, the kernel's signal frame.
//!
//! The vector registers v8–v15, whose lower halves are callee-saved, have no slots: no frame is found through them.

use super::{
    Ahead, Arch, Call, CountsJump, Extent, FrameRecords, Jump, Machine, Target, Trampoline, is_all, is_without,
    word_before,
};

pub(crate) struct Aarch64;

impl Target for Aarch64 {
    const MACHINE: &'static Machine = &Machine {
        arch: Arch::Aarch64,
        word: 8,
        big_endian: false,
        sp: SP,
        fp: 29,
        return_address: LINK,
        pc: PC,
        registers: 32,
        slot_registers: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28],
        convention_registers: &[],
        machine_frame_sp: Some(-1),
        link: Some(LINK),
        frame_records: FrameRecords::InFrame,
        // mov x29, #0; mov w29, #0; mov x29, xzr
        clears_frame_pointer: &[&[0x1d, 0, 0x80, 0xd2], &[0x1d, 0, 0x80, 0x52], &[0xfd, 0x03, 0x1f, 0xaa]],
        mode_bits: 0,
        signs_return_addresses: true,
        tag_bits: TAG_BITS,
        slot_words: 2,
        function_alignment: 64,
        instruction_alignment: 4,
        names: &NAMES,
        longest_call: 4,
        call_before,
        keeps_stack: |code| is_without(code, false, moves_stack),
        keeps_frame_pointer: |_| false,
        extent,
        has_jump,
        ahead: |_| Ahead::Unknown,
        context_slot,
        trampolines: &[Trampoline { code: &SIGRETURN, contexts: &[(0, CONTEXT), (4, CONTEXT)] }],
        is_padding,
    };
}

/// DWARF number of the stack pointer.
const SP: u8 = 31;
/// x30, the link register.
const LINK: u8 = 30;
/// The number that AADWARF64 gives the program counter.
const PC: u8 = 32;

/// The top byte, which Linux lets processes use: memory tags are in its lower half (MTE), and HWASan uses all of it. Kernels and
/// sanitizers tag addresses of the upper half too, whose bit 55 is set. (Arm ARM, D8.8, "address tagging"; Linux,
/// Documentation/arch/arm64/tagged-pointers.rst)
const TAG_BITS: u32 = 8;

const NAMES: [&str; 33] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp", "pc",
];

/// From the stack pointer in the trampoline to `struct sigcontext`: 128 bytes of `siginfo_t`, and in `struct ucontext` 8 of flags, 8 of
/// a link, 24 of the stack, 128 of signal masks, and 8 that align to 16. (Linux, arch/arm64/kernel/signal.c, `rt_sigframe`)
const CONTEXT: i64 = 128 + 176;

/// In `struct sigcontext` the fault address comes first, then x0–x30, sp, pc.
fn context_slot(register: u8) -> Option<u64> {
    (register <= PC).then(|| 8 + 8 * u64::from(register))
}

/// `mov x8, #139; svc #0`, in the vDSO and wherever else a handler may return to.
const SIGRETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];

const NOP: [u8; 4] = 0xd503_201f_u32.to_le_bytes();

fn is_padding(code: &[u8]) -> bool {
    is_all(code, NOP)
}

/// `bl`, `blr` and the forms of `blr` that authenticate. (Arm ARM, C4.1.66)
pub(crate) fn call_before(code: &[u8], address: u64) -> Option<Call> {
    let word = word_before(code, 0, false)?;
    if word >> 26 == 0b10_0101 {
        let words = ((word << 6) as i32) >> 6;
        return Some(Call::To(address.wrapping_sub(4).wrapping_add_signed(i64::from(words) * 4)));
    }
    let indirect = word & 0xffff_fc1f == 0xd63f_0000 || word & 0xfeff_f800 == 0xd63f_0800;
    indirect.then_some(Call::Indirect)
}

/// Where an instruction leads besides the next one, as a distance in bytes from itself, and whether the next one may follow it.
pub(crate) struct Branch {
    /// `None` for a place in a register.
    pub(crate) distance: Option<i64>,
    pub(crate) is_conditional: bool,
}

/// `b`, `b.cond`, `cbz`, `cbnz`, `tbz`, `tbnz`, `br` and its forms that authenticate. (Arm ARM, C4.1.66)
pub(crate) fn branch(word: u32) -> Option<Branch> {
    // A signed field of so many bits, above `low` others, counts words.
    let field = |low: u32, bits: u32| Some(i64::from((word << (32 - bits - low)) as i32 >> (32 - bits)) * 4);
    let (distance, is_conditional) = if word >> 26 == 0b00_0101 {
        (field(0, 26), false)
    } else if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
        (field(5, 19), true)
    } else if word & 0x7e00_0000 == 0x3600_0000 {
        (field(5, 14), true)
    } else if word & 0xffff_fc1f == 0xd61f_0000 || word & 0xfeff_f800 == 0xd61f_0800 {
        (None, false)
    } else {
        return None;
    };
    Some(Branch { distance, is_conditional })
}

/// `ret`, its forms that authenticate, `brk`, `hlt` and `udf`.
pub(crate) fn is_end(word: u32) -> bool {
    word & 0xffff_fc1f == 0xd65f_0000
        || word & 0xffff_fbff == 0xd65f_0bff
        || word & 0xff80_001f == 0xd400_0000 && word >> 21 & 7 != 0
        || word >> 16 == 0
}

/// Follows the instructions to the last one that a branch among them leads to, as [`x86`](super::x86)'s does.
fn extent(code: &[u8]) -> Option<Extent> {
    let (mut furthest, mut leaves) = (0i64, false);
    let words = code.as_chunks::<4>().0;
    for (at, word) in (0i64..).step_by(4).zip(words) {
        let word = u32::from_le_bytes(*word);
        let branch = branch(word);
        if let Some(Branch { distance, .. }) = branch {
            match distance.map(|distance| at + distance).filter(|target| (0..code.len() as i64).contains(target)) {
                Some(target) => furthest = furthest.max(target),
                None => leaves = true,
            }
        }
        let ends = is_end(word) || branch.is_some_and(|branch| !branch.is_conditional);
        if ends && at + 4 > furthest {
            return Some(Extent { bytes: (at + 4) as u64, leaves });
        }
    }
    None
}

fn has_jump(code: &[u8], counts: &mut CountsJump<'_>) -> bool {
    let words = (0..).step_by(4).zip(code.as_chunks::<4>().0);
    let mut jumps = words.filter_map(|(at, word)| Some((at, branch(u32::from_le_bytes(*word))?)));
    jumps.any(|(at, branch)| {
        counts(at, branch.distance.map_or(Jump::Anywhere, |distance| Jump::To(at as i64 + distance)))
    })
}

/// Loads and stores that write their base register back, additions and subtractions. (Arm ARM, C4.1)
fn moves_stack(word: u32) -> bool {
    let (rd, rn) = (word & 31, word >> 5 & 31);
    let sp = u32::from(SP);
    let pair = word & 0x3a80_0000 == 0x2880_0000 && rn == sp;
    // The unscaled forms, those of single vector structures, and the memory copies of later versions.
    let single = word & 0x3b20_0400 == 0x3800_0400 && rn == sp;
    let vector = word & 0xbe80_0000 == 0x0c80_0000 && rn == sp;
    // The forms that set flags write the zero register instead.
    let immediate = word & 0x3f80_0000 == 0x1100_0000 && rd == sp;
    let extended = word & 0x3fe0_0000 == 0x0b20_0000 && rd == sp;
    let logical = word & 0x1f80_0000 == 0x1200_0000 && word >> 29 & 3 != 3 && rd == sp;
    pair || single || vector || immediate || extended || logical
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn call_instructions_are_known_by_their_bytes() {
        let check = |word: u32, expected| assert_eq!(call_before(&word.to_le_bytes(), 0x1004), expected, "{word:x}");
        check(0x9400_0002, Some(Call::To(0x1008))); // bl .+8
        check(0x97ff_ffff, Some(Call::To(0xffc))); // bl .-4
        check(0xd63f_0020, Some(Call::Indirect)); // blr x1
        check(0xd63f_083f, Some(Call::Indirect)); // blraaz x1
        check(0xd73f_0822, Some(Call::Indirect)); // blraa x1, x2
        check(0xd61f_0020, None); // br x1
        check(0x1400_0002, None); // b .+8
        assert_eq!(call_before(&[0x94], 4), None);
    }

    #[test]
    fn a_function_reaches_to_the_end_that_nothing_branches_over() {
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let check = |words: &[u32], expected| {
            assert_eq!(extent(&code(words)).map(|extent| (extent.bytes, extent.leaves)), expected, "{words:x?}");
        };
        const RET: u32 = 0xd65f_03c0;
        check(&[RET, RET], Some((4, false)));
        check(&[0xb400_0060, RET, 0xd503_201f, RET, RET], Some((16, false))); // cbz x0, .+12
        check(&[0x5400_0041, RET, RET, RET], Some((12, false))); // b.ne .+8
        check(&[0x3700_0040, RET, 0xd65f_0bff, RET], Some((12, false))); // tbnz w0, #0, .+8; retaa
        check(&[0xf100_0400, 0x54ff_ffe1, RET, RET], Some((12, false))); // subs; b.ne .-4
        check(&[0x1400_0400, RET], Some((4, true))); // b far
        check(&[0x17ff_ffff, RET], Some((4, true))); // b .-4
        check(&[0xd61f_0200, RET], Some((4, true))); // br x16
        check(&[0xd71f_0a11, RET], Some((4, true))); // braa x16, x17
        check(&[0x9400_0400, RET, RET], Some((8, false))); // bl
        check(&[0xd420_0020, RET], Some((4, false))); // brk #1
        check(&[0xd503_201f; 4], None);
        let targets = |words: &[u32]| {
            let mut found = Vec::new();
            has_jump(&code(words), &mut |_, jump| {
                found.push(jump);
                false
            });
            found
        };
        assert_eq!(targets(&[RET, 0x1400_0003, 0xd61f_0200]), [Jump::To(16), Jump::Anywhere]);
    }

    #[test]
    fn instructions_that_move_the_stack_pointer_are_known_by_their_bytes() {
        let moving = [
            0xa9be_7bfd, // stp x29, x30, [sp, #-32]!
            0xa8c2_7bfd, // ldp x29, x30, [sp], #32
            0xf81f_0ffe, // str x30, [sp, #-16]!
            0xd100_83ff, // sub sp, sp, #32
            0xcb20_63ff, // sub sp, sp, x0
            0x9100_03bf, // mov sp, x29
            0x927c_ec1f, // and sp, x0, #~15
        ];
        let others = [
            0xa900_7bfd, // stp x29, x30, [sp]
            0x9100_03fd, // mov x29, sp
            0xf940_07fe, // ldr x30, [sp, #8]
            0xd503_233f, // paciasp
            0xf100_001f, // cmp x0, #0
            0xaa01_03e0, // mov x0, x1
        ];
        assert!(moving.into_iter().all(moves_stack) && !others.into_iter().any(moves_stack));
    }

    #[test]
    fn the_context_has_every_register_where_the_kernel_puts_it() {
        assert_eq!((context_slot(0), context_slot(30), context_slot(SP)), (Some(8), Some(248), Some(256)));
        assert_eq!((context_slot(PC), context_slot(33)), (Some(264), None));
    }
}
