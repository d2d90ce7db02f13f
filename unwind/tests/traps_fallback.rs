//! What is easily got wrong where no rule leads on, and about edges that no call made, each with its own test.

use crate::cfi;
use crate::cfi::{AT_ENTRY, EhFrame, Process, Words, advance, at, cfa_offset};
use symseal_module::{Avma, FrameEdge, StopReason, UnwindMethod};
use symseal_unwind::compile::{Input, Plt, compile};
use symseal_unwind::{Arch, Cache, Frame, GoRuntime, GoroutineFields, Memory, Options, Registers, Walk, unwind_with};

const SP: u64 = 0x7fff_0000;
const FIRST: u64 = 0x1000;
/// An instruction in code without rules, and where that code begins.
const DARK: u64 = 0x1800;
const HERE: u64 = 0x1804;

/// A function at 0x1000 with a frame of 24 bytes, the end of the stack at 0x1080, no rules from 0x10a0 on.
fn section() -> EhFrame {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x40, &[advance(1), cfa_offset(24)]).fde(0x1080, 0x20, &[vec![0x07, 16]]);
    section
}

/// Code of all that: calls of `DARK` before 0x1015, of what is not known before 0x1022, of another function without rules before 0x1030, of 0x1000
/// before 0x1095, and of `DARK` from itself before 0x1835.
fn code() -> Vec<u8> {
    let mut code = vec![0x90; 0x1000];
    let mut call = |after: u64, target: u64| {
        let distance = (target.wrapping_sub(after) as u32).to_le_bytes();
        let at = (after - 5 - FIRST) as usize;
        code[at] = 0xe8;
        code[at + 1..at + 5].copy_from_slice(&distance);
    };
    call(0x1015, DARK);
    call(0x1030, 0x1700);
    call(0x1095, 0x1000);
    call(0x1835, DARK);
    code[0x20..0x22].copy_from_slice(&[0xff, 0xd0]);
    code
}

fn registers(pc: u64) -> Registers {
    Registers { pc: at(pc), sp: SP, fp: 0x5555, ..Registers::default() }
}

/// Words from `SP` on; every other one of the next 200 is no address.
fn stack(words: &[u64]) -> Words {
    let filled = (0..200).map(|at| (SP + 8 * at, words.get(at as usize).copied().unwrap_or(7)));
    Words::default().with(&filled.collect::<Vec<_>>())
}

fn scan_with(process: &Process<'_>, registers: &Registers, memory: &impl Memory) -> (Vec<Frame>, Walk) {
    let mut frames = vec![Frame::EMPTY; 16];
    let options = Options { scan: true, ..Options::default() };
    let walk = unwind_with(&process.modules, registers, memory, &mut Cache::new(), &mut frames, options);
    frames.truncate(walk.frames);
    (frames, walk)
}

/// Program counters as stated, and the stop, of walks with scanning.
#[track_caller]
fn check(registers: Registers, words: &[u64], expected: &[u64], stop: StopReason) {
    let (table, code) = (section().compile().bytes, code());
    let process = Process::with_code(&table, Some((FIRST, &code)));
    let (frames, walk) = scan_with(&process, &registers, &stack(words));
    let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0.wrapping_sub(cfi::BIAS)).collect();
    assert_eq!((pcs.as_slice(), walk.stop), (expected, stop), "{frames:x?}");
}

/// The frame of the first function above a return address in it, which was called from the end of the stack.
const FRAMED: [u64; 3] = [8, 9, cfi::BIAS + 0x1095];

#[test]
fn t16_a_word_that_calls_account_for_is_found_and_says_that_it_is_a_guess() {
    let (table, code) = (section().compile().bytes, code());
    let process = Process::with_code(&table, Some((FIRST, &code)));
    let words = [1, 2, at(0x1015), FRAMED[0], FRAMED[1], FRAMED[2]];
    let (frames, walk) = scan_with(&process, &registers(HERE), &stack(&words));
    let methods: Vec<UnwindMethod> = frames.iter().map(|frame| frame.method).collect();
    assert_eq!(methods, [UnwindMethod::Context, UnwindMethod::Scan, UnwindMethod::CfiEhFrame]);
    assert_eq!((walk.stop, frames[0].cfa, frames[1].pc), (StopReason::EndOfStack, Avma(SP + 24), Avma(at(0x1015))));
    // The function left the frame pointer alone.
    assert_eq!((frames[1].fp, frames[1].exact), (0x5555, false));
    // Only if it is asked for, and only with the code.
    assert_eq!(process.pcs(&registers(HERE), &stack(&words)), (vec![HERE], StopReason::NoRule));
    let blind = Process::new(&table);
    assert_eq!(scan_with(&blind, &registers(HERE), &stack(&words)).0.len(), 1);
}

