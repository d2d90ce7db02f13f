//! From a scene to stacks: one walk per snapshot.

use symseal_module::{Avma, StopReason, Svma, UnwindMethod};
use symseal_trace::Trace;
use symseal_unwind::{Arch, Cache, CodeBytes, Frame, Module, Modules, Options, unwind_with};

use crate::scene::{Scene, SceneModule, Snapshot};
use crate::tables::BundleTables;

/// The most frames of one stack. A copy of 16 KiB holds at most 2,048 return addresses.
pub const MAX_FRAMES: usize = 4096;

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
        matches!(self.stop, StopReason::EndOfStack | StopReason::RootFramePointer)
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
    /// How many of them are modules of the scene. What comes behind is code that the process made: it has no rules, but a frame pointer may lead into it.
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
            let made = scene.made.iter().map(|(start, end)| Module {
                start: Avma(*start),
                end: Avma(*end),
                bias: 0,
                image_base: Svma(0),
                table: None,
                code: None,
            });
            // Traces are of x86_64 so far; see `Snapshot::engine_registers`.
            Modules::new(Arch::X86_64, scene.modules.iter().map(of).chain(made).collect())
        };
        let with_code = tables.has_code().then(|| modules(true));
        Self { plain: modules(false), with_code, files: scene.modules.len() }
    }

    /// One stack. Where it ends for want of a rule, and code was read, the scan may lead on from there: it adds frames, and changes
    /// none of those that were found without it.
    pub(crate) fn walk(&self, snapshot: &Snapshot, cache: &mut Cache) -> ThreadStack {
        let stack = self.walk_with(&self.plain, snapshot, cache, PLAIN);
        if !ends_for_want_of_a_rule(stack.stop) {
            return stack;
        }
        let Some(modules) = &self.with_code else { return stack };
        let scanned = self.walk_with(modules, snapshot, cache, SCANNING);
        let same = |(found, with_scan): (&Frame, &Frame)| {
            let of = |frame: &Frame| (frame.pc, frame.exact, frame.fp, frame.method);
            of(found) == of(with_scan)
        };
        let extends = scanned.frames.len() > stack.frames.len() && stack.frames.iter().zip(&scanned.frames).all(same);
        if extends && has_scan(&scanned.frames) && is_in_view(snapshot, &scanned.frames) { scanned } else { stack }
    }

    /// The modules and options of the walk that found these frames.
    pub(crate) fn walk_of(&self, is_scanned: bool) -> (&Modules<'t>, Options) {
        match &self.with_code {
            Some(modules) if is_scanned => (modules, SCANNING),
            _ => (&self.plain, PLAIN),
        }
    }

    fn walk_with(
        &self,
        modules: &Modules<'_>,
        snapshot: &Snapshot,
        cache: &mut Cache,
        options: Options,
    ) -> ThreadStack {
        let mut frames = vec![Frame::EMPTY; MAX_FRAMES];
        let registers = snapshot.engine_registers();
        let walk =
            snapshot.with_memory(|memory| unwind_with(modules, &registers, &memory, cache, &mut frames, options));
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

/// With what waits for the stack behind it.
const PLAIN: Options = Options { signature_mask: None, scan: false, continuations: true };
const SCANNING: Options = Options { scan: true, ..PLAIN };

/// Whether code without rules is why there are no more frames.
pub(crate) fn ends_for_want_of_a_rule(stop: StopReason) -> bool {
    use StopReason::{Ambiguous, LeafCalled, NoModule, NoRule, NoTable};
    matches!(stop, Ambiguous | LeafCalled | NoModule | NoRule | NoTable)
}

fn has_scan(frames: &[Frame]) -> bool {
    frames.iter().any(|frame| frame.method == UnwindMethod::Scan)
}

/// Whether all that could stand against the scanned words was copied: a copy may end early.
fn is_in_view(snapshot: &Snapshot, frames: &[Frame]) -> bool {
    frames.iter().enumerate().filter(|(_, frame)| frame.method == UnwindMethod::Scan).all(|(at, _)| {
        // The stack pointer of the callee is the frame address of its own callee.
        let sp = match at.checked_sub(2) {
            Some(callee) => frames.get(callee).map(|frame| frame.cfa.0),
            None => Some(snapshot.engine_registers().sp),
        };
        sp.is_some_and(|sp| snapshot.is_copied_from(sp, WORDS_IN_VIEW * 8))
    })
}
