//! What is easily got wrong about functions that are on no stack, and about stacks that begin in the middle, each with its own test.

use crate::cfi;
use crate::cfi::{AT_ENTRY, EhFrame, Process, Words, advance, at, cfa_offset, saved};
use symseal_module::{Avma, FrameEdge, StopReason, Svma, UnwindMethod};
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{
    Arch, Cache, Continuation, Frame, Module, Modules, Options, Registers, StackBytes, StackRegions, Table, Walk,
    unwind_with,
};

const SP: u64 = 0x7fff_0000;
const MARK: u64 = 1 << 60;
/// Where contexts are.
const HEAP: u64 = 0x5555_0000;
const NOBODY: [u64; 0] = [];
/// Functions that wait go on here.
const RESUME: [u64; 3] = [0x1100, 0x1110, 0x1120];

/// A function with a frame record at 0x1000, one with a frame of two words at 0x1040, the end of the stack at 0x1080, and what waits at 0x1100.
fn section() -> EhFrame {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    let record = [advance(1), cfa_offset(16), saved(6, 2), advance(3), vec![0x0d, 6]];
    section.fde(0x1000, 0x40, &record).fde(0x1040, 0x20, &[advance(1), cfa_offset(24)]);
    section.fde(0x1080, 0x20, &[vec![0x07, 16]]).fde(0x1100, 0x40, &[]);
    section
}

/// The function at 0x1000 in its body, called by the one at 0x1040, whose own caller has this frame pointer.
fn marked(fp: u64) -> (Registers, Words) {
    let record = SP + 32;
    let registers = Registers { pc: at(0x1010), sp: SP, fp: record, ..Registers::default() };
    let words = [
        (record - 8, HEAP),
        (record, fp | MARK),
        (record + 8, at(0x1048)),
        // The next frame: two words, and what it returns to.
        (record + 32, at(0x1088)),
        // Each context has the next one and where that goes on.
        (HEAP, HEAP + 0x100),
        (HEAP + 8, at(RESUME[0])),
        (HEAP + 0x100, HEAP + 0x40),
        (HEAP + 0x108, at(RESUME[1])),
        (HEAP + 0x40, 0),
        (HEAP + 0x48, at(RESUME[2])),
    ];
    (registers, Words::default().with(&words))
}

fn walk_with(section: &EhFrame, registers: &Registers, memory: &Words, continuations: bool) -> (Vec<Frame>, Walk) {
    let table = section.compile().bytes;
    let process = Process::new(&table);
    let mut frames = vec![Frame::EMPTY; 16];
    let options = Options { continuations, ..Options::default() };
    let walk = unwind_with(&process.modules, registers, memory, &mut Cache::new(), &mut frames, options);
    frames.truncate(walk.frames);
    (frames, walk)
}

/// Stated addresses of the frames that wait.
fn parents(memory: &Words) -> Vec<u64> {
    let (registers, _) = marked(0x7777);
    let (frames, walk) = walk_with(&section(), &registers, memory, true);
    assert_eq!((walk.physical(), walk.stop), (3, StopReason::EndOfStack), "{frames:x?}");
    frames[3..].iter().map(|frame| frame.pc.0.wrapping_sub(cfi::BIAS)).collect()
}

#[test]
fn t12_who_waits_for_an_asynchronous_function_follows_the_stack_and_is_no_part_of_it() {
    let (registers, memory) = marked(0x7777);
    let (frames, walk) = walk_with(&section(), &registers, &memory, true);
    let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - cfi::BIAS).collect();
    assert_eq!(pcs, [0x1010, 0x1048, 0x1088, 0x1100, 0x1110, 0x1120]);
    assert_eq!((walk.stop, walk.physical()), (StopReason::EndOfStack, 3));
    assert_eq!(walk.continuation, Some(Continuation { awaited: 0, frames: 3 }));
    let edges: Vec<FrameEdge> = frames.windows(2).map(|pair| pair[1].edge(&pair[0])).collect();
    assert_eq!(edges[..2], [FrameEdge::Call; 2]);
    assert_eq!(edges[2..], [FrameEdge::AsyncParent; 3]);
    for (frame, context) in frames[3..].iter().zip([HEAP + 0x100, HEAP + 0x40, 0]) {
        // Its first instruction is the next to run: nothing has been called there.
        assert_eq!((frame.exact, frame.lookup_pc(), frame.method), (true, frame.pc, UnwindMethod::AsyncParent));
        assert_eq!((frame.cfa, frame.fp, frame.module), (Avma(context), 0, Some(0)));
    }
    // Who does not ask has the stack alone.
    let (alone, walk) = walk_with(&section(), &registers, &memory, false);
    assert_eq!((alone.as_slice(), walk.continuation), (&frames[..3], None));
}

