//! The known traps of unwinding, each as small as it can be made.

use crate::cfi;
use crate::cfi::{AT_ENTRY, EhFrame, Process, TEXT, Words, advance, at, at_sp, cfa_offset, saved};
use symseal_module::{Avma, StopReason, Svma, UnwindMethod};
use symseal_unwind::{Arch, Cache, Frame, Kind, Module, Modules, Registers, StackBytes, StackRegions, Table, unwind};

pub(crate) const SP: u64 = 0x7fff_0000;

pub(crate) fn registers(svma: u64) -> Registers {
    Registers { pc: at(svma), sp: SP, fp: 0x5555, ..Registers::default() }
}

/// DW_CFA_undefined for the return address: the end of the stack.
pub(crate) fn end() -> Vec<u8> {
    vec![0x07, 16]
}

/// An entry at 0x1000 with a frame of 8 bytes, one at 0x1010 without, and the end of the stack at 0x1020.
fn three_functions() -> EhFrame {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x10, &[cfa_offset(16)]).fde(0x1010, 0x10, &[]).fde(0x1020, 0x10, &[end()]);
    section
}

#[test]
fn t1_a_return_address_is_looked_up_at_its_call_and_an_interrupted_address_at_itself() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    // Interrupted at 0x1010: the rule of the function that begins there.
    let memory = Words::default().with(&[(SP, at(0x1024))]);
    assert_eq!(process.pcs(&registers(0x1010), &memory), (vec![0x1010, 0x1024], StopReason::EndOfStack));
    // Returning to 0x1010: the call was the last instruction of the function before.
    let memory = Words::default().with(&[(SP, at(0x1010)), (SP + 16, at(0x1024))]);
    assert_eq!(process.pcs(&registers(0x1014), &memory), (vec![0x1014, 0x1010, 0x1024], StopReason::EndOfStack));
}

/// The context of a signal frame at `context`: registers by their DWARF numbers, 16 for the program counter.
fn context(context: u64, values: &[(u8, u64)]) -> Vec<(u64, u64)> {
    let place = |register: u8| match register {
        16 => 168,
        7 => 160,
        6 => 120,
        3 => 128,
        12 => 72,
        other => panic!("register {other}"),
    };
    values.iter().map(|(register, value)| (context + place(*register), *value)).collect()
}

/// The rules that glibc gives its trampoline, for one at 0x2000 (from the byte before on).
fn with_trampoline(section: &mut EhFrame) -> &mut EhFrame {
    let mut instructions = vec![vec![0x0f, 4, 0x77, 0xa0, 0x01, 0x06], at_sp(16, 168)];
    for (register, offset) in [(6, 120), (3, 128), (12, 72), (13, 80), (14, 88), (15, 96)] {
        instructions.push(at_sp(register, offset));
    }
    section.cie("zRS", AT_ENTRY).fde(0x1fff, 0x20, &instructions)
}

#[test]
fn t2_an_interrupted_frame_comes_whole_from_the_signal_context() {
    let mut section = three_functions();
    with_trampoline(&mut section);
    let table = section.compile();
    assert_eq!(table.report.unsupported, []);
    let process = Process::new(&table.bytes);
    // In a handler on an alternate stack, above the thread's own: the stack pointer jumps down.
    let (alternate, own) = (SP, SP - 0x10000);
    let memory = Words::default()
        .with(&[(alternate, at(0x2000)), (own, at(0x1024))])
        .with(&context(alternate + 8, &[(16, at(0x1010)), (7, own), (6, 0x66)]));
    let (frames, walk) = process.walk(&registers(0x1014), &memory);
    assert_eq!(walk.stop, StopReason::EndOfStack);
    let pcs: Vec<(u64, bool)> = frames.iter().map(|frame| (frame.pc.0 - cfi::BIAS, frame.exact)).collect();
    assert_eq!(pcs, [(0x1014, true), (0x2000, false), (0x1010, true), (0x1024, false)]);
    assert_eq!((frames[2].method, frames[2].fp, frames[1].cfa), (UnwindMethod::SignalContext, 0x66, Avma(own)));
}

