//! A trace's frames, named.

use std::collections::BTreeSet;

use symseal_module::{Avma, ModuleMap, StopReason};
use symseal_resolver::{FrameAddress, ResolvedFrame, Resolver, SourceFrame, Text};
use symseal_trace::{ResolvedRow, ResolvedStack, Trace, TraceResolved};
use symseal_unwind::Frame;

use crate::scene::Scene;
use crate::tables::BundleTables;
use crate::walk::{ThreadStack, unwind_trace};

/// One thread's stack with names.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ResolvedThread {
    /// The thread's id.
    pub thread: u32,
    /// The thread's name.
    pub thread_name: String,
    /// Ordinal of the sample in the trace.
    pub sample: u32,
    /// The innermost first.
    pub frames: Vec<ResolvedFrame>,
    /// Where each of them is.
    pub places: Vec<FramePlace>,
    /// Why the walk over the stack ended.
    pub stop: StopReason,
    /// The index of the frame that those at the end wait for, which are on no stack; none where there are none. Each of the others waits for the
    /// one before it.
    pub awaited: Option<usize>,
}

/// Where a frame is, as the walk found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct FramePlace {
    /// Whether the instruction pointer is that of the next instruction to run; else it is a return address.
    pub exact: bool,
    /// The canonical frame address: the stack pointer of the caller (avma). None where it is not known.
    pub cfa: Option<Avma>,
    /// The value of the frame pointer register in the frame. None where it is not known, or 0.
    pub frame_pointer: Option<Avma>,
}

impl FramePlace {
    fn of(frame: &Frame) -> Self {
        let known = |address: u64| (address != 0).then_some(Avma(address));
        Self { exact: frame.exact, cfa: known(frame.cfa.0), frame_pointer: known(frame.fp) }
    }
}

impl ResolvedThread {
    /// Whether the walk came to the very end of the stack.
    pub fn is_complete(&self) -> bool {
        self.stop.is_complete()
    }

    /// How the walk over the stack ended.
    fn end(&self) -> ResolvedStack {
        let complete = self.is_complete();
        ResolvedStack { thread: self.thread, sample: self.sample, stop: self.stop, complete }
    }

    /// How many frames are on the stack.
    pub fn physical(&self) -> usize {
        self.frames.iter().position(|frame| frame.unwind.is_logical()).unwrap_or(self.frames.len())
    }

    /// The index of the frame that the one at `depth` waits for, if it is on no stack.
    pub fn awaited_by(&self, depth: usize) -> Option<usize> {
        let is_first = depth == self.physical();
        self.frames.get(depth).filter(|frame| frame.unwind.is_logical())?;
        if is_first { self.awaited } else { depth.checked_sub(1) }
    }
}

/// Unwinds and names every sample. Gives the event for the trace, and the threads with all that is known of
/// their frames. The output depends on the trace, the tables and the resolver's sources alone.
pub fn resolve_trace(
    trace: &Trace,
    resolver: &Resolver,
    tables: &BundleTables,
) -> (TraceResolved, Vec<ResolvedThread>) {
    let resolver = tables.equip(resolver, resolver.options().address_cache);
    let map = Scene::of(trace).module_map();
    let stacks = unwind_trace(trace, tables);
    if resolver.options().online {
        resolver.open_modules(&modules_of(&stacks, &map));
    }
    let frames = frames_of(&stacks);
    let resolver = match resolver.options().local_files {
        true => resolver.expecting_frames(&map, &frames),
        false => resolver,
    };
    let threads = name_stacks(&stacks, &map, &frames, &resolver);
    let mut rows = Vec::new();
    for thread in &threads {
        for ((frame, place), depth) in thread.frames.iter().zip(&thread.places).zip(0..) {
            add_rows(&mut rows, thread, frame, place, depth);
        }
    }
    let options = resolver.options();
    let event = TraceResolved {
        trace_id: trace.begin.trace_id,
        bundle: resolver.bundle_digest().map(|digest| digest.to_string()),
        local_files: options.local_files,
        online: options.online,
        frames: rows,
        stacks: threads.iter().map(ResolvedThread::end).collect(),
    };
    (event, threads)
}

