//! Code without rules that aligns its stack further than calls do: its frame record has a copy of the return address, and is not where the caller's frame begins.

use crate::cfi::{self, AT_ENTRY, BIAS_32, EhFrame, Process, Words, advance, at, cfa_offset};
use symseal_module::{Avma, StopReason};
use symseal_unwind::{Arch, Registers, StackBytes};

const SP: u64 = 0x7fff_0000;
/// The function without rules, in front of which nothing else makes a record.
const AL: u64 = 0x1800;
/// What its caller's stack pointer is once it has called.
const CFA: u64 = SP + 0x80;

/// The caller at 0x1000 with a frame of 24 bytes, and the end of the stack, which called it.
fn section() -> EhFrame {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x40, &[advance(1), cfa_offset(24)]).fde(0x1080, 0x20, &[vec![0x07, 16]]);
    section
}

#[rustfmt::skip]
const BY_R10: [u8; 59] = [
    0x4c, 0x8d, 0x54, 0x24, 8, 0x48, 0x83, 0xe4, 0xc0, // lea 8(%rsp), %r10; and $-64, %rsp
    0x89, 0xfa, 0x41, 0xff, 0x72, 0xf8, 0x48, 0x98, // mov %edi, %edx; push -8(%r10); cltq
    0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x41, 0x52, // push %rbp; mov %rsp, %rbp; push %r15; push %r10
    0x48, 0x83, 0xec, 0x10, 0xe8, 0xde, 0, 0, 0, // sub $16, %rsp; call 0x1900
    0x48, 0x8d, 0x65, 0xf0, 0x41, 0x5a, 0x41, 0x5f, 0x5d, // lea -16(%rbp), %rsp; pop %r10; pop %r15; pop %rbp
    0x49, 0x8d, 0x62, 0xf8, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, // lea -8(%r10), %rsp; ret
];

fn code() -> Vec<u8> {
    let mut code = vec![0x90; 0x1000];
    code[0x800..0x800 + BY_R10.len()].copy_from_slice(&BY_R10);
    code[0x900] = 0xc3;
    // The calls before 0x1015 and 0x1095.
    for (after, target) in [(0x1015_u64, AL), (0x1095, 0x1000)] {
        let at = (after - 5 - 0x1000) as usize;
        code[at] = 0xe8;
        code[at + 1..at + 5].copy_from_slice(&(target.wrapping_sub(after) as u32).to_le_bytes());
    }
    code
}

/// What is on the stack in the body: the record 48 bytes below the aligned stack pointer's last word, the copy, and the caller's frame.
fn stack() -> Words {
    let filled = (0..64).map(|word| (SP + 8 * word, 7)).collect::<Vec<_>>();
    Words::default().with(&filled).with(&[
        (SP + 0x10, CFA),
        (SP + 0x18, 0x1515),
        (SP + 0x20, 0x5555),
        (SP + 0x28, at(0x1015)),
        (CFA - 8, at(0x1015)),
        (CFA + 16, at(0x1095)),
        // What is there if the frame is taken to end behind the record.
        (SP + 0x40, at(0x1095)),
    ])
}

fn registers(svma: u64, sp: u64, fp: u64, r10: u64) -> Registers {
    let mut general = [None; Registers::GENERAL];
    general[10] = Some(r10);
    Registers { pc: at(svma), sp, fp, general }
}

#[track_caller]
fn check(registers: &Registers, code: &[u8], pcs: &[u64], stop: StopReason, cfa: u64) {
    let table = section().compile().bytes;
    let process = Process::with_code(&table, Some((0x1000, code)));
    let (frames, walk) = process.walk(registers, &stack());
    let found: Vec<u64> = frames.iter().map(|frame| frame.pc.0.wrapping_sub(cfi::BIAS)).collect();
    assert_eq!((found.as_slice(), walk.stop), (pcs, stop), "{frames:x?}");
    let own = frames.iter().find(|frame| frame.pc.0 < at(0x1900)).map(|frame| frame.cfa);
    assert_eq!(own, Some(Avma(cfa)), "{frames:x?}");
}

#[test]
fn t4_a_record_with_a_copy_of_the_return_address_is_not_where_the_callers_frame_begins() {
    let whole = |offset: u64, sp: u64, fp: u64, r10: u64| {
        check(
            &registers(AL + offset, sp, fp, r10),
            &code(),
            &[AL + offset, 0x1015, 0x1095],
            StopReason::EndOfStack,
            CFA,
        );
    };
    // At the first instruction; aligned; the return address copied; the frame pointer pushed.
    whole(0, CFA - 8, 0x5555, 1);
    whole(9, SP + 0x40, 0x5555, CFA);
    whole(15, SP + 0x28, 0x5555, CFA);
    whole(18, SP + 0x20, 0x5555, CFA);
    // The record made and the register not pushed yet; the body, in which it has another value; popped again.
    whole(21, SP + 0x20, SP + 0x20, CFA);
    whole(25, SP + 0x10, SP + 0x20, 1);
    whole(40, SP + 0x18, SP + 0x20, CFA);
    // Nothing is left but to give the stack back.
    whole(43, SP + 0x28, 0x5555, CFA);
    whole(47, CFA - 8, 0x5555, CFA);
}

