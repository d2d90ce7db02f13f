//! What leads from the stack of a thread to the goroutine that it works for, in processes with a runtime of Go.
//!
//! Go runs C code and parts of its runtime on the stack of the thread, and keeps in the structure of the goroutine where that
//! stopped. A walk needs three structures for it, and the goroutine's stack. Where their fields are changes from release to release and is
//! told by debug information, which nobody reads while a process stands still; so the structures are found by what has been the same in all
//! of them (Go, `runtime/runtime2.go`): a `g` begins with the bounds of its stack, it points to its `m`, whose first word points to the `g` of
//! the thread's own stack, which points to the same `m`; and of a goroutine that stopped, `sched` has the stack pointer, the place in the code and
//! the address of the `g` itself, one after the other.

use std::ops::Range;

use symseal_module::Avma;

/// Bytes of a `g` that are copied: all fields up to `sched.bp`, which ends at 0x70 in Go 1.26.
const G_BYTES: usize = 0x100;
/// Bytes of an `m`: all fields up to `curg`, which ends before 0x100.
const M_BYTES: usize = 0x200;
/// Bytes below the thread pointer in which Go keeps the current `g`: thread-local variables of the executable lie there.
const TLS_BYTES: usize = 0x400;
/// Words of a `g` among which the pointer to its `m` is, by byte offset.
const M_POINTERS: Range<usize> = 0x20..0x80;
/// The most reads for one thread: what keeps a process standing still if much looks like a `g` and is none.
const MOST_READS: u32 = 64;
/// Larger stacks Go makes on no 64-bit system. (`runtime.maxstacksize`)
const MOST_STACK_BYTES: u64 = 1 << 30;

/// A goroutine whose thread runs on its own stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Goroutine {
    /// The structures to copy: first address and bytes.
    pub(crate) structures: [(Avma, usize); 3],
    /// Its stack pointer.
    pub(crate) sp: Avma,
    /// Its stack.
    pub(crate) stack: Range<u64>,
}

/// Finds the goroutine of a thread whose thread pointer is `fs_base`, and whose register for the current `g` is `r14`. `is_data` says
/// whether an address lies in memory that can be read and written; `read` gives the number of bytes that could be read.
pub(crate) fn goroutine(
    (fs_base, r14): (u64, u64),
    is_data: impl Fn(u64) -> bool,
    mut read: impl FnMut(Avma, &mut [u8]) -> usize,
) -> Option<Goroutine> {
    let tls_start = fs_base.checked_sub(TLS_BYTES as u64);
    let mut tls = [0; TLS_BYTES];
    let whole = tls_start.is_some_and(|start| is_data(start) && read(Avma(start), &mut tls) == TLS_BYTES);
    // The thread pointer may be near the beginning of its mapping, and that of Go's own is.
    if !whole {
        tls = [0; TLS_BYTES];
        let last = fs_base.checked_sub(8).filter(|last| is_data(*last))?;
        let (_, word) = tls.split_at_mut(TLS_BYTES - 8);
        read(Avma(last), word);
    }
    let mut seeker = Seeker { is_data, read, reads: MOST_READS };
    let words = tls.as_chunks::<8>().0.iter().rev().map(|word| u64::from_le_bytes(*word));
    std::iter::once(r14).chain(words).find_map(|g| seeker.by_g(g))
}

struct Seeker<I, R> {
    is_data: I,
    read: R,
    reads: u32,
}

impl<I: Fn(u64) -> bool, R: FnMut(Avma, &mut [u8]) -> usize> Seeker<I, R> {
    /// The goroutine of the thread, if `g` is one of those of the thread.
    fn by_g(&mut self, g: u64) -> Option<Goroutine> {
        let bytes = self.structure::<G_BYTES>(g)?;
        stack_of(&bytes)?;
        M_POINTERS.step_by(8).find_map(|at| self.by_m(word(&bytes, at)?, at))
    }

    /// The goroutine that the thread `m` works for, if it is one: `at` is where a `g` points to it.
    fn by_m(&mut self, m: u64, at: usize) -> Option<Goroutine> {
        let bytes = self.structure::<M_BYTES>(m)?;
        let own = word(&bytes, 0)?;
        let points_back = |g: &[u8; G_BYTES]| word(g, at) == Some(m);
        self.structure::<G_BYTES>(own).filter(points_back)?;
        (8..M_BYTES).step_by(8).find_map(|field| {
            let g = word(&bytes, field).filter(|g| *g != own)?;
            let bytes = self.structure::<G_BYTES>(g).filter(points_back)?;
            let stack = stack_of(&bytes)?;
            // Right behind the pointer to the `m` begins `sched`.
            let itself = (at..G_BYTES).step_by(8).find(|at| word(&bytes, *at) == Some(g))?;
            let sp = word(&bytes, itself.checked_sub(16)?).filter(|sp| stack.contains(sp))?;
            let structures = [(Avma(g), G_BYTES), (Avma(own), G_BYTES), (Avma(m), M_BYTES)];
            Some(Goroutine { structures, sp: Avma(sp), stack })
        })
    }

