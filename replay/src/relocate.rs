//! The transform: the same process, laid out elsewhere.
//!
//! Modules get new page-aligned bases in another order and with other gaps; stacks get new bases, equal
//! modulo 16. Every register and every aligned stack word that points into a module or a stack mapping is
//! moved along. That is conservative: an integer that merely looks like such a pointer is moved as well,
//! and the engine must not mind.

use crate::rng::SplitMix64;
use crate::scene::{Scene, SceneModule, Segment, Snapshot};

/// Granularity of module bases.
const PAGE: u64 = 4096;
/// What the x86_64 ABI aligns stacks to.
const STACK_ALIGNMENT: u64 = 16;
/// Gaps between what is laid out, in pages: at least one, so that the first address after a module is the
/// beginning of no other.
const MAX_GAP_PAGES: u64 = 1 << 16;
/// The lowest and highest page that a layout begins at; the rest of the 47 bits is room for gaps.
const FIRST_PAGE: u64 = 0x10_0000;
const LAST_FIRST_PAGE: u64 = 0x3_0000_0000;
/// Layouts tried until no unrelated word points into one.
const LAYOUT_TRIES: u64 = 64;

/// Which parts are laid out anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) modules: bool,
    pub(crate) stacks: bool,
    /// Whether words and registers are moved along; only a negative control leaves it out.
    pub(crate) rewrite_words: bool,
}

impl Parts {
    pub(crate) const MODULES: Self = Self { modules: true, stacks: false, rewrite_words: true };
    pub(crate) const STACKS: Self = Self { modules: false, stacks: true, rewrite_words: true };
    pub(crate) const ALL: Self = Self { modules: true, stacks: true, rewrite_words: true };
    pub(crate) const WITHOUT_REWRITING: Self = Self { modules: true, stacks: true, rewrite_words: false };
}

/// A stretch of address space and how far it is moved, wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moved {
    start: u64,
    end: u64,
    delta: u64,
}

impl Moved {
    /// The end belongs to it: a call that never returns may be the last instruction of a module, and the
    /// frame address of the outermost frame may be the end of its stack.
    fn holds(&self, address: u64) -> bool {
        self.start <= address && address <= self.end
    }
}

/// The same scene, elsewhere.
pub(crate) fn relocate(scene: &Scene, seed: u64, parts: Parts) -> Scene {
    let mut layout = Layout::draw(scene, SplitMix64::new(seed, 0), parts);
    for attempt in 1..LAYOUT_TRIES {
        if !layout.is_hit_by_accident(scene) {
            break;
        }
        layout = Layout::draw(scene, SplitMix64::new(seed, attempt), parts);
    }
    layout.apply(scene, parts)
}

struct Layout {
    modules: Vec<Moved>,
    /// For each snapshot its stack mappings.
    stacks: Vec<Vec<Moved>>,
}

impl Layout {
    fn draw(scene: &Scene, mut rng: SplitMix64, parts: Parts) -> Self {
        let mut modules: Vec<Moved> =
            scene.modules.iter().map(|module| Moved { start: module.start, end: module.end, delta: 0 }).collect();
        let mut stacks: Vec<Vec<Moved>> =
            scene.snapshots.iter().map(|snapshot| stack_mappings(snapshot, &scene.modules)).collect();
        // All that moves, in a random order, one after the other.
        let mut moving: Vec<(&mut Moved, u64)> = Vec::new();
        if parts.modules {
            moving.extend(modules.iter_mut().map(|moved| (moved, PAGE)));
        }
        if parts.stacks {
            moving.extend(stacks.iter_mut().flatten().map(|moved| (moved, STACK_ALIGNMENT)));
        }
        rng.shuffle(&mut moving);
        let mut cursor = (FIRST_PAGE + rng.below(LAST_FIRST_PAGE - FIRST_PAGE)) * PAGE;
        for (moved, alignment) in moving {
            cursor = cursor.wrapping_add((1 + rng.below(MAX_GAP_PAGES)) * PAGE);
            // What lies below the alignment stays as it is.
            let sub_page = rng.below(PAGE / alignment) * alignment;
            let target = cursor.wrapping_add(sub_page).wrapping_add(moved.start % alignment);
            moved.delta = target.wrapping_sub(moved.start);
            let size = moved.end.wrapping_sub(moved.start);
            cursor = target.wrapping_add(size).wrapping_add(PAGE) / PAGE * PAGE;
        }
        Self { modules, stacks }
    }

