//! The known traps of unwinding on 64-bit RISC-V, much of whose code has no call frame information.

use crate::cfi;
use crate::cfi::{BIAS, EhFrame, Process, Words, advance, at, cfa_offset, saved};
use symseal_module::{Avma, Rva, StopReason, UnwindMethod};
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{Arch, Kind, Registers, Rule, Saved, StackBytes, Table};

const ARCH: Arch = Arch::Riscv64;
const SP: u64 = 0x7fff_0000;
const RA: usize = 1;
/// CFA = sp at the entry of a function.
const AT_ENTRY: &[u8] = &[0x0c, 2, 0];

/// Stopped at `svma` with the stack pointer at [`SP`].
fn registers(svma: u64, link: u64) -> Registers {
    let mut general = [None; Registers::GENERAL];
    (general[RA], general[8]) = (Some(at(link)), Some(0x5555));
    Registers { pc: at(svma), sp: SP, fp: 0x5555, general }
}

fn end() -> Vec<u8> {
    vec![0x07, 1]
}

/// A leaf, a function with a frame of 32 bytes, and one without a caller.
fn three_functions() -> EhFrame {
    let mut section = EhFrame::on(ARCH, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[]).fde(0x1020, 0x20, &[advance(2), cfa_offset(32), saved(1, 1), saved(8, 2)]).fde(
        0x1040,
        0x20,
        &[end()],
    );
    section
}

#[test]
fn t6_without_a_rule_for_the_return_address_it_is_in_its_register() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    let memory = Words::default().with(&[(SP + 24, at(0x1044)), (SP + 16, 0x77)]);
    let (frames, walk) = process.walk(&registers(0x1010, 0x1030), &memory);
    let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - BIAS).collect();
    assert_eq!((pcs, walk.stop), (vec![0x1010, 0x1030, 0x1044], StopReason::EndOfStack));
    assert_eq!((frames[2].fp, frames[1].cfa), (0x77, Avma(SP + 32)));
}

/// glibc's `_dl_runtime_resolve` has an entry that says nothing, and makes a frame.
#[test]
fn t10_an_entry_that_says_nothing_is_completed_by_the_instructions() {
    let mut section = EhFrame::on(ARCH, "zR", AT_ENTRY);
    section.fde(0x1000, 0x18, &[]).fde(0x1018, 0x8, &[]);
    // addi sp, sp, -16; sd ra, 8(sp); jalr a2; ld ra, 8(sp); addi sp, sp, 16; jr t1. Behind it a leaf: nop; ret.
    let words: [u32; 8] =
        [0xff01_0113, 0x0011_3423, 0x0006_00e7, 0x0081_3083, 0x0101_0113, 0x0003_0067, 0x0000_0013, 0x0000_8067];
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let table = section.compile_with(&[(0x1000, &code)]).bytes;
    let table = Table::open(&table).expect("a table");
    let rule = |rva| table.rule(Rva(rva)).expect("code").display(ARCH).to_string();
    let shown: Vec<String> = (0x1000..0x1020).step_by(4).map(rule).collect();
    let (entry, made, saved) = ("CFA = sp+0; RA = ra", "CFA = sp+16; RA = ra", "CFA = sp+16; RA = [CFA-8]");
    assert_eq!(shown, [entry, made, saved, saved, saved, entry, entry, entry]);
    // What the instructions do not tell leaves the entry as it is: a stack pointer out of memory. (ld sp, 0(a0))
    let mut unknown = code;
    unknown[8..12].copy_from_slice(&0x0005_3103_u32.to_le_bytes());
    let table = section.compile_with(&[(0x1000, &unknown)]).bytes;
    let table = Table::open(&table).expect("a table");
    assert_eq!(table.rule(Rva(0x1008)).expect("code").display(ARCH).to_string(), entry);
}

