//! Ratios, with the numbers that they are made of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symseal_module::{Avma, DebugId, Proof, Rva};
use symseal_resolver::ResolvedFrame;

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

/// Coverage where every stack has the same weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StackCoverage {
    /// Stacks walked. The denominator.
    pub stacks: u64,
    /// Stacks of which every expected frame has a name that counts.
    pub named: u64,
    /// Of these, stacks of which every name rests on a seal verified in this run.
    pub proved: u64,
    /// The mean over all stacks of the share of expected frames that have a name that counts, in percent; 0 where there are
    /// no stacks.
    pub pct: f64,
    /// The same of names that are proved.
    pub proved_pct: f64,
}

/// What counts of one frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) named: bool,
    pub(super) with_line: bool,
    pub(super) proved: bool,
}

impl Found {
    pub(super) fn of(frame: &ResolvedFrame) -> Self {
        let named = frame.counts();
        let proved = named && frame.proof == Proof::Sealed;
        Self { named, with_line: named && frame.has_line(), proved }
    }

    /// The calls that were inlined at the frame.
    pub(super) fn of_inlined(frame: &ResolvedFrame) -> impl Iterator<Item = Self> {
        let proved = frame.proof == Proof::Sealed;
        // A function's caller is the next of the list, and its place is that of the call.
        frame.frames.iter().zip(frame.frames.iter().skip(1)).map(move |(callee, caller)| {
            let named = callee.function.is_some() && caller.file.is_some() && caller.line.is_some();
            Self { named, with_line: named, proved: named && proved }
        })
    }

    /// The same, where a name without file and line is none.
    pub(super) fn only_with_line(self) -> Self {
        Self { named: self.with_line, proved: self.proved && self.with_line, ..self }
    }

    fn and(self, other: Self) -> Self {
        Self {
            named: self.named && other.named,
            with_line: self.with_line && other.with_line,
            proved: self.proved && other.proved,
        }
    }
}

impl CoverageCount {
    pub(super) fn add(&mut self, found: Found) {
        self.frames += 1;
        self.named += u64::from(found.named);
        self.proved += u64::from(found.proved);
    }

    pub(super) fn finish(&mut self) {
        (self.pct, self.proved_pct) = (self.share(self.named), self.share(self.proved));
    }

    fn share(&self, part: u64) -> f64 {
        if self.frames == 0 { 0.0 } else { 100.0 * part as f64 / self.frames as f64 }
    }
}

/// The addresses that stacks hold.
#[derive(Debug, Default)]
pub(super) struct Uniques<'t>(BTreeMap<Place<'t>, Found>);

/// A module's identity and path, and the address in it; for what lies in no module, the address in the process.
type Place<'t> = (Option<&'t DebugId>, Option<&'t str>, Rva, Option<Avma>);

impl<'t> Uniques<'t> {
    pub(super) fn add(&mut self, frame: &'t ResolvedFrame, found: Found) {
        let place = match &frame.module {
            // The same file under two names is one module.
            Some(module) if module.debug_id.is_some() => (module.debug_id.as_ref(), None, module.rva, None),
            Some(module) => (None, Some(module.path.as_str()), module.rva, None),
            None => (None, None, Rva(0), Some(frame.ip)),
        };
        // An address may be interrupted here and returned to there: it is named if it is so in both.
        self.0.entry(place).and_modify(|before| *before = before.and(found)).or_insert(found);
    }

    pub(super) fn count(&self) -> CoverageCount {
        let mut count = CoverageCount::default();
        self.0.values().for_each(|found| count.add(*found));
        count
    }
}

impl StackCoverage {
    /// Adds a stack by its expected frames; the shares are sums until [`Self::finish`].
    pub(super) fn add(&mut self, stack: CoverageCount) {
        self.stacks += 1;
        self.named += u64::from(stack.frames > 0 && stack.named == stack.frames);
        self.proved += u64::from(stack.frames > 0 && stack.proved == stack.frames);
        self.pct += stack.share(stack.named);
        self.proved_pct += stack.share(stack.proved);
    }

    pub(super) fn finish(&mut self) {
        if self.stacks > 0 {
            self.pct /= self.stacks as f64;
            self.proved_pct /= self.stacks as f64;
        }
    }
}
