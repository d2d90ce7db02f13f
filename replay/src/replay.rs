//! The replay itself: units, their expected values, and the count of those that gave them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use symseal_bundle::{Digest, Hasher};
use symseal_module::DebugId;
use symseal_resolver::Resolver;
use symseal_trace::Trace;
use symseal_unwind::Cache;

use crate::canonical::Canonical;
use crate::class::Class;
use crate::controls::{self, ControlInput};
use crate::golden::{GoldenTier, ReportedChain};
use crate::outage::Outage;
use crate::relocate::{Parts, relocate};
use crate::report::{
    ClassResult, Disagreement, GoldenSummary, MAX_MISMATCHES_LISTED, Manifest, Mismatch, ReplayReport, SeedResult,
    ratio, wilson_lower,
};
use crate::resolve::name_stack;
use crate::rng::SplitMix64;
use crate::scene::Scene;
use crate::tables::BundleTables;
use crate::truncate;
use crate::walk::{EngineModules, ThreadStack};

/// Cache sizes that must make no difference.
const CACHE_SIZES: [usize; 5] = [0, 1, 7, 509, 2048];

/// Seeds are JSON numbers.
const MAX_SEED: u64 = (1 << 53) - 1;

/// Why a trace cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Nothing to run.
    #[error("the trace has no samples: there is nothing to replay")]
    NoSamples,
    /// Nothing to run.
    #[error("no seeds were given: expected at least one")]
    NoSeeds,
    /// A seed that JSON cannot hold.
    #[error("seed {seed} is above 2^53 - 1")]
    SeedTooLarge {
        /// The seed.
        seed: u64,
    },
    /// The engine has rules for x86_64 alone.
    #[error("the trace is of {arch}: expected x86_64")]
    Arch {
        /// The trace's architecture.
        arch: String,
    },
}

/// Replays `trace` under each seed; expected values are our own recording. See [`replay_with_goldens`].
///
/// # Errors
/// Where there is nothing to run, or a seed or architecture that is not supported.
pub fn replay(
    trace: &Trace,
    resolver: &Resolver,
    tables: &BundleTables,
    seeds: &[u64],
) -> Result<ReplayReport, ReplayError> {
    replay_with_goldens(trace, resolver, tables, seeds, &[])
}

/// Replays `trace` under each seed in every [`Class`].
///
/// `chains` are what the workload itself reported. Where there are some, the headline ratio counts the units of their
/// threads alone, and a thread whose recorded stack differs from the chain fails in every unit.
///
/// # Errors
/// Where there is nothing to run, or a seed or architecture that is not supported.
pub fn replay_with_goldens(
    trace: &Trace,
    resolver: &Resolver,
    tables: &BundleTables,
    seeds: &[u64],
    chains: &[ReportedChain],
) -> Result<ReplayReport, ReplayError> {
    if trace.samples.is_empty() {
        return Err(ReplayError::NoSamples);
    }
    if seeds.is_empty() {
        return Err(ReplayError::NoSeeds);
    }
    if let Some(seed) = seeds.iter().find(|seed| **seed > MAX_SEED) {
        return Err(ReplayError::SeedTooLarge { seed: *seed });
    }
    if trace.begin.arch != "x86_64" {
        return Err(ReplayError::Arch { arch: trace.begin.arch.clone() });
    }
    let scene = Scene::of(trace);
    let manifest = manifest_of(trace, resolver, tables, seeds, scene.snapshots.len());
    let manifest_digest = digest_of(&manifest);
    let bench = Bench { scene, tables, resolver };
    let golden = bench.results(&bench.scene, Setting::default());
    let (golden_summary, standing) = judge_goldens(&bench, chains);
    let outages = Outage::all(&bench, &golden);

    let mut tally = Tally::new(&standing, golden_summary.tier);
    for seed in seeds {
        for class in Class::ALL {
            // A panic fails all units of the class: the denominators were fixed before.
            let outcomes = catch_unwind(AssertUnwindSafe(|| run_class(&bench, &golden, &outages, class, *seed)));
            tally.add(class, *seed, &golden, outcomes.ok());
        }
    }
    let controls = controls::run(&ControlInput { bench: &bench, golden: &golden, seeds });
    Ok(tally.report(manifest, manifest_digest, golden_summary, controls, golden_digest(&golden)))
}

