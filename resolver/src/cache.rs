//! A bounded map for answers that were given before.
//!
//! Two generations instead of a linked list: entries are put into the young one; when it is full it
//! becomes the old one, and what was old is dropped. So two half capacities are held at most, a
//! hit costs one or two hash lookups, and what is asked again and again survives. The outcome of a
//! resolution never depends on what is cached.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that holds at most its capacity of entries and forgets those not asked for lately.
#[derive(Debug)]
pub(crate) struct BoundedMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Entries of one generation; 0 stores nothing.
    generation: usize,
}

impl<K: Eq + Hash + Clone, V: Clone> BoundedMap<K, V> {
    /// A map of at most `capacity` entries, rounded up to an even number; with 0 every lookup misses.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation: capacity.div_ceil(2) }
    }

    /// The value, if it is still known.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.insert(key.clone(), value.clone());
        Some(value)
    }

    /// Keeps a value for later.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.generation == 0 {
            return;
        }
        if self.young.len() >= self.generation {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// What is held now.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.young.values().chain(self.old.values())
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_and_what_is_used_survives() {
        let mut map = BoundedMap::with_capacity(8);
        map.insert(0, "kept");
        for key in 1..1000 {
            map.insert(key, "passing");
            assert_eq!(map.get(&0), Some("kept"));
            assert!(map.len() <= 8);
        }
        assert_eq!(map.get(&1), None);
    }

    #[test]
    fn a_capacity_of_zero_keeps_nothing() {
        let mut map = BoundedMap::with_capacity(0);
        map.insert(1, 1);
        assert_eq!((map.get(&1), map.len()), (None, 0));
    }

    #[test]
    fn a_capacity_of_one_keeps_the_last() {
        let mut map = BoundedMap::with_capacity(1);
        map.insert(1, 1);
        map.insert(2, 2);
        assert_eq!(map.get(&2), Some(2));
        assert!(map.len() <= 2);
    }
}
