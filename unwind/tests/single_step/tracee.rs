//! A process that runs one instruction at a time.
#![allow(unsafe_code, reason = "ptrace has no safe form")]

use std::ffi::CString;
use std::io::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A stopped child under ptrace. Killed when dropped.
pub(crate) struct Tracee {
    pid: libc::pid_t,
}

/// Why a step ended.
pub(crate) enum Stop {
    /// One instruction was run, or a signal handler entered.
    Step,
    /// A signal is about to be delivered.
    Signal(i32),
    Exited(i32),
}

impl Tracee {
    /// Starts `program`, stopped at its first instruction.
    pub(crate) fn start(program: &Path) -> Result<Self, Error> {
        let path = CString::new(program.as_os_str().as_bytes())?;
        let arguments = [path.as_ptr(), std::ptr::null()];
        let environment = [c"LC_ALL=C".as_ptr(), std::ptr::null()];
        // SAFETY: between fork and exec the child calls async-signal-safe functions alone.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; the arrays end with null and outlive the calls.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                libc::_exit(127);
            }
        }
        if pid < 0 {
            return Err(Error::last_os_error());
        }
        let tracee = Self { pid };
        match tracee.wait()? {
            Stop::Step => Ok(tracee),
            Stop::Signal(signal) => Err(Error::other(format!("stopped by signal {signal}"))),
            Stop::Exited(status) => Err(Error::other(format!("ended with status {status}: ptrace is not permitted"))),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    fn wait(&self) -> Result<Stop, Error> {
        let mut status = 0;
        // SAFETY: the pointer is to a live integer.
        if unsafe { libc::waitpid(self.pid, &mut status, 0) } < 0 {
            return Err(Error::last_os_error());
        }
        Ok(if libc::WIFSTOPPED(status) {
            match libc::WSTOPSIG(status) {
                libc::SIGTRAP => Stop::Step,
                signal => Stop::Signal(signal),
            }
        } else if libc::WIFSIGNALED(status) {
            Stop::Exited(128 + libc::WTERMSIG(status))
        } else {
            Stop::Exited(libc::WEXITSTATUS(status))
        })
    }

    /// Runs one instruction, delivering `signal` first if it is not 0.
    pub(crate) fn step(&self, signal: i32) -> Result<Stop, Error> {
        // SAFETY: no pointers are passed.
        if unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, signal as libc::c_long) } < 0 {
            return Err(Error::last_os_error());
        }
        self.wait()
    }

    pub(crate) fn registers(&self) -> Result<libc::user_regs_struct, Error> {
        // SAFETY: the structure is plain integers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one such structure.
        if unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers) } < 0 {
            return Err(Error::last_os_error());
        }
        Ok(registers)
    }

    /// Reads as much of `into` as is mapped from `address` on; gives the bytes read.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
        // SAFETY: `local` describes a live buffer; `remote` is only used in the other process.
        let read = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        usize::try_from(read).unwrap_or(0)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // SAFETY: no pointers are passed.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}