#[test]
fn t12_the_mark_of_a_frame_pointer_is_no_part_of_it() {
    for fp in [0x7777, 0, 0x7fff_ffff_fff0] {
        let (registers, memory) = marked(fp);
        let (frames, _) = walk_with(&section(), &registers, &memory, false);
        assert_eq!(frames[1].fp, fp);
    }
    // The next frame may count from it.
    let (registers, memory) = marked(SP + 64);
    let memory = memory.with(&[(SP + 40, at(0x1010)), (SP + 64, 5), (SP + 72, at(0x1088))]);
    let (frames, walk) = walk_with(&section(), &registers, &memory, true);
    assert_eq!((frames[1].cfa, frames[2].fp, walk.stop), (Avma(SP + 80), 5, StopReason::EndOfStack));
    // All bits above it are those of an address of the kernel, or of no address.
    for fp in [u64::MAX - 7, 1 << 61, 1 << 59] {
        let (registers, memory) = marked(0);
        let (frames, walk) = walk_with(&section(), &registers, &memory.with(&[(SP + 32, fp)]), true);
        assert_eq!((frames[1].fp, walk.continuation), (fp, None), "{fp:x}");
    }
}

#[test]
fn t12_a_function_that_has_only_marked_the_register_has_no_record_yet() {
    // `bts rbp, 60` is done, the push is not.
    let registers = Registers { pc: at(0x1000), sp: SP, fp: 0x7777 | MARK, ..Registers::default() };
    let memory = Words::default().with(&[(SP, at(0x1048)), (SP + 24, at(0x1088)), (0x776f, HEAP), (0x7777 | MARK, 0)]);
    let (frames, walk) = walk_with(&section(), &registers, &memory, true);
    let fps: Vec<u64> = frames.iter().map(|frame| frame.fp).collect();
    assert_eq!(fps, [0x7777 | MARK, 0x7777, 0x7777]);
    assert_eq!((walk.stop, walk.continuation), (StopReason::EndOfStack, None));
}

#[test]
fn t12_contexts_are_followed_as_far_as_they_are_there_and_lead_to_code() {
    let (_, memory) = marked(0x7777);
    assert_eq!(parents(&memory), RESUME);
    let with = |words: &[(u64, u64)]| parents(&memory.clone().with(words));
    assert_eq!(with(&[(SP + 24, 0)]), NOBODY);
    assert_eq!(with(&[(SP + 24, HEAP + 4)]), NOBODY);
    assert_eq!(with(&[(SP + 24, 0x1234_5678)]), NOBODY);
    // No code, code without rules, in no module.
    for resume in [0, at(0x1200), at(0x8000), 0x1234] {
        assert_eq!(with(&[(HEAP + 0x108, resume)]), [RESUME[0]], "{resume:x}");
    }
    // One that is not there was there: the frame is known, and what it waits for is not.
    assert_eq!(with(&[(HEAP + 0x100, HEAP + 0x300)]), RESUME[..2]);
    // The mark stays what it is without any.
    let (registers, none) = marked(0x7777);
    let none = Words(none.0.into_iter().filter(|(address, _)| *address >= SP).collect());
    assert_eq!(walk_with(&section(), &registers, &none, true).1.physical(), 3);
}

#[test]
fn t12_contexts_that_lead_in_circles_lead_nowhere() {
    let (_, memory) = marked(0x7777);
    for back in [HEAP, HEAP + 0x100, HEAP + 0x40] {
        assert_eq!(parents(&memory.clone().with(&[(HEAP + 0x40, back)])), NOBODY, "{back:x}");
    }
    assert_eq!(parents(&memory.with(&[(HEAP, HEAP)])), NOBODY);
}