/// What every run needs.
pub(crate) struct Bench<'a> {
    pub(crate) scene: Scene,
    pub(crate) tables: &'a BundleTables,
    pub(crate) resolver: &'a Resolver,
}

/// What may differ between two runs without a difference in the result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) cache: usize,
    /// Whether one cache serves all stacks, and each is walked twice.
    pub(crate) warm: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self { cache: Cache::DEFAULT_CAPACITY, warm: false }
    }
}

impl Bench<'_> {
    /// The results of all snapshots of `scene`, by rising sample ordinal.
    pub(crate) fn results(&self, scene: &Scene, setting: Setting) -> Vec<Canonical> {
        results_with(scene, self.tables, self.resolver, setting)
    }
}

/// The results of all snapshots, by rising sample ordinal whatever their order in the scene.
pub(crate) fn results_with(
    scene: &Scene,
    tables: &BundleTables,
    resolver: &Resolver,
    setting: Setting,
) -> Vec<Canonical> {
    let resolver = tables.equip(resolver, setting.cache);
    let map = scene.module_map();
    let modules = EngineModules::of(scene, tables);
    let mut shared = Cache::with_capacity(setting.cache);
    let mut results: Vec<(u32, Canonical)> = Vec::with_capacity(scene.snapshots.len());
    for snapshot in &scene.snapshots {
        let stack = if setting.warm {
            modules.walk(snapshot, &mut shared);
            modules.walk(snapshot, &mut shared)
        } else {
            modules.walk(snapshot, &mut Cache::with_capacity(setting.cache))
        };
        let names = name_stack(&stack, &map, &resolver);
        results.push((snapshot.sample, Canonical::of(scene, snapshot, &stack, &names)));
    }
    results.sort_by_key(|(sample, _)| *sample);
    results.into_iter().map(|(_, result)| result).collect()
}

/// What one unit gave: the expected value and the found one.
pub(crate) struct Outcome {
    pub(crate) passed: bool,
    pub(crate) expected: Canonical,
    pub(crate) found: Canonical,
}

impl Outcome {
    pub(crate) fn of(expected: Canonical, found: Canonical) -> Self {
        Self { passed: expected.bytes() == found.bytes(), expected, found }
    }
}

/// The outcomes of all stacks under one seed and class, by rising sample ordinal.
fn run_class(bench: &Bench<'_>, golden: &[Canonical], outages: &[Outage], class: Class, seed: u64) -> Vec<Outcome> {
    let mut rng = SplitMix64::new(seed, class.stream());
    let scene = &bench.scene;
    let against_golden = |found: Vec<Canonical>| {
        golden.iter().cloned().zip(found).map(|(expected, found)| Outcome::of(expected, found)).collect()
    };
    match class {
        Class::RelocateModules => {
            against_golden(bench.results(&relocate(scene, seed, Parts::MODULES), Setting::default()))
        }
        Class::RelocateStacks => {
            against_golden(bench.results(&relocate(scene, seed, Parts::STACKS), Setting::default()))
        }
        Class::Order => {
            against_golden(bench.results(&shuffled(scene, &mut rng), Setting { warm: true, ..Setting::default() }))
        }
        Class::Caches => caches(bench, golden, &mut rng),
        Class::Combined => {
            let moved = shuffled(&relocate(scene, seed, Parts::ALL), &mut rng);
            against_golden(bench.results(&moved, drawn_setting(&mut rng)))
        }
        Class::Truncation => truncate::run(bench, golden, &mut rng),
        Class::Outage => {
            let moved = shuffled(&relocate(scene, seed, Parts::ALL), &mut rng);
            Outage::run(outages, bench, golden, &moved, &mut rng)
        }
    }
}

/// Every size, cold and warm, in another order of stacks each time; the first result that differs counts.
fn caches(bench: &Bench<'_>, golden: &[Canonical], rng: &mut SplitMix64) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> =
        golden.iter().map(|expected| Outcome::of(expected.clone(), expected.clone())).collect();
    for cache in CACHE_SIZES {
        for warm in [false, true] {
            let found = bench.results(&shuffled(&bench.scene, rng), Setting { cache, warm });
            for (outcome, found) in outcomes.iter_mut().zip(found) {
                if outcome.passed {
                    *outcome = Outcome::of(outcome.expected.clone(), found);
                }
            }
        }
    }
    outcomes
}

