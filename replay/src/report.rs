//! What a replay found. `docs/formats/evidence.md` describes the JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symseal_bundle::Digest;

use crate::class::Class;
use crate::golden::GoldenTier;

/// The most mismatches that are listed; all of them are counted.
pub const MAX_MISMATCHES_LISTED: usize = 32;

/// The outcome of replaying a trace under a set of seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// What was going to be run, fixed and hashed before the first unit ran.
    pub manifest: Manifest,
    /// SHA-256 of the manifest's JSON.
    pub manifest_digest: Digest,
    /// Where the expected values come from.
    pub golden: GoldenSummary,
    /// Units of the threads whose expected values have the best tier: the smallest ratio of all classes.
    pub replay_success_ratio: f64,
    /// All units, compared with our own recording alone: the smallest ratio of all classes.
    pub replay_stability_ratio: f64,
    /// Per class.
    pub classes: Vec<ClassResult>,
    /// Per seed: the smallest ratio of all classes.
    pub seeds: Vec<SeedResult>,
    /// What had to fail, and did.
    pub controls: Controls,
    /// The first [`MAX_MISMATCHES_LISTED`] units that differed.
    pub mismatches: Vec<Mismatch>,
    /// SHA-256 over the expected values of all threads.
    pub golden_digest: Digest,
}

/// What a replay runs on. Denominators follow from it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// SHA-256 of modules, functions of JIT compilers and samples of the trace, in its JSON Lines form.
    pub trace_digest: Digest,
    /// The unwind tables in use, by debug id.
    pub unwind_tables: BTreeMap<String, Digest>,
    /// The files whose code stacks were scanned with, by debug id; none where no stack ended for want of a rule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub code: BTreeMap<String, Digest>,
    /// The bundle that names come from.
    pub bundle: Option<Digest>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// The classes.
    pub classes: Vec<Class>,
    /// Stacks of the trace: threads times samples of each.
    pub stacks: u64,
    /// stacks × seeds × classes. Whatever does not finish counts as failed.
    pub units: u64,
    /// Name and version of the program.
    pub verifier_version: String,
}

/// Where the expected values come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoldenSummary {
    /// The tier of `replay_success_ratio`.
    pub tier: GoldenTier,
    /// Stacks for which the workload reported its own call chain.
    pub self_reported: u64,
    /// Of these, stacks that end with the whole chain.
    pub agreeing: u64,
    /// Stacks whose expected value is our own recording alone.
    pub own_recording: u64,
    /// Stacks that differ from the chain that was reported for them.
    pub disagreeing: Vec<Disagreement>,
}

/// A recorded stack that differs from the reported chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disagreement {
    /// The thread.
    pub thread: u32,
    /// Ordinal of the sample.
    pub sample: u32,
    /// Index in the chain of the outermost frame that differs.
    pub frame: u64,
}

/// The outcome of one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassResult {
    /// The class.
    pub class: Class,
    /// Units of it.
    pub units: u64,
    /// Units whose result had the expected bytes.
    pub passed: u64,
    /// passed ÷ units.
    pub ratio: f64,
    /// The lower end of the 95 % confidence interval (Wilson).
    pub wilson_lower: f64,
}

/// The outcome of one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeedResult {
    /// The seed.
    pub seed: u64,
    /// Units of it.
    pub units: u64,
    /// Units whose result had the expected bytes.
    pub passed: u64,
    /// The smallest ratio of all classes.
    pub replay_success_ratio: f64,
}

/// Runs that had to be noticed: without them a ratio of 1 would mean little.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Controls {
    /// Stacks of at least two frames, relocated without moving their words along.
    pub relocation_without_rewriting: ControlResult,
    /// Expected values with one frame changed.
    pub flipped_frame: ControlResult,
    /// Seeds that were run twice; noticed means bit-identical.
    pub seed_reuse: ControlResult,
    /// Unwind rules in use, each changed in one way.
    pub mutation: ControlResult,
    /// The same by kind of change.
    pub mutation_by_kind: BTreeMap<String, ControlResult>,
    /// Changes that were left out because the expected values themselves show that they change nothing: a dropped save of
    /// the frame pointer, where every use found it unchanged.
    pub equivalent_mutations: u64,
    /// The first changed rules that were not noticed.
    pub survivors: Vec<String>,
}

/// How many of some runs were noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ControlResult {
    /// Runs.
    pub total: u64,
    /// Runs that had the outcome they had to have.
    pub noticed: u64,
    /// noticed ÷ total; 0 where nothing was run.
    pub ratio: f64,
}

/// A unit that did not give the expected bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// The class.
    pub class: Class,
    /// The seed.
    pub seed: u64,
    /// The thread.
    pub thread: u32,
    /// Ordinal of the sample.
    pub sample: u32,
    /// The depth of the first frame that differs.
    pub depth: u64,
    /// The expected frame, or the stop.
    pub expected: String,
    /// What was found there.
    pub found: String,
}

impl ReplayReport {
    /// Whether every negative control had the outcome it had to have. Mutations are published as a ratio and
    /// not judged here.
    pub fn controls_hold(&self) -> bool {
        let controls = &self.controls;
        [controls.relocation_without_rewriting, controls.flipped_frame, controls.seed_reuse]
            .iter()
            .all(|control| control.noticed == control.total)
    }
}

impl ControlResult {
    pub(crate) fn add(&mut self, noticed: bool) {
        self.total += 1;
        self.noticed += u64::from(noticed);
        self.ratio = ratio(self.noticed, self.total);
    }
}

/// `part ÷ whole`; 0 where there is nothing, for nothing was shown.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The lower end of the 95 % confidence interval of a ratio (Wilson, 1927).
pub(crate) fn wilson_lower(passed: u64, units: u64) -> f64 {
    if units == 0 {
        return 0.0;
    }
    /// The normal quantile of 97.5 %.
    const Z: f64 = 1.959_963_984_540_054;
    let (n, p) = (units as f64, passed as f64 / units as f64);
    let spread = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((p + Z * Z / (2.0 * n) - spread) / (1.0 + Z * Z / n)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_confidence_bound_is_wilsons() {
        assert_eq!(wilson_lower(0, 0), 0.0);
        assert!((wilson_lower(100, 100) - 0.963_006).abs() < 1e-5);
        assert!((wilson_lower(90, 100) - 0.825_633).abs() < 1e-5);
        assert!(wilson_lower(0, 10).abs() < 1e-12);
    }
}
