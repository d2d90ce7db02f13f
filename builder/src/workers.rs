//! Threads that share a budget of memory.
//!
//! What a file needs in memory grows with its size, so concurrency is bounded by bytes and not by a count of threads alone.
//! The threads are our own and not a rayon pool's: a thread of a pool that waits for memory may hold a piece of the
//! work that would free it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of input that are worked on at once, where no single file is larger: enough to keep the threads busy with small
/// files.
const LEAST_BUDGET: u64 = 64 << 20;

/// Bytes that may be worked on at the same time. Something larger than the whole is worked on alone.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// Bytes of a [`Budget`], given back when it is dropped. A thread holds one at most, or it could wait for itself.
#[derive(Debug)]
pub(crate) struct Permit<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl Budget {
    /// As much as the largest piece of work needs: what is done beside it must not double the peak.
    pub(crate) fn for_largest(bytes: u64) -> Self {
        Self { total: bytes.max(LEAST_BUDGET), used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until `bytes` are free.
    pub(crate) fn acquire(&self, bytes: u64) -> Permit<'_> {
        let mut used = lock(&self.used);
        while *used > 0 && used.saturating_add(bytes) > self.total {
            used = self.freed.wait(used).unwrap_or_else(PoisonError::into_inner);
        }
        *used = used.saturating_add(bytes);
        Permit { budget: self, bytes }
    }

    /// Waits until nothing else is worked on: for work whose size is not known beforehand.
    pub(crate) fn acquire_all(&self) -> Permit<'_> {
        self.acquire(self.total)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut used = lock(&self.budget.used);
        *used = used.saturating_sub(self.bytes);
        self.budget.freed.notify_all();
    }
}

/// Does `work` on every item with `jobs` threads, in the given order; the results in the order of the items. After an error
/// no further item is begun, and of the errors that came the one of the earliest item is returned.
pub(crate) fn run<T: Sync, R: Send, E: Send>(
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
    fn no_more_bytes_are_worked_on_than_the_budget_allows_and_the_largest_is_alone() {
        let budget = Budget::for_largest(0);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let items: Vec<u64> = (1..60).map(|item| item * (3 << 20)).collect();
        run(&items, 8, |bytes| {
            let _permit = budget.acquire(*bytes);
            let used = now.fetch_add(*bytes, Ordering::SeqCst) + bytes;
            if *bytes <= LEAST_BUDGET {
                most.fetch_max(used, Ordering::SeqCst);
            } else {
                assert_eq!(used, *bytes);
            }
            std::thread::yield_now();
            now.fetch_sub(*bytes, Ordering::SeqCst);
            Ok::<_, ()>(())
        })
        .unwrap();
        assert!(most.load(Ordering::SeqCst) <= LEAST_BUDGET);
    }
}
