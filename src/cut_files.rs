//! A file of the local store that is cut short while it is mapped: the system ends whoever reads beyond its end. Then it is at least said why.

/// From here on the program ends with a word and the exit status of a wrong input in place of a bare signal.
pub(crate) fn explain() {
    #[cfg(target_os = "linux")]
    linux::explain();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{mem, ptr};

    /// What is said. A signal handler may neither format nor allocate.
    const MESSAGE: &str = "error: a file was cut short while it was read in place: expected that nobody changes files of the local store; \
                           `symseal bundle verify` says which ones are not what they were\n";

    /// The exit status of a wrong input.
    const STATUS: i32 = 2;

    #[allow(unsafe_code)]
    pub(super) fn explain() {
        // SAFETY: `sigaction` consists of integers and a pointer that may be null; all zeroes is a value of it.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction =
            on_signal as extern "C" fn(libc::c_int, *const libc::siginfo_t, *const libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SAFETY: `action` is valid and complete; the handler has the type that goes with SA_SIGINFO. Where it cannot be set, the system's
        // own way holds.
        unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) };
    }

    #[allow(unsafe_code)]
    extern "C" fn on_signal(signal: libc::c_int, info: *const libc::siginfo_t, _context: *const libc::c_void) {
        // SAFETY: the kernel gives the description of the signal, or nothing. The calls are allowed in a signal handler, and the text is there for
        // as long as the program.
        unsafe {
            if info.as_ref().is_none_or(|info| info.si_code != libc::BUS_ADRERR) {
                // Failing memory, or somebody's word: the system's own way, which holds again from here on.
                libc::raise(signal);
                return;
            }
            libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::_exit(STATUS);
        }
    }
}
