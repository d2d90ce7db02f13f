//! What is easily got wrong about coroutines of C++, which are on no stack while they wait, each with its own test.

use crate::cfi;
use crate::cfi::{AT_ENTRY, EhFrame, Words, advance, at, cfa_offset, saved};
use symseal_module::{Avma, StopReason, Svma, UnwindMethod};
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{Arch, Cache, Continuation, Frame, Module, Modules, Options, Registers, Table, Walk, unwind_with};

const SP: u64 = 0x7fff_0000;
/// Frames of three coroutines. The first one runs, the second one waits for it and the third for that.
const FRAMES: [u64; 3] = [0x5555_0000, 0x5555_1000, 0x5555_2000];
/// The functions that resume them, and that destroy them.
const RESUMES: [u64; 3] = [0x1000, 0x1100, 0x1120];
const DESTROYS: [u64; 3] = [0x1138, 0x1110, 0x1130];
const NOBODY: [u64; 0] = [];

/// What a table says of them: the first has GCC's number of its suspension, the second one two handles, and the frame of the first is known in a part of its function. A
/// part of the second one's function is at 0x1040.
pub(crate) fn coroutines() -> Vec<u8> {
    let head = [3, 7, 1, 0];
    let coroutines = [[44, 24, 0, 0], [0, 24, 40, 0], [0, 32, 0, 0]];
    let functions = [
        [0x1000, 0x40, 1],
        [0x1040, 0x20, 1 << 2],
        [0x1100, 0x10, 1 << 2 | 1],
        [0x1110, 0x10, 1 << 2 | 2],
        [0x1120, 0x10, 2 << 2 | 1],
        [0x1130, 8, 2 << 2 | 2],
        [0x1138, 8, 2],
    ];
    let locations = [[0x1010, 0x10, 0_u32]];
    let words = head.into_iter().chain(coroutines.into_iter().flatten());
    let words = words.chain(functions.into_iter().chain(locations).flatten());
    let mut section: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    // The word at CFA − 24.
    section.extend([1, 16, 2]);
    section.extend((-24_i64).to_le_bytes());
    section.extend([3, 8, 0]);
    section
}

/// The first one's function in its body at `pc`, with the frame of its coroutine in a slot, called by the one at 0x1040.
fn running(pc: u64) -> (Registers, Words) {
    let record = SP + 32;
    let registers = Registers { pc: at(pc), sp: SP, fp: record, ..Registers::default() };
    let mut words = vec![
        (SP, 0),
        (SP + 8, 0),
        (SP + 16, 0),
        (SP + 24, FRAMES[0]),
        (record, 0x7777),
        (record + 8, at(0x1078)),
        (record + 16, 0),
        (record + 24, 0),
        (record + 32, at(0x1088)),
    ];
    for (frame, (resume, destroy)) in FRAMES.into_iter().zip(RESUMES.into_iter().zip(DESTROYS)) {
        words.extend([
            (frame, at(resume)),
            (frame + 8, at(destroy)),
            (frame + 24, 0),
            (frame + 32, 0),
            (frame + 40, 0),
        ]);
    }
    words.extend([(FRAMES[0] + 24, FRAMES[1]), (FRAMES[1] + 24, FRAMES[2])]);
    (registers, Words::default().with(&words))
}

fn walk(section: &[u8], registers: &Registers, memory: &Words) -> (Vec<Frame>, Walk) {
    let id = cfi::debug_id();
    // A function with a frame record, those with a frame of two words, the end of the stack, and what waits.
    let mut frames = EhFrame::new("zR", AT_ENTRY);
    let record = [advance(1), cfa_offset(16), saved(6, 2), advance(3), vec![0x0d, 6]];
    frames.fde(0x1000, 0x40, &record).fde(0x1040, 0x40, &[advance(1), cfa_offset(24)]);
    frames.fde(0x1080, 0x20, &[vec![0x07, 16]]).fde(0x1100, 0x40, &[]);
    let eh_frame = Some((0x9000, frames.bytes()));
    let input = Input { eh_frame, coroutines: Some(section), ..cfi::empty_input(&id) };
    let table = compile(&input).expect("a table").bytes;
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
    let walk = unwind_with(&modules, registers, memory, &mut Cache::new(), &mut frames, options);
    assert_eq!((walk.physical(), walk.stop), (3, StopReason::EndOfStack));
    frames.truncate(walk.frames);
    (frames, walk)
}

