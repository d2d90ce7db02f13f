//! What `std` would bring: memory from the C library, and what to do where the program contradicts itself.
#![allow(unsafe_code, reason = "the C library's allocator")]

use core::alloc::{GlobalAlloc, Layout};

struct Malloc;

/// `malloc` aligns to this much, on every C library (C11, 7.22.3: for any object with a fundamental alignment).
const ALIGNED: usize = core::mem::align_of::<libc::max_align_t>();

// SAFETY: malloc, realloc and free fulfil the trait's contract for what they align by themselves; larger alignments come from
// posix_memalign, whose memory free takes too.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED {
            // SAFETY: any size may be asked for.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        let mut memory = core::ptr::null_mut();
        // SAFETY: a layout's alignment is a power of two, and here a multiple of a pointer's size.
        match unsafe { libc::posix_memalign(&raw mut memory, layout.align(), layout.size()) } {
            0 => memory.cast(),
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: it came from malloc, realloc or posix_memalign.
        unsafe { libc::free(memory.cast()) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNED {
            // SAFETY: it came from malloc or realloc.
            return unsafe { libc::realloc(memory.cast(), size) }.cast();
        }
        // SAFETY: the caller gives a valid layout and a size that fits its alignment.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                core::ptr::copy_nonoverlapping(memory, moved, size.min(layout.size()));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

#[global_allocator]
static MEMORY: Malloc = Malloc;

/// A fault of this library, or no memory for a small thing: there is nothing to go on with.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort takes nothing and does not return.
    unsafe { libc::abort() }
}

// Nothing unwinds here: a panic aborts. The compiler's own library was built to be unwound, and what is used of it names these two; so
// they exist, for this object file alone. Global ones would get into the way of C++ and of other Rust libraries.
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
core::arch::global_asm!(".text", "rust_eh_personality:", "_Unwind_Resume:", "ud2");
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(".text", "rust_eh_personality:", "_Unwind_Resume:", "udf #0");
#[cfg(target_arch = "mips")]
core::arch::global_asm!(".text", "rust_eh_personality:", "_Unwind_Resume:", "break");
#[cfg(target_arch = "riscv64")]
core::arch::global_asm!(".text", "rust_eh_personality:", "_Unwind_Resume:", "unimp");
// The compiler's arithmetic, in objects of its own, names the first one too. Weak, so that another Rust library's own counts, and hidden,
// so that no shared library passes it on.
#[cfg(target_arch = "arm")]
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    ".text",
    "rust_eh_personality:",
    "_Unwind_Resume:",
    "udf #0"
);