#[test]
fn t16_without_a_direct_call_the_callers_rules_have_to_lead_on() {
    // Behind a call to what is not known: with the caller's caller, which called its very function; and without.
    check(registers(HERE), &[1, at(0x1022), 8, 9, at(0x1095)], &[HERE, 0x1022, 0x1095], StopReason::EndOfStack);
    check(registers(HERE), &[1, at(0x1022), 8, 9, at(0x1096)], &[HERE], StopReason::NoRule);
    // The caller's caller called another function.
    check(registers(HERE), &[1, at(0x1022), 8, 9, at(0x1015)], &[HERE], StopReason::NoRule);
    // Not behind a call; and behind one to a function that has rules, which is not this one.
    check(registers(HERE), &[1, at(0x1014), 8, 9, at(0x1095)], &[HERE], StopReason::NoRule);
}

#[test]
fn t16_two_words_that_may_be_meant_are_ambiguous() {
    // Both lead on, and neither is the return address of a caller of the other.
    let both = [1, at(0x1022), at(0x1015), 8, at(0x1095), at(0x1095)];
    check(registers(HERE), &both, &[HERE], StopReason::Ambiguous);
    // So is one that cannot be followed: nothing is known of the function that it lies in.
    let unknown = [1, at(0x1835), at(0x1015), FRAMED[0], FRAMED[1], FRAMED[2]];
    check(registers(HERE), &unknown, &[HERE], StopReason::Ambiguous);
    // One that is too far away to be taken is not too far to stand against another.
    let mut far = vec![7; 190];
    far[2..6].copy_from_slice(&[at(0x1015), FRAMED[0], FRAMED[1], FRAMED[2]]);
    far[180] = at(0x1015);
    check(registers(HERE), &far, &[HERE], StopReason::Ambiguous);
    far.copy_within(2..6, 176);
    far[2..6].fill(7);
    far[180] = 7;
    check(registers(HERE), &far, &[HERE], StopReason::NoRule);
}

#[test]
fn t16_a_call_of_a_function_that_ends_before_this_one_is_no_evidence_unless_it_goes_on_by_a_jump() {
    let (table, mut code) = (section().compile().bytes, code());
    // push %rbx: the stack pointer is not where the call left it.
    code[0x800] = 0x53;
    let words = [at(0x1030), 1, at(0x1015), FRAMED[0], FRAMED[1], FRAMED[2]];
    let walk = |code: &[u8]| {
        let process = Process::with_code(&table, Some((FIRST, code)));
        let (frames, walk) = scan_with(&process, &registers(HERE), &stack(&words));
        (frames.get(1).map(|frame| frame.pc), walk.stop)
    };
    assert_eq!(walk(&code), (Some(Avma(at(0x1015))), StopReason::EndOfStack));
    let unmoved = [&[0x90][..], &code[0x801..]].concat();
    assert_eq!(walk(&[&code[..0x800], &unmoved].concat()).0, Some(Avma(at(0x1030))));
    // jmp 0x1800 at 0x1710; a jump back within the function.
    code[0x710..0x715].copy_from_slice(&[0xe9, 0xeb, 0, 0, 0]);
    assert_eq!(walk(&code), (None, StopReason::Ambiguous));
    code[0x710..0x715].copy_from_slice(&[0xeb, 0xf0, 0x90, 0x90, 0x90]);
    assert_eq!(walk(&code), (Some(Avma(at(0x1015))), StopReason::EndOfStack));
}

/// glibc's `clone3` on x86_64, which has no rule from its system call on: of the two threads that go on there, one is on a new stack.
#[test]
fn t15_a_function_that_goes_on_behind_its_record_is_what_the_call_led_to() {
    #[rustfmt::skip]
    const CLONE3: [u8; 33] = [
        0xb8, 0xea, 0xff, 0xff, 0xff, 0x48, 0x85, 0xff, 0x74, 0x2c, // mov $-22, %eax; test %rdi, %rdi; je to the end
        0x49, 0x89, 0xc8, 0xb8, 0xb3, 0x01, 0x00, 0x00, // mov %rcx, %r8; mov $435, %eax
        0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7c, 0x1d, 0x74, 0x01, 0xc3, // syscall; test %rax, %rax; jl to the end; je; ret
        0x31, 0xed, 0xff, 0xd2, 0xf4, // xor %ebp, %ebp; call *%rdx; hlt
    ];
    let mut code = code();
    code[(DARK - FIRST) as usize..][..CLONE3.len()].copy_from_slice(&CLONE3);
    code[(DARK - FIRST) as usize + 0x36] = 0xc3;
    let mut alone = section();
    alone.fde(DARK, 18, &[]);
    // That of the new thread follows, as in glibc.
    let mut followed = section();
    followed.fde(DARK, 18, &[]).fde(DARK + 28, 5, &[vec![0x07, 16]]);
    for section in [alone, followed] {
        check_clone3(&section.compile().bytes, &code);
    }
}