const TRAMPOLINE: &[u8] = &[0x90, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

#[test]
fn t2_a_trampoline_without_rules_is_known_by_its_instructions() {
    let memory = Words::default()
        .with(&[(SP, at(0x2000)), (SP + 0x400, at(0x1024))])
        .with(&context(SP + 8, &[(16, at(0x1010)), (7, SP + 0x400), (6, 0)]));
    let expected = (vec![0x1014, 0x2000, 0x1010, 0x1024], StopReason::EndOfStack);
    let compiled = three_functions().compile_with(&[(0x1fff, TRAMPOLINE)]);
    assert_eq!(compiled.report.trampolines, 1);
    assert_eq!(Process::new(&compiled.bytes).pcs(&registers(0x1014), &memory), expected);
    // Right behind another function the byte before is that one's last instruction, which may be interrupted: it is no trampoline's. (Free Pascal)
    let behind_ret = [&[0xc3], &TRAMPOLINE[1..]].concat();
    let behind = three_functions().compile_with(&[(0x1fff, &behind_ret)]);
    let table = Table::open(&behind.bytes).expect("a table");
    let kind = |at: u64| table.rule(symseal_module::Rva(at)).and_then(|rule| rule.kind());
    assert_eq!((kind(0x1fff), kind(0x2000)), (Some(Kind::Gap), Some(Kind::Signal)));
    assert_eq!(Process::new(&behind.bytes).pcs(&registers(0x1014), &memory), expected);
    // Likewise where the engine has the code and the table says nothing.
    let silent = three_functions().compile().bytes;
    assert_eq!(Process::with_code(&silent, Some((0x1fff, TRAMPOLINE))).pcs(&registers(0x1014), &memory), expected);
    assert_eq!(Process::new(&silent).pcs(&registers(0x1014), &memory), (vec![0x1014, 0x2000], StopReason::NoRule));
}

#[test]
fn t2_a_call_through_a_null_pointer_was_made_where_the_top_of_the_stack_says() {
    let mut section = three_functions();
    with_trampoline(&mut section);
    let table = section.compile().bytes;
    let memory = Words::default()
        .with(&[(SP, at(0x2000)), (SP + 0x400, at(0x1014)), (SP + 0x408, at(0x1024))])
        .with(&context(SP + 8, &[(16, 0), (7, SP + 0x400), (6, 0)]));
    let (frames, walk) = Process::new(&table).walk(&registers(0x1018), &memory);
    assert_eq!((walk.frames, walk.stop), (5, StopReason::EndOfStack));
    assert_eq!((frames[2].pc, frames[3].pc, frames[3].method), (Avma(0), Avma(at(0x1014)), UnwindMethod::NullCall));
}

#[test]
fn t2_endless_signal_frames_end() {
    let mut section = three_functions();
    with_trampoline(&mut section);
    let table = section.compile().bytes;
    // The interrupted frame is the trampoline itself, with the same context again.
    let memory = Words::default().with(&context(SP, &[(16, at(0x2000)), (7, SP), (6, 0)]));
    let (frames, walk) = Process::new(&table).walk(&registers(0x2000), &memory);
    assert_eq!(walk.stop, StopReason::StackNotRising);
    assert!(frames.len() < 40);
}

#[test]
fn t2_signal_frames_on_a_stack_that_rises_are_followed_however_many_there_are() {
    let mut section = three_functions();
    with_trampoline(&mut section);
    let table = section.compile().bytes;
    // Handlers that were interrupted where they have no frame yet, and what the last one interrupted.
    let mut memory = Words::default();
    for nested in 0..60 {
        let sp = SP + 0x400 * nested;
        let returns_to = if nested < 59 { 0x2000 } else { 0x1024 };
        memory = memory
            .with(&[(sp + 0x400, at(returns_to))])
            .with(&context(sp + if nested == 0 { 0 } else { 8 }, &[(16, at(0x1010)), (7, sp + 0x400), (6, 0)]));
    }
    let mut frames = vec![Frame::EMPTY; 256];
    let walk = unwind(&Process::new(&table).modules, &registers(0x2000), &memory, &mut Cache::new(), &mut frames);
    assert_eq!((walk.stop, walk.frames), (StopReason::EndOfStack, 60 * 2 + 1));
}

#[test]
fn t3_a_slot_below_the_stack_pointer_has_been_popped_already() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // rbp is saved at CFA - 16, and the rule still says so after the pop at 0x1008.
    let prologue = [cfa_offset(16), saved(6, 2), advance(8), cfa_offset(8)];
    section.fde(0x1000, 0x10, &prologue).fde(0x1020, 0x10, &[end()]);
    let table = section.compile().bytes;
    let process = Process::new(&table);
    let memory = Words::default().with(&[(SP, at(0x1024)), (SP - 8, 0xdead)]);
    let (frames, _) = process.walk(&registers(0x1008), &memory);
    assert_eq!(frames[1].fp, 0x5555, "the live value");
    let memory = Words::default().with(&[(SP, 0x7777), (SP + 8, at(0x1024))]);
    let (frames, _) = process.walk(&registers(0x1004), &memory);
    assert_eq!(frames[1].fp, 0x7777, "the saved value");
}

