//! Each way in which a frame is found and each reason for which a walk ends does occur, and each stack says whether it is whole.

use crate::cfi;
use std::collections::BTreeSet;

use crate::cfi::{AT_ENTRY, BIAS, EhFrame, Words, advance, at, cfa_offset};
use symseal_module::{Avma, StopReason, Svma, UnwindMethod};
use symseal_unwind::compile::{Input, Plt, compile};
use symseal_unwind::{
    Arch, Cache, CodeBytes, Frame, GoRuntime, GoroutineFields, Module, Modules, Options, Registers, Table, unwind_with,
};

const SP: u64 = 0x7fff_0000;
/// An address without rules.
const DARK: u64 = 0x1804;

/// What takes more than a few lines to make: `traps_arm` walks by the first, `go_tables` holds each rule of the second against Go's own call frame
/// information, and `traps_async` has stacks that somebody waits for.
const ELSEWHERE: [UnwindMethod; 4] =
    [UnwindMethod::Exidx, UnwindMethod::GoPclntab, UnwindMethod::AsyncParent, UnwindMethod::Orc];

/// What walks came to.
#[derive(Default)]
struct Seen {
    methods: BTreeSet<UnwindMethod>,
    stops: BTreeSet<StopReason>,
}

/// A walk in the making.
struct Case {
    table: Option<Vec<u8>>,
    registers: Registers,
    /// From the stack pointer on, as many as are given.
    words: Vec<u64>,
    code: Vec<u8>,
    go: Option<GoRuntime>,
    frames: usize,
}

impl Case {
    fn new(table: Option<Vec<u8>>, pc: u64, words: &[u64]) -> Self {
        let registers = Registers { pc: at(pc), sp: SP, fp: 0x5555, ..Registers::default() };
        Self { table, registers, words: words.to_vec(), code: Vec::new(), go: None, frames: 16 }
    }

    /// With call frame information for a function at 0x1000: after its first byte, `instructions`.
    fn of(instructions: &[Vec<u8>], pc: u64, words: &[u64]) -> Self {
        let mut section = EhFrame::new("zR", AT_ENTRY);
        section.fde(0x1000, 0x40, &[&[advance(1)], instructions].concat());
        Self::new(Some(section.compile().bytes), pc, words)
    }