#[track_caller]
fn check_clone3(table: &[u8], code: &[u8]) {
    let process = Process::with_code(table, Some((FIRST, code)));
    // Called from the first function, whose own caller is the end of the stack; further out lies a word behind an indirect call.
    let words = [at(0x1015), FRAMED[0], FRAMED[1], FRAMED[2], 7, at(0x1022), 8, 9, at(0x1095)];
    for behind in [18, 20, 23, 25, 27] {
        let state = registers(DARK + behind);
        let mut frames = vec![Frame::EMPTY; 16];
        let walk =
            unwind_with(&process.modules, &state, &stack(&words), &mut Cache::new(), &mut frames, Options::default());
        frames.truncate(walk.frames);
        for (frames, walk) in [(frames, walk), scan_with(&process, &state, &stack(&words))] {
            let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0.wrapping_sub(cfi::BIAS)).collect();
            assert_eq!((pcs, walk.stop), (vec![DARK + behind, 0x1015, 0x1095], StopReason::EndOfStack), "{behind}");
            assert_eq!((frames[1].method, frames[0].cfa), (UnwindMethod::Leaf, Avma(SP + 8)));
        }
        // The new thread, on whose stack no such word is.
        let (frames, walk) = scan_with(&process, &state, &stack(&[0x7fff_8000, 7, 7]));
        assert!(frames.len() == 1 && !walk.stop.is_complete(), "{frames:x?}");
    }
}

/// With what is in place of the code of the first function, which has rules: the caller of [`HERE`], where the call to that function returns to a word
/// above the one that leads on.
#[track_caller]
fn check_called_function(instructions: &[u8], expected: Option<u64>, stop: StopReason) {
    let (table, mut code) = (section().compile().bytes, code());
    (code[0xa0], code[0x800]) = (0xc3, 0x53); // ret, which is all of a function without rules; push %rbx
    code[..instructions.len()].copy_from_slice(instructions);
    let words = [1, at(0x1095), at(0x1015), FRAMED[0], FRAMED[1], FRAMED[2]];
    let process = Process::with_code(&table, Some((FIRST, &code)));
    let (frames, walk) = scan_with(&process, &registers(HERE), &stack(&words));
    let found = frames.get(1).map(|frame| frame.pc.0 - cfi::BIAS);
    assert_eq!((found, walk.stop), (expected, stop), "{instructions:x?}");
}

#[test]
fn t16_a_function_with_rules_is_followed_by_its_instructions_to_where_it_jumps() {
    let found = (Some(0x1015), StopReason::EndOfStack);
    let ambiguous = (None, StopReason::Ambiguous);
    // mov $0xe9ebff, %eax: bytes that look like jumps; a jump within.
    check_called_function(&[0xb8, 0xff, 0xeb, 0xe9, 0], found.0, found.1);
    check_called_function(&[0xeb, 0], found.0, found.1);
    // To the present function, whether it depends on something or not; to another, which ends before it.
    check_called_function(&[0xe9, 0xfb, 7, 0, 0], ambiguous.0, ambiguous.1);
    check_called_function(&[0x0f, 0x85, 0xfa, 7, 0, 0], ambiguous.0, ambiguous.1);
    check_called_function(&[0xe9, 0x9b, 0, 0, 0], found.0, found.1);
    // jmp *%rax, and what is no instruction.
    check_called_function(&[0xff, 0xe0], ambiguous.0, ambiguous.1);
    check_called_function(&[0x06], ambiguous.0, ambiguous.1);
}

#[test]
fn t16_a_frame_pointer_behind_an_indirect_call_is_not_believed_over_a_word_below() {
    let (table, code) = (section().compile().bytes, code());
    let process = Process::with_code(&table, Some((FIRST, &code)));
    let framed = Registers { fp: SP + 0x40, ..registers(HERE) };
    // Without scanning: the record of a function that was called through a pointer, and nothing below.
    let mut words = [7; 13];
    (words[8], words[9], words[12]) = (0, at(0x1022), at(0x1095));
    assert_eq!(process.pcs(&framed, &stack(&words)), (vec![HERE, 0x1022, 0x1095], StopReason::EndOfStack));
    // Another such word below it, whose caller leads on.
    words[2..6].copy_from_slice(&[at(0x1022), 8, 9, at(0x1095)]);
    assert_eq!(process.pcs(&framed, &stack(&words)), (vec![HERE], StopReason::NoRule));
}

