//! All threads of a process, standing still.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use symseal_process::{ProcessError, tasks};

use crate::ptrace::{self, Seen};
use crate::{CaptureError, Options};

/// Turns of giving way before sleeping: most threads stop within some microseconds.
const YIELDS: u32 = 100;
const SLEEP: Duration = Duration::from_micros(100);

/// One thread that stands still.
#[derive(Debug)]
pub(crate) struct StoppedThread {
    /// Its id.
    pub(crate) id: u32,
    /// When it was seen to stand still.
    pub(crate) since: Instant,
    /// The signal that it must be given when it goes on.
    signal: libc::c_int,
}

/// Until when threads are waited for.
struct Deadlines {
    all: Instant,
    /// Of those that sleep in the kernel where nothing wakes them.
    sleeping: Instant,
}

/// The threads that stand still. They go on when this is dropped.
#[derive(Debug)]
pub(crate) struct StoppedThreads {
    pid: u32,
    threads: Vec<StoppedThread>,
    /// Threads that were there, and ended or did not stop.
    lost: u64,
}

impl StoppedThreads {
    /// Stops every thread, those included that others start meanwhile.
    ///
    /// The calling thread becomes their tracer. One that hangs in the kernel stays traced until the calling
    /// thread ends: it cannot be let go before it stops.
    pub(crate) fn stop_all(pid: u32, options: &Options) -> Result<Self, CaptureError> {
        let mut stopped = Self { pid, threads: Vec::new(), lost: 0 };
        let began = Instant::now();
        let deadlines = Deadlines { all: began + options.stop_timeout, sleeping: began + options.sleeping_timeout };
        let mut known = BTreeSet::new();
        loop {
            let new: Vec<u32> = tasks(pid)?.into_iter().filter(|task| known.insert(*task)).collect();
            // Threads that stand still start no others: once a look finds no new one, there will be none.
            if new.is_empty() {
                return Ok(stopped);
            }
            let mut pending = Vec::with_capacity(new.len());
            for task in new {
                if stopped.ask_to_stop(task)? {
                    pending.push(task);
                }
            }
            stopped.wait_for(pending, &deadlines)?;
        }
    }

    /// The threads.
    pub(crate) fn threads(&self) -> &[StoppedThread] {
        &self.threads
    }

    /// Threads that were there, and ended or did not stop.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Lets all go on. Gives each thread's id with the time that it stood still.
    pub(crate) fn release(mut self) -> Vec<(u32, Duration)> {
        self.threads.drain(..).map(release_one).collect()
    }

    fn ask_to_stop(&mut self, task: u32) -> Result<bool, CaptureError> {
        match ptrace::seize(task).and_then(|()| ptrace::interrupt(task)) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::ESRCH) => {
                    self.lost = self.lost.saturating_add(1);
                    Ok(false)
                }
                Some(libc::EPERM) => self.refused(task),
                _ => Err(CaptureError::Call { pid: self.pid, action: "stop", error }),
            },
        }
    }

    /// EPERM: the thread has ended but is still listed, another tracer has it, or we may not.
    fn refused(&mut self, task: u32) -> Result<bool, CaptureError> {
        let status = Status::of(&format!("{}/task/{task}", self.pid));
        let field = |name: &str| status.field(name);
        let ended = field("State:").is_none_or(|state| state.starts_with(['Z', 'X']));
        if ended {
            // A first thread that ended is listed for as long as others run.
            self.lost = self.lost.saturating_add(u64::from(task != self.pid));
            return Ok(false);
        }
        match field("TracerPid:").and_then(|tracer| tracer.parse().ok()) {
            None | Some(0) => {
                let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
                let ptrace_scope = scope.and_then(|text| text.trim().parse().ok());
                Err(ProcessError::NotPermitted { pid: self.pid, action: "trace", ptrace_scope }.into())
            }
            Some(tracer) => Err(CaptureError::AlreadyTraced { pid: self.pid, tracer: process_of(tracer) }),
        }
    }

    fn wait_for(&mut self, mut pending: Vec<u32>, deadlines: &Deadlines) -> Result<(), CaptureError> {
        let mut turn = 0u32;
        while !pending.is_empty() {
            let mut still_pending = Vec::new();
            for task in pending.drain(..) {
                match ptrace::poll(task, task != self.pid).map_err(|error| self.failed_to_wait(error))? {
                    Seen::Running => still_pending.push(task),
                    Seen::Stopped { signal } => {
                        self.threads.push(StoppedThread { id: task, since: Instant::now(), signal });
                    }
                    Seen::Gone => self.lost = self.lost.saturating_add(1),
                }
            }
            let now = Instant::now();
            let waiting = still_pending.len();
            if now >= deadlines.sleeping {
                still_pending.retain(|task| now < deadlines.all && !self.sleeps_in_the_kernel(*task));
            }
            self.lost = self.lost.saturating_add((waiting - still_pending.len()) as u64);
            pending = still_pending;
            turn = turn.saturating_add(1);
            if turn < YIELDS { thread::yield_now() } else { thread::sleep(SLEEP) }
        }
        Ok(())
    }

    /// Whether the thread sleeps where only the kernel wakes it.
    fn sleeps_in_the_kernel(&self, task: u32) -> bool {
        let status = Status::of(&format!("{}/task/{task}", self.pid));
        status.field("State:").is_some_and(|state| state.starts_with('D'))
    }

    fn failed_to_wait(&self, error: io::Error) -> CaptureError {
        CaptureError::Call { pid: self.pid, action: "wait for the threads of", error }
    }
}

impl Drop for StoppedThreads {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            release_one(thread);
        }
    }
}

/// What the kernel says of a thread (proc(5), `status`); nothing of one that is gone.
struct Status(String);

impl Status {
    /// Of the thread in this folder of `/proc`.
    fn of(thread: &str) -> Self {
        Self(fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default())
    }

    /// What stands behind `name`, the colon included.
    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }
}

/// The process that a thread belongs to: it is threads that trace.
fn process_of(thread: u32) -> u32 {
    Status::of(&thread.to_string()).field("Tgid:").and_then(|process| process.parse().ok()).unwrap_or(thread)
}

fn release_one(thread: StoppedThread) -> (u32, Duration) {
    // The only failure is that the thread was killed meanwhile.
    let _ = ptrace::detach(thread.id, thread.signal);
    (thread.id, thread.since.elapsed())
}
