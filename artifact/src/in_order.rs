//! Work that is done by several threads and taken in order.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// Makes the parts `0..count`, on as many threads, each with a state of its own, and gives them to `take` by their
/// numbers. After `take` has broken off, parts that were begun are still finished, and none is begun.
pub(crate) fn in_order<S: Default, T: Send, R>(
    count: usize,
    threads: NonZeroUsize,
    make: impl Fn(&mut S, usize) -> T + Sync,
    mut take: impl FnMut(T) -> ControlFlow<R>,
) -> ControlFlow<R> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let claim = || {
        let part = next.fetch_add(1, Ordering::Relaxed);
        (part < count && !stop.load(Ordering::Relaxed)).then_some(part)
    };
    let workers = threads.get().min(count);
    if workers <= 1 {
        let mut state = S::default();
        return (0..count).try_for_each(|part| take(make(&mut state, part)));
    }
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        // Where the system gives no thread, the others do its work.
        let spawned = (0..workers).filter(|_| {
            let sender = sender.clone();
            let (claim, make) = (&claim, &make);
            let work = move || {
                let mut state = S::default();
                while let Some(part) = claim() {
                    if sender.send((part, make(&mut state, part))).is_err() {
                        break;
                    }
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, work).is_ok()
        });
        let spawned = spawned.count();
        drop(sender);
        if spawned == 0 {
            let mut state = S::default();
            return (0..count).try_for_each(|part| take(make(&mut state, part)));
        }
        let mut waiting = BTreeMap::new();
        let mut wanted = 0;
        for (part, made) in receiver {
            waiting.insert(part, made);
            while let Some(made) = waiting.remove(&wanted) {
                wanted += 1;
                let taken = take(made);
                if taken.is_break() {
                    stop.store(true, Ordering::Relaxed);
                    return taken;
                }
            }
        }
        ControlFlow::Continue(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_in_order_whatever_the_threads() {
        for threads in [1, 2, 7] {
            let mut taken = Vec::new();
            let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
            let end = in_order(
                100,
                threads,
                |made: &mut usize, part| {
                    *made += 1;
                    if part % 7 == 0 {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    part
                },
                |part| {
                    taken.push(part);
                    if part == 80 { ControlFlow::Break(part) } else { ControlFlow::Continue(()) }
                },
            );
            assert_eq!((end, taken), (ControlFlow::Break(80), (0..=80).collect()));
        }
    }
}