/// A call through a linkage table leads anywhere, as one through a pointer does. (libgmp's loops, which keep no frame pointer)
#[test]
fn t16_a_frame_pointer_behind_a_call_through_a_linkage_table_is_not_believed_over_a_word_below() {
    // jmp *0x1000(%rip)
    let stub = [0xff, 0x25, 0, 0x10, 0, 0];
    let (section, id) = (section(), cfi::debug_id());
    let plt = [Plt { range: 0x10c0..0x10c6, entry_size: 6, bytes: &stub }];
    let input = Input { eh_frame: Some((0x9000, &section.bytes)), plt: &plt, ..cfi::empty_input(&id) };
    let (table, mut code) = (compile(&input).expect("a table").bytes, code());
    // The call before 0x1015 leads there now, and that in the caller of the caller still to 0x1000.
    code[0x11..0x15].copy_from_slice(&0x10c0_u32.wrapping_sub(0x1015).to_le_bytes());
    let process = Process::with_code(&table, Some((FIRST, &code)));
    let framed = Registers { fp: SP + 0x40, ..registers(HERE) };
    let mut words = [7; 13];
    (words[8], words[9], words[12]) = (0, at(0x1015), at(0x1095));
    assert_eq!(process.pcs(&framed, &stack(&words)), (vec![HERE, 0x1015, 0x1095], StopReason::EndOfStack));
    words[2..6].copy_from_slice(&[at(0x1015), 8, 9, at(0x1095)]);
    assert_eq!(process.pcs(&framed, &stack(&words)), (vec![HERE], StopReason::NoRule));
}

/// GCC keeps the address of a local there if it needs the register for nothing else. A local that was not written yet may hold the record of a call that is over.
#[test]
fn t16_a_frame_pointer_that_was_given_the_address_of_a_local_leads_to_no_record() {
    let (table, mut code) = (section().compile().bytes, code());
    let framed = Registers { fp: SP, ..registers(0x1820) };
    // Behind a call through a pointer, which may have led anywhere.
    let words = [SP + 0x80, at(0x1022), 8, 9, at(0x1095)];
    let mut walk = |prologue: &[u8]| {
        code[0x800..0x820].fill(0x90);
        code[0x800..0x800 + prologue.len()].copy_from_slice(prologue);
        let process = Process::with_code(&table, Some((FIRST, &code)));
        process.pcs(&framed, &stack(&words)).0
    };
    // push %rbp; mov %rsp,%rbp; and with mov %edi,%eax between them.
    assert_eq!(walk(&[0x55, 0x48, 0x89, 0xe5]), [0x1820, 0x1022, 0x1095]);
    assert_eq!(walk(&[0x55, 0x89, 0xf8, 0x48, 0x89, 0xe5]), [0x1820, 0x1022, 0x1095]);
    // push %rbp; push %rbx; sub $40,%rsp; mov %rsp,%rbp
    let local = [0x55, 0x53, 0x48, 0x83, 0xec, 0x28, 0x48, 0x89, 0xe5];
    assert_eq!(walk(&local), [0x1820]);
    // push %rbp; sub $32,%rsp; lea 16(%rsp),%rbp
    assert_eq!(walk(&[0x55, 0x48, 0x83, 0xec, 0x20, 0x48, 0x8d, 0x6c, 0x24, 0x10]), [0x1820]);
}

#[test]
fn t16_a_word_on_top_of_the_stack_is_not_taken_where_a_call_further_out_led_here() {
    let (table, mut code) = (section().compile().bytes, code());
    let words = [at(0x1022), 1, at(0x1015), FRAMED[0], FRAMED[1], FRAMED[2]];
    let walk = |code: &[u8]| Process::with_code(&table, Some((FIRST, code))).pcs(&registers(HERE), &stack(&words));
    // The function has not moved the stack pointer: the word is the return address, though an earlier call has left another one.
    code[0x840] = 0xc3;
    assert_eq!(walk(&code).0.get(1), Some(&0x1022));
    // push %rbx
    code[0x800] = 0x53;
    assert_eq!(walk(&code), (vec![HERE], StopReason::Ambiguous));
}

#[test]
fn t16_nothing_is_guessed_of_what_returns_to_no_module() {
    // The rule of the first function finds a word that is no address of anything; behind it lies one that calls account for.
    check(
        registers(0x1001),
        &[8, 9, 0x1234_5678, 1, at(0x1022), 8, 9, at(0x1095)],
        &[0x1001, 0x1234_5678_u64.wrapping_sub(cfi::BIAS)],
        StopReason::NoModule,
    );
}

#[test]
fn t16_no_frame_pointer_leads_on_from_what_is_no_address() {
    let (table, code) = (section().compile().bytes, code());
    let process = Process::with_code(&table, Some((FIRST, &code)));
    // The frame pointer leads to a record that returns behind a call through a pointer.
    let framed = Registers { fp: SP + 0x40, ..registers(0x1001) };
    let walk = |returns_to: u64| {
        let mut words = [7; 13];
        (words[2], words[8], words[9], words[12]) = (returns_to, 0, at(0x1022), at(0x1095));
        let (frames, walk) = process.walk(&framed, &stack(&words));
        (frames.len(), walk.stop)
    };
    // Code that was made at run time, and of a kernel.
    assert_eq!(walk(0x7fee_1234_5678), (4, StopReason::EndOfStack));
    assert_eq!(walk(0xffff_8000_1234_5678), (4, StopReason::EndOfStack));
    for no_address in [0x8000_1234_5678, 0x1234_5678_9abc_def0, 0xffff_7fff_1234_5678] {
        assert_eq!(walk(no_address), (2, StopReason::NoModule), "{no_address:#x}");
    }
}

