//! Why a process would not tell.

use std::io;
use std::path::PathBuf;

use crate::{KallsymsError, MapsError};

/// Why something could not be learnt about a process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No such process.
    #[error("no process has the id {pid}: it never existed or has ended; `ps` lists those that run")]
    NoSuchProcess {
        /// The id asked for.
        pid: u32,
    },
    /// The id is that of a thread.
    #[error("{pid} is a thread of process {process}: name the process")]
    NotAProcess {
        /// The id asked for.
        pid: u32,
        /// The process that the thread belongs to.
        process: u32,
    },
    /// The kernel refuses.
    #[error("not permitted to {action} process {pid}: {}", advice(*.ptrace_scope))]
    NotPermitted {
        /// The process.
        pid: u32,
        /// What was refused: `read the mappings of`, `stop`, ….
        action: &'static str,
        /// The value of `kernel.yama.ptrace_scope`, where the kernel has that setting.
        ptrace_scope: Option<u8>,
    },
    /// A process without memory of its own.
    #[error("process {pid} has no memory to look at: it is a kernel thread, or has ended and was not waited for")]
    NoMemory {
        /// The process.
        pid: u32,
    },
    /// A file that is not what the process has mapped.
    #[error("{path:?} is not the file that process {pid} has mapped: it was replaced since")]
    Replaced {
        /// The process.
        pid: u32,
        /// The file.
        path: PathBuf,
    },
    /// The kernel's text was not understood.
    #[error("/proc/{pid}/maps: {error}")]
    Maps {
        /// The process.
        pid: u32,
        /// What is wrong.
        error: MapsError,
    },
    /// There are no symbols of the kernel.
    #[error("/proc/kallsyms: {error}")]
    KernelSymbols {
        /// Why not.
        error: KallsymsError,
    },
    /// Any other failure.
    #[error("{path:?}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// The call failed in a way that it should not.
    #[error("cannot {action} process {pid}: {error}")]
    Call {
        /// The process.
        pid: u32,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        error: io::Error,
    },
    /// Not on this operating system.
    #[error("live processes can be looked at on Linux only")]
    Unsupported,
}

fn advice(ptrace_scope: Option<u8>) -> String {
    let usual = "run as the process's own user, as root, or with CAP_SYS_PTRACE";
    match ptrace_scope {
        None | Some(0) => format!("it is not ours; {usual}"),
        Some(1) => format!(
            "kernel.yama.ptrace_scope is 1, so that only descendants may be traced; start it from here, let it call \
             prctl(PR_SET_PTRACER), set the scope to 0 (sysctl kernel.yama.ptrace_scope=0), or {usual}"
        ),
        Some(2) => "kernel.yama.ptrace_scope is 2, so that only root or CAP_SYS_PTRACE may trace".to_owned(),
        Some(scope) => format!("kernel.yama.ptrace_scope is {scope}, which forbids tracing until the next boot"),
    }
}
