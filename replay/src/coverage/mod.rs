//! How many frames have a name, and how many of the names are proved.

mod count;
mod kind;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symseal_module::{Avma, DebugId, MissReason, Rva, StopReason, UnwindMethod};
use symseal_resolver::{ResolvedFrame, Resolver};

pub use self::count::{CoverageCount, StackCoverage};
use self::count::{Found, Uniques};
pub use self::kind::FrameKind;
use crate::ResolvedThread;

/// The most nameless frames that are listed one by one; all of them are counted.
pub const MAX_NAMELESS_LISTED: usize = 1000;

/// Coverage of a trace. Frames are physical frames: an address counts once, however many calls were inlined
/// at it, and what only waits for a stack does not count. `docs/formats/evidence.md` gives the definitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Frames in release modules: those of which the bundle has line tables. Named means function, file and line.
    pub release: CoverageCount,
    /// Frames in all modules and outside of any. Named means a function whose range holds the address.
    pub all: CoverageCount,
    /// The frames that were found, by where their code is. Kinds without a frame are left out; what an incomplete stack
    /// misses is of no kind.
    pub by_kind: BTreeMap<FrameKind, CoverageCount>,
    /// All frames once more. Named means with file and line.
    pub with_line: CoverageCount,
    /// Calls that were inlined at named frames, one by one. Named means a function, and file and line of its call.
    pub inlined: CoverageCount,
    /// The frames that were found, each address of a module once, however many stacks hold it.
    pub unique: CoverageCount,
    /// The stacks, each of the same weight, however deep it is.
    pub by_stack: StackCoverage,
    /// Stacks walked.
    pub stacks: u64,
    /// Stacks that did not end complete. Each adds one missing frame to both denominators.
    pub incomplete: Vec<IncompleteStack>,
    /// Frames without a name by reason code.
    pub nameless_by_reason: BTreeMap<String, u64>,
    /// The first [`MAX_NAMELESS_LISTED`] frames without a name (of release modules: without file and line).
    pub nameless: Vec<NamelessFrame>,
}

/// A stack that ended early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncompleteStack {
    /// The thread.
    pub thread: u32,
    /// Ordinal of the sample.
    pub sample: u32,
    /// Frames that were found.
    pub frames: u64,
    /// Why there are no more.
    pub stop: StopReason,
}

/// A frame whose name is missing or does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamelessFrame {
    /// The thread.
    pub thread: u32,
    /// Ordinal of the sample.
    pub sample: u32,
    /// 0 = innermost.
    pub depth: u32,
    /// The instruction pointer.
    pub ip: Avma,
    /// The module's path.
    pub module: Option<String>,
    /// Its debug id.
    pub debug_id: Option<DebugId>,
    /// The address relative to its image base.
    pub module_offset: Option<Rva>,
    /// How the frame was found.
    pub unwind: UnwindMethod,
    /// Whether its module is a release module.
    pub release: bool,
    /// Why there is no name; null where there is one that does not count (no line in a release module, a
    /// function of unknown size, a frame that is a guess).
    pub reason: Option<MissReason>,
}

/// Counts the frames of `threads`, which `resolver` named.
pub fn coverage(threads: &[ResolvedThread], resolver: &Resolver) -> Coverage {
    let mut coverage = Coverage { stacks: threads.len() as u64, ..Coverage::default() };
    let mut uniques = Uniques::default();
    for thread in threads {
        let mut stack = CoverageCount::default();
        for (frame, depth) in thread.frames.iter().zip(0..).filter(|(frame, _)| !frame.unwind.is_logical()) {
            let (found, release) = (Found::of(frame), is_release(frame, resolver));
            stack.add(found);
            uniques.add(frame, found);
            coverage.add(frame, found, release);
            if !found.named || (release && !found.with_line) {
                coverage.list_nameless(thread, frame, depth, release);
            }
        }
        if !thread.is_complete() {
            for count in [&mut stack, &mut coverage.release, &mut coverage.all, &mut coverage.with_line] {
                count.frames += 1;
            }
            coverage.incomplete.push(IncompleteStack {
                thread: thread.thread,
                sample: thread.sample,
                frames: thread.physical() as u64,
                stop: thread.stop,
            });
        }
        coverage.by_stack.add(stack);
    }
    coverage.unique = uniques.count();
    coverage.finish();
    coverage
}

fn is_release(frame: &ResolvedFrame, resolver: &Resolver) -> bool {
    let id = frame.module.as_ref().and_then(|module| module.debug_id.as_ref());
    id.is_some_and(|id| resolver.has_line_tables(id))
}

impl Coverage {
    fn add(&mut self, frame: &ResolvedFrame, found: Found, release: bool) {
        self.all.add(found);
        self.with_line.add(found.only_with_line());
        self.by_kind.entry(FrameKind::of(frame, release)).or_default().add(found);
        if release {
            self.release.add(found.only_with_line());
        }
        if found.named {
            Found::of_inlined(frame).for_each(|call| self.inlined.add(call));
        }
    }

    fn list_nameless(&mut self, thread: &ResolvedThread, frame: &ResolvedFrame, depth: u32, release: bool) {
        let reason = frame.reason.map_or("name-does-not-count", MissReason::code);
        *self.nameless_by_reason.entry(reason.to_string()).or_default() += 1;
        if self.nameless.len() < MAX_NAMELESS_LISTED {
            self.nameless.push(NamelessFrame {
                thread: thread.thread,
                sample: thread.sample,
                depth,
                ip: frame.ip,
                module: frame.module.as_ref().map(|module| module.path.clone()),
                debug_id: frame.module.as_ref().and_then(|module| module.debug_id.clone()),
                module_offset: frame.module.as_ref().map(|module| module.rva),
                unwind: frame.unwind,
                release,
                reason: frame.reason,
            });
        }
    }

    fn finish(&mut self) {
        let ratios = [&mut self.release, &mut self.all, &mut self.with_line, &mut self.inlined, &mut self.unique];
        self.by_stack.finish();
        ratios.into_iter().chain(self.by_kind.values_mut()).for_each(CoverageCount::finish);
    }
}

#[cfg(test)]
mod tests;
