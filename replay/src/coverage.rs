//! How many frames have a name, and how many of the names are proved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symseal_module::{Avma, DebugId, MissReason, Proof, Rva, StopReason, UnwindMethod};
use symseal_resolver::{ResolvedFrame, Resolver};

use crate::ResolvedThread;

/// The most nameless frames that are listed one by one; all of them are counted.
pub const MAX_NAMELESS_LISTED: usize = 1000;

/// Coverage of a trace. Frames are physical frames: an address counts once, however many calls were inlined
/// at it. `docs/formats/evidence.md` gives the definitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Frames in release modules: those of which the bundle has line tables. Named means function, file and line.
    pub release: CoverageCount,
    /// Frames in all modules and outside of any. Named means a function whose range holds the address.
    pub all: CoverageCount,
    /// Stacks walked.
    pub stacks: u64,
    /// Stacks that did not end complete. Each adds one missing frame to both denominators.
    pub incomplete: Vec<IncompleteStack>,
    /// Frames without a name by reason code.
    pub nameless_by_reason: BTreeMap<String, u64>,
    /// The first [`MAX_NAMELESS_LISTED`] frames without a name (of release modules: without file and line).
    pub nameless: Vec<NamelessFrame>,
}

/// One ratio, with what it is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CoverageCount {
    /// Expected frames: those found and one for each incomplete stack. The denominator.
    pub frames: u64,
    /// Frames with a name that counts.
    pub named: u64,
    /// Of these, names that rest on a seal verified in this run.
    pub proved: u64,
    /// 100 × named ÷ frames; 0 where there are no frames.
    pub pct: f64,
    /// 100 × proved ÷ frames.
    pub proved_pct: f64,
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
    for thread in threads {
        for (frame, depth) in thread.frames.iter().zip(0..) {
            coverage.add(thread, frame, depth, is_release(frame, resolver));
        }
        if !matches!(thread.stop, StopReason::EndOfStack | StopReason::RootFramePointer) {
            coverage.release.frames += 1;
            coverage.all.frames += 1;
            coverage.incomplete.push(IncompleteStack {
                thread: thread.thread,
                sample: thread.sample,
                frames: thread.frames.len() as u64,
                stop: thread.stop,
            });
        }
    }
    coverage.release.finish();
    coverage.all.finish();
    coverage
}

fn is_release(frame: &ResolvedFrame, resolver: &Resolver) -> bool {
    let id = frame.module.as_ref().and_then(|module| module.debug_id.as_ref());
    id.is_some_and(|id| resolver.has_line_tables(id))
}

impl Coverage {
    fn add(&mut self, thread: &ResolvedThread, frame: &ResolvedFrame, depth: u32, release: bool) {
        let named = frame.counts();
        let with_line = named && frame.has_line();
        let proved = frame.proof == Proof::Sealed;
        self.all.add(named, proved);
        if release {
            self.release.add(with_line, proved);
        }
        if named && (with_line || !release) {
            return;
        }
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
}

impl CoverageCount {
    fn add(&mut self, named: bool, proved: bool) {
        self.frames += 1;
        self.named += u64::from(named);
        self.proved += u64::from(named && proved);
    }

    fn finish(&mut self) {
        let pct = |part: u64| if self.frames == 0 { 0.0 } else { 100.0 * part as f64 / self.frames as f64 };
        (self.pct, self.proved_pct) = (pct(self.named), pct(self.proved));
    }
}
