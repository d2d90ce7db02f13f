//! The class "truncation": a copied stack that ends early.
//!
//! What must come out is fixed beforehand: the frames for which the complete walk read no word beyond the
//! cut, and then the stop `truncated-stack`. Four liberties: the engine may give further frames of the complete
//! result, for it reads some words before it knows whether it needs them, and where the stack itself is complete, all or some of those that wait for it; the frame address of the last frame may be
//! unknown, where it was to be read from the lost part; and where no rule covers the last frame, the engine may say
//! that instead, for then it does not know what it would have read; and where the complete walk went on to a goroutine, the engine
//! may go on along the thread's own stack, for what leads to the goroutine may be lost.

use symseal_module::{StopReason, UnwindMethod};
use symseal_unwind::{Cache, Frame, Modules, Options, unwind_with};

use crate::canonical::{Canonical, CanonicalFrame, UNKNOWN};
use crate::replay::{Bench, Outcome};
use crate::resolve::name_stack;
use crate::rng::SplitMix64;
use crate::scene::{Scene, Snapshot, Watched};
use crate::walk::{EngineModules, ends_for_want_of_a_rule};

/// Bytes in a word of the stack.
const WORD: u64 = 8;

pub(crate) fn run(bench: &Bench<'_>, golden: &[Canonical], rng: &mut SplitMix64) -> Vec<Outcome> {
    let modules = EngineModules::of(&bench.scene, bench.tables);
    let map = bench.scene.module_map();
    let resolver = bench.tables.equip(bench.resolver, bench.resolver.options().address_cache);
    let mut outcomes = Vec::new();
    for (snapshot, golden) in bench.scene.snapshots.iter().zip(golden) {
        let (_, (walked, options)) = modules.walk_in_its_way(snapshot, &mut Cache::new());
        let reads = Reads { modules: walked, options, snapshot };
        let cut = draw_cut(snapshot, &reads.of(golden.frames.len()), rng);
        let mut expected = expected_after(&reads, golden, &cut);
        let shortened = cut.apply(snapshot);
        let stack = modules.walk(&shortened, &mut Cache::new());
        // Places are told relative to the whole scene: the cut stack lies where it lay.
        let scene = Scene { snapshots: Vec::new(), ..bench.scene.clone() };
        let found = Canonical::of(&scene, snapshot, &stack, &name_stack(&stack, &map, &resolver));
        take_liberties(&mut expected, &found, golden);
        outcomes.push(Outcome::of(expected, found));
    }
    outcomes
}

fn take_liberties(expected: &mut Canonical, found: &Canonical, golden: &Canonical) {
    if expected.stop != StopReason::TruncatedStack || found.frames.len() < expected.frames.len() {
        return;
    }
    let known = expected.frames.len();
    let rest = found.frames.get(known..).unwrap_or_default();
    let is_switch = |frame: &CanonicalFrame| frame.method == UnwindMethod::GoroutineSwitch;
    if golden.frames.get(known).is_some_and(is_switch) && !rest.iter().any(is_switch) {
        // How far the last frame's stack reaches is told by its rule, and not by the goroutine, either.
        if let Some((last, same)) = expected.frames.last_mut().zip(found.frames.get(known.saturating_sub(1))) {
            last.cfa = same.cfa.clone();
        }
        expected.frames.extend(rest.iter().cloned());
        expected.stop = found.stop;
        return;
    }
    expected.frames.extend(golden.frames.iter().take(found.frames.len()).skip(expected.frames.len()).cloned());
    // The stack is there; of what waits for it nobody knows how much there is.
    if expected.frames.len() >= physical(golden) && found.stop == golden.stop {
        expected.stop = golden.stop;
        return;
    }
    if let (Some(last), Some(found)) = (expected.frames.last_mut(), found.frames.last())
        && found.cfa == UNKNOWN
    {
        last.cfa = found.cfa.clone();
    }
    let next_by_rule = golden.frames.get(expected.frames.len()).is_some_and(|next| {
        !matches!(
            next.method,
            UnwindMethod::FramePointer | UnwindMethod::Leaf | UnwindMethod::NullCall | UnwindMethod::Scan
        )
    });
    if ends_for_want_of_a_rule(found.stop) && !next_by_rule {
        expected.stop = found.stop;
    }
}

/// How many frames are on the stack.
fn physical(result: &Canonical) -> usize {
    result.frames.iter().position(|frame| frame.method.is_logical()).unwrap_or(result.frames.len())
}

/// Where a copied stack is made to end.
struct Cut {
    segment: usize,
    bytes: usize,
    /// The first address that is gone, and the end of what was there.
    gone: (u64, u64),
}

impl Cut {
    fn apply(&self, snapshot: &Snapshot) -> Snapshot {
        let mut shortened = snapshot.clone();
        if let Some(segment) = shortened.segments.get_mut(self.segment) {
            segment.bytes.truncate(self.bytes);
        }
        shortened
    }

    /// Whether a word at `address` was there and is not any more.
    fn takes(&self, address: u64) -> bool {
        let end = address.saturating_add(WORD);
        address < self.gone.1 && end > self.gone.0 && end <= self.gone.1
    }
}

/// A cut at a random word, within the part that the complete walk read, so that it mostly matters.
fn draw_cut(snapshot: &Snapshot, reads: &[u64], rng: &mut SplitMix64) -> Cut {
    let segment = rng.below(snapshot.segments.len() as u64) as usize;
    let Some(chosen) = snapshot.segments.get(segment) else {
        return Cut { segment, bytes: 0, gone: (0, 0) };
    };
    let end = chosen.start.saturating_add(chosen.bytes.len() as u64);
    let inside = reads.iter().filter(|address| chosen.start <= **address && **address < end);
    let used = inside.map(|address| (address - chosen.start).saturating_add(WORD)).max().unwrap_or(0);
    let bytes = (rng.below(used / WORD + 1) * WORD).min(chosen.bytes.len() as u64);
    Cut { segment, bytes: bytes as usize, gone: (chosen.start.saturating_add(bytes), end) }
}

/// The words that a walk reads.
struct Reads<'a> {
    modules: &'a Modules<'a>,
    options: Options,
    snapshot: &'a Snapshot,
}

impl Reads<'_> {
    /// The addresses that are read on the way out from the first `steps` frames: what tells all frames up to the one
    /// after them.
    fn of(&self, steps: usize) -> Vec<u64> {
        let registers = self.snapshot.engine_registers();
        let mut frames = vec![Frame::EMPTY; steps];
        self.snapshot.with_memory(|memory| {
            let watched = Watched { memory, reads: Default::default() };
            unwind_with(self.modules, &registers, &watched, &mut Cache::with_capacity(0), &mut frames, self.options);
            watched.reads.into_inner()
        })
    }

    fn touch(&self, steps: usize, cut: &Cut) -> bool {
        self.of(steps).iter().any(|address| cut.takes(*address))
    }
}

fn expected_after(reads: &Reads<'_>, golden: &Canonical, cut: &Cut) -> Canonical {
    if !reads.touch(golden.frames.len(), cut) {
        return golden.clone();
    }
    // The more steps, the more reads: the largest number of steps that needs none of the lost words.
    let (mut fits, mut fails) = (0, golden.frames.len());
    while fits + 1 < fails {
        let middle = fits.midpoint(fails);
        if reads.touch(middle, cut) {
            fails = middle;
        } else {
            fits = middle;
        }
    }
    let frames = golden.frames.iter().take(fits + 1).cloned().collect();
    Canonical { frames, stop: StopReason::TruncatedStack, ..golden.clone() }
}
