//! The transform: the same process, laid out elsewhere.
//!
//! Modules get new page-aligned bases in another order and with other gaps; stacks get new bases, equal
//! modulo 16. Every register and every aligned stack word that points into a module or a stack mapping is
//! moved along. That is conservative: an integer that merely looks like such a pointer is moved as well,
//! and the engine must not mind.

use symseal_unwind::frame_pointer_of;

use crate::rng::SplitMix64;
use crate::scene::{Ranges, Scene, SceneModule, Segment, Snapshot};

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
    pub(crate) const ALL: Self = Self { modules: true, stacks: true, rewrite_words: true };
    pub(crate) const MODULES: Self = Self { stacks: false, ..Self::ALL };
    pub(crate) const STACKS: Self = Self { modules: false, ..Self::ALL };
    pub(crate) const WITHOUT_REWRITING: Self = Self { rewrite_words: false, ..Self::ALL };
}

/// A stretch of address space and how far it is moved, wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moved {
    start: u64,
    end: u64,
    delta: u64,
}

impl Moved {
    /// Where it is in the new layout.
    fn target(&self) -> (u64, u64) {
        (self.start.wrapping_add(self.delta), self.end.wrapping_add(self.delta))
    }
}

/// Stretches that do not overlap, and where to find the one that a pointer points into.
#[derive(Debug, Clone, Default)]
struct Group {
    stretches: Vec<Moved>,
    ranges: Ranges,
}

impl Group {
    fn new(stretches: Vec<Moved>) -> Self {
        let ranges = Ranges::new(stretches.iter().map(|moved| (moved.start, moved.end)));
        Self { stretches, ranges }
    }

    fn delta_of_pointer(&self, value: u64) -> Option<u64> {
        self.stretches.get(self.ranges.pointed_into(value)?).map(|moved| moved.delta)
    }

    fn delta_of_byte(&self, address: u64) -> Option<u64> {
        self.stretches.get(self.ranges.holding(address)?).map(|moved| moved.delta)
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
    modules: Group,
    /// For each snapshot its stack mappings.
    stacks: Vec<Group>,
}

impl Layout {
    fn draw(scene: &Scene, mut rng: SplitMix64, parts: Parts) -> Self {
        let mut modules: Vec<Moved> =
            scene.modules.iter().map(|module| Moved { start: module.start, end: module.end, delta: 0 }).collect();
        let ranges = scene.module_ranges();
        let mut stacks: Vec<Vec<Moved>> =
            scene.snapshots.iter().map(|snapshot| stack_mappings(snapshot, &ranges)).collect();
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
        Self { modules: Group::new(modules), stacks: stacks.into_iter().map(Group::new).collect() }
    }

    /// Where a value of snapshot `at` is moved by; `None` for what points into nothing that is known.
    fn delta(&self, at: usize, value: u64) -> Option<u64> {
        // A mark stays where it is.
        let value = frame_pointer_of(value);
        let in_stack = || self.stacks.get(at)?.delta_of_pointer(value);
        self.modules.delta_of_pointer(value).or_else(in_stack)
    }

    /// Whether a word that stays as it is would point into something in the new layout.
    fn is_hit_by_accident(&self, scene: &Scene) -> bool {
        let stacks = self.stacks.iter().flat_map(|group| &group.stretches);
        let targets = Ranges::new(self.modules.stretches.iter().chain(stacks).map(Moved::target));
        scene.snapshots.iter().enumerate().any(|(at, snapshot)| {
            let mut values = snapshot.registers.values().copied().chain(snapshot.stack_words());
            values
                .any(|value| targets.pointed_into(frame_pointer_of(value)).is_some() && self.delta(at, value).is_none())
        })
    }

