//! What compiling takes at most, which those who cannot bear a failed allocation ask for beforehand.
#![allow(unsafe_code, clippy::expect_used, reason = "an allocator that counts; a test fails by panicking")]

mod cfi;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cfi::{AT_ENTRY, EhFrame};
use symseal_unwind::Arch;
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

/// The same numbers stand in `unwind/capi/elf`: for a byte of call frame information; for one of a function that is followed, which is
/// at most so long; and of how many bytes of code one counts like the first.
const BYTES_OF_A_FRAME_BYTE: usize = 170;
const BYTES_OF_A_CODE_BYTE: usize = 256;
const LONGEST_FUNCTION: usize = 1 << 18;
const CODE_BYTES_OF_A_FRAME_BYTE: usize = 8;
/// What any compilation may take.
const BASE: usize = 1 << 20;

/// The whole process is counted: each test takes this first and runs alone, for what others make to compile would count too.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compiles `input`, of which `size` bytes count.
fn check(name: &str, input: &Input<'_>, size: usize, most: usize) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let compiled = compile(input);
    let taken = MOST.load(Ordering::Relaxed) - before;
    println!(
        "{name}: {taken} bytes for {size}, {:.1} a byte; {:?} rows",
        taken as f64 / size as f64,
        compiled.map(|compiled| (compiled.report.rows, compiled.report.unsupported_reasons))
    );
    assert!(taken <= most, "{name}: {taken} bytes, at most {most}");
}

fn check_frames(name: &str, section: &EhFrame) {
    let id = cfi::debug_id();
    let text = std::slice::from_ref(&(0x1000..0x4_0000));
    let input = Input { text, eh_frame: Some((0x9_0000, section.bytes())), ..cfi::empty_input(&id) };
    let size = section.bytes().len();
    check(name, &input, size, size * BYTES_OF_A_FRAME_BYTE + BASE);
}

fn check_followed(name: &str, arch: Arch, code: &[u8], functions: &[u64]) {
    let id = cfi::debug_id();
    let text = 0x1000..0x1000 + code.len() as u64;
    let text = std::slice::from_ref(&text);
    let input = Input { arch, text, code: &[(0x1000, code)], functions, ..cfi::empty_input(&id) };
    let size = code.len();
    let most = size / CODE_BYTES_OF_A_FRAME_BYTE * BYTES_OF_A_FRAME_BYTE
        + size.min(LONGEST_FUNCTION) * BYTES_OF_A_CODE_BYTE
        + BASE;
    check(name, &input, size, most);
}

/// Entries of an exception directory of arm64 for functions of `length` instructions each, which all have the same record.
fn check_scopes(name: &str, entries: u32, length: u32, scopes: &[u32], codes: &[u8]) {
    const CODE: u64 = 0x1000;
    const INFO: u64 = 0x1000_0000;
    const DIRECTORY: u64 = 0x2000_0000;
    let mut record = length.to_le_bytes().to_vec();
    record.extend((scopes.len() as u32 | (codes.len() as u32 / 4) << 16).to_le_bytes());
    record.extend(scopes.iter().flat_map(|scope| scope.to_le_bytes()));
    record.extend(codes);
    let directory: Vec<u8> =
        (0..entries).flat_map(|at| [CODE as u32 + at * length * 4, INFO as u32]).flat_map(u32::to_le_bytes).collect();
    let code = 0xd503_201fu32.to_le_bytes().repeat((entries * length) as usize);
    let text = CODE..CODE + code.len() as u64;
    let id = cfi::debug_id();
    let input = Input {
        arch: Arch::Aarch64,
        text: std::slice::from_ref(&text),
        pdata: Some((DIRECTORY, &directory)),
        loaded: &[(CODE, &code), (INFO, &record), (DIRECTORY, &directory)],
        code: &[(CODE, &code)],
        ..cfi::empty_input(&id)
    };
    let size = code.len() + directory.len() + record.len();
    check(name, &input, size, size * BYTES_OF_A_FRAME_BYTE + BASE);
}

#[test]
fn compiling_takes_a_bounded_number_of_bytes_for_a_byte_of_call_frame_information() {
    let _alone = alone();
    // Just beyond a power of two, where lists have grown last. Advance by one byte and restore another register.
    let rows: Vec<u8> = (0..65_540u32).flat_map(|at| [0x41, 0xc0 | (at % 6) as u8]).collect();
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x3_0000, &[rows]);
    check_frames("rows", &section);
    // Rules that are all different.
    let rules: Vec<u8> =
        (0..32_770u32).flat_map(|at| [0x41, 0x0e, 0x80 | (at & 127) as u8, (at >> 7 & 127) as u8]).collect();
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x3_0000, &[rules]);
    check_frames("rules", &section);
    // Entries that are as small as can be.
    let mut section = EhFrame::new("zR", AT_ENTRY);
    for at in 0..8200 {
        section.fde(0x1000 + at, 1, &[]);
    }
    check_frames("entries", &section);
    // Expressions, each a program.
    let mut section = EhFrame::new("zR", AT_ENTRY);
    let expressions: Vec<u8> =
        (0..8200u32).flat_map(|at| [0x41, 0x0f, 6, 0x0a, at as u8, (at >> 8) as u8, 0x77, 0, 0x22]).collect();
    section.fde(0x1000, 0x3_0000, &[expressions]);
    check_frames("expressions", &section);
}

