//! Code without rules on processors whose calls leave the return address in a register: what the link register says there, and the frame record.

use crate::cfi::{EhFrame, Process, Words, at, cfa_offset, saved};
use crate::traps_link_register::{SP, code, end, registers, three_functions};
use symseal_module::{Avma, StopReason, UnwindMethod};
use symseal_unwind::{Arch, Registers};

/// At 0x1008 in the function with a frame: `bl 0x1800`, `blr x1`.
fn calls() -> Vec<u8> {
    code(&[0x9400_01fe, 0xd63f_0020])
}

#[test]
fn t4_a_leaf_without_rules_returns_by_the_link_register_only_behind_a_call() {
    let table = three_functions().compile().bytes;
    let mut bytes = calls();
    bytes.resize(0x1800 - 0x1008, 0);
    // nop; nop; sub sp, sp, #16; nop
    bytes.extend(code(&[0xd503_201f, 0xd503_201f, 0xd100_43ff, 0xd503_201f]));
    // blr x1
    bytes.extend(code(&[0xd63f_0020]));
    let process = Process::with_code(&table, Some((0x1008, &bytes)));
    let memory = Words::default().with(&[(SP, 0), (SP + 8, at(0x1044))]);
    let (frames, walk) = process.walk(&registers(0x1804, 0x100c), &memory);
    assert_eq!((walk.frames, walk.stop, frames[1].method), (3, StopReason::EndOfStack, UnwindMethod::Leaf));
    // The function has moved the stack pointer: the caller is known, and its frame is not.
    let (frames, walk) = process.walk(&registers(0x180c, 0x100c), &memory);
    assert_eq!((walk.frames, walk.stop, frames[0].cfa), (2, StopReason::RegisterUnknown, Avma(0)));
    // No call stands before it.
    assert_eq!(process.pcs(&registers(0x1804, 0x1014), &memory), (vec![0x1804], StopReason::NoRule));
    // A call that the running code itself may have made: it has no rule either.
    assert_eq!(process.pcs(&registers(0x1804, 0x1814), &memory), (vec![0x1804], StopReason::NoRule));
    // One that leads out of it, into a function that has a rule.
    let (frames, _) = process.walk(&registers(0x1804, 0x1010), &memory);
    assert_eq!((frames[1].pc.0, frames[1].method), (at(0x1010), UnwindMethod::Leaf));
}

/// What a function without rules has called leaves an address of that function in the link register: it is no caller's, wherever the function that was
/// called lies.
#[test]
fn t4_the_link_register_of_a_function_that_has_called_is_no_callers() {
    let table = three_functions().compile().bytes;
    // Without rules, at 0x1800: ret. At 0x1804: stp x29, x30, [sp, #-16]!; mov x29, sp; nop; bl 0x1800; cbnz x0, 0x180c; ldp x29, x30, [sp], #16; ret.
    let words =
        [0xd65f_03c0, 0xa9bf_7bfd, 0x9100_03fd, 0xd503_201f, 0x97ff_fffc, 0xb5ff_ffc0, 0xa8c1_7bfd, 0xd65f_03c0];
    // bl 0x1804, at 0x1008.
    let mut bytes = code(&[0x9400_01ff]);
    bytes.resize(0x1800 - 0x1008, 0);
    bytes.extend(code(&words));
    let process = Process::with_code(&table, Some((0x1008, &bytes)));
    let memory =
        Words::default().with(&[(SP, SP + 0x10), (SP + 8, at(0x100c)), (SP + 0x10, 7), (SP + 0x18, at(0x1044))]);
    // Behind the call, and in the loop before it once more.
    for here in [0x1814, 0x180c] {
        let registers = Registers { fp: SP, ..registers(here, 0x1814) };
        let (frames, walk) = process.walk(&registers, &memory);
        assert_eq!((frames[1].pc.0, frames[1].method), (at(0x100c), UnwindMethod::FramePointer), "{here:#x}");
        assert_eq!((walk.frames, walk.stop), (3, StopReason::EndOfStack), "{here:#x}");
    }
    // In what it calls, the same address is the return address.
    let (frames, _) = process.walk(&Registers { fp: SP, ..registers(0x1800, 0x1814) }, &memory);
    assert_eq!((frames[1].pc.0, frames[1].method), (at(0x1814), UnwindMethod::Leaf));
}

/// The same on a processor whose jumps are not read. (RISC-V: ret; addi sp, sp, -16; sd ra, 8(sp); jal 0x1800; nop)
#[test]
fn t4_a_call_of_the_function_before_it_is_no_callers_where_jumps_are_not_read() {
    let mut section = EhFrame::on(Arch::Riscv64, "zR", &[0x0c, 2, 0]);
    section.fde(0x1000, 0x20, &[cfa_offset(16), saved(1, 1)]).fde(0x1040, 0x20, &[end(1)]);
    let table = section.compile().bytes;
    let bytes = code(&[0x0000_8067, 0xff01_0113, 0x0011_3423, 0xff5f_f0ef, 0x0000_0013]);
    let process = Process::with_code(&table, Some((0x1800, &bytes)));
    let registers = |here: u64, link: u64| {
        let mut registers = Registers { pc: at(here), sp: SP, fp: 0, ..Registers::default() };
        registers.general[1] = Some(at(link));
        registers
    };
    assert_eq!(process.pcs(&registers(0x1810, 0x1810), &Words::default()), (vec![0x1810], StopReason::NoRule));
    assert_eq!(process.pcs(&registers(0x1800, 0x1810), &Words::default()).0, [0x1800, 0x1810]);
}

#[test]
fn t4_the_frame_pointer_leads_to_the_record_and_the_rule_of_the_record_tells_the_rest() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    // Without a rule; its record leads to 0x1010, whose own record is at SP + 0x40, in a frame of 32 bytes.
    let registers = Registers { fp: SP + 0x20, ..registers(0x1804, 0x1804) };
    let memory = Words::default().with(&[
        (SP + 0x20, SP + 0x40),
        (SP + 0x28, at(0x1010)),
        (SP + 0x40, 0x7777),
        (SP + 0x48, at(0x1044)),
    ]);
    let (frames, walk) = process.walk(&registers, &memory);
    assert_eq!((walk.frames, walk.stop), (3, StopReason::EndOfStack));
    let cfas: Vec<u64> = frames.iter().map(|frame| frame.cfa.0).collect();
    assert_eq!(cfas, [0, SP + 0x60, 0], "what a record does not tell is left open");
    assert_eq!((frames[1].method, frames[2].method), (UnwindMethod::FramePointer, UnwindMethod::FramePointer));
    assert_eq!(frames[2].fp, 0x7777);
}