#[test]
fn t16_no_two_guesses_follow_each_other() {
    // Called from itself: the caller has no rules either.
    let words = [1, at(0x1835), 2, at(0x1015), FRAMED[0], FRAMED[1], FRAMED[2]];
    let (table, code) = (section().compile().bytes, code());
    let process = Process::with_code(&table, Some((FIRST, &code)));
    // The caller's own return address is not called from here.
    let at_end = Registers { pc: at(0x1900), ..registers(0) };
    let (frames, walk) = scan_with(&process, &at_end, &stack(&[1, at(0x1835), 2, 3]));
    assert_eq!((frames.len(), walk.stop), (2, StopReason::NoRule), "{frames:x?}");
    assert_eq!(frames[1].method, UnwindMethod::Scan);
    check(registers(HERE), &words, &[HERE], StopReason::Ambiguous);
}

#[test]
fn t16_a_frame_pointer_is_believed_only_where_no_word_below_may_be_meant() {
    let framed = Registers { fp: SP + 0x40, ..registers(HERE) };
    let mut words = [7; 13];
    (words[8], words[9], words[12]) = (0, at(0x1022), at(0x1095));
    check(framed, &words, &[HERE, 0x1022, 0x1095], StopReason::EndOfStack);
    // The record is that of a function further out: the call that leads here lies below it.
    words[2..6].copy_from_slice(&[at(0x1015), FRAMED[0], FRAMED[1], FRAMED[2]]);
    check(framed, &words, &[HERE, 0x1015, 0x1095], StopReason::EndOfStack);
}

#[test]
fn t16_a_frame_pointer_is_believed_where_the_function_that_was_called_makes_the_record() {
    // push %rbp; mov %rsp, %rbp at 0x1800, which the call before 0x1015 leads to, and a push and a return behind the program counter.
    let (table, mut code) = (section().compile().bytes, code());
    let framed = Registers { fp: SP + 0x20, ..registers(0x1810) };
    // Another word may be meant below the record: what an earlier call left there.
    let words = [1, at(0x1022), 8, 9, 0, at(0x1015), 8, 9, at(0x1095)];
    let walk = |code: &[u8]| {
        let process = Process::with_code(&table, Some((FIRST, code)));
        let (frames, walk) = scan_with(&process, &framed, &stack(&words));
        (frames.iter().map(|frame| frame.pc.0 - cfi::BIAS).collect::<Vec<_>>(), walk.stop)
    };
    assert_eq!(walk(&code), (vec![0x1810], StopReason::Ambiguous));
    code[0x800..0x804].copy_from_slice(&[0x55, 0x48, 0x89, 0xe5]);
    (code[0x818], code[0x820]) = (0x53, 0xc3);
    assert_eq!(walk(&code), (vec![0x1810, 0x1015, 0x1095], StopReason::EndOfStack));
}

#[test]
fn t16_a_call_to_where_nothing_is_leaves_the_callers_frame_as_it_is() {
    // A function at 0x1000 whose body counts from rbp, and calls through a pointer before 0x1022; its direct caller, and the end.
    let mut section = EhFrame::new("zR", AT_ENTRY);
    let body = [advance(4), vec![0x0c, 6, 16], cfi::saved(6, 2)];
    section.fde(0x1000, 0x40, &body).fde(0x1080, 0x20, &[vec![0x07, 16]]);
    let (table, mut code) = (section.compile().bytes, code());
    // It has a jump through a register, which may lead anywhere.
    code[0x38..0x3a].copy_from_slice(&[0xff, 0xe0]);
    let walk = |code: &[u8], pc| {
        let process = Process::with_code(&table, Some((FIRST, code)));
        let framed = Registers { pc, fp: SP + 0x20, ..registers(0) };
        let words = [at(0x1022), 8, 9, 10, 0, at(0x1095)];
        let mut frames = vec![Frame::EMPTY; 16];
        let walk =
            unwind_with(&process.modules, &framed, &stack(&words), &mut Cache::new(), &mut frames, Options::default());
        frames.truncate(walk.frames);
        (frames.iter().skip(1).map(|frame| frame.pc.0.wrapping_sub(cfi::BIAS)).collect::<Vec<_>>(), walk.stop)
    };
    const WILD: u64 = 0x4141_4141;
    assert_eq!(walk(&code, WILD), (vec![0x1022, 0x1095], StopReason::EndOfStack));
    // In code that is there, it may have moved the stack pointer.
    assert_eq!(walk(&code, at(HERE)).1, StopReason::Ambiguous);
    // The record is that of another function, which this call led to.
    code[0x90..0x95].copy_from_slice(&[0x90, 0x90, 0x90, 0xff, 0xd0]);
    assert_eq!(walk(&code, WILD), (Vec::new(), StopReason::Ambiguous));
}