#[test]
fn following_functions_takes_a_bounded_number_of_bytes_for_a_byte_of_code() {
    let _alone = alone();
    let repeated = |half: u16, bytes: usize| half.to_le_bytes().repeat(bytes / 2);
    // Each instruction has a rule of its own: c.addi sp, -8 of RISC-V, push {r0} of Thumb.
    const LOWERS: [(Arch, u16, u64); 2] = [(Arch::Riscv64, 0x1161, 0x1000), (Arch::Arm, 0xb401, 0x1001)];
    for (arch, half, start) in LOWERS {
        let name = |what: &str| format!("{arch}, {what}");
        check_followed(&name("one function"), arch, &repeated(half, LONGEST_FUNCTION), &[start]);
        let starts: Vec<u64> = (0..8).map(|at| start + at * (LONGEST_FUNCTION as u64 / 2)).collect();
        check_followed(&name("long functions"), arch, &repeated(half, 4 * LONGEST_FUNCTION), &starts);
        let starts: Vec<u64> = (0..(1 << 19)).map(|at| start + 2 * at).collect();
        check_followed(&name("functions of one instruction"), arch, &repeated(half, 1 << 20), &starts);
    }
    // Calls, each to a place that is a function from then on: jal to the next but one.
    let calls = 0x0080_00efu32.to_le_bytes().repeat(1 << 18);
    check_followed("riscv64, calls", Arch::Riscv64, &calls, &[0x1000]);
}

#[test]
fn scopes_of_epilogs_take_a_bounded_number_of_bytes_for_a_byte_of_the_image() {
    let _alone = alone();
    // sub sp, sp, #16, and epilogs that undo it: each changes the rule twice.
    let short = [0x01, 0xe4, 0xe4, 0xe4];
    let scopes: Vec<u32> = (1..=250).map(|at| 4 * at).collect();
    check_scopes("many entries with one record", 500, 1024, &scopes, &short);
    // As many scopes as there may be, at the same places, and long lists of codes.
    let scopes: Vec<u32> = (0..0xffff).map(|at| at & 0xfff | (at & 63) << 22).collect();
    let long: Vec<u8> = [0x02u8].repeat(60).into_iter().chain([0xe4; 4]).collect();
    check_scopes("one record of many scopes", 1, 4096, &scopes, &long);
    check_scopes("many entries with a record of many scopes", 200, 4096, &scopes, &long);
}

/// Rules of each kind of step, a scan, and what is cached or not: nothing of it allocates. Others of this process may, as the harness does between tests: a walk that allocates does so
/// each time.
#[test]
fn walks_allocate_nothing() {
    use symseal_module::Avma;
    use symseal_unwind::{Cache, Frame, Options, Registers, StackBytes, unwind_with};

    let _alone = alone();
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // A frame, a CFA that a program gives, one without any rule between, and the end.
    section.fde(0x1000, 0x10, &[cfi::cfa_offset(16), cfi::saved(6, 2)]);
    section.fde(0x1010, 0x10, &[vec![0x0f, 5, 0x77, 8, 0x06, 0x23, 8]]).fde(0x1040, 0x10, &[vec![0x07, 16]]);
    let table = section.compile().bytes;
    let code = vec![0xe8; 0x100];
    let process = cfi::Process::with_code(&table, Some((0x1000, &code)));
    const SP: u64 = 0x7fff_0000;
    let words = [7, cfi::at(0x1014), 3, SP + 0x28, 4, cfi::at(0x1032), 5, cfi::at(0x1044), 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let memory = StackBytes { start: Avma(SP), bytes: &bytes };
    let registers = Registers { pc: cfi::at(0x1004), sp: SP, fp: SP + 0x30, ..Registers::default() };
    let (mut frames, mut caches) = (vec![Frame::EMPTY; 16], [0, 7, 2048].map(Cache::with_capacity));
    let mut found = 0;
    let is_quiet = (0..100).any(|_| {
        let before = NOW.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        for cache in &mut caches {
            for scan in [false, true] {
                let options = Options { scan, continuations: true, ..Options::default() };
                found += unwind_with(&process.modules, &registers, &memory, cache, &mut frames, options).frames;
            }
        }
        MOST.load(Ordering::Relaxed) == before
    });
    assert!(is_quiet && found >= 12, "{found} frames");
}
