//! IA-32 on Linux: register numbers of the System V ABI's Intel386 supplement, the kernel's two signal frames, call instructions.

use super::x86::{self, LONGEST_CALL, is_made_of};
use super::{Arch, Call, FrameRecords, Machine, Target, Trampoline};

pub(crate) struct I686;

impl Target for I686 {
    const MACHINE: &'static Machine = &Machine {
        arch: Arch::I686,
        word: 4,
        big_endian: false,
        sp: SP,
        fp: 5,
        return_address: PC,
        pc: PC,
        registers: 8,
        slot_registers: &[3, 6, 7],
        convention_registers: &[],
        machine_frame_sp: None,
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
        keeps_stack: |code| x86::keeps_stack(code, x86::Mode::Bits32),
        keeps_frame_pointer: |code| x86::keeps_frame_pointer(code, x86::Mode::Bits32),
        extent: |code| x86::extent(code, x86::Mode::Bits32),
        has_jump: |code, counts| x86::has_jump(code, x86::Mode::Bits32, counts),
        ahead: |code| x86::ahead(code, x86::Mode::Bits32),
        context_slot,
        trampolines: &[
            Trampoline { code: &RT_SIGRETURN, contexts: &[(0, RT_CONTEXT), (5, RT_CONTEXT)] },
            Trampoline { code: &SIGRETURN, contexts: &[(0, CONTEXT), (1, CONTEXT - 4), (6, CONTEXT - 4)] },
        ],
        is_padding: |code| is_made_of(code, nop_length),
    };
}

/// DWARF number of the stack pointer.
const SP: u8 = 4;
/// DWARF number of the program counter, which is the return address column.
const PC: u8 = 8;

const NAMES: [&str; 9] = ["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "eip"];

/// From the stack pointer to `struct sigcontext` once the handler has returned: the number of the signal lies between. (Linux,
/// arch/x86/include/asm/sigframe.h, `sigframe_ia32`)
const CONTEXT: i64 = 4;
/// The same with three arguments of the handler, 128 bytes of `siginfo_t`, and 20 of `struct ucontext` before the context.
/// (`rt_sigframe_ia32`)
const RT_CONTEXT: i64 = 12 + 128 + 20;

/// Offset in `struct sigcontext` (kernel ABI: four segment registers, then edi, esi, ebp, esp, ebx, edx, ecx, eax, two words about the
/// trap, eip).
fn context_slot(register: u8) -> Option<u64> {
    Some(match register {
        0..=2 => 44 - 4 * u64::from(register),
        3 => 32,
        4 => 28,
        5 => 24,
        6 => 20,
        7 => 16,
        PC => 56,
        _ => return None,
    })
}

/// `mov $173, %eax; int $0x80`: what returns from a handler that was given a `siginfo_t`.
const RT_SIGRETURN: [u8; 7] = [0xb8, 0xad, 0, 0, 0, 0xcd, 0x80];
/// `pop %eax; mov $119, %eax; int $0x80`: the number of the signal is given back first.
const SIGRETURN: [u8; 8] = [0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80];

fn call_before(code: &[u8], address: u64) -> Option<Call> {
    x86::call_before(code, address)
        .map(|call| match call {
            Call::To(target) => Call::To(target & 0xffff_ffff),
            Call::Indirect => Call::Indirect,
        })
        // A call of the next instruction is how code learns its own address.
        .filter(|call| *call != Call::To(address))
}

/// Bytes of the `nop` at the front: those of AMD64, and `lea 0(%esi), %esi` in each of its lengths, as assemblers write it for
/// processors without the others.
fn nop_length(code: &[u8]) -> Option<usize> {
    let prefixes = code.iter().take_while(|byte| matches!(byte, 0x2e | 0x3e)).count();
    let length = match code.get(prefixes..)? {
        [0x8d, 0xb4, 0x26, 0, 0, 0, 0, ..] => 7,
        [0x8d, 0xb6, 0, 0, 0, 0, ..] => 6,
        [0x8d, 0x74, 0x26, 0, ..] => 4,
        [0x8d, 0x76, 0, ..] => 3,
        _ => return x86::nop_length(code),
    };
    Some(prefixes + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_has_every_register_where_the_kernel_puts_it() {
        // struct sigcontext: gs, fs, es, ds, edi, esi, ebp, esp, ebx, edx, ecx, eax, trapno, err, eip
        let order = [7, 6, 5, 4, 3, 2, 1, 0];
        for (at, register) in (4..).zip(order) {
            assert_eq!(context_slot(register), Some(4 * at), "{register}");
        }
        assert_eq!((context_slot(PC), context_slot(9)), (Some(56), None));
    }

    #[test]
    fn the_older_trampoline_gives_back_the_number_of_the_signal_first() {
        let code = [&[0x90][..], &SIGRETURN].concat();
        let at = |address: u64| code.get(address as usize..).unwrap_or_default();
        let found: [Option<i64>; 4] = [1, 2, 7, 3].map(|address| I686::MACHINE.context_at(address, true, at));
        assert_eq!(found, [Some(4), Some(0), Some(0), None]);
        assert_eq!(I686::MACHINE.context_at(2, false, at), None);
    }

    #[test]
    fn a_call_of_the_next_instruction_is_no_call_and_addresses_have_32_bits() {
        assert_eq!(call_before(&[0xe8, 0, 0, 0, 0], 0x1000), None);
        assert_eq!(call_before(&[0xe8, 0, 0, 0, 0x80], 0x8000_1000), Some(Call::To(0x1000)));
        assert_eq!(call_before(&[0xff, 0x93, 8, 0, 0, 0], 0x1000), Some(Call::Indirect)); // call *8(%ebx)
    }

    #[test]
    fn padding_is_known_by_its_bytes() {
        let is_padding = I686::MACHINE.is_padding;
        assert!(is_padding(&[0x2e, 0x8d, 0xb4, 0x26, 0, 0, 0, 0, 0x8d, 0x76, 0, 0x66, 0x90, 0x8d, 0x74, 0x26, 0]));
        assert!(!is_padding(&[0x8d, 0x76, 4]) && !is_padding(&[0x8d, 0xb6, 0, 0, 0]));
    }
}
