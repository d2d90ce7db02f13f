//! AMD64 on Linux: System V ABI register numbers, the kernel's signal frame, call instructions.

use super::{Arch, Call, FrameRecords, Machine, Target, Trampoline};

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
        mode_bits: 0,
        signs_return_addresses: false,
        slot_words: 1,
        function_alignment: 16,
        instruction_alignment: 1,
        names: &NAMES,
        longest_call: LONGEST_CALL,
        call_before,
        moves_stack: |_| true,
        context_slot,
        trampolines: &[Trampoline { code: &SIGRETURN, syscall: 7, context: 0 }],
        is_padding,
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

/// Whether `code` is `nop` of any length and `int3`, from its first byte to its last.
fn is_padding(mut code: &[u8]) -> bool {
    while let Some((first, rest)) = code.split_first() {
        let length = match first {
            0xcc => Some(1),
            _ => nop_length(core::iter::once(first).chain(rest)),
        };
        match length.and_then(|length| code.get(length..)) {
            Some(rest) => code = rest,
            None => return false,
        }
    }
    true
}

/// Bytes of the `nop` at the front: `90`, or `0f 1f /0` with any operand, behind any of the prefixes 66 and 2e.
fn nop_length<'a>(mut code: impl Iterator<Item = &'a u8>) -> Option<usize> {
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

/// Longest call instruction, in bytes: an indirect call with prefix, SIB byte and 32-bit displacement.
const LONGEST_CALL: usize = 8;

fn call_before(code: &[u8], address: u64) -> Option<Call> {
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
        assert!(is_padding(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0]));
        assert!(is_padding(&[0x66, 0x90, 0x90, 0xcc, 0xcc]));
        for code in [&[0x0f, 0x1f, 0x44, 0][..], &[0], &[0xc3], &[0x90, 0x66], &[0x0f, 0x0b], &[0x0f, 0x1f, 0xc0]] {
            assert!(!is_padding(code), "{code:x?}");
        }
    }

    #[test]
    fn the_context_has_every_register_where_the_kernel_puts_it() {
        assert_eq!(context_slot(SP), Some(160));
        assert_eq!(context_slot(PC), Some(168));
        assert_eq!(context_slot(6), Some(120));
        assert_eq!(context_slot(3), Some(128));
        assert_eq!(context_slot(17), None);
    }
}
