//! Values that take memory, each in a place that is found once and then read without a lock.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;

use super::tally::Tally;

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

/// Values by key within bounds of number and weight: beyond them the places of those that were not asked for longest become
/// empty. Whoever keeps a place asks it without a lock; whoever finds it empty fills it again.
#[derive(Debug)]
pub(super) struct Shelf<K, V> {
    places: Mutex<Places<K, V>>,
    most_entries: usize,
    most_bytes: u64,
    /// Rises by two with each value that is put in: who asks between two of them is later than the first.
    clock: AtomicU64,
    tally: Tally,
}

#[derive(Debug)]
struct Places<K, V> {
    by_key: HashMap<K, Arc<Place<V>>>,
    /// With so many, those that are empty and that nobody keeps are dropped.
    swept_at: usize,
}

/// Where a value is, was, or will be.
#[derive(Debug)]
pub(super) struct Place<V> {
    value: ArcSwapOption<V>,
    bytes: AtomicU64,
    /// When it was asked for last, by the shelf's clock.
    used: AtomicU64,
    /// Held while the value is made, by the one who makes it.
    making: Mutex<()>,
}

impl<K: Eq + Hash + Clone, V> Shelf<K, V> {
    /// At most so many values of so many bytes; the one that was put in last stays even where it is beyond the bounds alone.
    pub(super) fn new(most_entries: usize, most_bytes: u64) -> Self {
        let places = Mutex::new(Places { by_key: HashMap::new(), swept_at: 64 });
        Self { places, most_entries, most_bytes, clock: AtomicU64::new(0), tally: Tally::default() }
    }

    /// The place of a key's value, for keeping. Takes a lock.
    pub(super) fn place(&self, key: &K) -> Arc<Place<V>> {
        let mut places = self.lock();
        if let Some(place) = places.by_key.get(key) {
            return Arc::clone(place);
        }
        if places.by_key.len() >= places.swept_at {
            places.by_key.retain(|_, place| place.value.load().is_some() || Arc::strong_count(place) > 1);
            places.swept_at = places.by_key.len().saturating_mul(2).max(64);
        }
        let place = Arc::new(Place::empty());
        places.by_key.insert(key.clone(), Arc::clone(&place));
        place
    }

    /// The value at a place, if it is there and `holds`. Takes no lock and waits for nobody.
    pub(super) fn ready(&self, place: &Place<V>, holds: impl Fn(&V) -> bool) -> Option<Arc<V>> {
        let value = place.value(&holds);
        self.tally.count(value.is_some());
        if value.is_some() {
            let now = self.clock.load(Ordering::Relaxed).saturating_add(1);
            if place.used.load(Ordering::Relaxed) != now {
                place.used.store(now, Ordering::Relaxed);
            }
        }
        value
    }

    /// The value at a place. Where there is none that `holds`, it is made here, or waited for where another thread is just making
    /// it; `make` gives its weight in bytes too.
    pub(super) fn get(&self, place: &Place<V>, holds: impl Fn(&V) -> bool, make: impl FnOnce() -> (V, u64)) -> Arc<V> {
        if let Some(value) = self.ready(place, &holds) {
            return value;
        }
        let _one_at_a_time = place.making.lock().unwrap_or_else(PoisonError::into_inner);
        // The one before may have made it.
        if let Some(value) = place.value(&holds) {
            return value;
        }
        let (value, bytes) = make();
        let value = Arc::new(value);
        self.put(place, Arc::clone(&value), bytes);
        value
    }

    /// Puts a value in its place, also one that weighs another number of bytes since, and empties others where there is too much.
    pub(super) fn put(&self, place: &Place<V>, value: Arc<V>, bytes: u64) {
        let places = self.lock();
        let now = self.clock.fetch_add(2, Ordering::Relaxed).saturating_add(2);
        place.value.store(Some(value));
        place.bytes.store(bytes, Ordering::Relaxed);
        place.used.store(now, Ordering::Relaxed);
        let mut filled: Vec<&Arc<Place<V>>> = places.by_key.values().filter(|place| place.is_filled()).collect();
        let mut total = filled.iter().fold(0_u64, |sum, place| sum.saturating_add(place.bytes()));
        if filled.len() <= self.most_entries && total <= self.most_bytes {
            return;
        }
        // Last comes the one that was not asked for longest.
        filled.sort_by_key(|place| std::cmp::Reverse(place.used.load(Ordering::Relaxed)));
        while filled.len() > 1 && (filled.len() > self.most_entries || total > self.most_bytes) {
            let Some(longest_unused) = filled.pop() else { break };
            total = total.saturating_sub(longest_unused.bytes());
            longest_unused.value.store(None);
        }
    }