#[test]
fn t12_a_chain_ends_where_no_task_has_one_and_where_there_is_no_room() {
    let (registers, memory) = marked(0x7777);
    let chain =
        (1..6000).flat_map(|at| [(HEAP + 16 * at, HEAP + 16 * (at + 1)), (HEAP + 16 * at + 8, cfi::BIAS + 0x1100)]);
    let memory = memory.with(&chain.collect::<Vec<_>>()).with(&[(SP + 24, HEAP + 16)]);
    let table = section().compile().bytes;
    let process = Process::new(&table);
    let options = Options { continuations: true, ..Options::default() };
    for (room, expected) in [(8000, 4096), (10, 7), (3, 0)] {
        let mut frames = vec![Frame::EMPTY; room];
        let walk = unwind_with(&process.modules, &registers, &memory, &mut Cache::new(), &mut frames, options);
        assert_eq!((walk.frames, walk.physical(), walk.stop), (3 + expected, 3, StopReason::EndOfStack));
    }
    // The stack itself has no room.
    let mut frames = vec![Frame::EMPTY; 2];
    let walk = unwind_with(&process.modules, &registers, &memory, &mut Cache::new(), &mut frames, options);
    assert_eq!((walk.frames, walk.physical(), walk.stop), (2, 2, StopReason::MaxFrames));
}

#[test]
fn t12_a_stack_that_is_not_whole_has_nobody_behind_it() {
    let (registers, memory) = marked(0x7777);
    let memory = memory.with(&[(SP + 64, at(0x1800))]);
    let (frames, walk) = walk_with(&section(), &registers, &memory, true);
    assert_eq!((frames.len(), walk.physical(), walk.stop), (3, 3, StopReason::NoRule));
}

#[test]
fn t12_the_innermost_of_two_asynchronous_functions_is_waited_for() {
    let (registers, memory) = marked(SP + 64);
    // The same function called itself, on the stack: a task that another one's function runs.
    let outer = HEAP + 0x400;
    let memory = memory.with(&[
        (SP + 40, at(0x1010)),
        (SP + 56, outer),
        (SP + 64, 5 | MARK),
        (SP + 72, at(0x1088)),
        (outer, 0),
        (outer + 8, at(0x1130)),
    ]);
    let (frames, walk) = walk_with(&section(), &registers, &memory, true);
    assert_eq!(walk.continuation, Some(Continuation { awaited: 0, frames: 3 }), "{frames:x?}");
    assert_eq!((walk.physical(), frames[2].fp, frames[3].pc), (3, 5, Avma(at(RESUME[0]))));
}

#[test]
fn t12_contexts_on_arm64_may_be_signed() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", &[0x0c, 31, 0]);
    // stp x29, x30, [sp, #16]; add x29, sp, #16; CFA = x29 + 16.
    section.fde(0x1000, 0x40, &[advance(4), vec![0x0c, 29, 16], saved(29, 2), saved(30, 1)]);
    section.fde(0x1080, 0x20, &[vec![0x07, 30]]).fde(0x1100, 0x40, &[]);
    let record = SP + 16;
    let registers = Registers { pc: at(0x1010), sp: SP, fp: record, ..Registers::default() };
    let signature = 0x2a << 56;
    let memory = Words::default().with(&[
        (record - 8, HEAP),
        (record, 0x7777 | MARK),
        (record + 8, at(0x1084)),
        (HEAP, 0),
        (HEAP + 8, at(RESUME[0]) | signature),
    ]);
    let (frames, walk) = walk_with(&section, &registers, &memory, true);
    let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - cfi::BIAS).collect();
    assert_eq!((pcs, walk.physical(), walk.stop), (vec![0x1010, 0x1084, 0x1100], 2, StopReason::EndOfStack));
    assert_eq!(frames[1].fp, 0x7777);
}

#[test]
fn t12_contexts_lie_where_the_caller_reads_them() {
    let (registers, memory) = marked(0x7777);
    let bytes = |start: u64| -> Vec<u8> {
        (0..64).flat_map(|at| memory.0.get(&(start + 8 * at)).copied().unwrap_or(0).to_le_bytes()).collect()
    };
    let (stack, heap) = (bytes(SP), bytes(HEAP));
    let regions = [StackBytes { start: Avma(SP), bytes: &stack }, StackBytes { start: Avma(HEAP), bytes: &heap }];
    let table = section().compile().bytes;
    let process = Process::new(&table);
    let options = Options { continuations: true, ..Options::default() };
    for (regions, expected) in [(&regions[..], 6), (&regions[..1], 3)] {
        let mut frames = vec![Frame::EMPTY; 16];
        let memory = StackRegions(regions);
        let walk = unwind_with(&process.modules, &registers, &memory, &mut Cache::new(), &mut frames, options);
        assert_eq!((walk.frames, walk.stop), (expected, StopReason::EndOfStack));
    }
}

