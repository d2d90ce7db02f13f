//! Whether a process is still the same one, and still runs the same program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{has_ended, living, of_io, read_proc};
use crate::{ProcessError, ProcessIdentity};

/// Fields of `/proc/PID/stat` behind the name, counted from 0 (proc_pid_stat(5) counts the state as 3).
const START_TIME: usize = 19;
const START_STACK: usize = 25;

/// The fields of `/proc/PID/stat` behind the name, which may hold blanks and brackets of its own.
pub(super) fn fields_of(stat: &[u8]) -> Vec<&[u8]> {
    let behind_name = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at.checked_add(2)?..));
    behind_name.unwrap_or_default().split(|byte| *byte == b' ').collect()
}

/// Who the process is now. It reads two small files of `/proc`, which wait for nothing.
///
/// # Errors
/// [`ProcessError::NoSuchProcess`] or [`ProcessError::NoMemory`] where it has ended.
pub fn identity_of(pid: u32) -> Result<ProcessIdentity, ProcessError> {
    let stat = read_proc(pid, "stat", "look at")?;
    let ended = || ProcessError::NoMemory { pid };
    let fields = fields_of(&stat);
    let number = |fields: &[&[u8]], at: usize| str::from_utf8(fields.get(at)?).ok()?.parse::<u64>().ok();
    let living = living(pid);
    if living == pid && has_ended(pid) {
        return Err(ended());
    }
    let path = PathBuf::from(format!("/proc/{living}/exe"));
    let executable = fs::metadata(&path).map_err(|error| match error.kind() {
        // A kernel thread, or a process that has ended and was not waited for.
        std::io::ErrorKind::NotFound => ended(),
        _ => of_io(pid, "look at the executable of", path.clone(), error),
    })?;
    Ok(ProcessIdentity {
        started: number(&fields, START_TIME).ok_or_else(ended)?,
        executable: (executable.dev(), executable.ino()),
        // Told by a thread that has memory still.
        stack: number(&fields_of(&read_proc(living, "stat", "look at")?), START_STACK).unwrap_or_default(),
    })
}
