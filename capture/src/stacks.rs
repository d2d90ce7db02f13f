//! Which stretches of memory belong to a thread's stack.
//!
//! The first is around the stack pointer. A signal handler may run on a stack of its own
//! (sigaltstack(2)); the frames below it are then elsewhere, at the stack pointer that the kernel saved in
//! the signal frame. There are no unwind tables at hand when a process stands still, so signal frames
//! are found by their form: a return address that leads to the two instructions of `rt_sigreturn`, followed by a
//! `ucontext` of user code. Of a thread of Go that runs on its own stack, the goroutine that it works for is copied too
//! ([`goroutines`](crate::goroutines)), and of asynchronous functions of Swift what leads to those that wait for them
//! ([`contexts`](crate::contexts)), as well as of tasks of Rust ([`tasks`](crate::tasks)) and of coroutines of C++
//! ([`coroutines`](crate::coroutines)).

use std::collections::{HashMap, VecDeque};

use symseal_module::Avma;
use symseal_process::{Mapping, maps};
use symseal_trace::StackSegment;

use crate::contexts::contexts;
use crate::coroutines::coroutines;
use crate::goroutines::{Goroutine, goroutine};
use crate::tasks::{Kind, tasks};

/// Bytes below the stack pointer that a function may use without moving it (System V ABI, AMD64, 3.2.2).
/// In an epilogue the slots of registers that were just popped lie here, too.
const RED_ZONE_BYTES: u64 = 128;
/// How far below a stack its pointer is followed when the stack overflowed: what faulted may have moved it by a frame of any size that fits on a stack, of
/// which the kernel gives the first thread 8 MiB unless told otherwise (getrlimit(2), `RLIMIT_STACK`).
const FURTHEST_BELOW_STACK: u64 = 8 << 20;
/// Below this address no stack pointer was one: the kernel maps nothing there (`vm.mmap_min_addr`).
const LOWEST_ADDRESS: u64 = 0x1_0000;
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

/// Words from the beginning of the copied stack on among which the vDSO's functions may have pushed a register.
const MOST_PUSHED: usize = 128;

