//! Why a process was not captured.

use std::io;

use symseal_process::ProcessError;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The process cannot be looked at.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The process asked for is the one that asks.
    #[error("process {pid} is this one: a process cannot stop itself and go on looking")]
    Itself {
        /// The process.
        pid: u32,
    },
    /// Another tracer is there; the kernel allows one.
    #[error("process {pid} is traced already, by process {tracer}: let that one (a debugger?) detach first")]
    AlreadyTraced {
        /// The process.
        pid: u32,
        /// Who traces it.
        tracer: u32,
    },
    /// No thread could be sampled.
    #[error("none of the {threads} threads of process {pid} could be sampled: it ended, or hangs in the kernel")]
    NothingSampled {
        /// The process.
        pid: u32,
        /// Threads seen.
        threads: u64,
    },
    /// A 32-bit process, or another one whose registers are not x86_64's.
    #[error(
        "thread {thread} of process {pid} does not run 64-bit code ({bytes} bytes of registers instead of {expected}): only processes of x86_64 are captured; \
         `gdb -p {pid}` shows its stacks, and `gcore {pid}` writes a core file"
    )]
    OtherArchitecture {
        /// The process.
        pid: u32,
        /// The thread.
        thread: u32,
        /// Bytes of registers found.
        bytes: usize,
        /// Bytes that x86_64 has.
        expected: usize,
    },
    /// The request itself makes no sense.
    #[error("a stack copy of {bytes} bytes was asked for: expected 1 to {most}")]
    StackCopy {
        /// Bytes asked for.
        bytes: u64,
        /// The bound.
        most: u64,
    },
    /// A call failed in a way that it should not.
    #[error("cannot {action} process {pid}: {error}")]
    Call {
        /// The process.
        pid: u32,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        error: io::Error,
    },
    /// Not on this system.
    #[error("live processes can be captured on x86_64 Linux only")]
    Unsupported,
}