fn drawn_setting(rng: &mut SplitMix64) -> Setting {
    let at = rng.below(CACHE_SIZES.len() as u64) as usize;
    Setting { cache: CACHE_SIZES.get(at).copied().unwrap_or(0), warm: rng.below(2) == 1 }
}

/// The scene with modules and stacks in another order.
fn shuffled(scene: &Scene, rng: &mut SplitMix64) -> Scene {
    let mut shuffled = scene.clone();
    rng.shuffle(&mut shuffled.modules);
    rng.shuffle(&mut shuffled.snapshots);
    shuffled
}

fn manifest_of(trace: &Trace, resolver: &Resolver, tables: &BundleTables, seeds: &[u64], stacks: usize) -> Manifest {
    Manifest {
        trace_digest: trace_digest(trace),
        unwind_tables: tables.digests(),
        code: tables.code_digests(),
        bundle: resolver.bundle_digest(),
        seeds: seeds.to_vec(),
        classes: Class::ALL.to_vec(),
        stacks: stacks as u64,
        units: (stacks * seeds.len() * Class::ALL.len()) as u64,
        verifier_version: crate::VERIFIER_VERSION.to_string(),
    }
}

/// SHA-256 over what the replay depends on: modules and samples, without ids, times and what followed them.
fn trace_digest(trace: &Trace) -> Digest {
    let mut hasher = Hasher::default();
    // Our own types always have a JSON form; were one to fail, its absence would change the digest.
    for module in &trace.modules {
        hasher.update(&serde_json::to_vec(module).unwrap_or_default());
        hasher.update(b"\n");
    }
    for code in &trace.code {
        hasher.update(&serde_json::to_vec(code).unwrap_or_default());
        hasher.update(b"\n");
    }
    for function in &trace.jit {
        hasher.update(&serde_json::to_vec(function).unwrap_or_default());
        hasher.update(b"\n");
    }
    for sample in &trace.samples {
        hasher.update(&serde_json::to_vec(sample).unwrap_or_default());
        hasher.update(b"\n");
    }
    hasher.finish().0
}

fn digest_of(manifest: &Manifest) -> Digest {
    Digest::of(&serde_json::to_vec(manifest).unwrap_or_default())
}

fn golden_digest(golden: &[Canonical]) -> Digest {
    let mut hasher = Hasher::default();
    for result in golden {
        hasher.update(&result.bytes());
        hasher.update(b"\n");
    }
    hasher.finish().0
}

/// Whether each stack has a reported chain, and agrees with it: `None` where there is none.
type Standing = Vec<Option<bool>>;

fn judge_goldens(bench: &Bench<'_>, chains: &[ReportedChain]) -> (GoldenSummary, Standing) {
    let modules = EngineModules::of(&bench.scene, bench.tables);
    let mut summary = GoldenSummary {
        tier: GoldenTier::OwnRecording,
        self_reported: 0,
        agreeing: 0,
        own_recording: 0,
        disagreeing: Vec::new(),
    };
    let mut standing = Vec::new();
    for snapshot in &bench.scene.snapshots {
        let Some(chain) = chains.iter().find(|chain| chain.thread == snapshot.thread) else {
            summary.own_recording += 1;
            standing.push(None);
            continue;
        };
        let stack = modules.walk(snapshot, &mut Cache::new());
        let missing = chain.first_difference(&stack);
        summary.self_reported += 1;
        summary.tier = GoldenTier::SelfReported;
        match missing {
            None => summary.agreeing += 1,
            Some(frame) => summary.disagreeing.push(Disagreement {
                thread: snapshot.thread,
                sample: snapshot.sample,
                frame: frame as u64,
            }),
        }
        standing.push(Some(missing.is_none()));
    }
    (summary, standing)
}

/// Counts of units: of all, and of the headline.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    units: u64,
    passed: u64,
}

impl Count {
    fn add(&mut self, passed: bool) {
        self.units += 1;
        self.passed += u64::from(passed);
    }
}

struct Tally<'a> {
    standing: &'a Standing,
    tier: GoldenTier,
    headline: BTreeMap<(Class, u64), Count>,
    all: BTreeMap<Class, Count>,
    mismatches: Vec<Mismatch>,
    seeds: Vec<u64>,
}

impl<'a> Tally<'a> {
    fn new(standing: &'a Standing, tier: GoldenTier) -> Self {
        Self {
            standing,
            tier,
            headline: BTreeMap::new(),
            all: BTreeMap::new(),
            mismatches: Vec::new(),
            seeds: Vec::new(),
        }
    }

