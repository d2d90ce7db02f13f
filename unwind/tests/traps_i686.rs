//! The known traps of unwinding on IA-32.

use crate::cfi::{BIAS_32, EhFrame, Process, advance, cfa_offset, saved};
use symseal_module::{Avma, Rva, StopReason, UnwindMethod};
use symseal_unwind::{Arch, Kind, Registers, Saved, StackBytes, Table};

const SP: u64 = 0x7fff_0000;
/// CFA = esp + 4, return address at CFA - 4.
const AT_ENTRY: &[u8] = &[0x0c, 4, 4, 0x88, 1];

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as u32).to_le_bytes()).collect()
}

/// Stopped at `svma` with the stack pointer at [`SP`].
fn registers(svma: u64) -> Registers {
    let mut general = [None; Registers::GENERAL];
    (general[3], general[5]) = (Some(0x3333), Some(0x5555));
    Registers { pc: BIAS_32 + svma, sp: SP, fp: 0x5555, general }
}

/// The end of the stack: the return address is undefined.
fn end() -> Vec<u8> {
    vec![0x07, 8]
}

/// A function with a frame of 16 bytes and ebp at CFA - 8, and one without a caller.
fn two_functions() -> EhFrame {
    let mut section = EhFrame::on(Arch::I686, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[advance(1), cfa_offset(8), saved(5, 2), advance(3), cfa_offset(16)]).fde(
        0x1040,
        0x20,
        &[end()],
    );
    section
}

#[test]
fn t1_words_have_four_bytes_and_a_return_address_is_looked_up_one_byte_lower() {
    let table = two_functions().compile().bytes;
    let process = Process::new(&table);
    // Behind the last byte of the first function, with garbage in the upper half of the register.
    let stack = words(&[0, 0, 0x77, BIAS_32 + 0x1020, 0, 0, 0x88, BIAS_32 + 0x1044]);
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    let mut registers = registers(0x1010);
    registers.pc |= 0xffff_ffff_0000_0000;
    let (frames, walk) = process.walk(&registers, &memory);
    let found: Vec<_> = frames.iter().map(|frame| (frame.pc.0 - BIAS_32, frame.fp)).collect();
    assert_eq!((found, walk.stop), (vec![(0x1010, 0x5555), (0x1020, 0x77), (0x1044, 0x88)], StopReason::EndOfStack));
    assert_eq!((frames[0].cfa, frames[1].cfa), (Avma(SP + 16), Avma(SP + 32)));
}

