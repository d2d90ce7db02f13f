//! From a scene to stacks: one walk per snapshot.

use symseal_module::{Avma, StopReason, Svma, UnwindMethod};
use symseal_trace::Trace;
use symseal_unwind::{Arch, Cache, CodeBytes, Frame, Module, Modules, Options, Table, unwind_with};

use crate::scene::{Scene, SceneModule, Snapshot};
use crate::tables::{BundleTables, JitRules};

/// The frames of a stack that there is room for at first: more than most have, even in recursion.
const USUAL_FRAMES: usize = 4096;
/// More words than the largest copy of a stack has: a bound for traces that say otherwise.
const MOST_FRAMES: usize = 1 << 20;

/// One thread's stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStack {
    /// The thread's id.
    pub thread: u32,
    /// The thread's name.
    pub thread_name: String,
    /// Ordinal of the sample in the trace.
    pub sample: u32,
    /// The innermost first.
    pub frames: Vec<Frame>,
    /// Why there are no more on the stack.
    pub stop: StopReason,
    /// The frame that those at the end wait for, which are on no stack, if there are any.
    pub awaited: Option<usize>,
}

impl ThreadStack {
    /// Whether the walk came to the very end of the stack.
    pub fn is_complete(&self) -> bool {
        self.stop.is_complete()
    }
}

/// Walks the stack of every sample, in the order of the trace.
pub fn unwind_trace(trace: &Trace, tables: &BundleTables) -> Vec<ThreadStack> {
    let scene = Scene::of(trace);
    let modules = EngineModules::of(&scene, tables);
    let mut cache = Cache::new();
    scene.snapshots.iter().map(|snapshot| modules.walk(snapshot, &mut cache)).collect()
}

/// Words of a stack that a scan looks at for what stands against a word (`docs/unwinding.md`).
const WORDS_IN_VIEW: u64 = 2048;

/// The scene's modules as the engine takes them; frames refer to them by their index in the scene.
pub(crate) struct EngineModules<'t> {
    /// By their tables alone.
    pub(crate) plain: Modules<'t>,
    /// With the code that was read of some, if any was.
    with_code: Option<Modules<'t>>,
    /// How many of them are modules of the scene. What comes behind is code that the process made: it has the rules that its runtime wrote, or none, and then a frame
    /// pointer may lead into it.
    files: usize,
}

impl<'t> EngineModules<'t> {
    pub(crate) fn of(scene: &'t Scene, tables: &'t BundleTables) -> Self {
        let modules = |has_code: bool| {
            let of = |module: &'t SceneModule| Module {
                start: Avma(module.start),
                end: Avma(module.end),
                bias: module.bias,
                image_base: module.image_base,
                table: module.debug_id.as_ref().and_then(|id| tables.open(id)),
                code: module.image_code().or_else(|| {
                    let code = tables.code(module.debug_id.as_ref()?).filter(|_| has_code)?;
                    Some(CodeBytes { start: Avma(code.start.0.wrapping_add(module.bias)), bytes: &code.bytes })
                }),
            };
            let ruled = tables.jit_rules().iter().map(|rules| made_module(rules.range, rules.open()));
            let made = unruled(&scene.made, tables.jit_rules()).into_iter().map(|range| made_module(range, None));
            let made = ruled.chain(made);
            // Traces are of x86_64 so far; see `Snapshot::engine_registers`.
            Modules::new(Arch::X86_64, scene.modules.iter().map(of).chain(made).collect())
        };
        let with_code = tables.has_code().then(|| modules(true));
        Self { plain: modules(false), with_code, files: scene.modules.len() }
    }

    /// One stack. Where rules alone do not tell it, and code was read, it is what the code bears out.
    pub(crate) fn walk(&self, snapshot: &Snapshot, cache: &mut Cache) -> ThreadStack {
        self.walk_in_its_way(snapshot, cache).0
    }

    /// One stack, and the modules and options of the walk that found it.
    ///
    /// With the code at hand a frame pointer or a leaf is held to the calls that were made, and a scan may lead on from where nothing
    /// else does. What the scanning walk contradicts is not believed; where it finds only less, for what may be meant besides, the
    /// other one counts. So does the walk by the tables alone, where the code leaves it open which of two words is the next return address:
    /// mostly both lead on to the same frames.
    pub(crate) fn walk_in_its_way(
        &self,
        snapshot: &Snapshot,
        cache: &mut Cache,
    ) -> (ThreadStack, (&Modules<'t>, Options)) {
        let by_rules = self.walk_with(&self.plain, snapshot, cache, PLAIN);
        let Some(modules) = self.with_code.as_ref().filter(|_| is_told_by_code(&by_rules)) else {
            return (by_rules, (&self.plain, PLAIN));
        };
        let believed = self.walk_with(modules, snapshot, cache, PLAIN);
        let mut scanned = self.walk_with(modules, snapshot, cache, SCANNING);
        keep_what_is_in_view(snapshot, &mut scanned);
        let (found, way) = match is_beginning(&scanned, &believed) {
            true => (believed, (modules, PLAIN)),
            false => (scanned, (modules, SCANNING)),
        };
        if found.stop == StopReason::Ambiguous && is_beginning(&found, &by_rules) {
            return (by_rules, (&self.plain, PLAIN));
        }
        (found, way)
    }

    fn walk_with(
        &self,
        modules: &Modules<'_>,
        snapshot: &Snapshot,
        cache: &mut Cache,
        options: Options,
    ) -> ThreadStack {
        let registers = snapshot.engine_registers();
        let mut frames = vec![Frame::EMPTY; USUAL_FRAMES];
        let mut walk =
            snapshot.with_memory(|memory| unwind_with(modules, &registers, &memory, cache, &mut frames, options));
        if walk.stop == StopReason::MaxFrames {
            // As many as there are words in the copies, and those that are on no stack.
            frames = vec![Frame::EMPTY; USUAL_FRAMES + snapshot.copied_words().min(MOST_FRAMES)];
            walk =
                snapshot.with_memory(|memory| unwind_with(modules, &registers, &memory, cache, &mut frames, options));
        }
        frames.truncate(walk.frames);
        for frame in &mut frames {
            frame.module = frame.module.filter(|module| (*module as usize) < self.files);
        }
        ThreadStack {
            thread: snapshot.thread,
            thread_name: snapshot.thread_name.clone(),
            sample: snapshot.sample,
            frames,
            stop: walk.stop,
            awaited: walk.continuation.map(|continuation| continuation.awaited),
        }
    }
}