    /// `outcomes` is none where the run did not finish.
    fn add(&mut self, class: Class, seed: u64, golden: &[Canonical], outcomes: Option<Vec<Outcome>>) {
        if self.seeds.last() != Some(&seed) {
            self.seeds.push(seed);
        }
        let outcomes = outcomes.unwrap_or_default();
        for (at, standing) in self.standing.iter().enumerate() {
            let outcome = outcomes.get(at);
            let stable = outcome.is_some_and(|outcome| outcome.passed);
            self.all.entry(class).or_default().add(stable);
            let counts = match (self.tier, standing) {
                (GoldenTier::SelfReported, None) => None,
                (GoldenTier::SelfReported, Some(agrees)) => Some(*agrees && stable),
                (GoldenTier::OwnRecording, _) => Some(stable),
            };
            if let Some(passed) = counts {
                self.headline.entry((class, seed)).or_default().add(passed);
            }
            if !stable && self.mismatches.len() < MAX_MISMATCHES_LISTED {
                self.mismatches.push(mismatch(class, seed, at, golden, outcome));
            }
        }
    }

    fn report(
        self,
        manifest: Manifest,
        manifest_digest: Digest,
        golden: GoldenSummary,
        controls: crate::report::Controls,
        golden_digest: Digest,
    ) -> ReplayReport {
        let class_result = |class: Class| {
            let of_class = self.headline.iter().filter(|((other, _), _)| *other == class);
            let sum = of_class.fold(Count::default(), |sum, (_, count)| Count {
                units: sum.units + count.units,
                passed: sum.passed + count.passed,
            });
            ClassResult {
                class,
                units: sum.units,
                passed: sum.passed,
                ratio: ratio(sum.passed, sum.units),
                wilson_lower: wilson_lower(sum.passed, sum.units),
            }
        };
        let classes: Vec<ClassResult> = Class::ALL.into_iter().map(class_result).collect();
        let seeds = self.seeds.iter().map(|seed| {
            let of_seed: Vec<Count> =
                self.headline.iter().filter(|((_, other), _)| other == seed).map(|(_, count)| *count).collect();
            SeedResult {
                seed: *seed,
                units: of_seed.iter().map(|count| count.units).sum(),
                passed: of_seed.iter().map(|count| count.passed).sum(),
                replay_success_ratio: smallest(of_seed.iter().map(|count| ratio(count.passed, count.units))),
            }
        });
        ReplayReport {
            manifest,
            manifest_digest,
            golden,
            replay_success_ratio: smallest(classes.iter().map(|class| class.ratio)),
            replay_stability_ratio: smallest(self.all.values().map(|count| ratio(count.passed, count.units))),
            seeds: seeds.collect(),
            classes,
            controls,
            mismatches: self.mismatches,
            golden_digest,
        }
    }
}

fn smallest(ratios: impl Iterator<Item = f64>) -> f64 {
    ratios.reduce(f64::min).unwrap_or(0.0)
}

fn mismatch(class: Class, seed: u64, at: usize, golden: &[Canonical], outcome: Option<&Outcome>) -> Mismatch {
    let place = golden.get(at).map_or((0, 0), |golden| (golden.thread, golden.sample));
    let (depth, expected, found) = match outcome {
        Some(outcome) => outcome
            .expected
            .difference(&outcome.found)
            .unwrap_or_else(|| (0, "a label that says what was lost".to_string(), "none".to_string())),
        None => (0, "a result".to_string(), "the run did not finish".to_string()),
    };
    Mismatch { class, seed, thread: place.0, sample: place.1, depth: depth as u64, expected, found }
}

/// The debug ids of the modules that the stacks run through.
pub(crate) fn modules_in_use(bench: &Bench<'_>) -> Vec<DebugId> {
    let modules = EngineModules::of(&bench.scene, bench.tables);
    let stacks = bench.scene.snapshots.iter().map(|snapshot| modules.walk(snapshot, &mut Cache::new()));
    let frames: Vec<ThreadStack> = stacks.collect();
    let indices = frames.iter().flat_map(|stack| stack.frames.iter().filter_map(|frame| frame.module));
    let ids = indices.filter_map(|index| bench.scene.modules.get(index as usize)?.debug_id.clone());
    let mut ids: Vec<DebugId> = ids.collect();
    ids.sort();
    ids.dedup();
    ids
}