    fn input(pc: u64, words: &[u64], change: impl FnOnce(Input<'_>) -> Vec<u8>) -> Self {
        let id = cfi::debug_id();
        Self::new(Some(change(cfi::empty_input(&id))), pc, words)
    }

    fn with_code(mut self, at: usize, bytes: &[u8]) -> Self {
        self.code.resize(0x2000, 0x90);
        self.code[at - 0x1000..at - 0x1000 + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Walks, and checks that the stack is whole only where the reason says so.
    #[track_caller]
    fn check(&self, method: UnwindMethod, stop: StopReason, seen: &mut Seen) {
        let code = (!self.code.is_empty()).then_some(CodeBytes { start: Avma(at(0x1000)), bytes: &self.code });
        let table = self.table.as_ref().map(|bytes| Table::open(bytes).expect("our own table"));
        let module = Module { start: Avma(BIAS), end: Avma(at(0x3000)), bias: BIAS, image_base: Svma(0), table, code };
        let mut modules = Modules::new(Arch::X86_64, vec![module]);
        if let Some(go) = &self.go {
            modules = modules.with_go_runtime(go.clone());
        }
        let words: Vec<(u64, u64)> = (SP..).step_by(8).zip(self.words.iter().copied()).collect();
        let memory = Words::default().with(&words);
        let mut frames = vec![Frame::EMPTY; self.frames];
        let options = Options { scan: true, ..Options::default() };
        let walk = unwind_with(&modules, &self.registers, &memory, &mut Cache::new(), &mut frames, options);
        let found = &frames[..walk.frames];
        assert_eq!((found.last().map(|frame| frame.method), walk.stop), (Some(method), stop), "{found:x?}");
        assert_eq!(walk.is_complete(), matches!(stop, StopReason::EndOfStack | StopReason::RootFramePointer));
        seen.methods.extend(found.iter().map(|frame| frame.method));
        seen.stops.insert(walk.stop);
    }
}

/// A function of 16 bytes with a frame of a word; what is called from there returns to 0x1008.
fn plain() -> [Vec<u8>; 1] {
    [cfa_offset(16)]
}

#[test]
fn every_method_and_every_stop_occurs() {
    use StopReason as Stop;
    use UnwindMethod as By;
    let mut seen = Seen::default();
    let inside = at(0x1008);

    // Rules of each source, and the ends of walks by them.
    Case::of(&[vec![0x07, 16]], 0x1008, &[]).check(By::Context, Stop::EndOfStack, &mut seen);
    Case::of(&plain(), 0x1008, &[7, 0]).check(By::Context, Stop::RootFramePointer, &mut seen);
    Case::of(&plain(), 0x1008, &[7, inside]).check(By::CfiEhFrame, Stop::TruncatedStack, &mut seen);
    Case::of(&plain(), 0x1008, &[7, 0x1234]).check(By::CfiEhFrame, Stop::NoModule, &mut seen);
    Case::of(&plain(), 0x1008, &[7, at(DARK)]).check(By::CfiEhFrame, Stop::NoRule, &mut seen);
    Case::new(None, 0x1008, &[7]).check(By::Context, Stop::NoTable, &mut seen);
    // The return address in a register that no frame has; in one that is not known; a frame of nothing; one that is askew.
    Case::of(&[vec![0x09, 16, 100]], 0x1008, &[7]).check(By::Context, Stop::UnsupportedRule, &mut seen);
    Case::of(&[vec![0x09, 16, 2]], 0x1008, &[7]).check(By::Context, Stop::RegisterUnknown, &mut seen);
    Case::of(&[cfa_offset(0)], 0x1008, &[7]).check(By::Context, Stop::StackNotRising, &mut seen);
    Case::of(&[cfa_offset(12)], 0x1008, &[7]).check(By::Context, Stop::Misaligned, &mut seen);
    let short = Case { frames: 2, ..Case::of(&plain(), 0x1008, &[7, inside, 7, inside]) };
    short.check(By::CfiEhFrame, Stop::MaxFrames, &mut seen);
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x40, &plain());
    let debug_frame = {
        // The forms of the two sections differ in the identifier of the common entry, and in what an entry points to.
        let mut bytes = section.bytes().to_vec();
        bytes[4..8].fill(0xff);
        let common = 4 + u32::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize;
        bytes[common + 4..common + 8].fill(0);
        bytes
    };
    let of_debug_frame = Case::input(0x1008, &[7, inside], |input| {
        compile(&Input { debug_frame: Some((0, &debug_frame)), ..input }).expect("a table").bytes
    });
    of_debug_frame.check(By::CfiDebugFrame, Stop::TruncatedStack, &mut seen);
    let of_jit = Case::input(0x1008, &[7, inside], |input| {
        compile(&Input { is_jit: true, eh_frame: Some((0x9000, section.bytes())), ..input }).expect("a table").bytes
    });
    of_jit.check(By::JitRule, Stop::TruncatedStack, &mut seen);
    let of_pdata = |words: &[u64]| {
        Case::input(0x2000, words, |input| {
            let code = [0x90; 0x1100];
            let pdata = [0x1000, 0x1040, 0x2f00].map(u32::to_le_bytes).concat();
            compile(&Input { pdata: Some((0x5000, &pdata)), code: &[(0x1000, &code)], ..input }).expect("a table").bytes
        })
    };
    of_pdata(&[at(0x2008)]).check(By::Pdata, Stop::LeafCalled, &mut seen);
    // push rbp; mov rbp, rsp; push rbx; push rax; nop; add rsp, 8; pop rbx; pop rbp; ret
    let framed = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x50, 0x90, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0x5d, 0xc3];
    let compact = |pc: u64, words: &[u64]| {
        let page = [1, 28, 0, 28, 0, 28, 2, 0x1000, 52, 0, 0x100e, 0, 0, 2, 8 | 1 << 16, 0x1000, 0x0101_0001];
        let info = page.map(u32::to_le_bytes).concat();
        Case::input(pc, words, |input| {
            let input = Input { unwind_info: Some((0x5000, &info)), code: &[(0x1000, &framed)], ..input };
            compile(&input).expect("a table").bytes
        })
    };
    compact(0x1000, &[at(DARK)]).check(By::Prologue, Stop::NoRule, &mut seen);
    let mut in_body = compact(0x1006, &[7, 7, 7, at(DARK)]);
    in_body.registers.fp = SP + 16;
    in_body.check(By::CompactUnwind, Stop::NoRule, &mut seen);
    let stub = [0xff, 0x25, 0, 0, 0, 0];
    let of_plt = Case::input(0x1000, &[at(DARK)], |input| {
        let plt = Plt { range: 0x1000..0x1006, entry_size: 6, bytes: &stub };
        compile(&Input { plt: &[plt], code: &[(0x1000, &stub)], ..input }).expect("a table").bytes
    });
    of_plt.check(By::Plt, Stop::NoRule, &mut seen);

    // Without a rule. A signal trampoline: rip is 168 bytes from the stack pointer on.
    let mut context = vec![7; 24];
    (context[20], context[21]) = (SP + 0x1000, 0x1234);
    let trampoline = Case::of(&plain(), DARK, &context);
    let trampoline = trampoline.with_code(DARK as usize, &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]);
    trampoline.check(By::SignalContext, Stop::NoModule, &mut seen);
    // call *%rax before 0x1008; call 0x1800 before 0x1010.
    let calls = |case: Case| case.with_code(0x1006, &[0xff, 0xd0]).with_code(0x100b, &[0xe8, 0xf0, 0x07, 0, 0]);
    let mut null = calls(Case::of(&plain(), 0, &[inside]));
    null.registers.pc = 0;
    null.check(By::NullCall, Stop::TruncatedStack, &mut seen);
    let mut with_record = Case::of(&plain(), DARK, &[7, 0, inside]);
    with_record.registers.fp = SP + 8;
    with_record.check(By::FramePointer, Stop::TruncatedStack, &mut seen);
    let guessed = Case { frames: 2, ..calls(Case::of(&plain(), DARK, &[7, at(0x1010), 7, inside])) };
    guessed.check(By::Scan, Stop::MaxFrames, &mut seen);
    let both = [7, at(0x1010), at(0x1010), inside, inside];
    calls(Case::of(&plain(), DARK, &both)).check(By::Context, Stop::Ambiguous, &mut seen);
    // A thread that works for a goroutine: both structures are at the stack pointer.
    let mut go = Case::of(&plain(), 0x1008, &[SP, 0x1000, 0x9000, 0x2000, inside, 0, SP]);
    go.registers.general[14] = Some(SP);
    let g = GoroutineFields { stack_lo: 8, stack_hi: 16, m: 0, sched_sp: 24, sched_pc: 32, sched_bp: 40 };
    go.go = Some(GoRuntime { switches: vec![Avma(at(0x1000))..Avma(at(0x1040))], c_calls: Vec::new(), g, curg: 48 });
    go.check(By::GoroutineSwitch, Stop::TruncatedStack, &mut seen);

