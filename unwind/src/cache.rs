//! A thread's own memory of which rule an address had.

use alloc::boxed::Box;
use alloc::vec;

use crate::rule::{Rule, WORD};

/// A cache from lookup address to rule: direct-mapped, with the neighbouring entry as a second chance. One per thread; it may serve different [`Modules`](crate::Modules) in
/// turn, because an entry counts only for the very `Modules` that it came from.
///
/// It changes how fast a walk is and never what it finds.
#[derive(Debug, Clone)]
pub struct Cache {
    entries: Box<[Entry]>,
    /// `entries.len() - 1` where the length is a power of two.
    mask: Option<u64>,
    lookups: u64,
    misses: u64,
}

/// Two to a line of the processor's cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Entry {
    pc: u64,
    /// [`Modules::generation`](crate::Modules) that the entry came from; 0 marks an empty entry.
    generation: u32,
    located: Located,
}

pub(crate) const NO_MODULE: u32 = u32::MAX;

/// What the engine wants to know of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Located {
    /// Index of the module, or [`NO_MODULE`].
    pub(crate) module: u32,
    /// The rule's offset in bytes, taken out of the rule: the next frame waits for it.
    pub(crate) cfa_offset: i32,
    pub(crate) rule: Rule,
}

impl Located {
    #[inline(always)]
    pub(crate) fn new(rule: Rule, module: u32) -> Self {
        // 20 bits of words always fit.
        Self { module, cfa_offset: (rule.offset() * WORD) as i32, rule }
    }
}

impl Cache {
    /// Entries of [`Cache::new`]: at 32 bytes each the whole stays within a second-level cache, and the hot part
    /// of a program's few hundred return addresses in the first.
    pub const DEFAULT_CAPACITY: usize = 2048;

    /// A cache of [`Self::DEFAULT_CAPACITY`] entries.
    pub fn new() -> Self {
        Self::with_capacity(Self::DEFAULT_CAPACITY)
    }

    /// A cache of `entries` entries; 0 caches nothing.
    pub fn with_capacity(entries: usize) -> Self {
        let empty = Entry { pc: 0, generation: 0, located: Located::new(Rule::GAP, NO_MODULE) };
        let mask = entries.is_power_of_two().then(|| entries as u64 - 1);
        Self { entries: vec![empty; entries].into_boxed_slice(), mask, lookups: 0, misses: 0 }
    }

    /// How many look-ups the cache answered, and how many it did not.
    pub fn statistics(&self) -> (u64, u64) {
        (self.lookups.saturating_sub(self.misses), self.misses)
    }

    /// Forgets everything, statistics included.
    pub fn clear(&mut self) {
        for entry in &mut self.entries {
            entry.generation = 0;
        }
        (self.lookups, self.misses) = (0, 0);
    }

    #[inline(always)]
    pub(crate) fn get_or(&mut self, pc: u64, generation: u32, find: impl FnOnce() -> Located) -> Located {
        let slot = match self.mask {
            // Return addresses differ in their low bits.
            Some(mask) => (pc & mask) as usize,
            None => pc.checked_rem(self.entries.len() as u64).unwrap_or(0) as usize,
        };
        match self.entries.get(slot) {
            Some(entry) if entry.pc == pc && entry.generation == generation => entry.located,
            _ => self.get_or_second(slot, pc, generation, find),
        }
    }

    /// The other entry of the pair; else a new one, which drives the first to the second place.
    #[inline(never)]
    fn get_or_second(&mut self, slot: usize, pc: u64, generation: u32, find: impl FnOnce() -> Located) -> Located {
        let second = self.entries.get(slot ^ 1).copied();
        if let Some(entry) = second
            && entry.pc == pc
            && entry.generation == generation
        {
            return entry.located;
        }
        self.misses += 1;
        let located = find();
        let Some(first) = self.entries.get_mut(slot) else { return located };
        let driven_out = core::mem::replace(first, Entry { pc, generation, located });
        if let Some(second) = self.entries.get_mut(slot ^ 1) {
            *second = driven_out;
        }
        located
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