/// Where the walk comes from a handler at 0x1010 that returns to a trampoline at 0x2000, with the context `context` bytes above
/// the first word behind the return address.
fn through(trampoline: &[u8], context: u64) -> (Vec<u64>, StopReason, u64) {
    let table = two_functions().compile_with(&[(0x2000, trampoline)]).bytes;
    let process = Process::with_code(&table, Some((0x2000, trampoline)));
    let mut stack = vec![0; 0x400];
    let mut put = |at: u64, value: u64| {
        let at = at as usize;
        stack[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
    };
    put(12, BIAS_32 + 0x2000);
    // Interrupted at a first instruction: the byte before it belongs to nobody.
    for (register, value) in [(8, BIAS_32 + 0x1000), (4, SP + 0x300), (5, 0x66)] {
        put(16 + context + Arch::I686.context_offset(register).expect("saved"), value);
    }
    put(0x300, BIAS_32 + 0x1044);
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    let (frames, walk) = process.walk(&registers(0x1010), &memory);
    (frames.iter().map(|frame| frame.pc.0 - BIAS_32).collect(), walk.stop, frames.get(2).map_or(0, |frame| frame.fp))
}

#[test]
fn t2_both_signal_frames_are_known_by_their_trampolines() {
    let expected = (vec![0x1010, 0x2000, 0x1000, 0x1044], StopReason::EndOfStack, 0x66);
    // mov $173, %eax; int $0x80: three arguments and siginfo_t lie before the context.
    assert_eq!(through(&[0xb8, 0xad, 0, 0, 0, 0xcd, 0x80], 160), expected);
    // pop %eax; mov $119, %eax; int $0x80: the number of the signal does.
    assert_eq!(through(&[0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80], 4), expected);
}

#[test]
fn t2_once_the_number_of_the_signal_is_popped_the_context_is_at_the_stack_pointer() {
    let trampoline = [0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80];
    let table = two_functions().compile_with(&[(0x2000, &trampoline)]).bytes;
    let table = Table::open(&table).expect("a table");
    let rule = |at: u64| table.rule(Rva(at)).map(|rule| (rule.kind(), rule.offset()));
    let signal = |offset| Some((Some(Kind::Signal), offset));
    assert_eq!((rule(0x1fff), rule(0x2000), rule(0x2001), rule(0x2007)), (signal(4), signal(4), signal(0), signal(0)));
    assert_eq!(rule(0x2008).map(|(kind, _)| kind), Some(Some(Kind::Gap)));
}

#[test]
fn t11_arguments_that_are_pushed_count_into_the_cfa_and_no_register_else() {
    // push; DW_CFA_GNU_args_size says so of exceptions alone, and the offset of the CFA of the stack.
    let mut section = EhFrame::on(Arch::I686, "zR", AT_ENTRY);
    section
        .fde(0x1000, 0x20, &[advance(4), cfa_offset(12), vec![0x2e, 8], advance(8), cfa_offset(4), vec![0x2e, 0]])
        .fde(0x1040, 0x20, &[end()]);
    let table = section.compile().bytes;
    let process = Process::new(&table);
    let stack = words(&[BIAS_32 + 0x1044, 2, BIAS_32 + 0x1044, 0]);
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    for (at, cfa) in [(0x1000, 4), (0x1004, 12), (0x100b, 12), (0x100c, 4)] {
        let (frames, walk) = process.walk(&registers(at), &memory);
        assert_eq!((walk.frames, walk.stop, frames[0].cfa), (2, StopReason::EndOfStack, Avma(SP + cfa)), "{at:#x}");
    }
}

#[test]
fn t11_a_linkage_table_described_by_its_expression_pushes_words_of_four_bytes() {
    // breg4 4; breg8 0; lit15; and; lit11; ge; lit2; shl; plus: what linkers write for `.plt`.
    let expression = [0x74, 4, 0x78, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x32, 0x24, 0x22];
    let of = [&[0x0f, expression.len() as u8][..], &expression].concat();
    let mut section = EhFrame::on(Arch::I686, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[of]).fde(0x1040, 0x20, &[end()]);
    let table = section.compile().bytes;
    let rule = Table::open(&table).expect("a table").rule(Rva(0x1000)).expect("code");
    assert_eq!((rule.kind(), rule.offset()), (Some(Kind::Plt), 11));
    let process = Process::new(&table);
    let stack = words(&[BIAS_32 + 0x1044, BIAS_32 + 0x1045]);
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    assert_eq!(process.pcs(&registers(0x101a), &memory), (vec![0x101a, 0x1044], StopReason::EndOfStack));
    assert_eq!(process.pcs(&registers(0x101b), &memory), (vec![0x101b, 0x1045], StopReason::EndOfStack));
}

#[test]
fn t11_frame_pointers_lead_on_where_no_rule_does() {
    let table = two_functions().compile().bytes;
    let code = vec![0x90; 0x2000];
    let mut code = code;
    // call before 0x1044
    code[0x103f - 0x1000] = 0xe8;
    let process = Process::with_code(&table, Some((0x1000, &code)));
    let stack = words(&[0, 0, 0x5678, BIAS_32 + 0x1044]);
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    let registers = Registers { fp: SP + 8, ..registers(0x1080) };
    let (frames, walk) = process.walk(&registers, &memory);
    assert_eq!((walk.frames, walk.stop), (2, StopReason::EndOfStack));
    assert_eq!((frames[1].method, frames[1].fp, frames[0].cfa), (UnwindMethod::FramePointer, 0x5678, Avma(SP + 16)));
}

#[test]
fn a_push_that_an_entry_says_nothing_of_is_told_by_the_code() {
    // As glibc's memcpy: push %eax; rep movsl; pop %eax; ret; beside one that pushes ebx and ebp, and one that says itself what it does.
    let code = [
        [0x50, 0xf3, 0xa5, 0x58, 0xc3, 0x90, 0x90, 0x90],
        [0x53, 0x55, 0x31, 0xdb, 0x5d, 0x5b, 0xc3, 0x90],
        [0x53, 0x31, 0xdb, 0x5b, 0xc3, 0x90, 0x90, 0x90],
    ];
    let mut section = EhFrame::on(Arch::I686, "zR", AT_ENTRY);
    section.fde(0x1000, 5, &[]).fde(0x1008, 7, &[]).fde(
        0x1010,
        5,
        &[advance(1), cfa_offset(8), advance(3), cfa_offset(4)],
    );
    let rule = |with_code: bool, at: u64| {
        let code = code.concat();
        let compiled = if with_code { section.compile_with(&[(0x1000, &code)]) } else { section.compile() };
        let table = Table::open(&compiled.bytes).expect("our own table");
        table.verify().expect("our own table");
        let ebx = table.slots(Rva(at)).and_then(|slots| slots.of(Arch::I686, 3));
        (table.rule(Rva(at)).expect("a rule").display(Arch::I686).to_string(), ebx)
    };
    let entry = "CFA = esp+4; RA = [CFA-4]";
    let check = |at: u64, expected: &str, ebx: Saved| {
        assert_eq!(rule(true, at), (expected.to_owned(), Some(ebx)), "{at:#x}");
    };
    for (at, expected) in [(0x1000, entry), (0x1001, "CFA = esp+8; RA = [CFA-4]"), (0x1004, entry)] {
        check(at, expected, Saved::Same);
        assert_eq!(rule(false, at), (entry.to_owned(), Some(Saved::Same)));
    }
    check(0x1009, "CFA = esp+8; RA = [CFA-4]", Saved::At(-2));
    check(0x100a, "CFA = esp+12; RA = [CFA-4]; ebp = [CFA-12]", Saved::At(-2));
    check(0x100d, "CFA = esp+8; RA = [CFA-4]", Saved::At(-2));
    check(0x100e, entry, Saved::Same);
    // It does not say that ebx has other values behind the push; but what it says counts.
    check(0x1011, "CFA = esp+8; RA = [CFA-4]", Saved::Same);
    check(0x1014, entry, Saved::Same);
}