    /// Where a value of snapshot `at` is moved by; `None` for what points into nothing that is known.
    fn delta(&self, at: usize, value: u64) -> Option<u64> {
        let stacks = self.stacks.get(at).into_iter().flatten();
        self.modules.iter().chain(stacks).find(|moved| moved.holds(value)).map(|moved| moved.delta)
    }

    /// Whether a word that stays as it is would point into something in the new layout.
    fn is_hit_by_accident(&self, scene: &Scene) -> bool {
        let everything = || self.modules.iter().chain(self.stacks.iter().flatten());
        let lowest = everything().map(|moved| moved.start.wrapping_add(moved.delta)).min().unwrap_or(u64::MAX);
        let highest = everything().map(|moved| moved.end.wrapping_add(moved.delta)).max().unwrap_or(0);
        scene.snapshots.iter().enumerate().any(|(at, snapshot)| {
            snapshot.registers.values().copied().chain(snapshot.stack_words()).any(|value| {
                let new = |moved: &Moved| Moved {
                    start: moved.start.wrapping_add(moved.delta),
                    end: moved.end.wrapping_add(moved.delta),
                    delta: 0,
                };
                (lowest..=highest).contains(&value)
                    && self.delta(at, value).is_none()
                    && everything().any(|moved| new(moved).holds(value))
            })
        })
    }

    fn apply(&self, scene: &Scene, parts: Parts) -> Scene {
        let modules = scene.modules.iter().zip(&self.modules).map(|(module, moved)| SceneModule {
            start: module.start.wrapping_add(moved.delta),
            end: module.end.wrapping_add(moved.delta),
            bias: module.bias.wrapping_add(moved.delta),
            ..module.clone()
        });
        let snapshots = scene.snapshots.iter().enumerate().map(|(at, snapshot)| {
            let rewrite = |value: u64| match self.delta(at, value) {
                Some(delta) if parts.rewrite_words => value.wrapping_add(delta),
                _ => value,
            };
            self.apply_to(at, snapshot, rewrite, parts)
        });
        Scene { modules: modules.collect(), snapshots: snapshots.collect() }
    }

    fn apply_to(&self, at: usize, snapshot: &Snapshot, rewrite: impl Fn(u64) -> u64, parts: Parts) -> Snapshot {
        let registers = snapshot.registers.iter().map(|(name, value)| {
            // Without rewriting, pc and sp are still moved: otherwise nothing at all would be found, and
            // the control would show less than it claims.
            let moved = match (parts.rewrite_words, name.as_str()) {
                (false, "rip" | "rsp") => value.wrapping_add(self.delta(at, *value).unwrap_or(0)),
                _ => rewrite(*value),
            };
            (name.clone(), moved)
        });
        let segments = snapshot.segments.iter().map(|segment| {
            let delta = self.segment_delta(at, segment);
            Segment {
                start: segment.start.wrapping_add(delta),
                mapping: (segment.mapping.0.wrapping_add(delta), segment.mapping.1.wrapping_add(delta)),
                bytes: rewrite_words(segment, &rewrite),
            }
        });
        Snapshot { registers: registers.collect(), segments: segments.collect(), ..snapshot.clone() }
    }

    /// A segment lies in a module or in a stack mapping; here ends do not count.
    fn segment_delta(&self, at: usize, segment: &Segment) -> u64 {
        let stacks = self.stacks.get(at).into_iter().flatten();
        let mut all = self.modules.iter().chain(stacks);
        let around = all.find(|moved| moved.start <= segment.start && segment.start < moved.end);
        around.map_or(0, |moved| moved.delta)
    }
}

/// The stack mappings of a snapshot, joined where they touch. Those within a module move with it.
fn stack_mappings(snapshot: &Snapshot, modules: &[SceneModule]) -> Vec<Moved> {
    let mut mappings: Vec<Moved> = Vec::new();
    let mut sorted: Vec<&Segment> = snapshot.segments.iter().collect();
    sorted.sort_by_key(|segment| segment.mapping);
    for segment in sorted {
        if modules.iter().any(|module| module.start <= segment.start && segment.start < module.end) {
            continue;
        }
        let (start, end) = segment.mapping;
        match mappings.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => mappings.push(Moved { start, end, delta: 0 }),
        }
    }
    mappings
}

fn rewrite_words(segment: &Segment, rewrite: impl Fn(u64) -> u64) -> Vec<u8> {
    let mut bytes = segment.bytes.clone();
    let skip = usize::try_from(segment.start.wrapping_neg() % 8).unwrap_or(0);
    let (words, _) = bytes.get_mut(skip..).unwrap_or_default().as_chunks_mut::<8>();
    for word in words {
        *word = rewrite(u64::from_le_bytes(*word)).to_le_bytes();
    }
    bytes
}