#[test]
fn t4_a_return_address_in_a_function_with_such_a_record_leads_on_by_the_pushed_stack_pointer() {
    let table = section().compile().bytes;
    let code = code();
    let process = Process::with_code(&table, Some((0x1000, &code)));
    // In the leaf at 0x1900 that it called.
    let mut words = stack();
    words.0.insert(SP - 8, at(AL + 34));
    let (frames, walk) = process.walk(&registers(0x1900, SP - 8, SP + 0x20, 1), &words);
    let found: Vec<u64> = frames.iter().map(|frame| frame.pc.0.wrapping_sub(cfi::BIAS)).collect();
    assert_eq!((found, walk.stop), (vec![0x1900, AL + 34, 0x1015, 0x1095], StopReason::EndOfStack), "{frames:x?}");
    assert_eq!(frames[1].cfa, Avma(CFA));
}

#[test]
fn t4_without_the_word_that_proves_it_no_cfa_is_told() {
    // The word is not there: the caller is found, and nothing that counts from its stack pointer.
    let mut words = stack();
    words.0.insert(SP + 0x10, 7);
    let table = section().compile().bytes;
    let code = code();
    for (code, words) in [(Some((0x1000, code.as_slice())), words), (None, stack())] {
        let process = Process::with_code(&table, code);
        let (frames, walk) = process.walk(&registers(AL + 34, SP, SP + 0x20, 1), &words);
        assert_eq!((frames.len(), walk.stop, frames[0].cfa), (2, StopReason::RegisterUnknown, Avma(0)), "{frames:x?}");
    }
    // A register that does not lead to a return address, where the function is making its frame.
    check(&registers(AL + 15, SP + 0x28, 0x5555, CFA + 8), &code, &[AL + 15], StopReason::NoRule, 0);
}

#[test]
fn t4_a_record_with_a_copy_of_ia_32_is_not_where_the_callers_frame_begins() {
    #[rustfmt::skip]
    const BY_EDI: [u8; 26] = [
        0x57, 0x8d, 0x7c, 0x24, 8, 0x83, 0xe4, 0xc0, 0xff, 0x77, 0xfc, 0x55, 0x89, 0xe5, // push %edi; lea 8(%esp), %edi; and; push -4(%edi); push %ebp; mov %esp, %ebp
        0x57, 0x56, 0x90, 0x5e, 0x5f, 0x5d, 0x8d, 0x67, 0xf8, 0x5f, 0xc3, 0x90, // push %edi; push %esi; nop; pop; pop; pop %ebp; lea -8(%edi), %esp; pop %edi; ret
    ];
    let mut section = EhFrame::on(Arch::I686, "zR", &[0x0c, 4, 4, 0x88, 1]);
    section.fde(0x1000, 0x40, &[advance(1), cfa_offset(12)]).fde(0x1080, 0x20, &[vec![0x07, 8]]);
    let table = section.compile().bytes;
    let mut code = code();
    code[0x800..0x800 + BY_EDI.len()].copy_from_slice(&BY_EDI);
    let process = Process::with_code(&table, Some((0x1000, &code)));
    let mut words = [7_u64; 48];
    let cfa = SP + 0x80;
    (words[2], words[3], words[4], words[5]) = (0x66, cfa, 0x5555, BIAS_32 + 0x1015);
    (words[30], words[31], words[34]) = (0x77, BIAS_32 + 0x1015, BIAS_32 + 0x1095);
    let stack: Vec<u8> = words.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect();
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    // Pushed, aligned, copied, with its frame pointer, the body, popped, given back.
    let places = [
        (1, 0x78, 0x5555),
        (5, 0x78, 0x5555),
        (8, 0x18, 0x5555),
        (11, 0x14, 0x5555),
        (12, 0x10, 0x5555),
        (14, 0x10, SP + 0x10),
    ];
    let ends = [(16, 8, SP + 0x10), (19, 0x10, SP + 0x10), (20, 0x14, 0x5555), (23, 0x78, 0x5555), (24, 0x7c, 0x5555)];
    for (offset, sp, fp) in places.into_iter().chain(ends) {
        let mut general = [None; Registers::GENERAL];
        general[7] = Some(if matches!(offset, 1 | 16 | 24) { 0x77 } else { cfa });
        let registers = Registers { pc: BIAS_32 + AL + offset, sp: SP + sp, fp, general };
        let (frames, walk) = process.walk(&registers, &memory);
        let found: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - BIAS_32).collect();
        assert_eq!(
            (found, walk.stop),
            (vec![AL + offset, 0x1015, 0x1095], StopReason::EndOfStack),
            "{offset} {frames:x?}"
        );
        assert_eq!(frames[0].cfa, Avma(cfa), "{offset}");
    }
}