/// A word on the stack does not tell the stack pointer of a caller that keeps its return address where it likes.
#[test]
fn t16_where_calls_do_not_push_only_a_direct_call_is_evidence_and_one_frame_is_found() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", &[0x0c, 31, 0]);
    section.fde(0x1000, 0x40, &[advance(4), cfa_offset(32)]);
    let table = section.compile().bytes;
    // bl to DARK before 0x1014, blr x1 before 0x1018.
    let mut code = [0x1f, 0x20, 0x03, 0xd5].repeat(0x400);
    let bl = 0x9400_0000 | ((DARK - 0x1010) as u32 / 4);
    code[0x10..0x14].copy_from_slice(&bl.to_le_bytes());
    code[0x14..0x18].copy_from_slice(&0xd63f_0020_u32.to_le_bytes());
    let process = Process::with_code(&table, Some((FIRST, &code)));
    let mut registers = registers(HERE);
    registers.general[30] = Some(7);
    let (frames, walk) = scan_with(&process, &registers, &stack(&[1, 2, at(0x1014)]));
    assert_eq!((frames.len(), walk.stop), (2, StopReason::RegisterUnknown), "{frames:x?}");
    assert_eq!((frames[1].pc, frames[1].method, frames[0].cfa), (Avma(at(0x1014)), UnwindMethod::Scan, Avma(0)));
    let (frames, walk) = scan_with(&process, &registers, &stack(&[1, 2, at(0x1018)]));
    assert_eq!((frames.len(), walk.stop), (1, StopReason::NoRule));
}

/// A word on top of the stack counts where an instruction that calls ends right before the address that it holds; in every form of one, of two to seven bytes.
#[test]
fn t16_each_instruction_that_calls_is_evidence_on_x86_64() {
    let table = section().compile().bytes;
    let check = |instruction: &[u8], is_call: bool| {
        let mut code = vec![0x90; 0x40];
        code.extend(instruction);
        // An instruction of 0x90 before it, and nothing that makes another one of its end.
        let behind = 0x1700 + code.len() as u64;
        let process = Process::with_code(&table, Some((0x1700, &code)));
        let (frames, _) = process.walk(&registers(0x1ff0), &stack(&[at(behind), at(0x1095)]));
        let found = frames.get(1).map(|frame| (frame.pc, frame.method));
        assert_eq!(found, is_call.then_some((Avma(at(behind)), UnwindMethod::Leaf)), "{instruction:x?}");
    };
    let calls: [&[u8]; 9] = [
        &[0xe8, 0xab, 0x08, 0, 0],       // call 0x1ff0
        &[0xff, 0xd0],                   // call *%rax
        &[0x41, 0xff, 0xd3],             // call *%r11
        &[0xff, 0x10],                   // call *(%rax)
        &[0xff, 0x50, 0x18],             // call *24(%rax)
        &[0x41, 0xff, 0x54, 0xc4, 0x18], // call *24(%r12,%rax,8)
        &[0xff, 0x90, 0, 1, 0, 0],       // call *256(%rax)
        &[0xff, 0x15, 0, 1, 0, 0],       // call *256(%rip)
        &[0xff, 0x94, 0xc4, 0, 1, 0, 0], // call *256(%rsp,%rax,8)
    ];
    for call in calls {
        check(call, true);
    }
    // jmp *%rax; jmp *(%rax); push (%rax); inc %eax; jmp rel32; ret; nop.
    let others: [&[u8]; 7] =
        [&[0xff, 0xe0], &[0xff, 0x20], &[0xff, 0x30], &[0xff, 0xc0], &[0xe9, 0xab, 8, 0, 0], &[0xc3], &[0x90]];
    for other in others {
        check(other, false);
    }
}

/// The structures of a runtime, as one version of it has them.
const G: GoroutineFields =
    GoroutineFields { stack_lo: 0, stack_hi: 8, m: 0x30, sched_sp: 0x38, sched_pc: 0x40, sched_bp: 0x68 };
const SYSTEM_G: u64 = 0xc000_0000;
const USER_G: u64 = 0xc000_1000;
const M: u64 = 0xc000_2000;
const USER_STACK: u64 = 0xc010_0000;
/// Bytes of it that are in use where the goroutine stopped.
const DEPTH: u64 = 0x1000;

