//! AMD64 on Linux: System V ABI register numbers, the kernel's signal frame, call instructions.

use super::x86::{
    LONGEST_CALL, Mode, ahead, call_before, extent, has_jump, is_made_of, keeps_frame_pointer, keeps_stack, nop_length,
};
use super::{Arch, FrameRecords, Machine, Target, Trampoline};

pub(crate) struct X86_64;

impl Target for X86_64 {
    const MACHINE: &'static Machine = &Machine {
        arch: Arch::X86_64,
        word: 8,
        big_endian: false,
        sp: SP,
        fp: 6,
        return_address: PC,
        pc: PC,
        registers: 16,
        slot_registers: &[3, 12, 13, 14, 15],
        convention_registers: &[4, 5],
        machine_frame_sp: Some(3),
        link: None,
        frame_records: FrameRecords::BelowCfa,
        // xor %ebp, %ebp
        clears_frame_pointer: &[&[0x31, 0xed], &[0x33, 0xed]],
        mode_bits: 0,
        signs_return_addresses: false,
        tag_bits: 0,
        slot_words: 1,
        function_alignment: 16,
        instruction_alignment: 1,
        names: &NAMES,
        longest_call: LONGEST_CALL,
        call_before,
        keeps_stack: |code| keeps_stack(code, Mode::Bits64),
        keeps_frame_pointer: |code| keeps_frame_pointer(code, Mode::Bits64),
        extent: |code| extent(code, Mode::Bits64),
        has_jump: |code, counts| has_jump(code, Mode::Bits64, counts),
        ahead: |code| ahead(code, Mode::Bits64),
        context_slot,
        trampolines: &[Trampoline { code: &SIGRETURN, contexts: &[(0, 0), (7, 0)] }],
        is_padding: |code| is_made_of(code, nop_length),
    };
}

/// DWARF number of the stack pointer.
const SP: u8 = 7;
/// DWARF number of the program counter, which is the return address column.
const PC: u8 = 16;

const NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
];

/// Offset in `struct ucontext` of the machine context's value of a register (`uc_mcontext.gregs`, kernel ABI: the array
/// starts at 40, in the order r8–r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip).
fn context_slot(register: u8) -> Option<u64> {
    let at = match register {
        8..=15 => u64::from(register) - 8,
        5 => 8,
        4 => 9,
        6 => 10,
        3 => 11,
        1 => 12,
        0 => 13,
        2 => 14,
        7 => 15,
        16 => 16,
        _ => return None,
    };
    Some(40 + 8 * at)
}

/// `mov $15, %rax; syscall`: what returns from a signal handler, in every C library. The stack pointer is at the context.
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_has_every_register_where_the_kernel_puts_it() {
        assert_eq!(context_slot(SP), Some(160));
        assert_eq!(context_slot(PC), Some(168));
        assert_eq!(context_slot(6), Some(120));
        assert_eq!(context_slot(3), Some(128));
        assert_eq!(context_slot(17), None);
    }
}
