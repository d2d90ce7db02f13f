//! A thread's own call chain, as libgcc's unwinder sees it (Itanium C++ ABI, exception handling, level 1).

use std::ffi::{c_int, c_void};

/// No chain of this program comes near it.
pub(super) const MAX_FRAMES: usize = 256;

const URC_NO_REASON: c_int = 0;
const URC_END_OF_STACK: c_int = 5;

/// One frame: where it goes on, and its stack pointer there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) pc: u64,
    pub(super) sp: u64,
}

/// The frames, innermost first.
pub(super) struct Chain {
    pub(super) frames: [Frame; MAX_FRAMES],
    pub(super) count: usize,
}

#[allow(unsafe_code)]
// SAFETY: these are the declarations of <unwind.h>; the standard library links the implementation.
unsafe extern "C" {
    fn _Unwind_Backtrace(trace: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

/// Notes the frames from the caller's caller on. Neither allocates nor locks, so that a signal handler may do it.
#[inline(never)]
#[allow(unsafe_code)]
pub(super) fn record(chain: &mut Chain) {
    chain.count = 0;
    // SAFETY: `note` has the type that <unwind.h> asks for. It gets the pointer to `chain` back, which is valid and
    // not otherwise used for the whole call.
    unsafe { _Unwind_Backtrace(note, std::ptr::from_mut(chain).cast()) };
    // The first two are this function and the one that waits.
    let above = 2.min(chain.count);
    chain.frames.copy_within(above..chain.count, 0);
    chain.count -= above;
}

#[allow(unsafe_code)]
extern "C" fn note(context: *mut c_void, chain: *mut c_void) -> c_int {
    // SAFETY: `chain` is what `record` passed: a valid `Chain` that nothing else refers to now.
    let chain = unsafe { &mut *chain.cast::<Chain>() };
    let Some(slot) = chain.frames.get_mut(chain.count) else { return URC_END_OF_STACK };
    // SAFETY: `context` is the unwinder's, valid during this call.
    let (pc, sp) = unsafe { (_Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    // Past the outermost frame the unwinder gives a last one without an address.
    if pc == 0 {
        return URC_END_OF_STACK;
    }
    *slot = Frame { pc: pc as u64, sp: sp as u64 };
    chain.count += 1;
    URC_NO_REASON
}
