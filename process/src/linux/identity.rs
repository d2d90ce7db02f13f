//! Whether a process is still the same one, and still runs the same program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{of_io, read_proc};
use crate::{ProcessError, ProcessIdentity};

/// Fields of `/proc/PID/stat` behind the name, counted from 0 (proc_pid_stat(5) counts the state as 3).
const STATE: usize = 0;
const START_TIME: usize = 19;
const START_STACK: usize = 25;

/// Who the process is now. It reads two small files of `/proc`, which wait for nothing.
///
/// # Errors
/// [`ProcessError::NoSuchProcess`] or [`ProcessError::NoMemory`] where it has ended.
pub fn identity_of(pid: u32) -> Result<ProcessIdentity, ProcessError> {
    let stat = read_proc(pid, "stat", "look at")?;
    let ended = || ProcessError::NoMemory { pid };
    // The name may hold blanks and brackets of its own.
    let behind_name = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at.checked_add(2)?..));
    let fields: Vec<&[u8]> = behind_name.unwrap_or_default().split(|byte| *byte == b' ').collect();
    let number = |at: usize| fields.get(at).and_then(|field| str::from_utf8(field).ok()?.parse::<u64>().ok());
    if matches!(fields.get(STATE), Some(&b"Z" | &b"X" | &b"x")) {
        return Err(ended());
    }
    let path = PathBuf::from(format!("/proc/{pid}/exe"));
    let executable = fs::metadata(&path).map_err(|error| match error.kind() {
        // A kernel thread, or a process that has ended and was not waited for.
        std::io::ErrorKind::NotFound => ended(),
        _ => of_io(pid, "look at the executable of", path.clone(), error),
    })?;
    Ok(ProcessIdentity {
        started: number(START_TIME).ok_or_else(ended)?,
        executable: (executable.dev(), executable.ino()),
        stack: number(START_STACK).unwrap_or_default(),
    })
}