/// The modules in which frames lie: of the others nothing need be fetched.
fn modules_of(stacks: &[ThreadStack], map: &ModuleMap) -> ModuleMap {
    let frames = stacks.iter().flat_map(|stack| &stack.frames);
    // Calls lie before the addresses that they return to.
    let at = |pc: Avma| map.locate(pc.checked_sub(1).unwrap_or(pc)).or_else(|| map.locate(pc));
    let used: BTreeSet<usize> = frames.filter_map(|frame| at(frame.pc)).map(|at| at.module).collect();
    ModuleMap::new(used.into_iter().filter_map(|at| map.modules().get(at).cloned()).collect())
}

/// The frames of all stacks, as they are asked for.
fn frames_of(stacks: &[ThreadStack]) -> Vec<FrameAddress> {
    let frames = stacks.iter().flat_map(|stack| &stack.frames);
    frames.map(|frame| FrameAddress { ip: frame.pc, exact: frame.exact, unwind: frame.method }).collect()
}

/// Names all stacks, whose frames these are, on as many threads as this machine has processors.
fn name_stacks(
    stacks: &[ThreadStack],
    map: &ModuleMap,
    frames: &[FrameAddress],
    resolver: &Resolver,
) -> Vec<ResolvedThread> {
    let mut named = resolver.resolve_all(map, frames).into_iter();
    stacks.iter().map(|stack| of_thread(stack, named.by_ref().take(stack.frames.len()).collect())).collect()
}

pub(crate) fn name_stack(stack: &ThreadStack, map: &ModuleMap, resolver: &Resolver) -> ResolvedThread {
    let frames = stack.frames.iter().map(|frame| resolver.resolve(map, frame.pc, frame.exact, frame.method));
    of_thread(stack, frames.collect())
}

fn of_thread(stack: &ThreadStack, frames: Vec<ResolvedFrame>) -> ResolvedThread {
    ResolvedThread {
        thread: stack.thread,
        thread_name: stack.thread_name.clone(),
        sample: stack.sample,
        frames,
        places: stack.frames.iter().map(FramePlace::of).collect(),
        stop: stack.stop,
        awaited: stack.awaited,
    }
}

/// One row per source function; one without a name where there is none.
fn add_rows(
    rows: &mut Vec<ResolvedRow>,
    thread: &ResolvedThread,
    frame: &ResolvedFrame,
    place: &FramePlace,
    depth: u32,
) {
    let none = SourceFrame::default();
    let sources = if frame.frames.is_empty() { std::slice::from_ref(&none) } else { frame.frames.as_slice() };
    let text = |text: &Option<Text>| text.as_deref().map(str::to_owned);
    for (source, inline_depth) in sources.iter().zip(0..) {
        rows.push(ResolvedRow {
            frame_index: rows.len() as u64,
            thread: thread.thread,
            sample: thread.sample,
            depth,
            inline_depth,
            ip: frame.ip,
            module: frame.module.as_ref().map(|module| module.path.clone()),
            debug_id: frame.module.as_ref().and_then(|module| module.debug_id.clone()),
            function: text(&source.function),
            symbol: text(&source.symbol),
            symbol_offset: frame.symbol_offset.filter(|_| !source.inlined),
            file: text(&source.file),
            line: source.line,
            column: source.column,
            inlined: source.inlined,
            unwind: frame.unwind,
            resolver: frame.resolver,
            quality: frame.quality,
            proof: frame.proof,
            reason: frame.reason,
            approximate: frame.approximate,
            folded: frame.folded,
            exact: Some(place.exact),
            cfa: place.cfa,
            frame_pointer: place.frame_pointer,
        });
    }
}