/// `call 0x1800` at 0x1010, `call *%rax` at 0x1015.
const CALLS: &[u8] = &[0xe8, 0xeb, 0x07, 0, 0, 0xff, 0xd0];

#[test]
fn t4_a_leaf_without_rules_is_followed_only_when_a_call_stands_before_the_return_address() {
    let table = three_functions().compile().bytes;
    let (blind, seeing) = (Process::new(&table), Process::with_code(&table, Some((0x1010, CALLS))));
    let called = Words::default().with(&[(SP, at(0x1015)), (SP + 8, at(0x1024))]);
    assert_eq!(blind.pcs(&registers(0x1804), &called), (vec![0x1804], StopReason::NoRule));
    let (frames, walk) = seeing.walk(&registers(0x1804), &called);
    assert_eq!((walk.frames, walk.stop, frames[1].method), (3, StopReason::EndOfStack, UnwindMethod::Leaf));
    // 0x1014 is inside the call instruction.
    let not_called = Words::default().with(&[(SP, at(0x1014)), (SP + 8, at(0x1024))]);
    assert_eq!(seeing.pcs(&registers(0x1804), &not_called), (vec![0x1804], StopReason::NoRule));
}

#[test]
fn t4_two_ways_that_contradict_each_other_are_ambiguous() {
    let table = three_functions().compile().bytes;
    let process = Process::with_code(&table, Some((0x1010, CALLS)));
    // The word on top follows an indirect call, and the frame pointer leads to a return address as well.
    let registers = Registers { fp: SP + 0x20, ..registers(0x1804) };
    let memory = Words::default().with(&[(SP, at(0x1017)), (SP + 0x20, 0), (SP + 0x28, at(0x1015))]);
    assert_eq!(process.pcs(&registers, &memory), (vec![0x1804], StopReason::Ambiguous));
}

#[test]
fn t4_a_zero_above_what_the_frame_pointer_points_to_ends_a_chain_alone() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    // Any value of a general register.
    let registers = Registers { fp: SP + 0x20, ..registers(0x1804) };
    let memory = Words::default().with(&[(SP + 0x20, 7), (SP + 0x28, 0)]);
    assert_eq!(process.pcs(&registers, &memory), (vec![0x1804], StopReason::NoRule));
    // A chain that leads there.
    let memory =
        Words::default().with(&[(SP + 0x20, SP + 0x40), (SP + 0x28, at(0x1806)), (SP + 0x40, 0), (SP + 0x48, 0)]);
    assert_eq!(process.pcs(&registers, &memory), (vec![0x1804, 0x1806], StopReason::RootFramePointer));
}

#[test]
fn t13_a_frame_pointer_that_leads_to_code_in_no_module_says_so() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    let registers = Registers { fp: SP + 0x20, ..registers(0x1804) };
    for (pc, stop) in [
        (0x7f00_1234_5678, StopReason::NoModule),
        // A word of the kernel's half, a small number and one that points into the stack are no code.
        (SP + 0x100, StopReason::NoRule),
        (u64::MAX, StopReason::NoRule),
        (17, StopReason::NoRule),
    ] {
        let memory = Words::default().with(&[(SP + 0x20, SP + 0x80), (SP + 0x28, pc)]);
        assert_eq!(process.pcs(&registers, &memory), (vec![0x1804], stop), "{pc:x}");
    }
}

