//! A file of the local store that is cut short while it is mapped: the system ends whoever reads beyond its end. Then it is at least said why.

/// What is said. A signal handler may neither format nor allocate.
const MESSAGE: &str = "error: a file was cut short while it was read in place: expected that nobody changes files of the local store; \
                       `symseal bundle verify` says which ones are not what they were\n";

/// The exit status of a wrong input.
const STATUS: i32 = 2;

/// From here on the program ends with that message and status in place of a bare signal.
#[cfg(unix)]
#[allow(unsafe_code)]
pub(crate) fn explain() {
    // SAFETY: `sigaction` consists of integers and a pointer that may be null; all zeroes is a value of it.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_ONSTACK | libc::SA_RESETHAND;
    // SAFETY: `action` is valid and complete; the handler has the type that goes without SA_SIGINFO. Where it cannot be set, the system's own
    // way holds.
    unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
}

/// Files that are mapped cannot be cut there.
#[cfg(not(unix))]
pub(crate) fn explain() {}

#[cfg(unix)]
#[allow(unsafe_code)]
extern "C" fn on_signal(_signal: libc::c_int) {
    // SAFETY: both calls are allowed in a signal handler, and the text is there for as long as the program.
    unsafe {
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(STATUS);
    }
}
