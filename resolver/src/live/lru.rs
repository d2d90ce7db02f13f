//! A map within a bound of weight that forgets what was not asked for longest, and counts how often it knew.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// How much a cache holds and how often it helped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Questions that it could answer.
    pub hits: u64,
    /// Questions that it could not answer.
    pub misses: u64,
    /// What it holds, in entries.
    pub entries: usize,
    /// What it holds, in bytes, as estimated.
    pub bytes: u64,
}

#[derive(Debug)]
pub(super) struct Lru<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Keys by when they were asked for last.
    order: BTreeMap<u64, K>,
    clock: u64,
    bytes: u64,
    most_entries: usize,
    most_bytes: u64,
    hits: u64,
    misses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: u64,
    used: u64,
}

impl<K: Eq + Hash + Clone, V: Clone> Lru<K, V> {
    pub(super) fn new(most_entries: usize, most_bytes: u64) -> Self {
        let (entries, order) = (HashMap::new(), BTreeMap::new());
        Self { entries, order, clock: 0, bytes: 0, most_entries, most_bytes, hits: 0, misses: 0 }
    }

    pub(super) fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let Some(entry) = self.entries.get_mut(key) else {
            self.misses = self.misses.saturating_add(1);
            return None;
        };
        self.hits = self.hits.saturating_add(1);
        self.clock = self.clock.saturating_add(1);
        if let Some(key) = self.order.remove(&entry.used) {
            self.order.insert(self.clock, key);
        }
        entry.used = self.clock;
        Some(entry.value.clone())
    }

    /// Keeps a value that weighs so many bytes, in the place of an older one. The last one put in stays even where it is
    /// beyond the bound alone.
    pub(super) fn insert(&mut self, key: K, value: V, bytes: u64) {
        self.remove(&key);
        if self.most_entries == 0 {
            return;
        }
        self.clock = self.clock.saturating_add(1);
        self.order.insert(self.clock, key.clone());
        self.entries.insert(key, Entry { value, bytes, used: self.clock });
        self.bytes = self.bytes.saturating_add(bytes);
        while self.entries.len() > 1 && (self.entries.len() > self.most_entries || self.bytes > self.most_bytes) {
            let Some((_, oldest)) = self.order.first_key_value() else { break };
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
    }

    pub(super) fn statistics(&self) -> CacheStatistics {
        CacheStatistics { hits: self.hits, misses: self.misses, entries: self.entries.len(), bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_longest_goes_first() {
        let mut lru = Lru::new(3, 100);
        for key in 1..=3 {
            lru.insert(key, key * 10, 10);
        }
        assert_eq!(lru.get(&1), Some(10));
        lru.insert(4, 40, 10);
        assert_eq!((lru.get(&2), lru.get(&1), lru.get(&3), lru.get(&4)), (None, Some(10), Some(30), Some(40)));
        assert_eq!(lru.statistics(), CacheStatistics { hits: 4, misses: 1, entries: 3, bytes: 30 });
    }

    #[test]
    fn bytes_bound_as_well_and_the_last_one_stays() {
        let mut lru = Lru::new(100, 100);
        lru.insert(1, (), 60);
        lru.insert(2, (), 50);
        assert_eq!((lru.get(&1), lru.get(&2)), (None, Some(())));
        lru.insert(2, (), 500);
        assert_eq!((lru.get(&2), lru.statistics().bytes), (Some(()), 500));
        lru.insert(3, (), 1);
        assert_eq!((lru.get(&2), lru.statistics().bytes), (None, 1));
    }

    #[test]
    fn a_bound_of_no_entries_keeps_nothing() {
        let mut lru = Lru::new(0, 100);
        lru.insert(1, (), 1);
        assert_eq!((lru.get(&1), lru.statistics().bytes), (None, 0));
    }
}
