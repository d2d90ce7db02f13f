//! Whether a process is still the same one, and still runs the same program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{living, of_io, read_proc};
use crate::{ProcessError, ProcessIdentity};

/// What `/proc/PID/stat` tells of a thread, the first of a process among them.
pub(super) struct Stat(Vec<u8>);

impl Stat {
    /// Fields behind the name, counted from 0 (proc_pid_stat(5) counts the state as 3).
    const STATE: usize = 0;
    const START_TIME: usize = 19;
    const START_STACK: usize = 25;

    pub(super) fn read(thread: u32) -> Result<Self, ProcessError> {
        read_proc(thread, "stat", "look at").map(Self)
    }

    /// A field behind the name, which may hold blanks and brackets of its own.
    fn field(&self, at: usize) -> Option<&[u8]> {
        let behind_name = self.0.iter().rposition(|byte| *byte == b')').and_then(|at| self.0.get(at.checked_add(2)?..));
        behind_name?.split(|byte| *byte == b' ').nth(at)
    }

    fn number(&self, at: usize) -> Option<u64> {
        str::from_utf8(self.field(at)?).ok()?.parse().ok()
    }

    /// Whether the thread has ended and is still listed.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.field(Self::STATE), Some(b"Z" | b"X" | b"x"))
    }
}

/// Who the process is now. It reads two small files of `/proc`, which wait for nothing, and more where the first thread has ended.
///
/// # Errors
/// [`ProcessError::NoSuchProcess`] or [`ProcessError::NoMemory`] where it has ended.
pub fn identity_of(pid: u32) -> Result<ProcessIdentity, ProcessError> {
    let ended = || ProcessError::NoMemory { pid };
    let first = Stat::read(pid)?;
    // A thread that has memory still, and what it tells.
    let (living, stat) = if first.has_ended() {
        let living = living(pid);
        if living == pid {
            return Err(ended());
        }
        (living, &Stat::read(living)?)
    } else {
        (pid, &first)
    };
    let path = PathBuf::from(format!("/proc/{living}/exe"));
    let executable = fs::metadata(&path).map_err(|error| match error.kind() {
        // A kernel thread, or a process that has ended and was not waited for.
        std::io::ErrorKind::NotFound => ended(),
        _ => of_io(pid, "look at the executable of", path.clone(), error),
    })?;
    Ok(ProcessIdentity {
        started: first.number(Stat::START_TIME).ok_or_else(ended)?,
        executable: (executable.dev(), executable.ino()),
        stack: stat.number(Stat::START_STACK).unwrap_or_default(),
    })
}