/// Where the table of all wakers of tasks is, and the headers, vtables and trailers of three tasks.
const WAKERS: u64 = 0x2f00;
const HEADERS: [u64; 3] = [HEAP, HEAP + 0x1000, HEAP + 0x2000];
const VTABLE: u64 = 0x7f10_0000;
const TRAILER: u64 = 0x300;
const RUNNING: u64 = 1;
const JOIN_WAKER: u64 = 16;

/// What a table says of tasks: the function at 0x1000 polls those of type 0, and each that waits has a type of its own.
pub(crate) fn tasks() -> Vec<u8> {
    let head = [WAKERS as u32, 0, 0, 16, 0, 56, 24, 16];
    let functions = [[0x1000, 0x40, 0], [0x1100, 0x10, 1], [RESUME[1] as u32, 0x10, 3], [RESUME[2] as u32, 0x10, 5]];
    head.into_iter().chain(functions.into_iter().flatten()).flat_map(u32::to_le_bytes).collect()
}

/// The first task runs in the function at 0x1000, the second one waits for it and the third for that.
fn running() -> (Registers, Words) {
    let (registers, _) = marked(0);
    let record = SP + 32;
    let wakers = at(WAKERS);
    let mut words = vec![(record, 0x7777), (record + 8, at(0x1048)), (record + 32, at(0x1088))];
    // The waker of the task that runs, as `Context` has it.
    words.extend([(SP, 7), (SP + 8, wakers), (SP + 16, HEADERS[0]), (SP + 24, 9)]);
    for (number, (header, poll)) in (0..).zip(HEADERS.into_iter().zip(RESUME)) {
        let vtable = VTABLE + 0x100 * number;
        words.extend([(header, if number == 0 { RUNNING | JOIN_WAKER } else { JOIN_WAKER }), (header + 16, vtable)]);
        words.extend([(vtable, at(poll)), (vtable + 56, TRAILER)]);
    }
    for pair in HEADERS.windows(2) {
        words.extend([(pair[0] + TRAILER + 16, wakers), (pair[0] + TRAILER + 24, pair[1])]);
    }
    // The last one's waker is not that of a task.
    words.extend([(HEADERS[2] + TRAILER + 16, at(0x2f40)), (HEADERS[2] + TRAILER + 24, HEAP)]);
    (registers, Words::default().with(&words))
}

/// Stated addresses of the functions that poll what waits.
fn waiting(section: &[u8], memory: &Words) -> Vec<u64> {
    let id = cfi::debug_id();
    let frames = self::section();
    let eh_frame = Some((0x9000, frames.bytes()));
    let table = compile(&Input { eh_frame, tasks: Some(section), ..cfi::empty_input(&id) }).expect("a table").bytes;
    let process = Process::new(&table);
    let mut frames = vec![Frame::EMPTY; 16];
    let options = Options { continuations: true, ..Options::default() };
    let (registers, _) = running();
    let walk = unwind_with(&process.modules, &registers, memory, &mut Cache::new(), &mut frames, options);
    assert_eq!((walk.physical(), walk.stop), (3, StopReason::EndOfStack));
    let waits = &frames[3..walk.frames];
    assert_eq!(walk.continuation, (!waits.is_empty()).then_some(Continuation { awaited: 0, frames: waits.len() }));
    assert!(waits.iter().all(|frame| frame.exact && frame.method == UnwindMethod::AsyncParent));
    waits.iter().map(|frame| frame.pc.0 - cfi::BIAS).collect()
}

#[test]
fn t12_who_waits_for_a_task_is_found_through_its_waker() {
    let (_, memory) = running();
    assert_eq!(waiting(&tasks(), &memory), [RESUME[1], RESUME[2]]);
    let with = |words: &[(u64, u64)]| waiting(&tasks(), &memory.clone().with(words));
    // Nobody awaits the second one, or its waker is just being put there; its waker is that of no task.
    assert_eq!(with(&[(HEADERS[1], 0)]), [RESUME[1]]);
    assert_eq!(with(&[(HEADERS[1] + TRAILER + 16, 0)]), [RESUME[1]]);
    // What is said to wait is no task.
    assert_eq!(with(&[(HEADERS[0] + TRAILER + 24, HEAP + 0x5000)]), NOBODY);
    assert_eq!(with(&[(VTABLE + 0x100, at(0x1114))]), NOBODY, "within a function that polls");
    assert_eq!(with(&[(VTABLE + 0x100, at(0x1000))]), NOBODY, "a function that no vtable points to");
    assert_eq!(with(&[(VTABLE + 56, u64::MAX)]), NOBODY);
    // In a circle.
    assert_eq!(with(&[(HEADERS[2] + TRAILER + 16, at(WAKERS))]), NOBODY);
}