    pub(super) fn statistics(&self) -> CacheStatistics {
        let (hits, misses) = self.tally.counted();
        let places = self.lock();
        let filled = places.by_key.values().filter(|place| place.is_filled());
        let (entries, bytes) = filled.fold((0_usize, 0_u64), |(entries, bytes), place| {
            (entries.saturating_add(1), bytes.saturating_add(place.bytes()))
        });
        CacheStatistics { hits, misses, entries, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Places<K, V>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Place<V> {
    fn empty() -> Self {
        let (value, making) = (ArcSwapOption::empty(), Mutex::new(()));
        Self { value, bytes: AtomicU64::new(0), used: AtomicU64::new(0), making }
    }

    fn value(&self, holds: impl Fn(&V) -> bool) -> Option<Arc<V>> {
        self.value.load_full().filter(|value| holds(value))
    }

    /// Whether a value is there.
    pub(super) fn is_filled(&self) -> bool {
        self.value.load().is_some()
    }

    /// Whether a value is there that `holds`.
    pub(super) fn holds(&self, holds: impl Fn(&V) -> bool) -> bool {
        self.value.load().as_deref().is_some_and(holds)
    }

    /// What the value weighed when it was put in.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const ALWAYS: fn(&u32) -> bool = |_| true;

    fn shelf(most_entries: usize, most_bytes: u64) -> Shelf<&'static str, u32> {
        Shelf::new(most_entries, most_bytes)
    }

    #[test]
    fn what_was_not_asked_for_longest_goes_first() {
        let shelf = shelf(3, u64::MAX);
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|key| shelf.place(&key));
        for place in [&a, &b, &c] {
            shelf.put(place, Arc::new(1), 10);
        }
        assert!(shelf.ready(&a, ALWAYS).is_some());
        shelf.put(&d, Arc::new(4), 10);
        assert!(a.is_filled() && !b.is_filled() && c.is_filled() && d.is_filled());
        // What was put away is made again at the place that was kept.
        assert_eq!(*shelf.get(&b, ALWAYS, || (2, 10)), 2);
        assert!(a.is_filled() && b.is_filled() && !c.is_filled());
        let statistics = shelf.statistics();
        assert_eq!((statistics.entries, statistics.bytes, statistics.hits, statistics.misses), (3, 30, 1, 1));
    }

    #[test]
    fn bytes_are_bounded_and_the_last_one_stays() {
        let shelf = shelf(usize::MAX, 100);
        let [a, b, c] = ["a", "b", "c"].map(|key| shelf.place(&key));
        shelf.put(&a, Arc::new(1), 60);
        shelf.put(&b, Arc::new(2), 30);
        // It weighs more since.
        shelf.put(&b, Arc::new(2), 50);
        assert!(!a.is_filled() && b.is_filled());
        shelf.put(&c, Arc::new(3), 1000);
        assert_eq!((a.is_filled(), b.is_filled(), shelf.statistics().bytes), (false, false, 1000));
    }

    #[test]
    fn what_does_not_hold_is_made_again_by_one() {
        let (shelf, made) = (shelf(8, u64::MAX), AtomicUsize::new(0));
        let place = shelf.place(&"a");
        shelf.put(&place, Arc::new(1), 1);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let make = || {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        made.fetch_add(1, Ordering::Relaxed);
                        (2, 1)
                    };
                    assert_eq!(*shelf.get(&place, |value| *value == 2, make), 2);
                });
            }
        });
        assert_eq!((made.load(Ordering::Relaxed), shelf.ready(&place, |value| *value == 1)), (1, None));
    }

    #[test]
    fn places_that_nobody_keeps_are_dropped() {
        let shelf: Shelf<u32, u32> = Shelf::new(2, u64::MAX);
        let kept = shelf.place(&0);
        for key in 1..10_000 {
            let place = shelf.place(&key);
            if key % 100 == 0 {
                shelf.put(&place, Arc::new(key), 1);
            }
        }
        assert!(Arc::ptr_eq(&kept, &shelf.place(&0)));
        assert!(shelf.lock().by_key.len() <= 64);
    }
}