#[test]
fn t6_an_entry_may_name_another_column_for_its_return_address() {
    // Millicode, which is called by t0.
    let mut section = EhFrame::on(ARCH, "zR", AT_ENTRY);
    // Behind length, identifier, version, augmentation and the two alignments.
    section.bytes[14] = 5;
    section.fde(0x1000, 0x20, &[]);
    let table = section.compile().bytes;
    let rule = Table::open(&table).expect("a table").rule(Rva(0x1000)).expect("code");
    assert_eq!(rule.display(ARCH).to_string(), "CFA = sp+0; RA = t0");
}

#[test]
fn t2_a_signal_frame_is_known_by_its_trampoline() {
    let table = three_functions().compile().bytes;
    let trampoline = [0x93, 0x08, 0xb0, 0x08, 0x73, 0, 0, 0];
    let process = Process::with_code(&table, Some((0x2000, &trampoline)));
    let mut memory = Words::default();
    // Interrupted at a first instruction, where the return address is in its register.
    for (register, value) in [(64, at(0x1020)), (2, SP + 0x400), (8, 0x66), (1, at(0x1044))] {
        memory.0.insert(SP + 304 + ARCH.context_offset(register).expect("saved"), value);
    }
    let (frames, walk) = process.walk(&registers(0x1010, 0x2000), &memory);
    let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - BIAS).collect();
    assert_eq!((pcs, walk.stop), (vec![0x1010, 0x2000, 0x1020, 0x1044], StopReason::EndOfStack));
    assert_eq!((frames[1].cfa, frames[2].fp, frames[2].exact), (Avma(SP + 0x400), 0x66, true));
    assert_eq!(frames[2].method, UnwindMethod::SignalContext);
}

fn bytes(words: &[u32]) -> Vec<u8> {
    let short = |word: &u32| if word & 3 == 3 { 4 } else { 2 };
    words.iter().flat_map(|word| word.to_le_bytes().into_iter().take(short(word))).collect()
}

/// `addi sp, -32; sd ra, 24(sp); sd s0, 16(sp); addi s0, sp, 32; jalr a5; ld ra, 24(sp); ld s0, 16(sp); addi sp, 32; ret`
const FUNCTION: [u32; 9] = [0x1101, 0xec06, 0xe822, 0x1000, 0x9782, 0x60e2, 0x6442, 0x6105, 0x8082];

/// The rules at each halfword of `code`, which lies at 0x1000 and of which `functions` are known.
fn rules_of(code: &[u8], functions: &[u64]) -> Vec<String> {
    let id = cfi::debug_id();
    let input = Input { arch: ARCH, functions, code: &[(0x1000, code)], ..cfi::empty_input(&id) };
    let compiled = compile(&input).expect("a table");
    let table = Table::open(&compiled.bytes).expect("a table");
    table.verify().expect("our own table");
    let at = |half: usize| table.rule(Rva(0x1000 + 2 * half as u64)).expect("code").display(ARCH).to_string();
    (0..code.len() / 2).map(at).collect()
}

#[test]
fn t4_a_function_without_call_frame_information_is_followed_from_its_symbol() {
    let (entry, made) = ("CFA = sp+0; RA = ra", "CFA = sp+32; RA = ra");
    let (saved, body) = ("CFA = sp+32; RA = [CFA-8]", "CFA = sp+32; RA = [CFA-8]; s0 = [CFA-16]");
    let expected = [entry, made, saved, body, body, body, body, body, entry];
    assert_eq!(rules_of(&bytes(&FUNCTION), &[0x1000]), expected);
    // Or from the room that it makes for the return address by which it returns; without the return nothing tells it.
    assert_eq!(rules_of(&bytes(&FUNCTION), &[]), expected);
    assert_eq!(rules_of(&bytes(&FUNCTION[..8]), &[]), ["no information"; 8]);
}

#[test]
fn t4_what_followed_code_calls_is_a_function_too() {
    // jal ra, .+8; ret (by the stack pointer alone); a callee.
    let code = [bytes(&[0x1141, 0xe406, 0x0080_00ef, 0x60a2, 0x0141]), bytes(&FUNCTION)].concat();
    let rules = rules_of(&code, &[0x1000]);
    assert_eq!(rules[6..8], ["CFA = sp+0; RA = ra", "CFA = sp+32; RA = ra"], "{rules:?}");
}

