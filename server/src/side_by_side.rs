//! Work on many things at once, where a start would wait for one after the other.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Requests of an object store that are under way at once for one who waits for all of them.
pub(crate) const REQUESTS_AT_ONCE: usize = 32;

/// Does the work for each of the items, on as many threads as there are processors; what came of it is in the order of the items. Blocks.
///
/// # Errors
/// That of the first item, in their order, whose work failed. Items behind it may have been worked on.
pub(crate) fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> io::Result<R> + Sync,
) -> io::Result<Vec<R>> {
    on_threads(thread::available_parallelism().map_or(1, usize::from), items, work)
}

/// [`side_by_side`] for work that mostly waits for an object store.
///
/// # Errors
/// As above.
pub(crate) fn waiting_side_by_side<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> io::Result<R> + Sync,
) -> io::Result<Vec<R>> {
    on_threads(REQUESTS_AT_ONCE, items, work)
}

fn on_threads<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> io::Result<R> + Sync,
) -> io::Result<Vec<R>> {
    let threads = threads.min(items.len());
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            let result = work(item);
            let failed = result.is_err();
            done.push((at, result));
            if failed {
                // Nobody begins anything behind it.
                next.store(items.len(), Ordering::Relaxed);
            }
        }
    };
    let mut all = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(take)).collect();
        let mut all = take();
        for other in others {
            // A panic of the work goes on in the caller.
            all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_an_error_is_that_of_the_first_item() {
        let items: Vec<usize> = (0..1000).collect();
        assert_eq!(
            side_by_side(&items, |item| Ok(item * 2)).unwrap(),
            items.iter().map(|item| item * 2).collect::<Vec<_>>()
        );
        assert!(side_by_side(&[] as &[usize], |_| Ok(())).unwrap().is_empty());
        let failed =
            side_by_side(
                &items,
                |item| if item % 100 == 99 { Err(io::Error::other(item.to_string())) } else { Ok(()) },
            );
        assert!(failed.unwrap_err().to_string().ends_with("99"));
    }
}