/// What leads to the stacks of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointers {
    pub(crate) sp: Avma,
    /// The thread pointer.
    pub(crate) fs_base: u64,
    /// The register in which Go keeps the current goroutine.
    pub(crate) r14: u64,
    /// All general registers but the stack pointer: the frame of a coroutine may be in any.
    pub(crate) general: [u64; 15],
}

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

    /// The stretches of the thread that has these registers, that around the stack pointer first. Empty where it leads nowhere.
    pub(crate) fn copy(&mut self, pointers: Pointers) -> Vec<StackSegment> {
        let mut segments = Vec::new();
        let followed = self.copy_stacks(pointers.sp, &mut segments);
        self.copy_contexts(&mut segments);
        self.copy_tasks(&mut segments);
        self.copy_goroutine(pointers, &followed, &mut segments);
        // Of what only looks like one, nothing is in the way of the others.
        self.copy_coroutines(pointers, &mut segments);
        segments
    }

    /// The goroutine that the thread works for on its own stack, and what leads to it.
    fn copy_goroutine(&mut self, pointers: Pointers, followed: &[Avma], segments: &mut Vec<StackSegment>) {
        let read = &mut self.read;
        let is_data = |address| {
            maps::find(self.mappings, Avma(address)).is_some_and(|it| it.readable && it.writable && !it.shared)
        };
        let found = goroutine((pointers.fs_base, pointers.r14), is_data, |address, out| read(address, out));
        // A thread that runs on the goroutine's own stack has left its place there long ago.
        let is_there = |it: &Goroutine| followed.iter().any(|sp| it.stack.contains(&sp.0));
        let Some(goroutine) = found.filter(|goroutine| !segments.is_empty() && !is_there(goroutine)) else { return };
        for (start, size) in goroutine.structures {
            let part = self.part(start, start.0.saturating_add(size as u64), segments);
            segments.extend(part);
        }
        // Functions that are on the stack of the thread for a while (`time.now`) keep their own stack pointer in a register, which those they call may push.
        let pushed = segments.first().map_or(&[][..], |first| first.bytes.as_chunks::<8>().0);
        let pushed = pushed.iter().take(MOST_PUSHED).map(|word| u64::from_le_bytes(*word));
        let away = pointers.general.into_iter().chain(pushed).filter(|word| goroutine.stack.contains(word)).min();
        let sp = away.map_or(goroutine.sp.0, |away| away.min(goroutine.sp.0));
        let end = goroutine.sp.0.saturating_add(self.copy_bytes).min(goroutine.stack.end);
        let stack = self.part(Avma(sp.saturating_sub(RED_ZONE_BYTES)), end, segments);
        segments.extend(stack);
    }

    /// The asynchronous contexts that functions on the copied stacks lead to.
    fn copy_contexts(&mut self, segments: &mut Vec<StackSegment>) {
        let (mappings, read) = (self.mappings, &mut self.read);
        let is_readable = |address| maps::find(mappings, Avma(address)).is_some_and(|mapping| mapping.readable);
        let found = contexts(segments, is_readable, |address, out| read(address, out));
        self.take_along(found, segments);
    }

    /// What leads from tasks of tokio on the copied stacks to those that wait for them.
    fn copy_tasks(&mut self, segments: &mut Vec<StackSegment>) {
        let (mappings, read) = (self.mappings, &mut self.read);
        let found = tasks(segments, |address| kind(mappings, address), |address, out| read(address, out));
        self.take_along(found, segments);
    }

    /// What leads from coroutines of C++ to those that wait for them.
    fn copy_coroutines(&mut self, pointers: Pointers, segments: &mut Vec<StackSegment>) {
        let (mappings, read) = (self.mappings, &mut self.read);
        let kind = |address| kind(mappings, address);
        let found = coroutines(&pointers.general, segments, kind, |address, out| read(address, out));
        self.take_along(found, segments);
    }

    /// Copies what a chain of structures leads over, as far as it is not copied yet.
    fn take_along(&mut self, found: Vec<(Avma, u64)>, segments: &mut Vec<StackSegment>) {
        for (start, size) in found {
            if let Some(segment) = self.part(start, start.0.saturating_add(size), segments) {
                join(segments, segment);
            }
        }
    }

    /// The stretches around `sp` and around the stack pointers that signal frames saved, which are given.
    fn copy_stacks(&mut self, sp: Avma, segments: &mut Vec<StackSegment>) -> Vec<Avma> {
        let mut followed = Vec::new();
        let mut pointers = VecDeque::from([sp]);
        for _ in 0..MAX_STRETCHES {
            let Some(sp) = pointers.pop_front() else { break };
            followed.push(sp);
            for (start, end) in self.ranges(sp).into_iter().flatten() {
                if let Some(segment) = self.part(start, end, segments) {
                    pointers.extend(self.interrupted(&segment));
                    join(segments, segment);
                }
            }
        }
        followed
    }

    /// Where the stack of `sp` begins and where its copy ends: around `sp`; where nothing can be read there, below it, since a stack pointer at the very end of
    /// its mapping points to no byte of it, and above it, since that of a stack that overflowed lies in the guard below the stack, or in nothing.
    fn ranges(&self, sp: Avma) -> [Option<(Avma, u64)>; 2] {
        let readable = |address: Avma| maps::find(self.mappings, address).filter(|mapping| mapping.readable);
        let around = |mapping: &Mapping| {
            let start = sp.0.saturating_sub(RED_ZONE_BYTES).max(mapping.start.0);
            (Avma(start), sp.0.saturating_add(self.copy_bytes))
        };
        if let Some(mapping) = readable(sp) {
            return [Some(around(mapping)), None];
        }
        let below = sp.checked_sub(1).and_then(readable).map(around);
        let above = self.stack_above(sp).map(|start| (start, start.0.saturating_add(self.copy_bytes)));
        [below, above]
    }

    /// Where the stack begins that lies nearest above an address at which nothing can be read.
    fn stack_above(&self, sp: Avma) -> Option<Avma> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= sp);
        let nearest = self.mappings.get(after..)?.iter().find(|mapping| mapping.readable)?;
        let is_near = nearest.start.0.saturating_sub(sp.0) <= FURTHEST_BELOW_STACK;
        (sp.0 >= LOWEST_ADDRESS && is_near && nearest.writable).then_some(nearest.start)
    }

    /// The bytes from `start` to `end` within the mapping of the first one, without what is copied already.
    fn part(&mut self, start: Avma, end: u64, copied: &[StackSegment]) -> Option<StackSegment> {
        let mapping = maps::find(self.mappings, start).filter(|mapping| mapping.readable)?;
        let (mut start, mut end) = (start.0, end.min(mapping.end.0));
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

/// What an address lies in.
fn kind(mappings: &[Mapping], address: u64) -> Kind {
    match maps::find(mappings, Avma(address)) {
        Some(mapping) if !mapping.readable || mapping.shared => Kind::Other,
        Some(mapping) if mapping.executable => Kind::Code,
        Some(mapping) if mapping.inode != 0 => Kind::Constant,
        Some(mapping) if mapping.writable => Kind::Data,
        _ => Kind::Other,
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

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u64 = 0x40_0000;
    const ALTERNATE: u64 = 0x10_0000;
    const MAIN: u64 = 0x20_0000;
    const MAPPED: u64 = 0x1_0000;

    /// A process with code, an alternate stack and a main stack of 64 KiB each.
    struct Memory(Vec<(u64, Vec<u8>)>);

    impl Memory {
        fn new() -> Self {
            let mut memory = Self([CODE, ALTERNATE, MAIN].map(|start| (start, vec![0; MAPPED as usize])).into());
            memory.put(CODE + 0x10, RESTORERS[0]);
            memory
        }

        fn put(&mut self, address: u64, bytes: &[u8]) {
            let (start, mapped) =
                self.0.iter_mut().find(|(start, _)| (*start..*start + MAPPED).contains(&address)).unwrap();
            let at = (address - *start) as usize;
            mapped[at..at + bytes.len()].copy_from_slice(bytes);
        }

        /// A signal frame that interrupted code with the stack pointer `sp`.
        fn signal_frame(&mut self, at: u64, sp: u64) {
            self.put(at, &(CODE + 0x10).to_le_bytes());
            self.put(at + UC_FLAGS, &7u64.to_le_bytes());
            self.put(at + SAVED_RSP, &sp.to_le_bytes());
            self.put(at + SAVED_CS, &0x2b_0000_0000_0033u64.to_le_bytes());
        }

        fn copy(&self, sp: u64, copy_bytes: u64) -> Vec<StackSegment> {
            self.copy_by(Pointers { sp: Avma(sp), fs_base: 0, r14: 0, general: [0; 15] }, copy_bytes)
        }

        fn copy_by(&self, pointers: Pointers, copy_bytes: u64) -> Vec<StackSegment> {
            let text = "00100000-00110000 rw-p 0 00:00 0\n00200000-00210000 rw-p 0 00:00 0\n00400000-00410000 r-xp 0 00:00 0\n";
            let mappings = maps::parse(text.as_bytes()).unwrap();
            let read = |address: Avma, out: &mut [u8]| {
                let Some((start, mapped)) =
                    self.0.iter().find(|(start, _)| (*start..*start + MAPPED).contains(&address.0))
                else {
                    return 0;
                };
                let bytes = &mapped[(address.0 - start) as usize..];
                let length = bytes.len().min(out.len());
                out[..length].copy_from_slice(&bytes[..length]);
                length
            };
            StackCopier::new(&mappings, copy_bytes, read).copy(pointers)
        }
    }

    #[test]
    fn the_stack_of_a_goroutine_is_copied_from_where_it_was_left_without_a_word() {
        let mut memory = Memory::new();
        let (g, own, m, stack, sp) = (MAIN + 0x1000, MAIN + 0x2000, MAIN + 0x3000, MAIN + 0x8000, ALTERNATE + 0x8000);
        for (g, stack) in [(g, stack), (own, ALTERNATE)] {
            for (at, word) in [(0, stack), (8, stack + 0x2000), (0x30, m), (0x38, stack + 0x1f00), (0x48, g)] {
                memory.put(g + at, &u64::to_le_bytes(word));
            }
        }
        memory.put(m, &own.to_le_bytes());
        memory.put(m + 0xb8, &g.to_le_bytes());
        let start = |memory: &Memory, register: u64| {
            let mut general = [0; 15];
            general[12] = register;
            let segments = memory.copy_by(Pointers { sp: Avma(sp), fs_base: MAIN + 0x800, r14: g, general }, 0x4000);
            let copied = segments.into_iter().find(|segment| segment.end().0 == stack + 0x2000).unwrap();
            copied.start.0 + RED_ZONE_BYTES
        };
        assert_eq!(start(&memory, 0), stack + 0x1f00);
        // In a register, and pushed by who was called.
        assert_eq!(start(&memory, stack + 0x1000), stack + 0x1000);
        memory.put(sp + 0x40, &u64::to_le_bytes(stack + 0x1800));
        assert_eq!(start(&memory, 0), stack + 0x1800);
    }

    /// Start and end of each segment.
    fn ranges(segments: &[StackSegment]) -> Vec<(u64, u64)> {
        segments.iter().map(|segment| (segment.start.0, segment.end().0)).collect()
    }

    #[test]
    fn a_copy_reaches_from_the_red_zone_to_the_bound_or_the_mappings_end() {
        let memory = Memory::new();
        assert_eq!(ranges(&memory.copy(MAIN + 0x800, 0x1000)), [(MAIN + 0x800 - 128, MAIN + 0x1800)]);
        assert_eq!(ranges(&memory.copy(MAIN + 8, 0x1000)), [(MAIN, MAIN + 0x1008)]);
        assert_eq!(ranges(&memory.copy(MAIN + 0xff00, 0x1000)), [(MAIN + 0xff00 - 128, MAIN + MAPPED)]);
        assert_eq!(ranges(&memory.copy(MAIN + MAPPED, 0x1000)), [(MAIN + MAPPED - 128, MAIN + MAPPED)]);
    }

    #[test]
    fn a_stack_pointer_that_leads_nowhere_gives_nothing() {
        for sp in [0, 1, 0x8000, u64::MAX] {
            assert_eq!(Memory::new().copy(sp, 0x1000), []);
        }
    }

    #[test]
    fn a_stack_that_overflowed_begins_above_its_pointer() {
        let begins = (MAIN, MAIN + 0x1000);
        for below in [8, 0x1000, MAIN - (ALTERNATE + MAPPED) - 8] {
            assert_eq!(ranges(&Memory::new().copy(MAIN - below, 0x1000)), [begins], "{below:#x}");
        }
        // At the very end of one stack, and below another.
        let memory = Memory::new();
        let end = ALTERNATE + MAPPED;
        assert_eq!(ranges(&memory.copy(end, 0x1000)), [(end - 128, end), begins]);
        // Too far below one, and below what no stack lies in.
        assert_eq!(ranges(&memory.copy(MAIN + MAPPED + 8, 0x1000)), []);
        // A guard is mapped, and cannot be read.
        let text =
            "00100000-00110000 ---p 0 00:00 0\n00200000-00210000 rw-p 0 00:00 0\n02200000-02210000 rw-p 0 00:00 0\n";
        let mappings = maps::parse(text.as_bytes()).unwrap();
        let copier = StackCopier::new(&mappings, 0x1000, |_: Avma, _: &mut [u8]| 0);
        let above = |sp: u64| copier.ranges(Avma(sp))[1].map(|(start, _)| start.0);
        assert_eq!([ALTERNATE, ALTERNATE + 0xfff8].map(above), [Some(MAIN); 2]);
        assert_eq!(above(0x220_0000 - FURTHEST_BELOW_STACK), Some(0x220_0000));
        assert_eq!(above(0x220_0000 - FURTHEST_BELOW_STACK - 8), None);
    }

    #[test]
    fn the_stack_below_a_signal_frame_is_found() {
        let mut memory = Memory::new();
        memory.signal_frame(ALTERNATE + 0x1008, MAIN + 0x4000);
        let segments = memory.copy(ALTERNATE + 0x1000, 0x2000);
        let expected = [(ALTERNATE + 0x1000 - 128, ALTERNATE + 0x3000), (MAIN + 0x4000 - 128, MAIN + 0x6000)];
        assert_eq!(ranges(&segments), expected);
        assert_eq!((segments[1].mapping_start, segments[1].mapping_end), (Avma(MAIN), Avma(MAIN + MAPPED)));
    }

    #[test]
    fn a_signal_on_the_same_stack_continues_the_segment() {
        let mut memory = Memory::new();
        memory.signal_frame(MAIN + 0x1008, MAIN + 0x1800);
        assert_eq!(ranges(&memory.copy(MAIN + 0x1000, 0x1000)), [(MAIN + 0x1000 - 128, MAIN + 0x2800)]);
    }

    #[test]
    fn what_only_looks_like_a_signal_frame_is_passed_over() {
        let mut memory = Memory::new();
        memory.signal_frame(ALTERNATE + 0x1008, MAIN + 0x4000);
        memory.put(CODE + 0x10, b"\x90");
        assert_eq!(memory.copy(ALTERNATE + 0x1000, 0x2000).len(), 1);
        let mut memory = Memory::new();
        memory.signal_frame(ALTERNATE + 0x1008, 0x7777_0000);
        assert_eq!(memory.copy(ALTERNATE + 0x1000, 0x2000).len(), 1, "its stack pointer leads nowhere");
    }

    #[test]
    fn signal_frames_that_lead_in_circles_end() {
        let mut memory = Memory::new();
        memory.signal_frame(ALTERNATE + 0x1008, MAIN + 0x4000);
        memory.signal_frame(MAIN + 0x4008, ALTERNATE + 0x1000);
        assert_eq!(memory.copy(ALTERNATE + 0x1000, 0x2000).len(), 2);
        let mut memory = Memory::new();
        for at in 0..60 {
            memory.signal_frame(ALTERNATE + 0x1000 + at * 256, MAIN + at * 0x400);
        }
        let copied: usize = memory.copy(ALTERNATE + 0x1000, 0x8000).iter().map(|segment| segment.bytes.len()).sum();
        assert!(copied <= 2 * MAPPED as usize);
    }
}
