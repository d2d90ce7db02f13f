//! A thread's own memory of which rule an address had.

use alloc::boxed::Box;
use alloc::vec;

use crate::arch::Machine;
use crate::modules::{Hint, Modules};
use crate::rule::{Rule, Saved};

/// A cache from lookup address to rule: each address has its place, and three neighbours where it is found again when another took that.
/// One per thread; it may serve different [`Modules`] in turn, because an entry counts only for the very `Modules` that it came from.
///
/// It changes how fast a walk is and never what it finds.
#[derive(Debug, Clone)]
pub struct Cache {
    /// At least one, so that there is always a place to put an answer.
    entries: Box<[Entry]>,
    /// `entries.len() - 1` where the length is a power of two.
    mask: Option<u64>,
    /// False for a capacity of 0: then the one entry is never taken for an answer.
    keeps: bool,
    lookups: u64,
    misses: u64,
}

/// What the engine wants to know of an address: the unit in which memory for a cache is measured. Two to a line of the
/// processor's cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub struct Entry {
    lookup: u64,
    pub(crate) rule: Rule,
    /// [`Modules::generation`] that the entry came from, or [`KEPT_FOR_NONE`].
    generation: u32,
    /// Index of the module, or [`NO_MODULE`].
    pub(crate) module: u32,
    /// The rule's offset in bytes, taken out of the rule: the next frame waits for it.
    pub(crate) cfa_offset: i32,
    /// Of a plain rule, bytes from the CFA to the saved frame pointer; to the word below it where none is saved. [`NOT_PLAIN`].
    pub(crate) fp_offset: i32,
}

/// Entries of a set: an address has its own place, and those of its neighbours, in the same line of the processor's cache and the next, after it.
const WAYS: usize = 4;

pub(crate) const NO_MODULE: u32 = u32::MAX;
/// The generation of modules of which nothing is kept, because every other number was given.
pub(crate) const NO_GENERATION: u32 = 0;
/// The generation of an entry that answers nobody; no modules have it.
pub(crate) const KEPT_FOR_NONE: u32 = u32::MAX;
/// Stands for a rule that is not followed in the short loop: it is not [plain](Rule::is_plain), or does not tell the frame pointer.
const NOT_PLAIN: i32 = i32::MIN;

impl Entry {
    /// An entry that answers nothing.
    pub const EMPTY: Self =
        Self { lookup: 0, rule: Rule::GAP, generation: KEPT_FOR_NONE, module: NO_MODULE, cfa_offset: 0, fp_offset: 0 };

    fn new(lookup: u64, generation: u32, rule: Rule, module: u32, machine: &Machine) -> Self {
        let word = machine.word;
        let fp_offset = match rule.frame_pointer() {
            _ if !rule.is_plain(machine) => NOT_PLAIN,
            Saved::At(words) => i32::from(words) * word as i32,
            // One address to read either way, so that the processor need not guess whether there is a slot.
            Saved::Same => -(word as i32),
            Saved::Unknown => NOT_PLAIN,
        };
        // 20 bits of words always fit.
        Self { lookup, rule, generation, module, cfa_offset: (rule.offset() * word) as i32, fp_offset }
    }

    /// Whether the rule is plain and tells the frame pointer: `cfa_offset` and `fp_offset` are all that is to be known of it.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.fp_offset != NOT_PLAIN
    }

    /// Whether `fp_offset` is that of a saved frame pointer.
    #[inline(always)]
    pub(crate) fn saves_fp(&self) -> bool {
        self.rule.frame_pointer() != Saved::Same
    }
}

impl Cache {
    /// Entries of [`Cache::new`]: at 32 bytes each the whole, 256 KiB, stays within a second-level cache, and the hot part of a program's few
    /// hundred return addresses in the first. So many that few of those share a place.
    pub const DEFAULT_CAPACITY: usize = 8192;

    /// A cache of [`Self::DEFAULT_CAPACITY`] entries.
    pub fn new() -> Self {
        Self::with_capacity(Self::DEFAULT_CAPACITY)
    }

    /// A cache of `entries` entries; 0 caches nothing.
    pub fn with_capacity(entries: usize) -> Self {
        Self::of(vec![Entry::EMPTY; entries].into_boxed_slice())
    }

    /// A cache of these entries, for who has memory for them already. What they hold is forgotten; none at all cache
    /// nothing.
    pub fn of(entries: Box<[Entry]>) -> Self {
        let keeps = !entries.is_empty();
        let mut entries = if keeps { entries } else { Box::new([Entry::EMPTY]) };
        entries.fill(Entry::EMPTY);
        let mask = entries.len().is_power_of_two().then(|| entries.len() as u64 - 1);
        Self { entries, mask, keeps, lookups: 0, misses: 0 }
    }

