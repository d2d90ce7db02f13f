//! A thread's own memory of which rule an address had.

use alloc::boxed::Box;
use alloc::vec;

use crate::rule::Rule;

/// A direct-mapped cache from lookup address to rule. One per thread; it may serve different [`Modules`](crate::Modules) in
/// turn, because an entry counts only for the very `Modules` that it came from.
///
/// It changes how fast a walk is and never what it finds.
#[derive(Debug, Clone)]
pub struct Cache {
    entries: Box<[Entry]>,
    /// `entries.len() - 1` where the length is a power of two.
    mask: Option<u64>,
    hits: u64,
    misses: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    pc: u64,
    rule: Rule,
    /// Index of the module, or [`NO_MODULE`].
    module: u32,
    /// [`Modules::generation`](crate::Modules) that the entry came from; 0 marks an empty entry.
    generation: u32,
}

pub(crate) const NO_MODULE: u32 = u32::MAX;

/// What the engine wants to know of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) rule: Rule,
    pub(crate) module: u32,
}

impl Cache {
    /// Entries of [`Cache::new`]: at 24 bytes each the whole stays within a second-level cache, and the hot part
    /// of a program's few hundred return addresses in the first.
    pub const DEFAULT_CAPACITY: usize = 2048;

    /// A cache of [`Self::DEFAULT_CAPACITY`] entries.
    pub fn new() -> Self {
        Self::with_capacity(Self::DEFAULT_CAPACITY)
    }

    /// A cache of `entries` entries; 0 caches nothing.
    pub fn with_capacity(entries: usize) -> Self {
        let empty = Entry { pc: 0, rule: Rule::GAP, module: NO_MODULE, generation: 0 };
        let mask = entries.is_power_of_two().then(|| entries as u64 - 1);
        Self { entries: vec![empty; entries].into_boxed_slice(), mask, hits: 0, misses: 0 }
    }

    /// How many look-ups the cache answered, and how many it did not.
    pub fn statistics(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// Forgets everything, statistics included.
    pub fn clear(&mut self) {
        for entry in &mut self.entries {
            entry.generation = 0;
        }
        (self.hits, self.misses) = (0, 0);
    }

    #[inline(always)]
    pub(crate) fn get_or(&mut self, pc: u64, generation: u32, find: impl FnOnce() -> Located) -> Located {
        // Return addresses differ in their low bits; folding higher ones in keeps equal page offsets of different
        // modules apart.
        let hash = pc ^ (pc >> 12);
        let slot = match self.mask {
            Some(mask) => (hash & mask) as usize,
            None => hash.checked_rem(self.entries.len() as u64).unwrap_or(0) as usize,
        };
        let Some(entry) = self.entries.get_mut(slot) else {
            self.misses += 1;
            return find();
        };
        if entry.pc == pc && entry.generation == generation {
            self.hits += 1;
            return Located { rule: entry.rule, module: entry.module };
        }
        self.misses += 1;
        let located = find();
        *entry = Entry { pc, rule: located.rule, module: located.module, generation };
        located
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}
