//! Bytes on the disk that downloads under way hold: all together no more than the cache may fill.
//!
//! A download that says how long it is takes its room before any of it comes; one that does not takes it as it comes. Where the others leave none, it
//! gives back what it has and begins again alone. So nobody waits for another while holding what that one needs, and which files come does not depend on
//! what else was under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// What all downloads of these servers share.
#[derive(Debug)]
pub(super) struct Budget {
    bound: u64,
    held: AtomicU64,
    /// Held for reading by each download, for writing by one that is alone. Fair: who wants to be alone comes before all who come later.
    under_way: Arc<RwLock<()>>,
}

/// What one download holds of it, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    of: Arc<Budget>,
    bytes: u64,
    place: Option<Place>,
}

/// Under way beside others, or alone.
#[derive(Debug)]
enum Place {
    Beside { _others: OwnedRwLockReadGuard<()> },
    Alone { _others: OwnedRwLockWriteGuard<()> },
}

impl Budget {
    pub(super) fn new(bound: u64) -> Arc<Self> {
        Arc::new(Self { bound, held: AtomicU64::new(0), under_way: Arc::default() })
    }

    /// A download that holds nothing yet. Waits as long as another one is alone.
    pub(super) async fn hold(self: &Arc<Self>) -> Held {
        let place = Place::Beside { _others: Arc::clone(&self.under_way).read_owned().await };
        Held { of: Arc::clone(self), bytes: 0, place: Some(place) }
    }
}

impl Held {
    /// Holds that many bytes, if it does not already; `false`, and nothing more is held, where the others leave no room.
    pub(super) fn grow_to(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let grown = |held: u64| held.checked_add(more).filter(|sum| *sum <= self.of.bound);
        let is_held = more == 0 || self.of.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok();
        if is_held {
            self.bytes = self.bytes.max(bytes);
        }
        is_held
    }

    /// Gives back all, and waits until no other download is under way: none begins then before this one has ended.
    pub(super) async fn be_alone(&mut self) {
        self.give_back();
        self.place = None;
        self.place = Some(Place::Alone { _others: Arc::clone(&self.of.under_way).write_owned().await });
    }

    fn give_back(&mut self) {
        self.of.held.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run<T>(of: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(of)
    }

    /// Long enough for others to come as far as they can.
    async fn pause() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    #[test]
    fn all_hold_no_more_than_the_bound_and_give_it_back() {
        run(async {
            let budget = Budget::new(10);
            let (mut one, mut other) = (budget.hold().await, budget.hold().await);
            assert!(one.grow_to(6) && one.grow_to(4) && other.grow_to(4));
            assert!(!other.grow_to(5) && !one.grow_to(u64::MAX), "6 and 4 are held");
            drop(one);
            assert!(other.grow_to(10) && !budget.hold().await.grow_to(1));
            drop(other);
            assert!(budget.hold().await.grow_to(10));
        });
    }

    #[test]
    fn who_wants_to_be_alone_comes_after_those_under_way_and_before_all_others() {
        run(async {
            let budget = Budget::new(10);
            let (mut one, mut other) = (budget.hold().await, budget.hold().await);
            assert!(one.grow_to(6) && other.grow_to(4));
            let alone = tokio::spawn(async move {
                other.be_alone().await;
                other
            });
            pause().await;
            assert!(!alone.is_finished(), "the first is under way");
            assert!(one.grow_to(10), "what waits holds nothing");
            let later = tokio::spawn({
                let budget = Arc::clone(&budget);
                async move { budget.hold().await }
            });
            pause().await;
            drop(one);
            let mut alone = alone.await.unwrap();
            pause().await;
            assert!(!later.is_finished() && alone.grow_to(10));
            drop(alone);
            assert!(later.await.unwrap().grow_to(10));
        });
    }
}