#[test]
fn t8_behind_a_call_that_never_returns_another_function_may_begin() {
    // addi sp, -16; sd ra, 8(sp); jalr a5, and then a function with a frame of its own.
    let code = [bytes(&[0x1141, 0xe406, 0x9782]), bytes(&FUNCTION)].concat();
    assert_eq!(rules_of(&code, &[0x1000])[3..], rules_of(&bytes(&FUNCTION), &[0x1000]));
    // One without a frame, `li a0, 0; ret`, shows itself by its return.
    let code = [bytes(&[0x1141, 0xe406, 0x9782]), bytes(&[0x4501, 0x8082])].concat();
    assert_eq!(rules_of(&code, &[0x1000])[3..], ["no information"; 2]);
}

#[test]
fn large_frames_take_constants_from_registers() {
    // lui t0, 0xfffff; lui a5, 0xfffff; addi t0, 16; addi sp, -16; sd ra, 8(sp); add sp, t0; jalr a5
    let code = bytes(&[0x72fd, 0x77fd, 0x02c1, 0x1141, 0xe406, 0x9116, 0x9782]);
    let rules = rules_of(&code, &[0x1000]);
    assert_eq!(rules[6], "CFA = sp+4096; RA = [CFA-8]", "{rules:?}");
}

/// LLVM for size reaches the slots of a large frame from a temporary, and says nothing of how the frame is taken down.
#[test]
fn t5_slots_that_a_temporary_reaches_are_known_where_the_frame_is_taken_down() {
    // addi sp, -2032; addi a2, sp, 1792; sd ra, 232(a2); sd s0, 224(a2); addi sp, -1120; mv s0, a1; jalr a5
    let makes = [0x8101_0113, 0x7001_0613, 0x0e16_3423, 0xf260, 0xba01_0113, 0x842e, 0x9782];
    // addi sp, 1120; addi a1, sp, 1792; ld ra, 232(a1); ld s0, 224(a1); addi sp, 2032; ret
    let takes_down = [0x4601_0113, 0x7001_0593, 0x0e85_b083, 0x71e0, 0x7f01_0113, 0x8082];
    let code = bytes(&[&makes[..], &takes_down].concat());
    let offset = |bytes: [u8; 2]| vec![0x0e, bytes[0], bytes[1]];
    let said =
        [advance(4), offset([0xf0, 0x0f]), advance(10), saved(1, 1), saved(8, 2), advance(4), offset([0xd0, 0x18])];
    let mut section = EhFrame::on(ARCH, "zR", AT_ENTRY);
    section.fde(0x1000, code.len() as u64, &said);
    let compiled = section.compile_with(&[(0x1000, &code)]).bytes;
    let table = Table::open(&compiled).expect("a table");
    let rule = |at| table.rule(Rva(at)).expect("code").display(ARCH).to_string();
    let saved = |sp: u32| format!("CFA = sp+{sp}; RA = [CFA-8]; s0 = [CFA-16]");
    assert_eq!([0x1012, 0x1014, 0x1016].map(rule), [3152; 3].map(saved));
    assert_eq!([0x101a, 0x101e, 0x1024].map(rule), [2032; 3].map(saved));
    assert_eq!(rule(0x1028), "CFA = sp+0; RA = ra");
}

