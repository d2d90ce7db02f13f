//! A process that runs one instruction at a time.
#![allow(unsafe_code, reason = "ptrace has no safe form")]

use std::ffi::CString;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use symseal_module::Avma;
use symseal_unwind::Memory;

/// The registers of the stopped process.
pub(crate) type Instant = libc::user_regs_struct;

/// A stopped child under ptrace. Killed when dropped.
pub(crate) struct Tracee {
    pid: libc::pid_t,
}

/// Why a step ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// One instruction was run, or a signal handler entered.
    Step,
    /// A signal is about to be delivered.
    Signal(i32),
    Exited(i32),
}

/// The child's status where it may not be traced.
const FORBIDDEN: i32 = 126;
const BREAKPOINT: u8 = 0xcc;

/// All of the process, as a debugger sees it.
impl Memory for Tracee {
    fn read_u64(&self, address: Avma) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address.0, &mut bytes) == bytes.len()).then(|| u64::from_le_bytes(bytes))
    }
}

impl Tracee {
    /// Starts `program` with one argument, stopped at its first instruction. [`ErrorKind::PermissionDenied`] says that this machine
    /// forbids ptrace.
    pub(crate) fn start(program: &Path, argument: &str) -> Result<Self, Error> {
        let (path, argument) = (CString::new(program.as_os_str().as_bytes())?, CString::new(argument)?);
        let arguments = [path.as_ptr(), argument.as_ptr(), std::ptr::null()];
        let environment = [c"LC_ALL=C".as_ptr(), std::ptr::null()];
        // SAFETY: between fork and exec the child calls async-signal-safe functions alone.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; the arrays end with null and outlive the calls.
            unsafe {
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                    libc::_exit(FORBIDDEN);
                }
                // What it prints is for nobody.
                let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                libc::dup2(nowhere, 1);
                libc::dup2(nowhere, 2);
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
            Stop::Exited(FORBIDDEN) => Err(Error::new(ErrorKind::PermissionDenied, "ptrace is not permitted")),
            Stop::Exited(status) => Err(Error::other(format!("ended with status {status}"))),
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

    /// Runs on to the next breakpoint or signal, delivering `signal` first if it is not 0.
    pub(crate) fn run(&self, signal: i32) -> Result<Stop, Error> {
        // SAFETY: no pointers are passed.
        if unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid, 0, signal as libc::c_long) } < 0 {
            return Err(Error::last_os_error());
        }
        self.wait()
    }

    /// Runs up to the instruction at `address`, past signals.
    pub(crate) fn run_to(&self, address: u64) -> Result<(), Error> {
        let mut word = [0; 8];
        if self.read(address, &mut word) != word.len() {
            return Err(Error::other(format!("no code at {address:#x}")));
        }
        let original = u64::from_le_bytes(word);
        self.write(address, original & !0xff | u64::from(BREAKPOINT))?;
        let mut signal = 0;
        loop {
            match self.run(signal)? {
                Stop::Step => break,
                Stop::Signal(number) => signal = number,
                Stop::Exited(status) => return Err(Error::other(format!("ended with {status} before {address:#x}"))),
            }
        }
        self.write(address, original)?;
        self.go_to(address)
    }

    /// Goes on at `address` with the next step.
    pub(crate) fn go_to(&self, address: u64) -> Result<(), Error> {
        let mut registers = self.registers()?;
        registers.rip = address;
        // SAFETY: the kernel reads one such structure.
        if unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, &raw const registers) } < 0 {
            return Err(Error::last_os_error());
        }
        Ok(())
    }

    pub(crate) fn write(&self, address: u64, word: u64) -> Result<(), Error> {
        // SAFETY: the address is one of the other process.
        if unsafe { libc::ptrace(libc::PTRACE_POKETEXT, self.pid, address, word) } < 0 {
            return Err(Error::last_os_error());
        }
        Ok(())
    }

    /// Where the program itself begins, once the loader has prepared it: `AT_ENTRY` of its auxiliary vector.
    pub(crate) fn entry(&self) -> Result<u64, Error> {
        let vector = std::fs::read(format!("/proc/{}/auxv", self.pid))?;
        let (words, _) = vector.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let entry = pairs.iter().find(|[kind, _]| u64::from_le_bytes(*kind) == libc::AT_ENTRY);
        entry.map(|[_, value]| u64::from_le_bytes(*value)).ok_or_else(|| Error::other("no AT_ENTRY"))
    }

    pub(crate) fn registers(&self) -> Result<Instant, Error> {
        // SAFETY: the structure is plain integers.
        let mut registers: Instant = unsafe { std::mem::zeroed() };
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

    /// The word at `address`; 0 where there is none.
    pub(crate) fn word(&self, address: u64) -> u64 {
        let mut word = [0; 8];
        if self.read(address, &mut word) == word.len() { u64::from_le_bytes(word) } else { 0 }
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