/// The frames of the coroutines that wait, with these words in their places.
fn waiting(pc: u64, words: &[(u64, u64)]) -> Vec<u64> {
    let (registers, memory) = running(pc);
    let (frames, walk) = walk(&coroutines(), &registers, &memory.with(words));
    let waits = &frames[3..];
    assert_eq!(walk.continuation, (!waits.is_empty()).then_some(Continuation { awaited: 0, frames: waits.len() }));
    waits.iter().map(|frame| frame.cfa.0).collect()
}

/// Where the frame's place is told, and where it is not.
const TOLD: u64 = 0x1010;
const UNTOLD: u64 = 0x1028;

#[test]
fn t12_who_waits_for_a_coroutine_is_found_through_the_handle_in_its_promise() {
    let (registers, memory) = running(TOLD);
    let (frames, _) = walk(&coroutines(), &registers, &memory);
    let waits: Vec<_> = frames[3..].iter().map(|frame| (frame.pc.0 - cfi::BIAS, frame.cfa)).collect();
    assert_eq!(waits, [(RESUMES[1], Avma(FRAMES[1])), (RESUMES[2], Avma(FRAMES[2]))]);
    assert!(frames[3..].iter().all(|frame| frame.exact && frame.method == UnwindMethod::AsyncParent));
    for pc in [TOLD, UNTOLD] {
        assert_eq!(waiting(pc, &[]), FRAMES[1..]);
        // What waits for nothing, or for what is at its end, or what is none.
        assert_eq!(waiting(pc, &[(FRAMES[1] + 24, 0)]), FRAMES[1..2]);
        assert_eq!(waiting(pc, &[(FRAMES[1], 0)]), NOBODY);
        assert_eq!(waiting(pc, &[(FRAMES[1], at(0x1104))]), NOBODY, "within a function");
        assert_eq!(waiting(pc, &[(FRAMES[1], at(0x1040))]), NOBODY, "a part of one");
        assert_eq!(waiting(pc, &[(FRAMES[1], at(DESTROYS[1]))]), NOBODY);
        assert_eq!(waiting(pc, &[(FRAMES[1] + 8, at(RESUMES[1]))]), NOBODY);
        assert_eq!(waiting(pc, &[(FRAMES[0] + 24, FRAMES[1] + 4)]), NOBODY);
        assert_eq!(waiting(pc, &[(FRAMES[0] + 24, 0x1234_5678)]), NOBODY);
        // The one that runs is at its end, and its last act is to go on with who waits.
        assert_eq!(waiting(pc, &[(FRAMES[0], 0)]), FRAMES[1..]);
        // It is being destroyed: nobody waits for that.
        assert_eq!(waiting(pc, &[(FRAMES[0] + 40, 1 << 32)]), NOBODY);
        assert_eq!(waiting(pc, &[(FRAMES[0] + 40, 6 << 32 | 1)]), FRAMES[1..]);
        // In circles.
        assert_eq!(waiting(pc, &[(FRAMES[2] + 32, FRAMES[1])]), NOBODY);
        assert_eq!(waiting(pc, &[(FRAMES[2] + 32, FRAMES[0])]), NOBODY);
        assert_eq!(waiting(pc, &[(FRAMES[0] + 24, FRAMES[0])]), NOBODY);
    }
}

#[test]
fn t12_of_several_handles_in_a_promise_one_alone_may_lead_on() {
    let third = 0x5555_3000;
    let other = [(third, at(RESUMES[2])), (third + 8, at(DESTROYS[2])), (third + 32, 0), (FRAMES[1] + 40, third)];
    assert_eq!(waiting(TOLD, &other), FRAMES[1..2]);
    // The same twice, one that is at its end, and one of the coroutine itself.
    assert_eq!(waiting(TOLD, &[(FRAMES[1] + 40, FRAMES[2])]), FRAMES[1..]);
    assert_eq!(waiting(TOLD, &[&other[..], &[(third, 0)]].concat()), FRAMES[1..]);
    assert_eq!(waiting(TOLD, &[(FRAMES[1] + 40, FRAMES[1])]), FRAMES[1..]);
}