    fn apply(&self, scene: &Scene, parts: Parts) -> Scene {
        let modules = scene.modules.iter().zip(&self.modules.stretches).map(|(module, moved)| SceneModule {
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
        Scene { modules: modules.collect(), made: scene.made.clone(), snapshots: snapshots.collect() }
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
        let in_stack = || self.stacks.get(at)?.delta_of_byte(segment.start);
        self.modules.delta_of_byte(segment.start).or_else(in_stack).unwrap_or(0)
    }
}

/// The stack mappings of a snapshot, joined where they touch. Those within a module move with it.
fn stack_mappings(snapshot: &Snapshot, modules: &Ranges) -> Vec<Moved> {
    let mut mappings: Vec<Moved> = Vec::new();
    let mut sorted: Vec<&Segment> = snapshot.segments.iter().collect();
    sorted.sort_by_key(|segment| segment.mapping);
    for segment in sorted {
        if modules.holding(segment.start).is_some() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use symseal_module::Svma;

    /// A scene that no process would have all at once: touching modules, an alternate stack in a module's data, stacks
    /// right above a module, words of every kind.
    fn scene(seed: u64) -> Scene {
        let mut rng = SplitMix64::new(seed, 1000);
        let mut cursor = 0x5555_0000_0000 + rng.below(1 << 20) * PAGE;
        let mut modules = Vec::new();
        for number in 0..1 + rng.below(12) {
            cursor += rng.below(3) * PAGE;
            let end = cursor + (1 + rng.below(64)) * PAGE;
            modules.push(SceneModule {
                path: format!("/lib/{number}"),
                debug_id: format!("{:02x}", number + 1).parse().ok(),
                start: cursor,
                end,
                bias: cursor.wrapping_sub(0x40_0000),
                image_base: Svma(0x40_0000),
                image: None,
            });
            cursor = end;
        }
        let snapshots = (0..1 + rng.below(5) as u32).map(|sample| {
            let size = (1 + rng.below(4)) * PAGE;
            let mapping = (cursor, cursor + size + PAGE);
            let start = cursor + rng.below(PAGE / 8) * 8;
            cursor = mapping.1 + rng.below(2) * PAGE;
            let mut segments = vec![Segment { start, mapping, bytes: vec![0; size as usize / 2] }];
            if rng.below(2) == 0 {
                let module: &SceneModule = &modules[rng.below(modules.len() as u64) as usize];
                let start = module.start + 64;
                segments.push(Segment { start, mapping: (module.start, module.end), bytes: vec![0; 256] });
            }
            let targets: Vec<(u64, u64)> = modules
                .iter()
                .map(|module| (module.start, module.end))
                .chain(segments.iter().map(|segment| segment.mapping))
                .collect();
            for segment in &mut segments {
                for word in segment.bytes.as_chunks_mut::<8>().0 {
                    let (low, high) = targets[rng.below(targets.len() as u64) as usize];
                    let value = match rng.below(4) {
                        0 => low + rng.below(high - low + 1),
                        1 => rng.below(1 << 20),
                        2 => rng.next_u64() | 1 << 63,
                        _ => 0,
                    };
                    *word = value.to_le_bytes();
                }
            }
            let registers = BTreeMap::from([
                ("rip".to_string(), modules[0].start + 5),
                ("rsp".to_string(), start + 16),
                ("rbp".to_string(), rng.next_u64()),
            ]);
            Snapshot { thread: sample, thread_name: String::new(), sample, registers, segments }
        });
        let snapshots = snapshots.collect();
        Scene { modules, made: Vec::new(), snapshots }
    }

    /// What a word means, in terms that do not depend on the layout.
    fn meaning(scene: &Scene, snapshot: &Snapshot, value: u64) -> String {
        if let Some(module) = scene.module_ranges().pointed_into(value) {
            return format!("module {module} + {:#x}", value - scene.modules[module].start);
        }
        let segments = snapshot.segments.iter().position(|s| s.mapping.0 <= value && value <= s.mapping.1);
        match segments {
            Some(at) => format!("stack {at} + {:#x}", value - snapshot.segments[at].mapping.0),
            None => format!("{value:#x}"),
        }
    }

    fn meanings(scene: &Scene) -> Vec<Vec<String>> {
        let of = |snapshot: &Snapshot| {
            let values = snapshot.registers.values().copied().chain(snapshot.stack_words());
            values.map(|value| meaning(scene, snapshot, value)).collect()
        };
        scene.snapshots.iter().map(of).collect()
    }

    #[test]
    fn every_word_means_the_same_in_the_new_layout() {
        for seed in 0..200 {
            let before = scene(seed);
            for parts in [Parts::MODULES, Parts::STACKS, Parts::ALL] {
                let after = relocate(&before, seed, parts);
                assert_eq!(meanings(&before), meanings(&after), "seed {seed}, {parts:?}");
            }
        }
    }

    #[test]
    fn bases_keep_their_alignment_and_nothing_overlaps() {
        for seed in 0..200 {
            let before = scene(seed);
            let after = relocate(&before, seed, Parts::ALL);
            for (old, new) in before.modules.iter().zip(&after.modules) {
                assert_eq!((new.end - new.start, new.start % PAGE), (old.end - old.start, old.start % PAGE));
                assert_ne!(new.start, old.start);
                assert_eq!(new.start.wrapping_sub(new.bias), old.start.wrapping_sub(old.bias));
            }
            let mut ranges: Vec<(u64, u64)> = after.modules.iter().map(|module| (module.start, module.end)).collect();
            for (old, new) in before.snapshots.iter().zip(&after.snapshots) {
                assert_eq!(new.registers["rsp"] % STACK_ALIGNMENT, old.registers["rsp"] % STACK_ALIGNMENT);
                ranges.push(new.segments[0].mapping);
            }
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "seed {seed}: {ranges:x?}");
            assert!(ranges.iter().all(|(_, end)| *end < 1 << 47));
        }
    }

    #[test]
    fn a_seed_gives_one_layout_and_other_seeds_give_others() {
        let before = scene(3);
        assert_eq!(relocate(&before, 42, Parts::ALL), relocate(&before, 42, Parts::ALL));
        assert_ne!(relocate(&before, 42, Parts::ALL), relocate(&before, 43, Parts::ALL));
        let order = |scene: &Scene| {
            let mut order: Vec<usize> = (0..scene.modules.len()).collect();
            order.sort_by_key(|at| scene.modules[*at].start);
            order
        };
        assert!((0..20).any(|seed| order(&relocate(&before, seed, Parts::ALL)) != order(&before)));
    }

    #[test]
    fn without_rewriting_the_words_stay() {
        let before = scene(5);
        let after = relocate(&before, 5, Parts::WITHOUT_REWRITING);
        for (old, new) in before.snapshots.iter().zip(&after.snapshots) {
            assert!(old.stack_words().eq(new.stack_words()));
            assert_ne!(old.registers["rip"], new.registers["rip"]);
            assert_eq!(old.registers["rbp"], new.registers["rbp"]);
        }
    }

    #[test]
    fn addresses_at_the_ends_of_the_address_space_do_not_overflow() {
        let mut odd = scene(1);
        odd.modules[0].end = u64::MAX;
        odd.snapshots[0].segments[0] = Segment { start: u64::MAX - 7, mapping: (0, u64::MAX), bytes: vec![0xff; 64] };
        for seed in 0..20 {
            let _ = relocate(&odd, seed, Parts::ALL);
        }
    }
}
