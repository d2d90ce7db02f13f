//! Threads that share a budget of memory.
//!
//! What a file needs in memory grows with its size, so concurrency is bounded by bytes and not by a count of threads alone.
//! The threads are our own and not a rayon pool's: a thread of a pool that waits for memory may hold a piece of the
//! work that would free it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that may be worked on at the same time: as many as the largest piece of work so far has, so that what is done beside it
/// does not double the peak. Something larger than that is worked on alone.
#[derive(Debug)]
pub struct Budget {
    bytes: Mutex<Bytes>,
    freed: Condvar,
}

#[derive(Debug)]
struct Bytes {
    total: u64,
    used: u64,
}

/// Bytes of a [`Budget`], given back when it is dropped. A thread holds one at most, or it could wait for itself.
#[derive(Debug)]
pub struct Permit<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl Budget {
    /// One of `least` bytes, where no single piece of work is larger.
    pub fn of_at_least(least: u64) -> Self {
        Self { bytes: Mutex::new(Bytes { total: least, used: 0 }), freed: Condvar::new() }
    }

    /// Waits until `bytes` are free.
    pub fn acquire(&self, bytes: u64) -> Permit<'_> {
        self.acquire_by(|_| bytes)
    }

    /// Waits until nothing else is worked on: for work whose size is not known beforehand.
    pub fn acquire_all(&self) -> Permit<'_> {
        self.acquire_by(|total| total)
    }

    fn acquire_by(&self, wanted: impl Fn(u64) -> u64) -> Permit<'_> {
        let mut all = lock(&self.bytes);
        let mut bytes = wanted(all.total);
        while all.used > 0 && all.used.saturating_add(bytes) > all.total {
            all = self.freed.wait(all).unwrap_or_else(PoisonError::into_inner);
            bytes = wanted(all.total);
        }
        all.used = all.used.saturating_add(bytes);
        all.total = all.total.max(bytes);
        Permit { budget: self, bytes }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.budget.bytes);
        all.used = all.used.saturating_sub(self.bytes);
        self.budget.freed.notify_all();
    }
}

/// Does `work` on every item with `jobs` threads, in the given order; the results in the order of the items. After an error
/// no further item is begun, and of the errors that came the one of the earliest item is returned.
///
/// # Errors
/// Those of `work`.
pub fn run<T: Sync, R: Send, E: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let done: Mutex<BTreeMap<usize, Result<R, E>>> = Mutex::new(BTreeMap::new());
    let worker = || {
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            let result = work(item);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            lock(&done).insert(at, result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.min(items.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    const LEAST: u64 = 8 << 20;

    #[test]
    fn results_come_in_the_order_of_the_items_whatever_the_threads() {
        let items: Vec<u64> = (0..200).collect();
        for jobs in [1, 7] {
            assert_eq!(
                run(&items, jobs, |item| Ok::<_, ()>(item * 2)).unwrap(),
                items.iter().map(|item| item * 2).collect::<Vec<_>>()
            );
        }
        assert_eq!(run(&items, 7, |item| if *item % 50 == 49 { Err(*item) } else { Ok(()) }), Err(49));
    }

    #[test]
    fn no_more_bytes_are_worked_on_than_the_largest_piece_has() {
        let budget = Budget::of_at_least(LEAST);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let run_all = |sizes: &[u64]| {
            most.store(0, Ordering::SeqCst);
            run(sizes, 8, |bytes| {
                let _permit = budget.acquire(*bytes);
                most.fetch_max(now.fetch_add(*bytes, Ordering::SeqCst) + bytes, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(*bytes, Ordering::SeqCst);
                Ok::<_, ()>(())
            })
            .unwrap();
            most.load(Ordering::SeqCst)
        };
        let small: Vec<u64> = (1..60).map(|item| item << 16).collect();
        assert!(run_all(&small) <= LEAST);
        let rising: Vec<u64> = (1..60).map(|item| item * (3 << 20)).collect();
        assert_eq!(run_all(&rising), 59 * (3 << 20));
        let _all = budget.acquire_all();
        assert_eq!(lock(&budget.bytes).used, 59 * (3 << 20));
    }
}