/// A thread on its own stack in a function that changes stacks, and a goroutine that stopped at 0x1020 with the rest of its stack.
fn go() -> (EhFrame, Words) {
    let mut section = section();
    section.fde(0x2000, 0x10, &[advance(1), cfa_offset(16)]);
    let memory = stack(&[1, at(0x1095)]).with(&[
        (SYSTEM_G + 0x30, M),
        (USER_G + 0x30, M),
        (M + 0xc0, USER_G),
        (USER_G, USER_STACK),
        (USER_G + 8, USER_STACK + 0x8000),
        (USER_G + 0x38, USER_STACK + 0x7000),
        (USER_G + 0x40, at(0x1020)),
        (USER_G + 0x68, 0x7777),
        // The frame of the function at 0x1000.
        (USER_STACK + 0x7010, at(0x1095)),
    ]);
    (section, memory)
}

fn walk_go(section: &EhFrame, memory: &Words, registers: Registers) -> (Vec<Frame>, Walk) {
    let switches = vec![Avma(at(0x2000))..Avma(at(0x2010))];
    walk_with(section, memory, registers, GoRuntime { switches, c_calls: Vec::new(), g: G, curg: 0xc0 })
}

fn walk_with(section: &EhFrame, memory: &Words, registers: Registers, go: GoRuntime) -> (Vec<Frame>, Walk) {
    let table = section.compile().bytes;
    let modules = Process::new(&table).modules.with_go_runtime(go);
    let mut frames = vec![Frame::EMPTY; 16];
    let walk = unwind_with(&modules, &registers, memory, &mut Cache::new(), &mut frames, Options::default());
    frames.truncate(walk.frames);
    (frames, walk)
}

#[test]
fn t12_the_stack_of_a_thread_leads_to_its_goroutine_by_an_edge_of_its_own() {
    let (section, memory) = go();
    let mut on_system_stack = registers(0x2004);
    // The register may still hold the goroutine's, in code that C was called from.
    for g in [SYSTEM_G, USER_G] {
        on_system_stack.general[14] = Some(g);
        let (frames, walk) = walk_go(&section, &memory, on_system_stack);
        let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - cfi::BIAS).collect();
        assert_eq!((pcs, walk.stop), (vec![0x2004, 0x1020, 0x1095], StopReason::EndOfStack));
        let stopped = frames[1];
        assert_eq!((stopped.exact, stopped.fp, stopped.cfa), (true, 0x7777, Avma(USER_STACK + 0x7018)));
        assert_eq!((stopped.method, frames[0].cfa), (UnwindMethod::GoroutineSwitch, Avma(0)));
        let edges: Vec<FrameEdge> = frames.windows(2).map(|pair| pair[1].edge(&pair[0])).collect();
        assert_eq!(edges, [FrameEdge::GoroutineSwitch, FrameEdge::Call]);
        assert_eq!(edges.iter().filter(|edge| edge.is_physical()).count(), 1);
    }
}

#[test]
fn t12_c_code_leads_to_the_goroutine_only_if_that_was_left_for_it() {
    let (section, memory) = go();
    let mut registers = registers(0x2004);
    registers.general[14] = Some(SYSTEM_G);
    let c_calls = vec![Avma(at(0x2000))..Avma(at(0x2010))];
    let method = |memory: &Words| {
        let go = GoRuntime { switches: Vec::new(), c_calls: c_calls.clone(), g: G, curg: 0xc0 };
        walk_with(&section, memory, registers, go).0.get(1).map(|frame| frame.method)
    };
    // The runtime itself has called it, on the stack of the thread: the goroutine has stopped elsewhere.
    assert_eq!(method(&memory), Some(UnwindMethod::CfiEhFrame));
    let word = |at: u64, value: u64| (registers.sp + 8 * at, value);
    // The goroutine and how deep it was, as Go 1.26 keeps them, and as 1.21 did.
    for (kept, depth_at) in [(1, 0), (6, 5)] {
        let memory = memory.clone().with(&[word(kept, USER_G), word(depth_at, DEPTH)]);
        assert_eq!(method(&memory), Some(UnwindMethod::GoroutineSwitch), "{kept}");
        let elsewhere = memory.with(&[word(depth_at, DEPTH + 8)]);
        assert_eq!(method(&elsewhere), Some(UnwindMethod::CfiEhFrame), "left elsewhere: {kept}");
    }
    // Words of the caller, who has the goroutine at hand, but for the return address.
    for at in (0..16).filter(|at| *at != 1) {
        let cleared = memory.clone().with(&[word(0, 0), word(5, 0), word(6, 0), word(at, USER_G)]);
        assert_eq!(method(&cleared), Some(UnwindMethod::CfiEhFrame), "{at}");
    }
}

