//! The five ptrace calls that a capture makes (ptrace(2)), and the wait that goes with them.

use std::io;
use std::mem;
use std::ptr;

use libc::{c_int, c_void, pid_t, user_regs_struct};

/// What ptrace(2)'s first argument is: the C libraries do not agree.
#[cfg(target_env = "musl")]
type Request = c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

/// The register set of general registers (`NT_PRSTATUS` of core files).
const NT_PRSTATUS: usize = 1;

/// What waiting for a thread gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing yet.
    Running,
    /// It stands still. The signal (0 = none) was about to be delivered, and has to be handed back with [`detach`].
    Stopped {
        /// The signal's number.
        signal: c_int,
    },
    /// It has ended.
    Gone,
}

/// Registers, or the number of bytes that a thread of another architecture has of them.
pub(crate) enum Registers {
    Native(Box<user_regs_struct>),
    Other { bytes: usize },
}

/// What x86_64 has of general registers, in bytes.
pub(crate) const REGISTER_BYTES: usize = size_of::<user_regs_struct>();

/// Becomes the tracer of a thread, without stopping it. No options: new threads are found by looking again.
pub(crate) fn seize(thread: u32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, thread, 0, ptr::null_mut())
}

/// Asks a seized thread to stop.
pub(crate) fn interrupt(thread: u32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0, ptr::null_mut())
}

/// Lets a stopped thread go on, untraced, with `signal` delivered (0 = none).
pub(crate) fn detach(thread: u32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_DETACH, thread, 0, signal as usize as *mut c_void)
}

/// The general registers of a stopped thread.
#[allow(unsafe_code)]
pub(crate) fn registers(thread: u32) -> io::Result<Registers> {
    // SAFETY: `user_regs_struct` consists of integers only; all zeroes is a value of it.
    let mut registers: Box<user_regs_struct> = Box::new(unsafe { mem::zeroed() });
    let mut area = libc::iovec { iov_base: ptr::from_mut(&mut *registers).cast(), iov_len: REGISTER_BYTES };
    // The kernel writes at most `iov_len` bytes to `iov_base`, and the number written to `iov_len`.
    request(libc::PTRACE_GETREGSET, thread, NT_PRSTATUS, ptr::from_mut(&mut area).cast())?;
    if area.iov_len == REGISTER_BYTES {
        Ok(Registers::Native(registers))
    } else {
        Ok(Registers::Other { bytes: area.iov_len })
    }
}

/// Looks, without waiting, whether a seized thread has stopped or ended. `reap` says whether the end of the thread may be
/// taken off the kernel's books: not that of a process leader, whose parent wants to know (and that may be us).
pub(crate) fn poll(thread: u32, reap: bool) -> io::Result<Seen> {
    let thread = native(thread)?;
    let Some(code) = peek(thread)? else { return Ok(Seen::Running) };
    let ended = matches!(code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
    if ended && !reap {
        return Ok(Seen::Gone);
    }
    match take(thread)? {
        None => Ok(Seen::Running),
        Some(status) if !libc::WIFSTOPPED(status) => Ok(Seen::Gone),
        // A signal-delivery stop: the signal is lost unless it is handed back.
        Some(status) if status >> 16 == 0 => Ok(Seen::Stopped { signal: libc::WSTOPSIG(status) }),
        // PTRACE_EVENT_STOP: our own interruption, or a group stop, which goes on after we detach.
        Some(_) => Ok(Seen::Stopped { signal: 0 }),
    }
}

/// What there is to be told about a thread (`si_code` of waitid(2)), left for [`take`].
#[allow(unsafe_code)]
fn peek(thread: pid_t) -> io::Result<Option<c_int>> {
    let options = libc::WEXITED | libc::WSTOPPED | libc::__WALL | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `siginfo_t` is plain data; all zeroes is a value of it, the one that means "nothing to tell".
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    // SAFETY: `info` is ours to write, and lives for the whole call.
    let result = unsafe { libc::waitid(libc::P_PID, thread as libc::id_t, &mut info, options) };
    if result == -1 {
        return gone_or(io::Error::last_os_error(), Some(libc::CLD_EXITED));
    }
    // SAFETY: waitid(2) fills the SIGCHLD members of `info`, or leaves the zeroes of above.
    let pid = unsafe { info.si_pid() };
    Ok((pid != 0).then_some(info.si_code))
}

/// The status of a thread that [`peek`] saw something of.
#[allow(unsafe_code)]
fn take(thread: pid_t) -> io::Result<Option<c_int>> {
    let mut status = 0;
    // SAFETY: `status` is ours to write, and lives for the whole call.
    let waited = unsafe { libc::waitpid(thread, &mut status, libc::__WALL | libc::WNOHANG) };
    match waited {
        -1 => gone_or(io::Error::last_os_error(), Some(0)),
        0 => Ok(None),
        _ => Ok(Some(status)),
    }
}

/// A thread that nobody can be told about any more has ended.
fn gone_or<T>(error: io::Error, gone: T) -> io::Result<T> {
    if error.raw_os_error() == Some(libc::ECHILD) { Ok(gone) } else { Err(error) }
}

#[allow(unsafe_code)]
fn request(request: Request, thread: u32, address: usize, data: *mut c_void) -> io::Result<()> {
    let thread = native(thread)?;
    // SAFETY: of the requests made in this file, only PTRACE_GETREGSET lets the kernel write to our memory: to
    // the iovec that `data` points to, and to the buffer that this names; both live for the whole call. The
    // others take `data` as a number.
    let result = unsafe { libc::ptrace(request, thread, address as *mut c_void, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn native(thread: u32) -> io::Result<pid_t> {
    pid_t::try_from(thread).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
}
