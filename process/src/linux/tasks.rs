//! The threads of a process.

use std::fs;
use std::path::PathBuf;

use super::of_io;
use crate::ProcessError;

/// The thread ids (tids) of a process, as they are now, by rising id.
pub fn tasks(pid: u32) -> Result<Vec<u32>, ProcessError> {
    let path = PathBuf::from(format!("/proc/{pid}/task"));
    let fail = |error| of_io(pid, "list the threads of", path.clone(), error);
    let mut tasks = Vec::new();
    for entry in fs::read_dir(&path).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        tasks.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    tasks.sort_unstable();
    if tasks.is_empty() {
        return Err(ProcessError::NoSuchProcess { pid });
    }
    Ok(tasks)
}

/// A thread's name (at most 15 bytes, of any kind); empty where the thread has ended.
pub fn thread_name(pid: u32, task: u32) -> Vec<u8> {
    let mut name = fs::read(format!("/proc/{pid}/task/{task}/comm")).unwrap_or_default();
    if name.ends_with(b"\n") {
        name.pop();
    }
    name
}
