//! From a scene to stacks: one walk per snapshot.

use symseal_module::{Avma, StopReason};
use symseal_trace::Trace;
use symseal_unwind::{Arch, Cache, CodeBytes, Frame, Module, Modules, unwind};

use crate::scene::{Scene, Snapshot};
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
    /// Why there are no more.
    pub stop: StopReason,
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
    let modules = engine_modules(&scene, tables);
    let mut cache = Cache::new();
    scene.snapshots.iter().map(|snapshot| walk(&modules, snapshot, &mut cache)).collect()
}

/// The scene's modules as the engine takes them; frames refer to them by their index in the scene.
pub(crate) fn engine_modules<'t>(scene: &'t Scene, tables: &'t BundleTables) -> Modules<'t> {
    let modules = scene.modules.iter().map(|module| Module {
        start: Avma(module.start),
        end: Avma(module.end),
        bias: module.bias,
        image_base: module.image_base,
        table: module.debug_id.as_ref().and_then(|id| tables.open(id)),
        code: module.image.as_ref().map(|bytes| CodeBytes { start: Avma(module.start), bytes }),
    });
    // Traces are of x86_64 so far; see `Snapshot::engine_registers`.
    Modules::new(Arch::X86_64, modules.collect())
}

pub(crate) fn walk(modules: &Modules<'_>, snapshot: &Snapshot, cache: &mut Cache) -> ThreadStack {
    walk_at_most(modules, snapshot, cache, MAX_FRAMES)
}

/// The same with another bound of frames.
pub(crate) fn walk_at_most(modules: &Modules<'_>, snapshot: &Snapshot, cache: &mut Cache, most: usize) -> ThreadStack {
    let mut frames = vec![Frame::EMPTY; most];
    let registers = snapshot.engine_registers();
    let walk = snapshot.with_memory(|memory| unwind(modules, &registers, &memory, cache, &mut frames));
    frames.truncate(walk.frames);
    ThreadStack {
        thread: snapshot.thread,
        thread_name: snapshot.thread_name.clone(),
        sample: snapshot.sample,
        frames,
        stop: walk.stop,
    }
}
