//! How often a cache helped, counted by many threads that do not hold up each other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Places to count in. Threads beyond these share them.
const STRIPES: usize = 16;

/// Questions that a cache could answer, and those that it could not.
#[derive(Debug, Default)]
pub(super) struct Tally([Stripe; STRIPES]);

/// A cache line of its own: a counter that two processors write goes to and fro between them.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Tally {
    pub(super) fn count(&self, hit: bool) {
        thread_local! {
            static STRIPE: usize = {
                static NEXT: AtomicUsize = AtomicUsize::new(0);
                NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
            };
        }
        let Some(stripe) = self.0.get(STRIPE.with(|stripe| *stripe)) else { return };
        let counter = if hit { &stripe.hits } else { &stripe.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Hits and misses until now.
    pub(super) fn counted(&self) -> (u64, u64) {
        let sum = |of: fn(&Stripe) -> &AtomicU64| self.0.iter().map(|stripe| of(stripe).load(Ordering::Relaxed)).sum();
        (sum(|stripe| &stripe.hits), sum(|stripe| &stripe.misses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_threads_count_is_counted() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| (0..100).for_each(|number| tally.count(number % 4 == 0)));
            }
        });
        assert_eq!(tally.counted(), (1000, 3000));
    }
}
