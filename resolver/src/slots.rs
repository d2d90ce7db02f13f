//! A bounded map that many threads read without a lock, and that forgets what was not asked for longest.
//!
//! Every key has a set of slots, by its hash, as the lines of a processor's cache have: of what shares a set the one that was not asked for
//! longest goes. No list of all that was asked for has to be kept, so that a reader writes nothing but a time, and that only
//! where something was put in since. Whether a value is still there never changes an answer.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

/// Sets that are made at once, so that a large map of which little is used takes little memory.
const CHUNK: usize = 16;

/// Slots that a key may be in.
const WAYS: usize = 8;

type Chunk<K, V> = OnceLock<Box<[Set<K, V>]>>;

/// At most its capacity of entries.
#[derive(Debug)]
pub(crate) struct Slots<K, V> {
    chunks: Box<[Chunk<K, V>]>,
    sets: usize,
    /// Slots of each set.
    ways: usize,
    /// Rises by two with each entry that is put in: who asks between two of them is later than the first.
    clock: AtomicU64,
}

#[derive(Debug)]
struct Set<K, V> {
    /// The hashes of the slots' keys, side by side: most of what is not asked for is told by them alone. One that does not fit its key, as
    /// two who put into one slot at once may leave it, makes a lookup miss and no more.
    hashes: [AtomicU64; WAYS],
    slots: [Slot<K, V>; WAYS],
}

#[derive(Debug)]
struct Slot<K, V> {
    /// When it was asked for last, by the clock; 0 where nothing is in it.
    used: AtomicU64,
    entry: ArcSwapOption<(K, V)>,
}

impl<K: Eq, V: Clone> Slots<K, V> {
    /// A map of at most so many entries; with 0 every lookup misses.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let ways = WAYS.min(capacity).max(1);
        let sets = capacity / ways;
        let chunks = (0..sets.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect();
        Self { chunks, sets, ways, clock: AtomicU64::new(0) }
    }

    /// The value of the key with this hash for which `is` holds.
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<V> {
        self.find_with(hash, is, V::clone)
    }

    /// What `of` makes of that value where it is, for who would throw a copy away: threads that count references to one value hold each other up.
    pub(crate) fn find_with<T>(&self, hash: u64, is: impl Fn(&K) -> bool, of: impl Fn(&V) -> T) -> Option<T> {
        let (chunk, set) = self.place(hash);
        let set = self.chunks.get(chunk)?.get()?.get(set)?;
        set.holding(hash).find_map(|slot| {
            let entry = slot.entry.load();
            let (_, value) = entry.as_deref().filter(|(key, _)| is(key))?;
            let now = self.clock.load(Ordering::Relaxed).saturating_add(1);
            if slot.used.load(Ordering::Relaxed) != now {
                slot.used.store(now, Ordering::Relaxed);
            }
            Some(of(value))
        })
    }

    /// Keeps a value, in the place of what was not asked for longest where there is no room.
    pub(crate) fn put(&self, hash: u64, key: K, value: V) {
        let (chunk, set) = self.place(hash);
        let Some(chunk) = self.chunks.get(chunk) else { return };
        let Some(set) = chunk.get_or_init(|| (0..CHUNK).map(|_| Set::empty()).collect()).get(set) else { return };
        let now = self.clock.fetch_add(2, Ordering::Relaxed).saturating_add(2);
        let is_same = |slot: &&Slot<K, V>| slot.entry.load().as_deref().is_some_and(|(known, _)| *known == key);
        let slots = || set.hashes.iter().zip(&set.slots).take(self.ways);
        let same = slots().filter(|(of, _)| of.load(Ordering::Relaxed) == hash).find(|(_, slot)| is_same(slot));
        let longest_unused = || slots().min_by_key(|(_, slot)| slot.used.load(Ordering::Relaxed));
        let Some((of, slot)) = same.or_else(longest_unused) else { return };
        slot.entry.store(Some(Arc::new((key, value))));
        of.store(hash, Ordering::Release);
        slot.used.store(now, Ordering::Relaxed);
    }