/// Code that a process made, gave up and made anew: what a thread's cache remembers of one set of modules counts for no other.
#[test]
fn t13_code_that_is_made_again_at_its_address_has_the_rules_of_its_own_set() {
    let table = three_functions().compile().bytes;
    let mut other = EhFrame::new("zR", AT_ENTRY);
    other.fde(0x1000, 0x20, &[cfa_offset(32)]).fde(0x1020, 0x10, &[end()]);
    let other = other.compile().bytes;
    let (before, after) = (Process::new(&table), Process::new(&other));
    let told_alone = Modules::new(
        Arch::X86_64,
        vec![Module {
            start: Avma(cfi::BIAS),
            end: Avma(at(0x1020)),
            bias: cfi::BIAS,
            image_base: Svma(0),
            table: None,
            code: None,
        }],
    );
    // A frame of 8 bytes and one of 24 have their return addresses in different places; by the frame pointer it is in a third.
    let memory = Words::default().with(&[
        (SP, 7),
        (SP + 8, at(0x1024)),
        (SP + 24, at(0x1022)),
        (SP + 40, 0),
        (SP + 48, at(0x1011)),
    ]);
    let registers = Registers { fp: SP + 40, ..registers(0x1004) };
    let sets = [(&before.modules, 0x1024), (&after.modules, 0x1022), (&told_alone, 0x1011)];
    for capacity in [0, 1, 7, 2048, Cache::DEFAULT_CAPACITY] {
        let mut cache = Cache::with_capacity(capacity);
        for (modules, caller) in sets.into_iter().chain(sets.into_iter().rev()).cycle().take(18) {
            let mut frames = [Frame::EMPTY; 4];
            unwind(modules, &registers, &memory, &mut cache, &mut frames);
            assert_eq!(frames[1].pc, Avma(at(caller)), "{capacity}");
        }
    }
}

#[test]
fn t4_the_frame_pointer_is_followed_where_no_rule_covers_and_says_so() {
    let table = three_functions().compile().bytes;
    let registers = Registers { fp: SP + 0x20, ..registers(0x1804) };
    let memory = Words::default().with(&[(SP + 0x20, SP + 0x80), (SP + 0x28, at(0x1024))]);
    let (frames, walk) = Process::new(&table).walk(&registers, &memory);
    assert_eq!(walk.stop, StopReason::EndOfStack);
    assert_eq!(
        (frames[1].method, frames[1].fp, frames[0].cfa),
        (UnwindMethod::FramePointer, SP + 0x80, Avma(SP + 0x30))
    );
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn stack(start: u64, bytes: &[u8]) -> StackBytes<'_> {
    StackBytes { start: Avma(start), bytes }
}

#[test]
fn t4_the_frame_pointer_does_not_lead_from_an_alternate_stack_to_the_interrupted_one() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    // A handler without a rule; the frame pointer is that of the interrupted code, on the stack above.
    let (own, bytes) = (SP + 0x10000, [words(&[0; 8]), words(&[0, at(0x1024), 0])]);
    let registers = Registers { fp: own, ..registers(0x1804) };
    let (alternate, interrupted) = (stack(SP, &bytes[0]), stack(own, &bytes[1]));
    for regions in [[alternate, interrupted], [interrupted, alternate]] {
        let (frames, walk) = process.walk(&registers, &StackRegions(&regions));
        assert_eq!((frames.len(), walk.stop), (1, StopReason::NoRule));
    }
    // Nor to one that begins where this one ends, or in the middle of a frame record.
    for split in [64, 72] {
        let all = words(&[0, 0, 0, 0, 0, 0, 0, 0, 0, at(0x1024), 0]);
        let registers = Registers { fp: SP + 64, ..registers };
        let (below, above) = all.split_at(split);
        let regions = [stack(SP, below), stack(SP + split as u64, above)];
        assert_eq!(process.walk(&registers, &StackRegions(&regions)).1.stop, StopReason::NoRule);
        assert_eq!(process.walk(&registers, &StackRegions(&[stack(SP, &all)])).1.stop, StopReason::EndOfStack);
    }
    // Nor does the end of the interrupted code's chain pass for the end of the stack.
    let bytes = words(&[0, 0]);
    let regions = [alternate, stack(own, &bytes)];
    assert_eq!(process.walk(&registers, &StackRegions(&regions)).1.stop, StopReason::NoRule);
}

#[test]
fn t2_a_signal_frame_leads_to_a_stack_above_the_alternate_one() {
    let mut section = three_functions();
    with_trampoline(&mut section);
    let table = section.compile().bytes;
    let own = SP + 0x10000;
    let mut alternate = vec![0; 0x200];
    let saved = context(8, &[(16, at(0x1010)), (7, own), (6, own + 0x20)]);
    for (offset, word) in [(0, at(0x2000))].into_iter().chain(saved) {
        let offset = offset as usize;
        alternate[offset..offset + 8].copy_from_slice(&u64::to_le_bytes(word));
    }
    let interrupted = words(&[at(0x1024)]);
    let regions = [stack(SP, &alternate), stack(own, &interrupted)];
    let (frames, walk) = Process::new(&table).walk(&registers(0x1014), &StackRegions(&regions));
    assert_eq!((frames.len(), walk.stop), (4, StopReason::EndOfStack));
}