/// Code that the process made. It stays where it is, so that stated and actual addresses are the same.
fn made_module((start, end): (u64, u64), table: Option<Table<'_>>) -> Module<'_> {
    Module { start: Avma(start), end: Avma(end), bias: 0, image_base: Svma(start), table, code: None }
}

/// What is left of ranges, which rise and do not touch, where functions have no rules. Of modules that lie over each other the engine would take the one that begins last, and no
/// part of the other behind it.
fn unruled(ranges: &[(u64, u64)], rules: &[JitRules]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    for (start, end) in ranges {
        let mut from = *start;
        let first = rules.partition_point(|rules| rules.range.1 <= *start);
        for (begin, behind) in rules.iter().skip(first).map(|rules| rules.range).take_while(|(begin, _)| begin < end) {
            left.push((from, begin));
            from = behind;
        }
        left.push((from, *end));
    }
    left.retain(|(start, end)| start < end);
    left
}

/// With what waits for the stack behind it.
const PLAIN: Options = Options { signature_mask: None, scan: false, continuations: true };
const SCANNING: Options = Options { scan: true, ..PLAIN };

/// Whether the code of modules may tell more of a stack than their tables do, or otherwise: it ends for want of a rule, or has frames that
/// none led to.
pub(crate) fn is_told_by_code(stack: &ThreadStack) -> bool {
    use UnwindMethod::{FramePointer, Leaf, NullCall};
    ends_for_want_of_a_rule(stack.stop)
        || stack.frames.iter().any(|frame| matches!(frame.method, FramePointer | Leaf | NullCall))
}

/// Whether there are no more frames for want of code: there is no rule, or one counts from a register that calls need not keep, which is believed
/// where a call leads to what it finds.
pub(crate) fn ends_for_want_of_a_rule(stop: StopReason) -> bool {
    use StopReason::{Ambiguous, LeafCalled, NoModule, NoRule, NoTable, RegisterUnknown};
    matches!(stop, Ambiguous | LeafCalled | NoModule | NoRule | NoTable | RegisterUnknown)
}

/// Whether all frames of one stack are the first of another.
fn is_beginning(stack: &ThreadStack, of: &ThreadStack) -> bool {
    let mut pairs = stack.frames.iter().zip(&of.frames);
    stack.frames.len() <= of.frames.len() && pairs.all(|(a, b)| (a.pc, a.exact) == (b.pc, b.exact))
}

/// Ends the stack before the first scanned word against which something may stand that was not copied.
fn keep_what_is_in_view(snapshot: &Snapshot, stack: &mut ThreadStack) {
    let frames = &stack.frames;
    let is_out_of_view = |at: usize| {
        // The stack pointer of the callee is the frame address of its own callee.
        let sp = match at.checked_sub(2) {
            Some(callee) => frames.get(callee).map(|frame| frame.cfa.0),
            None => Some(snapshot.engine_registers().sp),
        };
        !sp.is_some_and(|sp| snapshot.is_copied_from(sp, WORDS_IN_VIEW * 8))
    };
    let mut scanned = frames.iter().enumerate().filter(|(_, frame)| frame.method == UnwindMethod::Scan);
    if let Some((first, _)) = scanned.find(|(at, _)| is_out_of_view(*at)) {
        stack.frames.truncate(first);
        // Where the callee reaches to was told by the word alone.
        if let Some(callee) = stack.frames.last_mut() {
            callee.cfa = Avma(0);
        }
        stack.stop = StopReason::TruncatedStack;
        stack.awaited = None;
    }
}
