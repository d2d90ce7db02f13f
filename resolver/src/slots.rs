//! A bounded map that many threads read without a lock.
//!
//! Every key has two slots, by its hash, and of what shares them the two that were put there last stay: no list has to be kept of what was asked
//! for, so that a reader writes nothing but a count. Whether a value is still there never changes an answer.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

/// Slots that are made at once, so that a large map of which little is used takes little memory.
const CHUNK: usize = 256;

/// Slots that a key may be in. With one, the working set of a large map would lose a part to chance.
const WAYS: usize = 2;

type Slot<K, V> = ArcSwapOption<(K, V)>;
type Chunk<K, V> = OnceLock<Box<[Slot<K, V>]>>;

/// At most its capacity of entries.
#[derive(Debug)]
pub(crate) struct Slots<K, V> {
    chunks: Box<[Chunk<K, V>]>,
    capacity: usize,
}

impl<K: Eq, V: Clone> Slots<K, V> {
    /// A map of at most so many entries; with 0 every lookup misses.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { chunks: (0..capacity.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(), capacity }
    }

    /// The value of the key with this hash for which `is` holds.
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<V> {
        let (chunk, ways) = self.place(hash);
        let slots = self.chunks.get(chunk)?.get()?.get(ways)?;
        slots.iter().find_map(|slot| {
            let entry = slot.load();
            let (key, value) = entry.as_deref()?;
            is(key).then(|| value.clone())
        })
    }

    /// Keeps a value, in the place of the older one of those that share its slots.
    pub(crate) fn put(&self, hash: u64, key: K, value: V) {
        let (chunk, ways) = self.place(hash);
        let Some(chunk) = self.chunks.get(chunk) else { return };
        let slots = chunk.get_or_init(|| (0..CHUNK).map(|_| Slot::empty()).collect());
        let Some((newest, older)) = slots.get(ways).and_then(<[_]>::split_first) else { return };
        // Two who put the same at once may leave it twice, which nobody notices.
        let is_same = |slot: &Slot<K, V>| slot.load().as_deref().is_none_or(|(known, _)| *known == key);
        let before = match is_same(newest) {
            true => None,
            false => newest.load_full(),
        };
        newest.store(Some(Arc::new((key, value))));
        if let (Some(before), Some(older)) = (before, older.first()) {
            older.store(Some(before));
        }
    }

    /// Entries held now.
    pub(crate) fn len(&self) -> usize {
        let slots = self.chunks.iter().filter_map(OnceLock::get).flatten();
        slots.filter(|slot| slot.load().is_some()).count()
    }

    /// A chunk, and the slots in it that a key with this hash may be in.
    fn place(&self, hash: u64) -> (usize, Range<usize>) {
        let ways = WAYS.min(self.capacity).max(1);
        // The upper bits of a product are spread over the whole range, whatever the capacity.
        let set = ((u128::from(hash) * (self.capacity / ways) as u128) >> u64::BITS) as usize;
        let slot = set * ways;
        (slot / CHUNK, slot % CHUNK..slot % CHUNK + ways)
    }
}

/// Spreads a number over all bits.
pub(crate) fn mixed(value: u64) -> u64 {
    // The finalizer of MurmurHash3. Who chooses ids and addresses so that they share a slot makes lookups slower, and no more.
    let value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_last_is_found_and_the_bound_holds() {
        for capacity in [1, 2, 255, 256, 257, 1000] {
            let slots = Slots::with_capacity(capacity);
            for key in 0..5000_u64 {
                slots.put(mixed(key), key, key * 2);
                assert_eq!(slots.find(mixed(key), |found| *found == key), Some(key * 2));
            }
            assert!(slots.len() <= capacity, "{}", slots.len());
            assert!(capacity < 255 || slots.len() > capacity / 2, "{} of {capacity}", slots.len());
        }
    }

    #[test]
    fn another_key_of_the_same_slot_is_not_found() {
        let slots = Slots::with_capacity(4);
        let find = |name| slots.find(7, |key| *key == name);
        slots.put(7, "one", 1);
        assert_eq!(find("other"), None);
        slots.put(7, "other", 2);
        slots.put(7, "other", 3);
        assert_eq!((find("one"), find("other")), (Some(1), Some(3)));
        // The older one goes.
        slots.put(7, "third", 4);
        assert_eq!((find("one"), find("other"), find("third")), (None, Some(3), Some(4)));
    }

    #[test]
    fn what_fits_well_is_kept_almost_whole() {
        let slots = Slots::with_capacity(4096);
        (0..200_u64).for_each(|key| slots.put(mixed(key), key, key));
        let kept = (0..200_u64).filter(|key| slots.find(mixed(*key), |found| found == key).is_some()).count();
        assert!(kept >= 199, "{kept} of 200");
    }

    #[test]
    fn a_capacity_of_zero_keeps_nothing() {
        let slots = Slots::with_capacity(0);
        slots.put(1, 1, 1);
        assert_eq!((slots.find(1, |_| true), slots.len()), (None, 0));
    }

    #[test]
    fn readers_see_whole_entries_while_others_write() {
        let slots = Slots::with_capacity(8);
        std::thread::scope(|scope| {
            for writer in 0..2_u64 {
                let slots = &slots;
                scope.spawn(move || {
                    for value in 0..20_000 {
                        slots.put(value << 60, (value, writer), (value * 3, writer));
                    }
                });
            }
            scope.spawn(|| {
                for value in 0..20_000_u64 {
                    // The value is that of the key, and not of one that was put there meanwhile.
                    let found = slots.find(value << 60, |key| key.0 == value);
                    assert!(found.is_none_or(|found| found.0 == value * 3));
                }
            });
        });
    }
}
