//! Stacks to unwind: a random descent through many functions of this program, with callbacks out of the C library in
//! between, snapshot at the bottom.

use std::ffi::{c_int, c_void};
use std::hint::black_box;

use symseal_module::Avma;
use symseal_unwind::Registers;

use crate::libunwind::Backtrace;

/// One thread's registers and stack, frozen.
pub struct Snapshot {
    pub registers: Registers,
    pub start: Avma,
    pub stack: Vec<u8>,
    /// What libunwind took for the same stack while it ran.
    pub in_process: Vec<(u64, usize)>,
}

/// Where a descent stands.
pub struct Descent {
    random: u64,
    left: u32,
    stack_end: u64,
    libunwind: Option<Backtrace>,
    result: Option<Snapshot>,
}

impl Descent {
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.random >> 33
    }
}

/// Goes `depth` calls of the workload down and takes a snapshot there.
pub fn descend(seed: u64, depth: u32, stack_end: u64, libunwind: Option<Backtrace>) -> Snapshot {
    let mut descent = Descent { random: seed, left: depth, stack_end, libunwind, result: None };
    go(&mut descent);
    descent.result.expect("a snapshot")
}

#[inline(never)]
fn snapshot(descent: &mut Descent) {
    let (pc, sp, fp): (u64, u64, u64);
    // SAFETY: reads registers alone.
    unsafe { std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp, out(reg) fp) };
    // The registers are those of the instruction after each `mov`; none of them changes in between.
    let bytes = usize::try_from(descent.stack_end - sp).expect("a stack");
    // SAFETY: the thread's own stack is mapped from its stack pointer to its end.
    let stack = unsafe { std::slice::from_raw_parts(sp as *const u8, bytes) }.to_vec();
    let registers = Registers { pc, sp, fp, general: [None; Registers::GENERAL] };
    let in_process = descent.libunwind.map(Backtrace::repeated).unwrap_or_default();
    descent.result = Some(Snapshot { registers, start: Avma(sp), stack, in_process });
}

type Level = fn(&mut Descent);

/// Calls the next level from wherever it is inlined, so that every place has a return address of its own.
#[inline(always)]
fn go(descent: &mut Descent) {
    if descent.left == 0 {
        return snapshot(descent);
    }
    descent.left -= 1;
    let level = LEVELS[descent.next() as usize % LEVELS.len()];
    level(descent);
    black_box(&mut *descent);
}

/// A frame of its own size, with three places that it may call from.
#[inline(never)]
fn plain<const N: usize>(descent: &mut Descent) {
    let mut room = [N as u8; N];
    black_box(&mut room);
    match descent.next() % 4 {
        0 => {
            go(descent);
            black_box(1);
        }
        1 => {
            black_box(N);
            go(descent);
            black_box(2);
        }
        2 => {
            black_box(&mut room);
            go(descent);
            black_box(3);
        }
        _ => {
            let left = descent.left;
            go(descent);
            black_box(left);
        }
    }
    black_box(&mut room);
}

#[inline(never)]
fn boxed<const N: usize>(descent: &mut Descent) {
    let extra = black_box(N);
    let closure: Box<dyn Fn(&mut Descent)> = Box::new(move |descent| {
        black_box(extra);
        go(descent);
        black_box(extra);
    });
    closure(descent);
    black_box(&closure);
}

/// What a C callback gets: the descent, once.
struct Once<'a>(Option<&'a mut Descent>);

fn enter(pointer: *mut c_void) {
    // SAFETY: every caller passes a pointer to a live `Once` that nothing else uses during the call.
    let once = unsafe { &mut *pointer.cast::<Once<'_>>() };
    if let Some(descent) = once.0.take() {
        go(descent);
    }
    black_box(());
}

unsafe extern "C" {
    fn qsort_r(
        base: *mut c_void,
        count: usize,
        size: usize,
        compare: extern "C" fn(*const c_void, *const c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    );
}

#[inline(never)]
fn sorted<const N: usize>(descent: &mut Descent) {
    extern "C" fn compare<const N: usize>(a: *const c_void, b: *const c_void, argument: *mut c_void) -> c_int {
        enter(argument);
        // SAFETY: qsort passes pointers to elements.
        unsafe { *a.cast::<c_int>() - *b.cast::<c_int>() + black_box(N as c_int) }
    }
    let mut numbers = [5, 3, 9, 1, 7, 2, 8, 4];
    let mut once = Once(Some(descent));
    // SAFETY: the array and the callback's argument outlive the call.
    unsafe { qsort_r(numbers.as_mut_ptr().cast(), N, 4, compare::<N>, (&raw mut once).cast()) };
    black_box(&mut numbers);
}

#[inline(never)]
fn over_modules<const N: usize>(descent: &mut Descent) {
    unsafe extern "C" fn visit<const N: usize>(_: *mut libc::dl_phdr_info, _: usize, argument: *mut c_void) -> c_int {
        enter(argument);
        black_box(N as c_int)
    }
    let mut once = Once(Some(descent));
    // SAFETY: the callback's argument outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit::<N>), (&raw mut once).cast()) };
    black_box(N);
}

#[inline(never)]
fn caught<const N: usize>(descent: &mut Descent) {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        black_box(N);
        go(descent);
        black_box(N);
    }));
    black_box(&result);
}

#[inline(never)]
fn ordered<const N: usize>(descent: &mut Descent) {
    let mut once = Once(Some(descent));
    let pointer: *mut c_void = (&raw mut once).cast();
    let mut numbers: [u32; 6] = black_box([N as u32, 4, 1, 9, 3, 2]);
    numbers.sort_by(|a, b| {
        enter(pointer);
        a.cmp(b)
    });
    black_box(&mut numbers);
}

const LEVELS: &[Level] = &[
    plain::<8>,
    plain::<16>,
    plain::<24>,
    plain::<40>,
    plain::<56>,
    plain::<72>,
    plain::<96>,
    plain::<104>,
    plain::<120>,
    plain::<136>,
    plain::<160>,
    plain::<184>,
    plain::<200>,
    plain::<232>,
    plain::<264>,
    plain::<300>,
    plain::<340>,
    plain::<400>,
    plain::<440>,
    plain::<480>,
    plain::<500>,
    plain::<520>,
    plain::<560>,
    plain::<600>,
    plain::<640>,
    plain::<700>,
    plain::<740>,
    plain::<800>,
    plain::<900>,
    plain::<1000>,
    boxed::<1>,
    boxed::<2>,
    boxed::<3>,
    boxed::<4>,
    boxed::<5>,
    boxed::<6>,
    boxed::<7>,
    boxed::<8>,
    sorted::<2>,
    sorted::<3>,
    sorted::<5>,
    sorted::<8>,
    over_modules::<1>,
    over_modules::<2>,
    over_modules::<3>,
    caught::<1>,
    caught::<2>,
    caught::<3>,
    caught::<4>,
    ordered::<1>,
    ordered::<2>,
    ordered::<3>,
];
