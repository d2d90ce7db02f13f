//! The live half: `/proc` and `process_vm_readv`.

mod followed;
pub(crate) mod identity;
pub(crate) mod jit;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod modules;
mod neighbours;
pub(crate) mod open;
pub(crate) mod root;
pub(crate) mod tasks;
pub(crate) mod vdso;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::{Mapping, ProcessError, maps};

const DELETED: &[u8] = b" (deleted)";

/// The mappings of a process, as they are now.
pub fn proc_maps(pid: u32) -> Result<Vec<Mapping>, ProcessError> {
    check_is_process(pid)?;
    let text = read_proc(living(pid), "maps", "read the mappings of")?;
    let mappings = maps::parse(&text).map_err(|error| ProcessError::Maps { pid, error })?;
    if mappings.is_empty() {
        return Err(ProcessError::NoMemory { pid });
    }
    Ok(mappings)
}

/// The path of the process's executable as the process sees it, without ` (deleted)`.
pub fn executable_of(pid: u32) -> Result<Vec<u8>, ProcessError> {
    let path = PathBuf::from(format!("/proc/{}/exe", living(pid)));
    let target = fs::read_link(&path).map_err(|error| of_io(pid, "look at the executable of", path, error))?;
    let mut target = target.into_os_string().into_vec();
    if target.ends_with(DELETED) {
        target.truncate(target.len().saturating_sub(DELETED.len()));
    }
    Ok(target)
}

/// The id under which `/proc` shows what the threads of a process share, and by which the kernel reads their memory: the process's own, but where its first
/// thread has ended (`pthread_exit` in `main`) and others run on, that of one of these. Of a first thread that ended the kernel shows no mappings, files or
/// memory. A thread's id has a folder in `/proc` too, though no listing shows it.
///
/// Where no thread runs any more, or there is no such process, it is `pid` itself.
pub fn living(pid: u32) -> u32 {
    if !has_ended(pid) {
        return pid;
    }
    tasks::tasks(pid).unwrap_or_default().into_iter().find(|task| !has_ended(*task)).unwrap_or(pid)
}

/// Whether a thread has ended and is still listed.
fn has_ended(thread: u32) -> bool {
    identity::Stat::read(thread).is_ok_and(|stat| stat.has_ended())
}

/// A thread's id has a folder in `/proc` too, though no listing shows it.
fn check_is_process(pid: u32) -> Result<(), ProcessError> {
    match process_of(pid)? {
        process if process != pid => Err(ProcessError::NotAProcess { pid, process }),
        _ => Ok(()),
    }
}

/// The process that the thread `id` belongs to; of a process itself its own id.
///
/// # Errors
/// Where there is no such thread.
pub fn process_of(id: u32) -> Result<u32, ProcessError> {
    let status = read_proc(id, "status", "look at")?;
    let process = status.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(b"Tgid:")?;
        str::from_utf8(value).ok()?.trim().parse().ok()
    });
    Ok(process.unwrap_or(id))
}

/// The whole of `/proc/PID/NAME`.
fn read_proc(pid: u32, name: &str, action: &'static str) -> Result<Vec<u8>, ProcessError> {
    let path = PathBuf::from(format!("/proc/{pid}/{name}"));
    fs::read(&path).map_err(|error| of_io(pid, action, path, error))
}

/// What an error from `/proc/PID` means.
pub(crate) fn of_io(pid: u32, action: &'static str, path: PathBuf, error: io::Error) -> ProcessError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) if !fs::exists(format!("/proc/{pid}")).unwrap_or(false) => {
            ProcessError::NoSuchProcess { pid }
        }
        // A process that ended between two reads answers so.
        Some(libc::ESRCH) => ProcessError::NoMemory { pid },
        Some(libc::EACCES | libc::EPERM) => not_permitted(pid, action),
        _ => ProcessError::Io { path, error },
    }
}

/// The refusal, with what the kernel's settings say about it.
pub(crate) fn not_permitted(pid: u32, action: &'static str) -> ProcessError {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    ProcessError::NotPermitted { pid, action, ptrace_scope: scope.ok().and_then(|text| text.trim().parse().ok()) }
}