/// A handler's context may hold anything. What it says of the stack pointer is believed as far as the memory there is at hand, and leads to no other stack than the one that it points to.
#[test]
fn t2_a_context_whose_stack_pointer_lies_in_no_known_stack_leads_no_further() {
    let mut section = three_functions();
    with_trampoline(&mut section);
    let table = section.compile().bytes;
    for own in [SP - 0x10000, SP + 0x10000, 0, 8, u64::MAX - 7] {
        let mut alternate = vec![0; 0x200];
        let saved = context(8, &[(16, at(0x1010)), (7, own), (6, own)]);
        for (offset, word) in [(0, at(0x2000))].into_iter().chain(saved) {
            let offset = offset as usize;
            alternate[offset..offset + 8].copy_from_slice(&u64::to_le_bytes(word));
        }
        let regions = [stack(SP, &alternate)];
        let (frames, walk) = Process::new(&table).walk(&registers(0x1014), &StackRegions(&regions));
        let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - cfi::BIAS).collect();
        assert_eq!(pcs, [0x1014, 0x2000, 0x1010], "{own:#x}");
        assert!(!walk.stop.is_complete(), "{own:#x}: {}", walk.stop);
    }
}

/// Nothing signs addresses there: what has bits above is none, and is given as it is.
#[test]
fn t9_addresses_of_x86_64_keep_the_bits_above() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    let marked = at(0x1024) | 0x0055_0000_0000_0000;
    let (frames, walk) = process.walk(&registers(0x1014), &Words::default().with(&[(SP, marked)]));
    assert_eq!((frames[1].pc, walk.stop), (Avma(marked), StopReason::NoModule));
    // A mask of signatures that somebody gives is not for this processor.
    let modules = process.modules.clone().with_signature_mask(0x007f_0000_0000_0000);
    let mut frames = [Frame::EMPTY; 4];
    let memory = Words::default().with(&[(SP, marked)]);
    let walk = unwind(&modules, &registers(0x1014), &memory, &mut Cache::new(), &mut frames);
    assert_eq!((frames[1].pc, walk.stop), (Avma(marked), StopReason::NoModule));
}

#[test]
fn t7_the_ways_in_which_stacks_end_are_told_apart() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    let check = |svma, fp, words: &[(u64, u64)], expected| {
        let registers = Registers { fp, ..registers(svma) };
        assert_eq!(process.pcs(&registers, &Words::default().with(words)).1, expected, "{svma:#x}");
    };
    check(0x1024, 0, &[], StopReason::EndOfStack);
    check(0x1014, 0, &[(SP, 0)], StopReason::RootFramePointer);
    check(0x1014, 0, &[], StopReason::TruncatedStack);
    check(0x1804, 0, &[], StopReason::NoRule);
    // A chain of frame pointers that ends with 0, in a function of which nothing is known.
    let chain = [(SP, SP + 16), (SP + 8, at(0x1850)), (SP + 16, 0), (SP + 24, at(0x1850))];
    check(0x1804, SP, &chain, StopReason::NoRule);
    check(0x1014, 0, &[(SP, 0x1234_5678)], StopReason::NoModule);
}

/// Code that keeps no frame pointers, as Free Pascal makes it, leaves the zero of whoever began the stack in the register, however many frames there are.
#[test]
fn t7_a_frame_pointer_of_zero_ends_a_chain_only_in_a_function_that_has_cleared_it() {
    let table = three_functions().compile().bytes;
    // A call, behind what clears the frame pointer or another register.
    let ends_with = |instruction: &[u8]| {
        let code = [instruction, &[0x48, 0x89, 0xe7, 0xe8, 0xb7, 0xff, 0xff, 0xff]].concat();
        let process = Process::with_code(&table, Some((0x1850 - code.len() as u64, &code)));
        let memory = Words::default().with(&[(SP, 0), (SP + 8, at(0x1850))]);
        process.pcs(&Registers { fp: SP, ..registers(0x1807) }, &memory)
    };
    let pcs = vec![0x1807, 0x1850];
    // xor %ebp, %ebp; xor %rbp, %rbp
    for clears in [&[0x31, 0xed][..], &[0x48, 0x31, 0xed]] {
        assert_eq!(ends_with(clears), (pcs.clone(), StopReason::RootFramePointer), "{clears:x?}");
    }
    // xor %edi, %edi; xor %r13d, %r13d; xor %r13, %r13; mov $0xed31, %eax; push %rbp and xor %ebp, %ebp; that and ret
    let others = [
        &[0x31, 0xff][..],
        &[0x45, 0x31, 0xed],
        &[0x4d, 0x31, 0xed],
        &[0xb8, 0x31, 0xed, 0, 0],
        &[0x55, 0x31, 0xed],
        &[0x31, 0xed, 0xc3],
    ];
    for other in others {
        assert_eq!(ends_with(other), (pcs.clone(), StopReason::NoRule), "{other:x?}");
    }
}

