//! How memory that is no longer needed goes back to the system.

/// Buffers of so many bytes and more get pages of their own, which go back to the system when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const OWN_PAGES_BYTES: libc::c_int = 256 << 10;

/// Work on so many bytes of input and more leaves enough behind to be worth the search for it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const WORTH_A_SEARCH_BYTES: u64 = 64 << 10;

/// Called once, before a command that reads many large files starts its threads.
///
/// glibc raises the size from which a buffer has pages of its own to that of each such buffer that is freed, up to 32 MiB; the
/// next ones then come out of the heaps of the threads, which keep what they have. Setting the size ends that (mallopt(3),
/// `M_MMAP_THRESHOLD`). Other allocators give large buffers back by themselves.
pub(crate) fn give_back_large_buffers() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code, reason = "a setting of the allocator")]
    // SAFETY: mallopt takes two numbers, locks what it changes, and leaves the old setting where it cannot.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES);
    }
}

/// Called when a thread is done with so many bytes of input.
///
/// Of what many small pieces held, glibc gives back the end of a thread's heap alone; each of the threads kept 12 MB of a debug file that takes
/// 35. `malloc_trim` looks through all heaps for free pages (malloc_trim(3)).
pub(crate) fn give_back_after(bytes: u64) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code, reason = "a call of the allocator")]
    if bytes >= WORTH_A_SEARCH_BYTES {
        // SAFETY: it takes a number, locks each heap that it looks through, and touches free pages alone.
        unsafe { libc::malloc_trim(0) };
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = bytes;
}
