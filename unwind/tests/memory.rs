//! What compiling takes at most, which those who cannot bear a failed allocation ask for beforehand.
#![allow(unsafe_code, clippy::expect_used, reason = "an allocator that counts; a test fails by panicking")]

mod cfi;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use cfi::{AT_ENTRY, EhFrame};
use symseal_unwind::compile::{Input, compile};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static MEMORY: Counting = Counting;

/// The same number stands in `unwind/capi/elf`.
const BYTES_OF_A_FRAME_BYTE: usize = 170;

fn check(name: &str, section: &EhFrame) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let id = cfi::debug_id();
    let text = std::slice::from_ref(&(0x1000..0x4_0000));
    let input = Input { text, eh_frame: Some((0x9_0000, section.bytes())), ..cfi::empty_input(&id) };
    let compiled = compile(&input);
    let taken = MOST.load(Ordering::Relaxed) - before;
    let size = section.bytes().len();
    println!(
        "{name}: {taken} bytes for {size}, {:.1} a byte; {:?} rows",
        taken as f64 / size as f64,
        compiled.map(|compiled| compiled.report.rows)
    );
    assert!(taken <= size * BYTES_OF_A_FRAME_BYTE + (1 << 20), "{name}");
}

#[test]
fn compiling_takes_a_bounded_number_of_bytes_for_a_byte_of_call_frame_information() {
    // Just beyond a power of two, where lists have grown last. Advance by one byte and restore another register.
    let rows: Vec<u8> = (0..65_540u32).flat_map(|at| [0x41, 0xc0 | (at % 6) as u8]).collect();
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x3_0000, &[rows]);
    check("rows", &section);
    // Rules that are all different.
    let rules: Vec<u8> =
        (0..32_770u32).flat_map(|at| [0x41, 0x0e, 0x80 | (at & 127) as u8, (at >> 7 & 127) as u8]).collect();
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x3_0000, &[rules]);
    check("rules", &section);
    // Entries that are as small as can be.
    let mut section = EhFrame::new("zR", AT_ENTRY);
    for at in 0..8200 {
        section.fde(0x1000 + at, 1, &[]);
    }
    check("entries", &section);
    // Expressions, each a program.
    let mut section = EhFrame::new("zR", AT_ENTRY);
    let expressions: Vec<u8> =
        (0..8200u32).flat_map(|at| [0x41, 0x0f, 6, 0x0a, at as u8, (at >> 8) as u8, 0x77, 0, 0x22]).collect();
    section.fde(0x1000, 0x3_0000, &[expressions]);
    check("expressions", &section);
}
