//! Threads that are cancelled (`pthread_cancel`): no call of the library is a cancellation point.
#![allow(unsafe_code, reason = "a function of the C library")]

use core::ffi::c_int;
use core::ptr::null_mut;

unsafe extern "C" {
    /// pthread_setcancelstate(3); the `libc` crate has none for Linux.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc and of musl.
const DISABLED: c_int = 1;

/// While this is, the thread is not cancelled where it opens, waits or runs the caller's `read`: locks, descriptors and scratch memory would stay
/// with a thread that is gone. A cancellation that comes meanwhile acts at the thread's next point of its own.
pub(crate) struct Uncancelled(c_int);

impl Uncancelled {
    pub(crate) fn new() -> Self {
        let mut before = DISABLED;
        // SAFETY: room for the state that was.
        unsafe { pthread_setcancelstate(DISABLED, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that was.
        unsafe { pthread_setcancelstate(self.0, null_mut()) };
    }
}
