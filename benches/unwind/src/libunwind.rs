//! libunwind's backtrace of the thread that calls it, with its cache of frames by thread: what a profiler within the process
//! would use. It is taken from the machine's own library, where there is one.

use std::ffi::{c_int, c_void};
use std::time::Instant;

/// Backtraces of one stack in a row, of which the first few fill the cache.
const TURNS: usize = 200;
const WARMING: usize = 3;

/// `unw_backtrace` of libunwind 1.x.
#[derive(Clone, Copy)]
pub struct Backtrace(unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int);

impl Backtrace {
    /// `None` where the machine has no `libunwind.so.8`. It is opened by itself, so that it does not take the place of the C library's `backtrace`.
    pub fn open() -> Option<Self> {
        // SAFETY: the library's initialisers do no more than fill its own tables.
        let library = unsafe { libc::dlopen(c"libunwind.so.8".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library stays open.
        let function = unsafe { libc::dlsym(library, c"unw_backtrace".as_ptr()) };
        // SAFETY: libunwind's manual, unw_backtrace(3): `int unw_backtrace(void **buffer, int size)`.
        (!function.is_null()).then(|| Self(unsafe { std::mem::transmute::<*mut c_void, _>(function) }))
    }

    /// Nanoseconds and frames of calls from here.
    #[inline(never)]
    pub fn repeated(self) -> Vec<(u64, usize)> {
        let mut frames = [std::ptr::null_mut(); crate::MOST_FRAMES];
        let mut samples = Vec::with_capacity(TURNS);
        for turn in 0..TURNS {
            let began = Instant::now();
            // SAFETY: the buffer has as many places as is said.
            let count = unsafe { (self.0)(frames.as_mut_ptr(), crate::MOST_FRAMES as c_int) };
            let ns = began.elapsed().as_nanos() as u64;
            if turn >= WARMING {
                samples.push((ns, usize::try_from(count).unwrap_or_default().max(1)));
            }
        }
        samples
    }
}