#[test]
fn t12_the_task_that_a_frame_polls_is_the_only_one_that_may_be_it() {
    let (_, memory) = running();
    let with = |words: &[(u64, u64)]| waiting(&tasks(), &memory.clone().with(words));
    // It does not run; it has another type; the waker is not there; it is above the frame.
    assert_eq!(with(&[(HEADERS[0], JOIN_WAKER)]), NOBODY);
    assert_eq!(with(&[(VTABLE, at(RESUME[1]))]), NOBODY);
    assert_eq!(with(&[(SP + 8, at(WAKERS) + 8)]), NOBODY);
    assert_eq!(with(&[(SP + 8, 0), (SP + 56, at(WAKERS)), (SP + 64, at(0x1088))]), NOBODY);
    // A waker of another task is no hindrance, one that may be meant as well is.
    let other = HEAP + 0x4000;
    let beside = [(SP, at(WAKERS)), (SP + 8, HEADERS[1]), (SP + 16, at(WAKERS)), (SP + 24, HEADERS[0])];
    assert_eq!(with(&beside), [RESUME[1], RESUME[2]]);
    let same = [(SP + 8, at(WAKERS)), (SP + 16, HEADERS[0]), (SP, at(WAKERS)), (SP + 24, 0)];
    assert_eq!(with(&same), [RESUME[1], RESUME[2]], "what is beside the first one is no header");
    let both = [(other, RUNNING), (other + 16, VTABLE), (SP, at(WAKERS)), (SP + 8, other)];
    assert_eq!(with(&[&both[..], &[(SP + 16, at(WAKERS)), (SP + 24, HEADERS[0])]].concat()), NOBODY);
    assert_eq!(with(&[&both[..2], &[(other, 0)], &beside[2..], &both[2..]].concat()), [RESUME[1], RESUME[2]]);
}

#[test]
fn t12_what_a_table_says_of_tasks_is_checked() {
    let (_, memory) = running();
    let section = tasks();
    // Without functions, cut, and not there.
    for section in [&section[..32], &section[..31], &section[..40], &[]] {
        assert_eq!(waiting_unverified(section, &memory), 0);
    }
    let verified = |section: &[u8]| {
        let id = cfi::debug_id();
        let bytes = compile(&Input { tasks: Some(section), ..cfi::empty_input(&id) }).expect("a table").bytes;
        Table::open(&bytes).expect("a table").verify().is_ok()
    };
    assert!(verified(&section) && verified(&section[..32]));
    let mut damaged = section.clone();
    damaged[36..40].copy_from_slice(&0x200_u32.to_le_bytes());
    assert!(!verified(&damaged), "functions that overlap");
    damaged[36..40].copy_from_slice(&0_u32.to_le_bytes());
    assert!(!verified(&damaged) && !verified(&section[..40]));
}

fn waiting_unverified(section: &[u8], memory: &Words) -> usize {
    let id = cfi::debug_id();
    let frames = self::section();
    let eh_frame = Some((0x9000, frames.bytes()));
    let table = compile(&Input { eh_frame, tasks: Some(section), ..cfi::empty_input(&id) }).expect("a table").bytes;
    let module = Module {
        start: Avma(cfi::BIAS),
        end: Avma(at(0x3000)),
        bias: cfi::BIAS,
        image_base: Svma(0),
        table: Some(Table::open(&table).expect("a table")),
        code: None,
    };
    let modules = Modules::new(Arch::X86_64, vec![module]);
    let mut frames = vec![Frame::EMPTY; 16];
    let options = Options { continuations: true, ..Options::default() };
    let walk = unwind_with(&modules, &running().0, memory, &mut Cache::new(), &mut frames, options);
    assert_eq!(walk.physical(), 3);
    walk.frames - 3
}
