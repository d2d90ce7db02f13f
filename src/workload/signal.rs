//! A thread that is interrupted by a signal within a recursion. The handler runs on a stack of its own, and stops there.

use std::hint::black_box;
use std::io;
use std::mem;
use std::ptr;

use super::parking::{Slot, park};
use super::waiting::asleep;

const RECURSION: u64 = 20;
const ALTERNATE_STACK_BYTES: usize = 128 << 10;

/// Starts the thread. Names are not asked for: a signal handler must not allocate.
pub(super) fn start() -> io::Result<&'static Slot> {
    handle_signal()?;
    Slot::spawn("signal", false, || {
        let reached = use_alternate_stack().map(|()| descend(black_box(RECURSION)));
        assert_eq!(reached.unwrap_or_default(), RECURSION);
    })
    .map(|(slot, _)| slot)
}

/// Raises the signal at the bottom of a recursion.
#[inline(never)]
#[allow(unsafe_code)]
fn descend(left: u64) -> u64 {
    if left == 0 {
        // SAFETY: no memory is passed; the handler is in place.
        unsafe { libc::raise(libc::SIGUSR1) };
        return 0;
    }
    // The addition comes after the call, so that the call is no jump.
    black_box(descend(left - 1)) + 1
}

extern "C" fn on_signal(_signal: libc::c_int) {
    park(asleep);
}

#[allow(unsafe_code)]
fn handle_signal() -> io::Result<()> {
    // SAFETY: `sigaction` consists of integers and a pointer that may be null; all zeroes is a value of it.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `action` is valid and complete; the handler has the type that goes without SA_SIGINFO.
    outcome(unsafe { libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()) })
}

#[allow(unsafe_code)]
fn use_alternate_stack() -> io::Result<()> {
    let memory = Box::leak(vec![0u8; ALTERNATE_STACK_BYTES].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: `stack` names memory that is never freed and that nothing else uses.
    outcome(unsafe { libc::sigaltstack(&stack, ptr::null_mut()) })
}

fn outcome(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