    // With a link register a leaf is one without a scan.
    let mut section = EhFrame::on(Arch::Aarch64, "zR", &[0x0c, 31, 0]);
    section.fde(0x1000, 0x40, &[]);
    let table = section.compile().bytes;
    let module = Module {
        start: Avma(BIAS),
        end: Avma(at(0x3000)),
        bias: BIAS,
        image_base: Svma(0),
        table: Some(Table::open(&table).expect("our own table")),
        code: Some(CodeBytes { start: Avma(at(0x1004)), bytes: &0x9400_01ff_u32.to_le_bytes() }),
    };
    let mut registers = Registers { pc: at(DARK), sp: SP, ..Registers::default() };
    registers.general[30] = Some(inside);
    let mut frames = [Frame::EMPTY; 4];
    let modules = Modules::new(Arch::Aarch64, vec![module]);
    let walk = unwind_with(&modules, &registers, &Words::default(), &mut Cache::new(), &mut frames, Options::default());
    seen.methods.extend(frames[..walk.frames].iter().map(|frame| frame.method));

    seen.methods.extend(ELSEWHERE);
    let missing: Vec<&UnwindMethod> = UnwindMethod::ALL.iter().filter(|code| !seen.methods.contains(code)).collect();
    assert!(missing.is_empty(), "methods that nothing leads to: {missing:?}");
    let missing: Vec<&StopReason> = StopReason::ALL.iter().filter(|code| !seen.stops.contains(code)).collect();
    assert!(missing.is_empty(), "stops that nothing leads to: {missing:?}");
}
