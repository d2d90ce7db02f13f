//! What is made once for many who ask at the same time, and kept for those who ask later.

use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::cache::BoundedMap;
use crate::slots::{Slots, hash_of};

/// Values by key, each made by the first who asks for it. Whoever asks for the same key waits for that one; other keys are not held up.
#[derive(Debug)]
pub(crate) struct Flights<K, V> {
    /// What was made, for those who need not wait: read without a lock.
    made: Slots<K, V>,
    places: Mutex<BoundedMap<K, Arc<OnceLock<V>>>>,
}

impl<K: Eq + Hash + Clone, V: Clone> Flights<K, V> {
    /// Keeps at most so many values, and the last ones asked for besides.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { made: Slots::with_capacity(capacity), places: Mutex::new(BoundedMap::with_capacity(capacity)) }
    }

    /// The value of the key; `make` is called where there is none yet.
    pub(crate) fn get(&self, key: K, make: impl FnOnce() -> V) -> V {
        self.get_while(key, |_| true, make)
    }

    /// The same of values that hold for a while: one that does not any more is made again.
    pub(crate) fn get_while(&self, key: K, holds: impl Fn(&V) -> bool, make: impl FnOnce() -> V) -> V {
        let hash = hash_of(&key);
        if let Some(made) = self.made.find(hash, |found| *found == key).filter(&holds) {
            return made;
        }
        let place = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            match places.get(&key).filter(|place| place.get().is_none_or(&holds)) {
                Some(place) => place,
                None => {
                    let place = Arc::new(OnceLock::new());
                    places.insert(key.clone(), Arc::clone(&place));
                    place
                }
            }
        };
        let made = place.get_or_init(make).clone();
        self.made.put(hash, key, made.clone());
        made
    }

    /// What was made and is kept.
    pub(crate) fn kept(&self) -> Vec<V> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.values().filter_map(|place| place.get().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn many_who_ask_at_once_are_given_what_one_makes() {
        let (flights, made, begin) = (Flights::with_capacity(4), AtomicUsize::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    begin.wait();
                    let value = flights.get("key", || {
                        std::thread::sleep(Duration::from_millis(20));
                        made.fetch_add(1, Ordering::SeqCst)
                    });
                    assert_eq!(value, 0);
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_holds_no_more_is_made_again_and_only_then() {
        let (flights, made) = (Flights::with_capacity(4), AtomicUsize::new(0));
        let make = || made.fetch_add(1, Ordering::SeqCst);
        let get = |least: usize| flights.get_while("key", |value| *value >= least, make);
        assert_eq!((get(0), get(0), get(1), get(1), get(0)), (0, 0, 1, 1, 1));
    }

    #[test]
    fn what_takes_long_holds_up_no_other_key() {
        let (flights, inside) = (Flights::with_capacity(4), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                flights.get("slow", || {
                    inside.wait();
                    inside.wait();
                })
            });
            inside.wait();
            flights.get("other", || ());
            inside.wait();
        });
    }
}
