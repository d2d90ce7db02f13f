//! Process CPU time: what others do on the machine does not enter, other than through the caches.

/// Nanoseconds of CPU time that this process has used.
pub fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of this frame.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU nanoseconds of `work`, and its result.
pub fn measure<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = cpu_ns();
    let result = std::hint::black_box(work());
    (cpu_ns() - before, result)
}
