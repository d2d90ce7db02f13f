//! Traces from live processes.
//!
//! [`capture`] stops every thread of a process through ptrace, copies registers and stack memory of all of them
//! while all of them stand still, and lets them go on. What is slow (finding modules, reading build-ids) is
//! done before the stop; it is repeated within only where the mappings of code changed meanwhile.
//!
//! The process goes on as if nothing had happened: signals that arrive during the stop are delivered after
//! it, a stopped process (`SIGSTOP`) stays stopped, interrupted system calls are restarted by the kernel (except the few
//! that signal(7) lists, `epoll_wait` among them: they return `EINTR`, as after any stop). Should the
//! capturing thread die, the kernel lets the process go on by itself.
//!
//! While a capture of one of your own children runs, do not wait for that child in another thread: the
//! kernel would tell the stops to whoever asks first.
//!
//! Of a thread of Go that runs on its own stack, the stack of the goroutine that it works for goes with it, and what leads there; of asynchronous functions
//! of Swift and tasks of tokio, what leads to those that wait for them.
//! What no release artifact holds goes with it: the image of the vDSO, and the names of code that the process made, as far as its runtime tells them.
//!
//! What it does not do: unwind or name anything. That needs no live process.
#![deny(unsafe_code)]

mod contexts;
mod coroutines;
mod error;
mod goroutines;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod jit;
mod made;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod registers;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod session;
mod stacks;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stopped;
mod tasks;

use std::fs::File;
use std::time::Duration;

use symseal_module::DebugId;
use symseal_trace::Trace;

pub use error::CaptureError;

/// The bytes copied upwards from each stack pointer unless asked otherwise: eight times what measured C++
/// and Python programs needed for complete stacks.
pub const DEFAULT_STACK_COPY_BYTES: u64 = 64 << 10;

/// The most bytes that can be asked for: a main thread's usual limit.
pub const MAX_STACK_COPY_BYTES: u64 = 8 << 20;

/// How to capture.
#[derive(Debug, Clone)]
pub struct Options {
    /// The most bytes to copy upwards from each stack pointer, at most [`MAX_STACK_COPY_BYTES`].
    pub stack_copy_bytes: u64,
    /// How long to wait for the threads to stop. One that does not is counted as lost.
    pub stop_timeout: Duration,
    /// How long to wait for threads that sleep in the kernel where nothing wakes them (`vfork`, a file system that hangs), while the others stand
    /// still for them. One that goes on sleeping is counted as lost.
    pub sleeping_timeout: Duration,
    /// Gives the debug id of a file without a build-id, as those who look for its module later will work it out. It is asked before the stop, with the very
    /// file that is mapped. Without it such modules have no debug id.
    pub identify: Option<fn(File) -> Option<DebugId>>,
    /// Written to `trace.begin` as the program that made the trace.
    pub producer: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stack_copy_bytes: DEFAULT_STACK_COPY_BYTES,
            stop_timeout: Duration::from_secs(2),
            sleeping_timeout: Duration::from_millis(50),
            identify: None,
            producer: concat!("symseal ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// Captures every thread of the process `pid`.
///
/// The threads are stopped together, so that their stacks belong to one instant; each sample says for how long.
pub fn capture(pid: u32, options: &Options) -> Result<Trace, CaptureError> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return session::capture(pid, options);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    {
        let _ = (pid, options);
        Err(CaptureError::Unsupported)
    }
}