#[test]
fn t8_a_return_address_may_be_the_first_byte_after_its_module() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(TEXT.end - 0x10, 0x10, &[end()]).fde(0x1010, 0x10, &[]);
    let table = section.compile().bytes;
    let memory = Words::default().with(&[(SP, at(TEXT.end))]);
    let expected = (vec![0x1014, TEXT.end], StopReason::EndOfStack);
    assert_eq!(Process::new(&table).pcs(&registers(0x1014), &memory), expected);
}

#[test]
fn t15_what_does_not_rest_on_a_stack_pointer_that_was_overwritten_still_holds() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // CFA = rbp + 16, rbp saved below the return address; the end.
    section.fde(0x1000, 0x10, &[vec![0x0c, 6, 16], saved(6, 2)]).fde(0x1010, 0x10, &[vec![0x0c, 6, 16], saved(6, 2)]);
    section.fde(0x1020, 0x10, &[end()]);
    let table = section.compile().bytes;
    let process = Process::new(&table);
    let words = [(SP, SP + 32), (SP + 8, at(0x1014)), (SP + 32, 7), (SP + 40, at(0x1024))];
    let memory = Words::default().with(&words);
    let pcs = |sp, svma| process.pcs(&Registers { sp, fp: SP, ..registers(svma) }, &memory);
    let whole = (vec![0x1004, 0x1014, 0x1024], StopReason::EndOfStack);
    assert_eq!(pcs(SP - 16, 0x1004), whole);
    assert_eq!(pcs(0x1122_3344_5566_7788, 0x1004), whole);
    // One that can be read is another stack's, or what was there is no frame of it.
    assert_eq!(pcs(SP + 40, 0x1004).1, StopReason::StackNotRising);
}

#[test]
fn t15_a_stack_that_does_not_rise_or_is_askew_ends_the_walk() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // CFA = rbp + 16 and CFA = rax + 0.
    section.fde(0x1000, 0x10, &[vec![0x0c, 6, 16]]).fde(0x1010, 0x10, &[vec![0x0c, 0, 0]]);
    let table = section.compile().bytes;
    let process = Process::new(&table);
    let stop = |svma, fp, rax| {
        let mut registers = Registers { fp, ..registers(svma) };
        registers.general[0] = rax;
        let words = [(SP, 1), (SP + 8, at(0x1004)), (fp.wrapping_add(8), at(0x1004))];
        process.pcs(&registers, &Words::default().with(&words)).1
    };
    assert_eq!(stop(0x1004, SP - 16, None), StopReason::StackNotRising);
    assert_eq!(stop(0x1004, SP, None), StopReason::StackNotRising, "the second frame has the same CFA as the first");
    assert_eq!(stop(0x1004, SP + 3, None), StopReason::Misaligned);
    assert_eq!(stop(0x1004, u64::MAX - 7, None), StopReason::StackNotRising);
    assert_eq!(stop(0x1014, 8, Some(SP + 16)), StopReason::StackNotRising);
    assert_eq!(stop(0x1014, 0, None), StopReason::RegisterUnknown);
}

#[test]
fn t15_a_walk_ends_with_its_buffer() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    let words: Vec<(u64, u64)> = (0..100).map(|at_word| (SP + 8 * at_word, at(0x1014))).collect();
    let memory = Words::default().with(&words);
    for room in [0, 1, 2, 50] {
        let mut frames = vec![Frame::EMPTY; room];
        let walk = unwind(&process.modules, &registers(0x1014), &memory, &mut Cache::new(), &mut frames);
        assert_eq!((walk.frames, walk.stop), (room, StopReason::MaxFrames));
    }
}