    fn structure<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        if address == 0 || !address.is_multiple_of(8) || !(self.is_data)(address) {
            return None;
        }
        self.reads = self.reads.checked_sub(1)?;
        let mut bytes = [0; N];
        ((self.read)(Avma(address), &mut bytes) == N).then_some(bytes)
    }
}

/// The stack of a `g`.
fn stack_of(g: &[u8; G_BYTES]) -> Option<Range<u64>> {
    let stack = word(g, 0)?..word(g, 8)?;
    let size = stack.end.checked_sub(stack.start)?;
    (stack.start != 0 && (1..=MOST_STACK_BYTES).contains(&size)).then_some(stack)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const DATA: u64 = 0xc0_0000_0000;
    const SIZE: u64 = 0x1_0000;
    const FS: u64 = DATA + 0x800;
    const G: u64 = DATA + 0x1000;
    const G0: u64 = DATA + 0x2000;
    const M: u64 = DATA + 0x3000;
    const STACK: u64 = DATA + 0x8000;

    struct Process {
        bytes: Vec<u8>,
        reads: Cell<u32>,
    }

    impl Process {
        /// A thread on its own stack, with the fields of `g` and `m` where Go 1.26 has them.
        fn new() -> Self {
            let mut process = Self { bytes: vec![0; SIZE as usize], reads: Cell::new(0) };
            process.put(FS - 8, G0);
            for (g, stack) in [(G, STACK), (G0, DATA + 0xc000)] {
                process.put(g, stack);
                process.put(g + 8, stack + 0x2000);
                process.put(g + 0x30, M);
                process.put(g + 0x38, stack + 0x1f00);
                process.put(g + 0x48, g);
            }
            process.put(M, G0);
            process.put(M + 0xb8, G);
            process
        }

        fn put(&mut self, address: u64, value: u64) {
            let at = (address - DATA) as usize;
            self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }

        fn find(&self, fs_base: u64, r14: u64) -> Option<Goroutine> {
            self.reads.set(0);
            let is_data = |address: u64| (DATA..DATA + SIZE).contains(&address);
            goroutine((fs_base, r14), is_data, |address, out| {
                self.reads.set(self.reads.get() + 1);
                let bytes =
                    address.0.checked_sub(DATA).and_then(|at| self.bytes.get(at as usize..)).unwrap_or_default();
                let length = bytes.len().min(out.len());
                out[..length].copy_from_slice(&bytes[..length]);
                length
            })
        }
    }

    fn expected() -> Goroutine {
        let structures = [(Avma(G), G_BYTES), (Avma(G0), G_BYTES), (Avma(M), M_BYTES)];
        Goroutine { structures, sp: Avma(STACK + 0x1f00), stack: STACK..STACK + 0x2000 }
    }

    #[test]
    fn the_goroutine_is_found_through_thread_local_memory_and_through_the_register() {
        let mut process = Process::new();
        assert_eq!(process.find(FS, 0), Some(expected()));
        assert_eq!(process.find(FS, G), Some(expected()));
        process.put(FS - 8, 0);
        assert_eq!(process.find(FS, 0), None);
        assert_eq!(process.find(FS, G0), Some(expected()));
        // Other variables of the executable lie above it.
        process.put(FS - 0x300, G0);
        assert_eq!(process.find(FS, 0), Some(expected()));
    }

    #[test]
    fn a_thread_pointer_at_the_beginning_of_its_mapping_is_followed() {
        let mut process = Process::new();
        process.put(DATA, G);
        assert_eq!(process.find(DATA + 8, 0), Some(expected()));
        assert_eq!(process.find(DATA, G), None, "it points to nothing");
        assert_eq!(process.find(0, G), None);
    }

    #[test]
    fn what_contradicts_itself_is_no_goroutine() {
        // Its stack, the stack pointer outside it, the pointer to itself, to the thread, and back.
        let damages = [
            (G + 8, STACK),
            (G, 0),
            (G + 0x38, STACK + 0x2000),
            (G + 0x38, STACK - 8),
            (G + 0x48, G0),
            (G + 0x30, G),
            (G0 + 0x30, G),
            (M, G),
            (M + 0xb8, 0),
            (M + 0xb8, G0),
        ];
        for (address, value) in damages {
            let mut process = Process::new();
            process.put(address, value);
            assert_eq!(process.find(FS, 0), None, "{:#x} {value:#x}", address - DATA);
        }
    }

    #[test]
    fn memory_that_looks_like_nothing_but_goroutines_costs_few_reads() {
        let mut process = Process::new();
        for at in (DATA..DATA + SIZE).step_by(16) {
            process.put(at, DATA + 0x40);
            process.put(at + 8, DATA + 0x50);
        }
        assert_eq!(process.find(FS, DATA + 0x80), None);
        assert!(process.reads.get() <= MOST_READS + 1, "{}", process.reads.get());
    }
}