#[test]
fn t12_the_frame_of_the_coroutine_that_runs_is_the_only_one_that_may_be_it() {
    let another = 0x5555_4000;
    let same =
        [(another, at(RESUMES[0])), (another + 8, at(DESTROYS[0])), (another + 24, FRAMES[2]), (another + 40, 0)];
    let with = |pc, words: &[(u64, u64)]| waiting(pc, &[&same[..], words].concat());
    // Where its place is told, others beside it are no hindrance.
    assert_eq!(with(TOLD, &[(SP + 8, another)]), FRAMES[1..]);
    assert_eq!(with(UNTOLD, &[(SP + 8, another)]), NOBODY);
    // What is told does not hold, and what is there is one.
    assert_eq!(with(TOLD, &[(SP + 24, 7), (SP + 8, another)]), FRAMES[2..]);
    // The slot of the caller's register may have one of the caller's; what is above the frame is the caller's.
    assert_eq!(with(UNTOLD, &[(SP + 32, another)]), FRAMES[1..]);
    assert_eq!(with(UNTOLD, &[(SP + 48, another)]), FRAMES[1..]);
    assert_eq!(with(UNTOLD, &[(SP + 24, 0), (SP + 48, another)]), NOBODY);
    // Registers that functions keep are the caller's if the function does not save them; others are its own.
    let (registers, memory) = running(UNTOLD);
    for (number, expected) in [(3, &FRAMES[1..]), (0, &NOBODY)] {
        let mut registers = registers;
        registers.general[number] = Some(another);
        let (frames, _) = walk(&coroutines(), &registers, &memory.clone().with(&same));
        let waits: Vec<u64> = frames[3..].iter().map(|frame| frame.cfa.0).collect();
        assert_eq!(waits, *expected, "register {number}");
    }
}

#[test]
fn t12_who_waits_for_a_coroutine_further_out_does_not_wait_for_the_innermost() {
    // The caller is a part of the second one's function, whose frame is in its own stack.
    let caller = [(SP + 40, at(0x1048)), (SP + 48, FRAMES[1]), (SP + 56, 0), (SP + 64, at(0x1088))];
    let (registers, memory) = running(UNTOLD);
    let memory = memory.with(&caller);
    let (frames, of) = walk(&coroutines(), &registers, &memory);
    assert_eq!((frames.len(), of.continuation), (5, Some(Continuation { awaited: 0, frames: 2 })));
    let lost = memory.clone().with(&[(SP + 24, 0)]);
    assert_eq!(walk(&coroutines(), &registers, &lost).1.continuation, None);
    // While the inner one is destroyed, the outer one is the innermost that runs.
    let destroyed = memory.with(&[(FRAMES[0] + 40, 1 << 32)]);
    let (frames, of) = walk(&coroutines(), &registers, &destroyed);
    assert_eq!((frames[3].cfa.0, of.continuation), (FRAMES[2], Some(Continuation { awaited: 1, frames: 1 })));
}

#[test]
fn t12_what_a_table_says_of_coroutines_is_checked() {
    let section = coroutines();
    let (registers, memory) = running(TOLD);
    for length in [0, 15, 16, 40, section.len() - 20] {
        let mut cut = section[..length].to_vec();
        assert_eq!(walk(&cut, &registers, &memory).1.continuation, None, "{length}");
        cut.resize(section.len(), 0);
        let _ = walk(&cut, &registers, &memory);
    }
    let verified = |at: usize, word: u32| {
        let id = cfi::debug_id();
        let mut section = section.clone();
        section[at..at + 4].copy_from_slice(&word.to_le_bytes());
        let bytes = compile(&Input { coroutines: Some(&section), ..cfi::empty_input(&id) }).expect("a table").bytes;
        Table::open(&bytes).expect("a table").verify().is_ok()
    };
    let (functions, locations) = (16 + 3 * 16, 16 + 3 * 16 + 7 * 12);
    assert!(verified(0, 3));
    assert!(!verified(0, 4) && !verified(12, 1), "its counts");
    assert!(
        !verified(functions + 12, 0x1020) && !verified(functions + 4, 0),
        "functions that overlap, and without code"
    );
    assert!(!verified(functions + 8, 3) && !verified(functions + 8, 3 << 2), "no role, and no coroutine");
    assert!(!verified(locations + 8, 100) && !verified(locations + 8, 1), "no program");
}