/// LLVM makes a frame that one instruction cannot make by two, and says so behind the second one.
#[test]
fn t5_between_two_moves_of_the_stack_pointer_with_one_row_the_instructions_tell() {
    // addi sp, -2032; sd ra, 2024(sp); addi sp, -2048; addi sp, -960; jalr a5
    let makes = [0x8101_0113, 0x7e11_3423, 0x8001_0113, 0xc401_0113, 0x9782];
    // addi sp, 2032; addi sp, 976; ld ra, 2024(sp); addi sp, 2032; ret
    let takes_down = [0x7f01_0113, 0x3d01_0113, 0x7e81_3083, 0x7f01_0113, 0x8082];
    let code = bytes(&[&makes[..], &takes_down].concat());
    let offset = |bytes: [u8; 2]| vec![0x0e, bytes[0], bytes[1]];
    let rules = |first: [u8; 2]| {
        let said = [advance(4), offset(first), advance(4), saved(1, 1), advance(8), offset([0xb0, 0x27])];
        let mut section = EhFrame::on(ARCH, "zR", AT_ENTRY);
        section.fde(0x1000, code.len() as u64, &said);
        let compiled = section.compile_with(&[(0x1000, &code)]).bytes;
        let table = Table::open(&compiled).expect("a table");
        [0x1000, 0x1004, 0x1008, 0x100c, 0x1010, 0x1016, 0x101a, 0x1022]
            .map(|at| table.rule(Rva(at)).expect("code").display(ARCH).to_string())
    };
    let found = rules([0xf0, 0x0f]);
    let saved = |sp: u32| format!("CFA = sp+{sp}; RA = [CFA-8]");
    assert_eq!((found[0].as_str(), found[1].as_str()), ("CFA = sp+0; RA = ra", "CFA = sp+2032; RA = ra"));
    assert_eq!(found[2..7], [2032, 4080, 5040, 3008, 2032].map(saved));
    assert_eq!(found[7], "CFA = sp+0; RA = ra");
    // An entry whose rows are not what the instructions make where they begin counts as it is.
    assert_eq!(rules([0x80, 0x10])[2..4], [2048, 2048].map(saved));
}

#[test]
fn a_frame_of_unknown_size_is_counted_from_the_frame_pointer() {
    // addi sp, -16; sd ra, 8(sp); sd s0, 0(sp); addi s0, sp, 16; sub sp, sp, a0; jalr a5; addi sp, s0, -16; ld ra, 8(sp); ld s0; addi sp; ret
    let code =
        bytes(&[0x1141, 0xe406, 0xe022, 0x0800, 0x40a1_0133, 0x9782, 0xff04_0113, 0x60a2, 0x6402, 0x0141, 0x8082]);
    let rules = rules_of(&code, &[0x1000]);
    assert_eq!(rules[6], "CFA = s0+0; RA = [CFA-8]; s0 = [CFA-16]", "{rules:?}");
    assert_eq!(rules[9], "CFA = sp+16; RA = [CFA-8]; s0 = [CFA-16]", "{rules:?}");
    assert_eq!(rules[12], "CFA = sp+0; RA = ra", "{rules:?}");
}

#[test]
fn all_eleven_registers_have_slots() {
    let mut section = EhFrame::on(ARCH, "zR", AT_ENTRY);
    let rows: Vec<Vec<u8>> =
        ARCH.slot_registers().iter().zip(2..).map(|(number, words)| saved(*number, words)).collect();
    section.fde(0x1000, 0x20, &[vec![cfa_offset(0x60), saved(1, 1)], rows].concat());
    let table = section.compile().bytes;
    let table = Table::open(&table).expect("a table");
    let slots = table.slots(Rva(0x1000)).expect("a rule");
    for (number, words) in ARCH.slot_registers().iter().zip(2i16..) {
        assert_eq!(slots.of(ARCH, *number), Some(Saved::At(-words)), "{number}");
    }
}

#[test]
fn frame_records_lie_below_the_frame_pointer() {
    let table = three_functions().compile().bytes;
    let mut code = vec![0; 0x2000];
    // jalr a5 before 0x1044
    code[0x42..0x44].copy_from_slice(&0x9782u16.to_le_bytes());
    let process = Process::with_code(&table, Some((0x1000, &code)));
    let stack: Vec<u8> = [0, 0, 0x5678, at(0x1044)].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    let registers = Registers { fp: SP + 32, ..registers(0x1080, 0) };
    let (frames, walk) = process.walk(&registers, &memory);
    assert_eq!((walk.frames, walk.stop), (2, StopReason::EndOfStack));
    assert_eq!((frames[1].method, frames[1].fp), (UnwindMethod::FramePointer, 0x5678));
    assert_eq!(Table::open(&table).expect("a table").rule(Rva(0x1080)), Some(Rule::GAP));
    assert_eq!(Rule::GAP.kind(), Some(Kind::Gap));
}
