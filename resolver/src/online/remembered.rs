//! What is remembered for a while, in a bounded number.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For longer than a command runs, and not for as long as a profiler does.
const WHILE: Duration = Duration::from_secs(600);

/// Entries. Each of them has cost a time-out or a file, so that nobody comes by as many in that while; what is beyond is not remembered.
const ENTRIES: usize = 4096;

/// What went wrong lately, by where.
#[derive(Debug)]
pub(super) struct Remembered<V>(Mutex<HashMap<String, (Instant, V)>>);

impl<V> Default for Remembered<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> Remembered<V> {
    pub(super) fn get(&self, key: &str) -> Option<V> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(since, _)| since.elapsed() < WHILE).map(|(_, value)| value.clone())
    }

    pub(super) fn note(&self, key: String, value: V) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= ENTRIES {
            entries.retain(|_, (since, _)| since.elapsed() < WHILE);
        }
        if entries.len() < ENTRIES {
            entries.insert(key, (Instant::now(), value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_remembered_and_no_more_than_the_bound() {
        let remembered = Remembered::default();
        assert_eq!(remembered.get("a"), None);
        remembered.note("a".to_owned(), 1);
        remembered.note("a".to_owned(), 2);
        assert_eq!(remembered.get("a"), Some(2));
        (0..2 * ENTRIES).for_each(|at| remembered.note(at.to_string(), at));
        assert_eq!((remembered.get("0"), remembered.get(&(2 * ENTRIES - 1).to_string())), (Some(0), None));
        assert_eq!(remembered.get("a"), Some(2));
    }
}