#[test]
fn a_register_that_a_rule_needs_is_found_where_a_callee_saved_it() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section
        .fde(0x1000, 0x10, &[cfa_offset(24), saved(3, 2)]) // saves rbx
        .fde(0x1010, 0x10, &[]) // does not touch it
        .fde(0x1020, 0x10, &[vec![0x0c, 3, 24]]) // CFA = rbx + 24, as in _dl_runtime_resolve
        .fde(0x1030, 0x10, &[end()]);
    let table = section.compile().bytes;
    let rbx = SP + 0x100;
    let memory = Words::default().with(&[
        (SP + 8, rbx), // rbx of the frame at 0x1014
        (SP + 16, at(0x1014)),
        (SP + 24, at(0x1024)),
        (rbx + 16, at(0x1034)),
    ]);
    let mut registers = registers(0x1004);
    registers.general[3] = Some(0x9999);
    assert_eq!(
        Process::new(&table).pcs(&registers, &memory),
        (vec![0x1004, 0x1014, 0x1024, 0x1034], StopReason::EndOfStack)
    );
}

#[test]
fn a_module_without_a_table_and_an_address_without_a_module_say_so() {
    let module =
        Module { start: Avma(0x1000), end: Avma(0x2000), bias: 0, image_base: Svma(0), table: None, code: None };
    let modules = Modules::new(Arch::X86_64, vec![module]);
    let mut frames = [Frame::EMPTY; 4];
    let mut stop = |pc| {
        let registers = Registers { pc, sp: SP, ..Registers::default() };
        unwind(&modules, &registers, &Words::default(), &mut Cache::new(), &mut frames).stop
    };
    assert_eq!(
        (stop(0x1800), stop(0x2000), stop(u64::MAX)),
        (StopReason::NoTable, StopReason::NoModule, StopReason::NoModule)
    );
}

#[test]
fn an_unknown_frame_pointer_is_not_taken_for_zero() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // CFA = rbp + 16
    section.fde(0x1000, 0x10, &[vec![0x0c, 6, 16]]).fde(0x1020, 0x10, &[end()]);
    let table = section.compile().bytes;
    let process = Process::new(&table);
    let memory = Words::default().with(&[(8, at(0x1024)), (SP, at(0x1024))]);
    let unknown = Registers { fp: 0, sp: 0, ..registers(0x1004) };
    assert_eq!(process.pcs(&unknown, &memory), (vec![0x1004], StopReason::RegisterUnknown));
    // Somebody who knows it to be 0 says so.
    let mut zero = unknown;
    zero.general[6] = Some(0);
    assert_eq!(process.pcs(&zero, &memory), (vec![0x1004, 0x1024], StopReason::EndOfStack));
}

#[test]
fn of_overlapping_modules_the_one_that_begins_last_holds_an_address() {
    let module = |start, end| Module {
        start: Avma(start),
        end: Avma(end),
        bias: start,
        image_base: Svma(0),
        table: None,
        code: None,
    };
    let modules = Modules::new(Arch::X86_64, vec![module(0x10000, 0x50000), module(0x20000, 0x30000)]);
    for (pc, expected) in [(0x15000, Some(0)), (0x25000, Some(1)), (0x40000, None)] {
        let mut frames = [Frame::EMPTY; 1];
        let registers = Registers { pc, sp: SP, ..Registers::default() };
        unwind(&modules, &registers, &Words::default(), &mut Cache::new(), &mut frames);
        assert_eq!(frames[0].module, expected, "{pc:#x}");
    }
}

#[test]
fn one_cache_serves_different_processes() {
    let (first, second) = (three_functions().compile().bytes, {
        let mut section = EhFrame::new("zR", AT_ENTRY);
        section.fde(0x1000, 0x100, &[end()]);
        section.compile().bytes
    });
    let (first, second) = (Process::new(&first), Process::new(&second));
    let memory = Words::default().with(&[(SP, at(0x1024))]);
    let mut cache = Cache::with_capacity(1);
    let mut frames = [Frame::EMPTY; 4];
    for _ in 0..3 {
        assert_eq!(unwind(&first.modules, &registers(0x1014), &memory, &mut cache, &mut frames).frames, 2);
        assert_eq!(unwind(&second.modules, &registers(0x1014), &memory, &mut cache, &mut frames).frames, 1);
    }
}