#[test]
fn t12_c_code_leads_to_the_goroutine_on_arm64_by_other_words() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", &[0x0c, 31, 0]);
    section.fde(0x1000, 0x40, &[advance(4), cfa_offset(32)]).fde(0x2000, 0x10, &[advance(4), cfa_offset(16)]);
    let (_, memory) = go();
    let mut registers = registers(0x2004);
    (registers.general[28], registers.general[30]) = (Some(SYSTEM_G), Some(at(0x1020)));
    let c_calls = vec![Avma(at(0x2000))..Avma(at(0x2010))];
    let method = |first: u64, second: u64| {
        let go = GoRuntime { switches: Vec::new(), c_calls: c_calls.clone(), g: G, curg: 0xc0 };
        let memory = memory.clone().with(&[(registers.sp, first), (registers.sp + 8, second)]);
        walk_with(&section, &memory, registers, go).0.get(1).map(|frame| frame.method)
    };
    assert_eq!(method(USER_G, DEPTH), Some(UnwindMethod::GoroutineSwitch));
    assert_eq!(method(DEPTH, USER_G), Some(UnwindMethod::CfiEhFrame));
    assert_eq!(method(USER_G, DEPTH - 16), Some(UnwindMethod::CfiEhFrame));
}

#[test]
fn t12_without_a_goroutine_or_on_its_own_stack_the_rule_counts() {
    let (section, memory) = go();
    let mut registers = registers(0x2004);
    let by_rule = |registers: Registers, memory: &Words| {
        let (frames, _) = walk_go(&section, memory, registers);
        assert_eq!(
            frames.get(1).map(|frame| (frame.pc, frame.method)),
            Some((Avma(at(0x1095)), UnwindMethod::CfiEhFrame))
        );
    };
    // The register is not known; the thread works for nobody; the memory is not at hand; where it stopped is no code.
    by_rule(registers, &memory);
    registers.general[14] = Some(SYSTEM_G);
    by_rule(registers, &memory.clone().with(&[(M + 0xc0, 0)]));
    by_rule(registers, &stack(&[1, at(0x1095)]));
    by_rule(registers, &memory.clone().with(&[(USER_G + 0x40, 0x1234)]));
    // Not yet changed: the stack pointer is on the goroutine's stack.
    let on_its_own = Registers { sp: USER_STACK + 0x7008 - 8, ..registers };
    by_rule(on_its_own, &memory.with(&[(USER_STACK + 0x7008, at(0x1095))]));
}

/// A tracer that wants to know of a function's end (`uretprobe`) puts the address of its own code in the place of the return address. The true one is with the
/// tracer: where the frame pointer does not lead on, the stack ends there; where it does, the function's caller is missing, and the frame after says how it was found.
#[test]
fn t14_a_return_address_that_a_tracer_replaced_is_never_taken_for_one_by_a_rule() {
    let table = section().compile().bytes;
    let process = Process::new(&table);
    // Of a page in no module; of code without a rule in one.
    for tracer in [at(0x0010_0000), at(DARK)] {
        let reason = if tracer == at(DARK) { StopReason::NoRule } else { StopReason::NoModule };
        let words = [1, 2, tracer, 4, 5, at(0x1095)];
        let (frames, walk) = process.walk(&registers(0x1010), &stack(&words));
        let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0).collect();
        assert_eq!((pcs, walk.stop), (vec![at(0x1010), tracer], reason));
        // With frame pointers: the record is that of the caller.
        let framed = Registers { fp: SP + 0x40, ..registers(0x1010) };
        let mut words = words.to_vec();
        words.extend([0, 0, 0, at(0x1022), 8, 9, at(0x1095)]);
        let (frames, _) = process.walk(&framed, &stack(&words));
        let methods: Vec<UnwindMethod> = frames.iter().map(|frame| frame.method).take(3).collect();
        assert_eq!(methods, [UnwindMethod::Context, UnwindMethod::CfiEhFrame, UnwindMethod::FramePointer]);
    }
}

#[test]
fn t14_the_boundary_of_the_kernel_is_an_edge_of_its_own() {
    let frame = |pc: u64, method| Frame { pc: Avma(pc), method, ..Frame::EMPTY };
    let kernel = frame(0xffff_ffff_8100_0000, UnwindMethod::Context);
    let check = |outer: Frame, inner: &Frame, expected: FrameEdge| assert_eq!(outer.edge(inner), expected);
    check(frame(0x40_1000, UnwindMethod::SignalContext), &kernel, FrameEdge::KernelEntry);
    // An interrupt of the kernel itself, and of a process.
    check(frame(0xffff_ffff_8200_0000, UnwindMethod::SignalContext), &kernel, FrameEdge::Interrupt);
    check(
        frame(0x40_1000, UnwindMethod::SignalContext),
        &frame(0x40_2000, UnwindMethod::Context),
        FrameEdge::Interrupt,
    );
    check(frame(0x40_1000, UnwindMethod::CfiEhFrame), &frame(0x40_2000, UnwindMethod::Context), FrameEdge::Call);
    let physical: Vec<bool> = FrameEdge::ALL.iter().map(|edge| edge.is_physical()).collect();
    assert_eq!(physical, [true, true, true, false, false]);
}
