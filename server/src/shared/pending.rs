//! What another server did and this one could not read. One answer of an object store proves nothing of an object: it is read again, at first soon and
//! then less often, before it is believed that it is gone or damaged. Until then nobody is told that what may come of it is not here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::repositories::{FactKey, RepositoryName};

/// From the first try to the second; each pause after it is twice as long.
const SOON: Duration = Duration::from_millis(250);

/// The longest pause while it is not believed.
const LONGEST: Duration = Duration::from_secs(4);

/// After so long it is believed.
const BELIEVED_AFTER: Duration = Duration::from_secs(60);

/// What is damaged, and believed to be, is looked at so often: whoever mends it need not start this server again.
const SELDOM: Duration = Duration::from_secs(60);

/// What could not be read, by its key, each with what is to be done again.
#[derive(Debug)]
pub(super) struct Pending<T> {
    waiting: Mutex<BTreeMap<String, Wait<T>>>,
    /// How many were believed at last.
    given_up: AtomicU64,
}

#[derive(Debug)]
struct Wait<T> {
    what: T,
    since: Instant,
    next: Instant,
    pause: Duration,
    is_believed: bool,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), given_up: AtomicU64::new(0) }
    }
}

impl<T: Clone> Pending<T> {
    /// It could not be read, so it is to be read again. What waits already goes on waiting.
    pub(super) fn add(&self, key: &str, what: T) {
        let now = Instant::now();
        let new = Wait { what: what.clone(), since: now, next: now + SOON, pause: SOON, is_believed: false };
        self.waiting().entry(key.to_owned()).or_insert(new).what = what;
    }

    /// It was read.
    pub(super) fn done(&self, key: &str) {
        self.waiting().remove(key);
    }

    /// What is to be read again now.
    pub(super) fn due(&self) -> Vec<(String, T)> {
        let now = Instant::now();
        let waiting = self.waiting();
        let due = waiting.iter().filter(|(_, wait)| wait.next <= now);
        due.map(|(key, wait)| (key.clone(), wait.what.clone())).collect()
    }

    /// It failed again; whether that is to be believed from now on.
    pub(super) fn failed_again(&self, key: &str) -> bool {
        let mut waiting = self.waiting();
        let Some(wait) = waiting.get_mut(key) else { return false };
        wait.pause = if wait.is_believed { SELDOM } else { LONGEST.min(wait.pause * 2) };
        wait.next = Instant::now() + wait.pause;
        if wait.is_believed || wait.since.elapsed() < BELIEVED_AFTER {
            return false;
        }
        wait.is_believed = true;
        self.given_up.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// How many are not believed yet.
    pub(super) fn doubted(&self) -> u64 {
        self.waiting().values().filter(|wait| !wait.is_believed).count() as u64
    }

    /// How many are waited for, and how many were believed since the start.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.waiting().len() as u64, self.given_up.load(Ordering::Relaxed))
    }

    /// The facts that are not read, and those that are believed to be gone or damaged where these are asked for.
    pub(super) fn facts(&self, also_believed: bool) -> Vec<(RepositoryName, FactKey)> {
        let waiting = self.waiting();
        let keys = waiting.iter().filter(|(_, wait)| also_believed || !wait.is_believed).map(|(key, _)| key);
        keys.filter_map(|key| FactKey::parse(key)).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, Wait<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_again_and_believed_at_last() {
        let pending = Pending::default();
        pending.add("repositories/team/app/_tags/1", ());
        pending.add("repositories/team/app/_tags/1", ());
        assert_eq!((pending.due().len(), pending.doubted()), (0, 1), "not at once");
        let make_old = |age: Duration| {
            let mut waiting = pending.waiting();
            let wait = waiting.values_mut().next().unwrap();
            (wait.since, wait.next) = (Instant::now().checked_sub(age).unwrap(), Instant::now());
        };
        make_old(SOON);
        assert_eq!(pending.due().len(), 1);
        assert!(!pending.failed_again("repositories/team/app/_tags/1"));
        assert!(pending.due().is_empty());
        make_old(BELIEVED_AFTER);
        assert!(pending.failed_again("repositories/team/app/_tags/1"));
        assert_eq!((pending.doubted(), pending.counts()), (0, (1, 1)));
        assert_eq!((pending.facts(false).len(), pending.facts(true).len()), (0, 1));
        make_old(BELIEVED_AFTER);
        assert!(!pending.failed_again("repositories/team/app/_tags/1"), "it is said once");
        pending.done("repositories/team/app/_tags/1");
        assert_eq!(pending.counts(), (0, 1));
    }
}