    /// What is held now, folded into one value.
    pub(crate) fn fold<A>(&self, begin: A, mut with: impl FnMut(A, &V) -> A) -> A {
        let slots = self.chunks.iter().filter_map(OnceLock::get).flatten().flat_map(|set| &set.slots);
        slots.fold(begin, |before, slot| match slot.entry.load().as_deref() {
            Some((_, value)) => with(before, value),
            None => before,
        })
    }

    /// Entries held now.
    pub(crate) fn len(&self) -> usize {
        self.fold(0, |count: usize, _| count.saturating_add(1))
    }

    /// A chunk, and the set in it that a key with this hash may be in.
    fn place(&self, hash: u64) -> (usize, usize) {
        // The upper bits of a product are spread over the whole range, whatever the capacity.
        let set = ((u128::from(hash) * self.sets as u128) >> u64::BITS) as usize;
        (set / CHUNK, set % CHUNK)
    }
}

impl<K, V> Set<K, V> {
    fn empty() -> Self {
        let slot = || Slot { used: AtomicU64::new(0), entry: ArcSwapOption::empty() };
        Self { hashes: std::array::from_fn(|_| AtomicU64::new(0)), slots: std::array::from_fn(|_| slot()) }
    }

    /// The slots whose keys have this hash, as far as can be told.
    fn holding(&self, hash: u64) -> impl Iterator<Item = &Slot<K, V>> {
        let all = self.hashes.iter().zip(&self.slots);
        all.filter(move |(of, _)| of.load(Ordering::Acquire) == hash).map(|(_, slot)| slot)
    }
}

/// The hash of a key of several parts.
pub(crate) fn hash_of(key: &impl Hash) -> u64 {
    let mut mixer = Mixer::default();
    key.hash(&mut mixer);
    mixer.finish()
}

#[derive(Debug, Default, Clone, Copy)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let part = part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            self.write_u64(part);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mixed(self.0.rotate_left(5) ^ number);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Spreads a number over all bits.
pub(crate) fn mixed(value: u64) -> u64 {
    // The finalizer of MurmurHash3. Who chooses ids and addresses so that they share a set makes lookups slower, and no more.
    let value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_last_is_found_and_the_bound_holds() {
        for capacity in [1, 2, 7, 8, 255, 256, 257, 1000] {
            let slots = Slots::with_capacity(capacity);
            for key in 0..5000_u64 {
                slots.put(mixed(key), key, key * 2);
                assert_eq!(slots.find(mixed(key), |found| *found == key), Some(key * 2));
            }
            assert!(slots.len() <= capacity, "{}", slots.len());
            assert!(slots.len() > capacity * 8 / 10, "{} of {capacity}", slots.len());
        }
    }

    #[test]
    fn of_what_shares_a_set_that_goes_which_was_not_asked_for_longest() {
        let slots = Slots::with_capacity(WAYS);
        let find = |name: usize| slots.find(7, |key| *key == name);
        (0..WAYS).for_each(|key| slots.put(7, key, key));
        assert_eq!(find(WAYS), None);
        // All but two are asked for again.
        assert!((0..WAYS).filter(|key| ![2, 5].contains(key)).all(|key| find(key) == Some(key)));
        slots.put(7, WAYS, WAYS);
        slots.put(7, WAYS + 1, WAYS + 1);
        assert_eq!((find(2), find(5)), (None, None));
        assert!((0..WAYS + 2).filter(|key| ![2, 5].contains(key)).all(|key| find(key) == Some(key)));
        // A key is kept once.
        slots.put(7, 0, 100);
        assert_eq!((find(0), find(1), slots.len()), (Some(100), Some(1), WAYS));
    }

    #[test]
    fn what_fits_well_is_kept_whole() {
        let slots = Slots::with_capacity(4096);
        (0..1000_u64).for_each(|key| slots.put(mixed(key), key, key));
        let kept = (0..1000_u64).filter(|key| slots.find(mixed(*key), |found| found == key).is_some()).count();
        assert_eq!(kept, 1000);
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
