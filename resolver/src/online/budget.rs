//! Bytes on the disk that downloads under way hold: all together no more than the cache may fill.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all downloads of these servers share.
#[derive(Debug)]
pub(super) struct Budget {
    bound: u64,
    held: AtomicU64,
}

/// What one download holds of it, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    of: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(bound: u64) -> Arc<Self> {
        Arc::new(Self { bound, held: AtomicU64::new(0) })
    }

    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    /// A download that holds nothing yet.
    pub(super) fn hold(self: &Arc<Self>) -> Held {
        Held { of: Arc::clone(self), bytes: 0 }
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
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hold_no_more_than_the_bound_and_give_it_back() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (budget.hold(), budget.hold());
        assert!(one.grow_to(6) && one.grow_to(4) && other.grow_to(4));
        assert!(!other.grow_to(5) && !one.grow_to(u64::MAX), "6 and 4 are held");
        drop(one);
        assert!(other.grow_to(10) && !budget.hold().grow_to(1));
        drop(other);
        assert!(budget.hold().grow_to(10));
    }
}