    /// How many look-ups the cache answered, and how many it did not.
    pub fn statistics(&self) -> (u64, u64) {
        (self.lookups.saturating_sub(self.misses), self.misses)
    }

    /// Forgets everything, statistics included.
    pub fn clear(&mut self) {
        self.entries.fill(Entry::EMPTY);
        (self.lookups, self.misses) = (0, 0);
    }

    /// What `modules` say of `lookup`. `place` decides where in the cache the answer is; it is the program counter, which
    /// is at hand before `lookup` is.
    #[inline(always)]
    pub(crate) fn find(
        &mut self,
        place: u64,
        lookup: u64,
        machine: &Machine,
        modules: &Modules<'_>,
        hint: &mut Hint,
    ) -> &Entry {
        let at = match self.mask {
            // Return addresses differ in their low bits.
            Some(mask) => (place & mask) as usize,
            None => place.checked_rem(self.entries.len() as u64).unwrap_or(0) as usize,
        };
        let is_hit = |entry: &Entry| entry.lookup == lookup && entry.generation == modules.generation();
        let is_there = self.entries.get(at).is_some_and(is_hit);
        let at = if is_there { at } else { self.fill(at, lookup, machine, modules, hint) };
        self.entries.get(at).unwrap_or(&Entry::EMPTY)
    }

    /// The same, once for all processors, where it is asked for too seldom to be worth its code at each place.
    #[inline(never)]
    pub(crate) fn find_once(
        &mut self,
        lookup: u64,
        machine: &Machine,
        modules: &Modules<'_>,
        hint: &mut Hint,
    ) -> &Entry {
        self.find(lookup, lookup, machine, modules, hint)
    }

    /// Where the answer for `lookup` is. In the place beside `at`, in the same line of the processor's cache, it stays: of two addresses in turn, whose place
    /// `at` is, each would move the other. From elsewhere in the set it takes the place of what is at `at`; a new one moves those there on within the set.
    #[inline(never)]
    fn fill(&mut self, at: usize, lookup: u64, machine: &Machine, modules: &Modules<'_>, hint: &mut Hint) -> usize {
        let generation = modules.generation();
        let is_hit = |entry: &Entry| entry.lookup == lookup && entry.generation == generation;
        if self.entries.get(at ^ 1).is_some_and(is_hit) {
            return at ^ 1;
        }
        for way in 2..WAYS {
            if let Some(found) = self.entries.get(at ^ way).copied().filter(is_hit) {
                let before = self.put(at, found);
                self.put(at ^ way, before);
                return at;
            }
        }
        self.misses += 1;
        let (rule, module) = modules.locate(lookup, hint);
        let mut moved = Entry::new(lookup, self.kept_for(generation), rule, module, machine);
        for way in 0..WAYS {
            moved = self.put(at ^ way, moved);
        }
        at
    }

    fn kept_for(&self, generation: u32) -> u32 {
        if self.keeps && generation != NO_GENERATION { generation } else { KEPT_FOR_NONE }
    }

    /// Puts `entry` at `at`, and gives what was there; the entry itself where there is no such place.
    #[inline(always)]
    fn put(&mut self, at: usize, entry: Entry) -> Entry {
        match self.entries.get_mut(at) {
            Some(place) => core::mem::replace(place, entry),
            None => entry,
        }
    }

    /// Takes note of how many look-ups a walk made.
    pub(crate) fn note_lookups(&mut self, lookups: usize) {
        self.lookups += lookups as u64;
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{Arch, Target, X86_64};

    #[test]
    fn nothing_is_kept_for_modules_that_got_no_number_of_their_own() {
        let modules = Modules::new(Arch::X86_64, alloc::vec::Vec::new()).with_generation(NO_GENERATION);
        let (mut cache, mut hint) = (Cache::with_capacity(16), 0);
        for misses in 1..=3 {
            cache.find(0, 0, X86_64::MACHINE, &modules, &mut hint);
            assert_eq!(cache.misses, misses);
        }
    }

    #[test]
    fn four_addresses_that_share_a_place_are_all_kept() {
        let modules = Modules::new(Arch::X86_64, alloc::vec::Vec::new());
        let mut cache = Cache::with_capacity(16);
        let mut hint = 0;
        for misses in [4, 4, 4, 8] {
            let first = if misses == 8 { 0x2000 } else { 0x1000 };
            for address in (0..4).map(|at| first + at * 16) {
                assert_eq!(cache.find(address, address, X86_64::MACHINE, &modules, &mut hint).lookup, address);
            }
            assert_eq!(cache.misses, misses);
        }
    }
}
