//! The class "outage": the tables of one module are gone.
//!
//! What must come out is fixed before any unit runs: the result of the unchanged trace without the tables,
//! and that result must itself obey the rules below, which follow from the complete result alone. So a loss
//! can neither be papered over by a frame that claims to rest on the lost table, nor change a frame that does
//! not depend on it.

use symseal_module::{DebugId, ResolverStep, StopReason, UnwindMethod};

use crate::canonical::{Canonical, CanonicalFrame, UNKNOWN};
use crate::replay::{Bench, Outcome, Setting, modules_in_use, results_with};
use crate::rng::SplitMix64;
use crate::scene::Scene;

/// One module's tables gone, and what then must come out.
pub(crate) struct Outage {
    module: DebugId,
    /// By rising sample ordinal.
    expected: Vec<Canonical>,
    /// Whether each expected result obeys the rules.
    obeys: Vec<bool>,
}

impl Outage {
    /// The outages of all modules that the stacks run through and that have a table.
    pub(crate) fn all(bench: &Bench<'_>, golden: &[Canonical]) -> Vec<Self> {
        let ids = modules_in_use(bench).into_iter().filter(|id| bench.tables.bytes(id).is_some());
        ids.map(|module| {
            let expected = run_without(&module, bench, &bench.scene, Setting::default());
            let obeys = golden.iter().zip(&expected).map(|(golden, after)| obeys(&module, golden, after));
            Self { obeys: obeys.collect(), module, expected }
        })
        .collect()
    }

    /// One outage, drawn for this seed, in another layout. Without any module to rob, the complete result is
    /// expected.
    pub(crate) fn run(
        outages: &[Self],
        bench: &Bench<'_>,
        golden: &[Canonical],
        moved: &Scene,
        rng: &mut SplitMix64,
    ) -> Vec<Outcome> {
        let Some(outage) = outages.get(rng.below(outages.len() as u64) as usize) else {
            let found = bench.results(moved, Setting::default());
            return golden.iter().cloned().zip(found).map(|(expected, found)| Outcome::of(expected, found)).collect();
        };
        let found = run_without(&outage.module, bench, moved, Setting::default());
        let units = outage.expected.iter().cloned().zip(found).zip(&outage.obeys);
        units
            .map(|((expected, found), obeys)| {
                let outcome = Outcome::of(expected, found);
                Outcome { passed: outcome.passed && *obeys, ..outcome }
            })
            .collect()
    }
}

/// Whether a frame that was found so was led to by no rule.
fn is_without_rule(method: UnwindMethod) -> bool {
    matches!(method, UnwindMethod::FramePointer | UnwindMethod::Leaf | UnwindMethod::NullCall | UnwindMethod::Scan)
}

fn run_without(module: &DebugId, bench: &Bench<'_>, scene: &Scene, setting: Setting) -> Vec<Canonical> {
    results_with(scene, &bench.tables.without(module), &bench.resolver.without_table(module), setting)
}

/// The rules, from the complete result:
///
/// * up to and including the first frame in the robbed module, every frame is found as before; but the stack may end before one of them that no rule
///   led to: what speaks for it, or against it, lies in the code and the rules of other modules;
/// * the frame after one in the robbed module is not said to be found by the lost table's rules;
/// * a frame in the robbed module is not said to be named by the bundle; frames elsewhere keep their names;
/// * where the walk ends in the robbed module, it does not say that the stack was complete by a rule.
fn obeys(module: &DebugId, golden: &Canonical, after: &Canonical) -> bool {
    let robbed = |frame: &CanonicalFrame| frame.module.as_ref() == Some(module);
    let intact = golden.frames.iter().position(robbed).map_or(golden.frames.len(), |at| at + 1);
    let lost = golden.frames.get(after.frames.len()).filter(|frame| is_without_rule(frame.method));
    let ended = lost.map(|_| after.frames.len());
    let intact = ended.map_or(intact, |at| at.min(intact));
    let pairs = golden.frames.iter().zip(&after.frames).enumerate();
    let same_until = pairs.take(intact).all(|(at, (before, after))| {
        let same_place = before.place == after.place && before.method == after.method;
        // The frame address and the name of a frame in the robbed module come from the lost tables.
        // And where the last one reaches to was told by the one that is lost.
        let is_last = ended == Some(at + 1) && after.cfa == UNKNOWN;
        let same_cfa = before.cfa == after.cfa || is_last;
        let same_rest = same_cfa && before.names == after.names;
        same_place && (robbed(before) || same_rest)
    });
    let long_enough = after.frames.len() >= intact;
    let labelled = after.frames.iter().zip(after.frames.iter().skip(1)).all(|(callee, caller)| {
        let by_table = matches!(
            caller.method,
            UnwindMethod::CfiEhFrame
                | UnwindMethod::CfiDebugFrame
                | UnwindMethod::SignalContext
                | UnwindMethod::Plt
                | UnwindMethod::Prologue
                | UnwindMethod::Pdata
                | UnwindMethod::CompactUnwind
                | UnwindMethod::JitRule
                | UnwindMethod::Exidx
                | UnwindMethod::GoPclntab
                | UnwindMethod::Orc
                | UnwindMethod::GoroutineSwitch
        );
        !(robbed(callee) && by_table)
    });
    let by_bundle = |frame: &CanonicalFrame| robbed(frame) && frame.resolver == ResolverStep::LocalBundle;
    let unclaimed = !after.frames.iter().any(by_bundle);
    // What waits for the stack is not where it ends.
    let ends_robbed = after.frames.iter().rfind(|frame| !frame.method.is_logical()).is_some_and(robbed);
    let honest_end = !(ends_robbed && after.stop == StopReason::EndOfStack);
    same_until && long_enough && labelled && unclaimed && honest_end
}
