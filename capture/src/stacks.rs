//! Which stretches of memory belong to a thread's stack.
//!
//! The first is around the stack pointer. A signal handler may run on a stack of its own
//! (sigaltstack(2)); the frames below it are then elsewhere, at the stack pointer that the kernel saved in
//! the signal frame. There are no unwind tables at hand when a process stands still, so signal frames
//! are found by their form: a return address that leads to the two instructions of `rt_sigreturn`, followed by a
//! `ucontext` of user code.

use std::collections::{HashMap, VecDeque};

use symseal_module::Avma;
use symseal_process::{Mapping, maps};
use symseal_trace::StackSegment;

/// Bytes below the stack pointer that a function may use without moving it (System V ABI, AMD64, 3.2.2).
/// In an epilogue the slots of registers that were just popped lie here, too.
const RED_ZONE_BYTES: u64 = 128;
/// Signal handlers nest rarely, and what looks like a hundred signal frames is none.
const MAX_STRETCHES: usize = 8;
/// `mov $15, %rax; syscall` as glibc and musl have it, and with the short `mov` that Go uses.
const RESTORERS: [&[u8]; 2] = [b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", b"\xb8\x0f\x00\x00\x00\x0f\x05"];
const LONGEST_RESTORER: usize = 9;

// Offsets in `struct rt_sigframe` of x86_64 Linux: return address, then `struct ucontext` from 8 on.
const UC_FLAGS: u64 = 8;
const SAVED_RSP: u64 = 168;
const SAVED_CS: u64 = 192;
/// UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS: no others are defined.
const KNOWN_UC_FLAGS: u64 = 7;
/// The code segment selector of 64-bit user code (`__USER_CS`).
const USER_CS: u64 = 0x33;

/// Copies stacks of one process.
pub(crate) struct StackCopier<'a, R> {
    mappings: &'a [Mapping],
    copy_bytes: u64,
    read: R,
    /// Whether a restorer stands at an address: the same one serves every signal frame of a process.
    restorers: HashMap<u64, bool>,
}

impl<'a, R: FnMut(Avma, &mut [u8]) -> usize> StackCopier<'a, R> {
    /// `read(address, out)` gives the number of bytes that could be read.
    pub(crate) fn new(mappings: &'a [Mapping], copy_bytes: u64, read: R) -> Self {
        Self { mappings, copy_bytes, read, restorers: HashMap::new() }
    }

    /// The stretches of the thread whose stack pointer is `sp`, that around `sp` first. Empty where `sp` leads nowhere.
    pub(crate) fn copy(&mut self, sp: Avma) -> Vec<StackSegment> {
        let mut segments = Vec::new();
        let mut pointers = VecDeque::from([sp]);
        for _ in 0..MAX_STRETCHES {
            let Some(sp) = pointers.pop_front() else { break };
            if let Some(segment) = self.stretch(sp, &segments) {
                pointers.extend(self.interrupted(&segment));
                join(&mut segments, segment);
            }
        }
        segments
    }

    /// The part around `sp` that is not copied yet.
    fn stretch(&mut self, sp: Avma, copied: &[StackSegment]) -> Option<StackSegment> {
        // A stack pointer at the very end of its mapping points to no byte of it.
        let below = sp.checked_sub(1)?;
        let mapping = maps::find(self.mappings, sp).or_else(|| maps::find(self.mappings, below))?;
        if !mapping.readable {
            return None;
        }
        let mut start = sp.0.saturating_sub(RED_ZONE_BYTES).max(mapping.start.0);
        let mut end = sp.0.saturating_add(self.copy_bytes).min(mapping.end.0);
        for segment in copied {
            let (from, to) = (segment.start.0, segment.end().0);
            if from <= start && start < to {
                start = to;
            } else if start < from && from < end {
                end = from;
            }
        }
        let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
        let read = (self.read)(Avma(start), &mut bytes);
        bytes.truncate(read);
        (!bytes.is_empty()).then_some(StackSegment {
            start: Avma(start),
            mapping_start: mapping.start,
            mapping_end: mapping.end,
            bytes,
        })
    }

    /// The stack pointers that signal frames in `segment` saved.
    fn interrupted(&mut self, segment: &StackSegment) -> Vec<Avma> {
        let mut pointers = Vec::new();
        let first = segment.start.0.next_multiple_of(8);
        for frame in (first..segment.end().0).step_by(8) {
            let word = |offset: u64| segment.read_u64(Avma(frame.checked_add(offset)?));
            let (Some(cs), Some(flags), Some(sp), Some(code)) =
                (word(SAVED_CS), word(UC_FLAGS), word(SAVED_RSP), word(0))
            else {
                break;
            };
            // By rising cost: nearly every word fails the first test.
            if cs & 0xffff == USER_CS && flags & !KNOWN_UC_FLAGS == 0 && self.is_restorer(Avma(code)) {
                pointers.push(Avma(sp));
            }
        }
        pointers
    }

    fn is_restorer(&mut self, code: Avma) -> bool {
        if !maps::find(self.mappings, code).is_some_and(|mapping| mapping.executable) {
            return false;
        }
        let read = &mut self.read;
        *self.restorers.entry(code.0).or_insert_with(|| {
            let mut bytes = [0; LONGEST_RESTORER];
            let length = read(code, &mut bytes);
            bytes.get(..length).is_some_and(|bytes| RESTORERS.iter().any(|pattern| bytes.starts_with(pattern)))
        })
    }
}

/// Adds a stretch; one that begins where another of the same mapping ends, continues that.
fn join(segments: &mut Vec<StackSegment>, segment: StackSegment) {
    let before =
        segments.iter_mut().find(|other| other.end() == segment.start && other.mapping_start == segment.mapping_start);
    match before {
        Some(before) => before.bytes.extend_from_slice(&segment.bytes),
        None => segments.push(segment),
    }
}
