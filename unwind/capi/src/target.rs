//! Another process: its memory, and stopping a thread of it. (ptrace(2), process_vm_readv(2), proc(5))
#![allow(unsafe_code, reason = "system calls through the C library")]

use core::ffi::c_void;
use core::ptr::null_mut;

use crate::registers::dwunw_registers;
use crate::snapshot;
use crate::status::dwunw_status as S;

/// errno.
pub(crate) fn last_error() -> i32 {
    // SAFETY: a thread's own.
    unsafe { *libc::__errno_location() }
}

/// Reads `size` bytes at `address` of process `pid`, or as many as there are; 0 where there are none. Says where there is no such process, or
/// none that may be read.
pub(crate) fn read_process(pid: i32, address: u64, to: *mut u8, size: usize) -> Result<usize, S> {
    let Ok(from) = usize::try_from(address) else { return Ok(0) };
    let local = libc::iovec { iov_base: to.cast(), iov_len: size };
    let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: size };
    // SAFETY: the caller's buffer has the size; the other process's memory is the kernel's to check.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(read) {
        Ok(read) => Ok(read.min(size)),
        Err(_) => match last_error() {
            libc::ESRCH => Err(S::NoSuchProcess),
            // A kernel or a sandbox without the call; a target that the caller may read through its file alone.
            error @ (libc::ENOSYS | libc::EPERM) => read_file(pid, address, to, size).ok_or_else(|| {
                let is_gone =
                    error == libc::ENOSYS && matches!(last_error(), libc::ENOENT | libc::ESRCH) || has_ended(pid);
                if is_gone { S::NoSuchProcess } else { S::NotPermitted }
            }),
            _ => Ok(0),
        },
    }
}

/// The same through `/proc/PID/mem`; `None` where that cannot be opened.
fn read_file(pid: i32, address: u64, to: *mut u8, size: usize) -> Option<usize> {
    let Ok(at) = libc::off_t::try_from(address) else { return Some(0) };
    let file = Opened::at(&proc_path(pid, b"/mem", None))?;
    // SAFETY: the caller's buffer.
    let read = unsafe { libc::pread(file.0, to.cast(), size, at) };
    Some(usize::try_from(read).unwrap_or(0).min(size))
}

/// Whether a thread is there, and one of another process. Where `/proc` does not tell, it is not said to be.
pub(crate) fn is_of_another(thread: i32, pid: i32) -> bool {
    Opened::at(&proc_path(pid, b"/task/", Some(thread))).is_none()
        && Opened::at(&proc_path(thread, b"", None)).is_some()
}

/// Whether a thread has ended and is still listed. (proc_pid_stat(5): the state stands behind the name, which may hold brackets of its own)
fn has_ended(thread: i32) -> bool {
    let mut stat = [0_u8; 64];
    // SAFETY: the array's own size.
    let read = |file: Opened| unsafe { libc::pread(file.0, stat.as_mut_ptr().cast(), stat.len(), 0) };
    if Opened::at(&proc_path(thread, b"/stat", None)).map(read).is_none() {
        return false;
    }
    let name_ends = stat.iter().rposition(|byte| *byte == b')');
    matches!(name_ends.and_then(|at| stat.get(at + 2)), Some(b'Z' | b'X' | b'x'))
}

/// A file that is closed again.
struct Opened(libc::c_int);

impl Opened {
    /// `path` is terminated.
    #[inline(never)]
    fn at(path: &[u8; PROC_PATH]) -> Option<Self> {
        // SAFETY: a terminated path.
        let file = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (file >= 0).then_some(Self(file))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { libc::close(self.0) };
    }
}

/// Longer than `/proc/`, a number, `/task/`, a number and the end.
const PROC_PATH: usize = 40;

/// `/proc/PID` and what follows, terminated.
#[inline(never)]
fn proc_path(pid: i32, folder: &[u8], thread: Option<i32>) -> [u8; PROC_PATH] {
    let mut path = [0; PROC_PATH];
    let end = append(&mut path, 0, b"/proc/");
    let end = append_number(&mut path, end, pid.unsigned_abs());
    let end = append(&mut path, end, folder);
    if let Some(thread) = thread {
        append_number(&mut path, end, thread.unsigned_abs());
    }
    path
}

/// Writes `text` at `at`, and gives where it ends.
fn append(path: &mut [u8; PROC_PATH], at: usize, text: &[u8]) -> usize {
    let end = at + text.len();
    if let Some(room) = path.get_mut(at..end) {
        room.copy_from_slice(text);
    }
    end
}

/// The same of a number in decimal.
fn append_number(path: &mut [u8; PROC_PATH], at: usize, number: u32) -> usize {
    let at = if number < 10 { at } else { append_number(path, at, number / 10) };
    append(path, at, &[b'0' + (number % 10) as u8])
}

/// A thread that is stopped until this is dropped.
pub(crate) struct Stopped {
    thread: libc::pid_t,
    /// A signal that arrived meanwhile, and that the thread is to get.
    signal: i32,
}

impl Stopped {
    pub(crate) fn stop(thread: i32) -> Result<Self, S> {
        let none = null_mut::<c_void>();
        // SAFETY: no memory is passed.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) } != 0 {
            let error = last_error();
            // One that has ended and was not waited for is no matter of rights, whatever the kernel says.
            return Err(if has_ended(thread) { S::NoSuchProcess } else { refusal(error) });
        }
        let mut stopped = Self { thread, signal: 0 };
        // SAFETY: likewise.
        if unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) } != 0 {
            return Err(refusal(last_error()));
        }
        match stopped.wait() {
            Some(signal) => {
                stopped.signal = signal;
                Ok(stopped)
            }
            None => {
                // It ended instead.
                core::mem::forget(stopped);
                Err(S::NoSuchProcess)
            }
        }
    }

    /// Waits for the stop, and gives the signal that it is for, or 0; `None` where the thread ended. Does not wait within waitpid: another
    /// thread of the caller that waits for any child may be given the stop first, and then it is known by what a stopped thread answers.
    fn wait(&self) -> Option<i32> {
        let mut waited = snapshot::SPINS;
        loop {
            let mut status = 0;
            // SAFETY: room for the answer.
            let found = unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
            if found == self.thread {
                let signal = if status >> 16 == libc::PTRACE_EVENT_STOP { 0 } else { libc::WSTOPSIG(status) };
                return libc::WIFSTOPPED(status).then_some(signal);
            }
            if found < 0 && last_error() != libc::EINTR {
                return None;
            }
            // SAFETY: integers and unions of them.
            let mut told: libc::siginfo_t = unsafe { core::mem::zeroed() };
            let none = null_mut::<c_void>();
            // SAFETY: room for the answer.
            if unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.thread, none, &raw mut told) } == 0 {
                return Some(if told.si_code >> 8 == libc::PTRACE_EVENT_STOP { 0 } else { told.si_signo });
            }
            snapshot::pause(&mut waited);
        }
    }

    pub(crate) fn registers(&self) -> Result<dwunw_registers, S> {
        crate::registers::of_stopped(self.thread)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let signal = self.signal as usize as *mut c_void;
        // SAFETY: no memory is passed; data is the signal's number.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.thread, null_mut::<c_void>(), signal) };
    }
}

fn refusal(error: i32) -> S {
    match error {
        libc::EPERM | libc::EACCES => S::NotPermitted,
        libc::ESRCH => S::NoSuchProcess,
        _ => S::TargetUnreadable,
    }
}
