//! A few threads that read files so that nobody else has to wait for it.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Jobs that wait at most; who would add more is told so.
const MAX_WAITING: usize = 4096;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub(super) struct Pool {
    queue: Arc<Queue>,
    threads: usize,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    running: usize,
    idle: usize,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of so many threads, each started when it has something to do.
    pub(super) fn new(threads: usize) -> Self {
        Self { queue: Arc::default(), threads: threads.max(1) }
    }

    /// Has a thread do it at some time. False where too many jobs wait, or no thread can be started.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.jobs.len() >= MAX_WAITING {
            return false;
        }
        if state.idle <= state.jobs.len() && state.running < self.threads {
            let queue = Arc::clone(&self.queue);
            let started = std::thread::Builder::new().name("symseal-live".into()).spawn(move || work(&queue));
            match started {
                Ok(_) => state.running = state.running.saturating_add(1),
                Err(_) if state.running == 0 => return false,
                Err(_) => {}
            }
        }
        state.jobs.push_back(Box::new(job));
        drop(state);
        self.queue.changed.notify_one();
        true
    }
}

impl Drop for Pool {
    /// Ends the threads after what each is doing; nobody waits for them, as one of them may be the one that drops.
    fn drop(&mut self) {
        let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        let waiting = std::mem::take(&mut state.jobs);
        drop(state);
        drop(waiting);
        self.queue.changed.notify_all();
    }
}

fn work(queue: &Queue) {
    loop {
        let mut state = queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        let job = loop {
            if state.closed {
                return;
            }
            if let Some(job) = state.jobs.pop_front() {
                break job;
            }
            state.idle = state.idle.saturating_add(1);
            state = queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle = state.idle.saturating_sub(1);
        };
        drop(state);
        // A job that panics ends alone. What it was to make is made by the next one who needs it.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn jobs_are_done_beside_each_other_and_a_panic_ends_only_its_own() {
        let pool = Pool::new(2);
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let (sender, receiver) = mpsc::channel();
        assert!(pool.submit(|| panic!("on purpose: a job that panics")));
        for number in 0..2 {
            let (barrier, sender) = (Arc::clone(&barrier), sender.clone());
            assert!(pool.submit(move || {
                barrier.wait();
                let _ = sender.send(number);
            }));
        }
        let mut done: Vec<i32> = (0..2).map(|_| receiver.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        done.sort_unstable();
        assert_eq!(done, [0, 1]);
    }

    #[test]
    fn a_pool_that_is_dropped_forgets_what_waits() {
        let (sender, receiver) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let pool = Pool::new(1);
        assert!(pool.submit(move || {
            let _ = begun.send(());
            let _ = gate.recv();
        }));
        begins.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(pool.submit(move || {
            let _ = sender.send(());
        }));
        drop(pool);
        drop(go);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
