//! The C library's `qsort` over many strings, with a comparison in Rust that stops in the middle.

use std::cell::Cell;
use std::cmp::Ordering;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;

use super::parking::{Slot, park};
use super::waiting::on_condition;

const STRINGS: u32 = 20_000;
/// About half of the comparisons that sorting so many takes.
const STOP_AT: u64 = 130_000;

thread_local! {
    static COMPARISONS: Cell<u64> = const { Cell::new(0) };
}

/// Starts the thread.
pub(super) fn start() -> io::Result<&'static Slot> {
    Slot::spawn("sort", true, || {
        let sorted = sort_words(words());
        assert!(sorted.is_sorted_by(|a, b| by_length_then_text(a, b).is_le()), "qsort did not sort");
    })
    .map(|(slot, _)| slot)
}

/// Words in an order that only looks like chance (the constants are Knuth's MMIX generator).
fn words() -> Vec<CString> {
    let mut state = 42u64;
    let word = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        CString::new(format!("{:x}", state >> (8 + state % 40))).unwrap_or_default()
    };
    (0..STRINGS).map(word).collect()
}

#[allow(unsafe_code)]
fn sort_words(words: Vec<CString>) -> Vec<CString> {
    let mut pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: base, count and size describe `pointers`; `compare` reads two of its elements and nothing else.
    unsafe { libc::qsort(pointers.as_mut_ptr().cast(), pointers.len(), size_of::<*const c_char>(), Some(compare)) };
    // SAFETY: every pointer is that of one of `words`, which are still there.
    pointers.iter().map(|pointer| unsafe { CStr::from_ptr(*pointer) }.to_owned()).collect()
}

/// What qsort calls.
#[allow(unsafe_code)]
extern "C" fn compare(left: *const c_void, right: *const c_void) -> c_int {
    // SAFETY: qsort passes pointers to two elements of the array, which are pointers to strings that end in zero.
    let (left, right) =
        unsafe { (CStr::from_ptr(*left.cast::<*const c_char>()), CStr::from_ptr(*right.cast::<*const c_char>())) };
    count_one();
    by_length_then_text(left, right) as c_int
}

fn count_one() {
    let count = COMPARISONS.get() + 1;
    COMPARISONS.set(count);
    if count == STOP_AT {
        park(on_condition);
    }
}

fn by_length_then_text(left: &CStr, right: &CStr) -> Ordering {
    left.count_bytes().cmp(&right.count_bytes()).then_with(|| left.cmp(right))
}
