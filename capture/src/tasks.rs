//! What leads from a task of tokio (Rust) that a stack polls to those that wait for it.
//!
//! A walk needs the header of each task, the table that it points to, and the trailer, in which the waker of who waits is. Where their fields are changes from
//! version to version and is told by debug information, which nobody reads while a process stands still; so they are found by what has been the same in all
//! of them (tokio, `runtime/task/core.rs`): a waker is the address of a table in a module beside that of a header, which lies at a multiple of 128 bytes; the header has
//! the address of the task's table, which begins with functions and has the distance from the header to the trailer behind them; and all wakers of tasks have
//! one table.

use std::collections::BTreeSet;

use symseal_module::Avma;
use symseal_trace::StackSegment;

/// Bytes of a header that are looked at and copied, of a task's table, and of a trailer.
const HEADER_BYTES: usize = 64;
const TABLE_BYTES: usize = 96;
const TRAILER_BYTES: usize = 64;
/// What the structure of a task is aligned to on x86_64.
const ALIGNMENT: u64 = 128;
/// Functions that a task's table begins with, at least.
const LEAST_FUNCTIONS: usize = 4;
/// Larger tasks there are none.
const MOST_TASK_BYTES: u64 = 1 << 24;
/// The most tasks of one thread.
const MOST_TASKS: usize = 64;
/// The most reads for one thread: what keeps a process standing still if much looks like a task and is none.
const MOST_READS: u32 = 256;

/// What an address lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of the process's own that it may write to.
    Data,
    /// Bytes of a file that are no code.
    Constant,
    Code,
    Other,
}

/// First address and bytes of what leads from tasks on the copied stretches to others. `read` gives the number of bytes that could be read.
pub(crate) fn tasks(
    segments: &[StackSegment],
    kind: impl Fn(u64) -> Kind,
    read: impl FnMut(Avma, &mut [u8]) -> usize,
) -> Vec<(Avma, u64)> {
    let mut seeker = Seeker { kind, read, reads: MOST_READS, seen: BTreeSet::new(), found: Vec::new() };
    for segment in segments {
        for pair in segment.word_bytes().windows(2) {
            if let [one, other] = pair {
                let (one, other) = (u64::from_le_bytes(*one), u64::from_le_bytes(*other));
                seeker.follow(one, other);
                seeker.follow(other, one);
            }
        }
    }
    seeker.found
}

struct Seeker<K, R> {
    kind: K,
    read: R,
    reads: u32,
    seen: BTreeSet<u64>,
    found: Vec<(Avma, u64)>,
}

impl<K: Fn(u64) -> Kind, R: FnMut(Avma, &mut [u8]) -> usize> Seeker<K, R> {
    /// From the task of a waker with this table to the one that waits for it, and so on.
    fn follow(&mut self, wakers: u64, mut header: u64) {
        // By rising cost: nearly every pair fails the first test.
        let may_be = |header: u64| header.is_multiple_of(ALIGNMENT) && header != 0;
        if !may_be(header) || !wakers.is_multiple_of(8) || (self.kind)(wakers) != Kind::Constant {
            return;
        }
        while may_be(header)
            && self.seen.len() < MOST_TASKS
            && (self.kind)(header) == Kind::Data
            && self.seen.insert(header)
        {
            let Some(trailer) = self.task(header) else { break };
            let Some(bytes) = self.structure::<TRAILER_BYTES>(trailer) else { break };
            self.found.push((Avma(trailer), TRAILER_BYTES as u64));
            let words = words(&bytes);
            let beside = words.windows(2).find_map(|pair| match *pair {
                [table, header] if table == wakers && may_be(header) => Some(header),
                [header, table] if table == wakers && may_be(header) => Some(header),
                _ => None,
            });
            let Some(next) = beside else { break };
            header = next;
        }
    }

    /// Takes the header and the table of a task along; gives where its trailer is.
    fn task(&mut self, header: u64) -> Option<u64> {
        let bytes = self.structure::<HEADER_BYTES>(header)?;
        for table in words(&bytes) {
            if !table.is_multiple_of(8) || (self.kind)(table) != Kind::Constant {
                continue;
            }
            let Some(bytes) = self.structure::<TABLE_BYTES>(table) else { continue };
            let words = words(&bytes);
            let functions = words.iter().take_while(|word| (self.kind)(**word) == Kind::Code).count();
            let distance = words.get(functions).copied().filter(|distance| {
                (HEADER_BYTES as u64 / 2..MOST_TASK_BYTES).contains(distance) && distance.is_multiple_of(8)
            });
            if let Some(distance) = distance.filter(|_| functions >= LEAST_FUNCTIONS) {
                self.found.extend([(Avma(header), HEADER_BYTES as u64), (Avma(table), TABLE_BYTES as u64)]);
                return header.checked_add(distance);
            }
        }
        None
    }

    fn structure<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        self.reads = self.reads.checked_sub(1)?;
        let mut bytes = [0; N];
        ((self.read)(Avma(address), &mut bytes) == N).then_some(bytes)
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    const STACK: u64 = 0x7000_0000;
    const HEAP: u64 = 0x9000_0000;
    const MODULE: u64 = 0x4000_0000;
    const CODE: u64 = 0x5000_0000;
    const WAKERS: u64 = MODULE + 0x20;
    const DISTANCE: u64 = 0x180;

    #[derive(Default)]
    struct Process {
        words: BTreeMap<u64, u64>,
        reads: Cell<u32>,
    }

    impl Process {
        /// So many tasks, each waiting for the one before it.
        fn new(count: u64) -> Self {
            let mut process = Self::default();
            for at in 0..count {
                let (header, table) = (HEAP + 0x1000 * at, MODULE + 0x100 * (at + 1));
                process.words.insert(header + 16, table);
                for function in 0..7 {
                    process.words.insert(table + 8 * function, CODE + function);
                }
                process.words.insert(table + 56, DISTANCE);
                if at + 1 < count {
                    process.words.insert(header + DISTANCE + 16, WAKERS);
                    process.words.insert(header + DISTANCE + 24, header + 0x1000);
                }
            }
            process
        }

        fn found(&self, stack: &[u64]) -> Vec<u64> {
            self.reads.set(0);
            let kind = |address: u64| match address >> 28 {
                9 => Kind::Data,
                4 => Kind::Constant,
                5 => Kind::Code,
                _ => Kind::Other,
            };
            let read = |address: Avma, out: &mut [u8]| {
                self.reads.set(self.reads.get() + 1);
                for (word, at) in out.as_chunks_mut::<8>().0.iter_mut().zip((address.0..).step_by(8)) {
                    *word = self.words.get(&at).copied().unwrap_or(0).to_le_bytes();
                }
                out.len()
            };
            let bytes = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
            let segment = StackSegment {
                start: Avma(STACK),
                mapping_start: Avma(STACK),
                mapping_end: Avma(STACK + 0x1000),
                bytes,
            };
            tasks(&[segment], kind, read).into_iter().map(|(start, _)| start.0).collect()
        }
    }

    #[test]
    fn tasks_are_followed_from_wakers_on_the_stack_whichever_word_comes_first() {
        let of = |at: u64| [HEAP + 0x1000 * at, MODULE + 0x100 * (at + 1), HEAP + 0x1000 * at + DISTANCE];
        let expected = [of(0), of(1), of(2)].concat();
        assert_eq!(Process::new(3).found(&[5, WAKERS, HEAP, 7]), expected);
        assert_eq!(Process::new(3).found(&[5, HEAP, WAKERS, HEAP]), expected);
        let mut other = Process::new(2);
        other.words.insert(HEAP + DISTANCE + 16, HEAP + 0x1000);
        other.words.insert(HEAP + DISTANCE + 24, WAKERS);
        assert_eq!(other.found(&[WAKERS, HEAP]), [of(0), of(1)].concat());
    }

    #[test]
    fn what_only_looks_like_a_task_is_left_out_at_little_cost() {
        const NOTHING: [u64; 0] = [];
        let found = |stack: &[u64], change: &[(u64, u64)]| {
            let mut process = Process::new(2);
            process.words.extend(change.iter().copied());
            let found = process.found(stack);
            (found, process.reads.get())
        };
        for stack in [[WAKERS, HEAP + 64], [WAKERS + 4, HEAP], [CODE, HEAP], [WAKERS, STACK], [WAKERS, 0]] {
            assert_eq!(found(&stack, &[]), (NOTHING.to_vec(), 0), "{stack:x?}");
        }
        assert_eq!(found(&[WAKERS, HEAP], &[(HEAP + 16, CODE)]), (NOTHING.to_vec(), 1));
        assert_eq!(found(&[WAKERS, HEAP], &[(MODULE + 0x100, 0)]), (NOTHING.to_vec(), 2));
        assert_eq!(found(&[WAKERS, HEAP], &[(MODULE + 0x138, 1 << 30)]), (NOTHING.to_vec(), 2));
        // Many of them, and those that wait for each other.
        let many: Vec<u64> = (0..4096).flat_map(|at| [WAKERS, HEAP + ALIGNMENT * at]).collect();
        assert!(found(&many, &[]).1 <= MOST_READS);
        let circle = [(HEAP + 0x1000 + DISTANCE + 16, WAKERS), (HEAP + 0x1000 + DISTANCE + 24, HEAP)];
        assert_eq!(found(&[WAKERS, HEAP], &circle).0.len(), 6);
        assert_eq!(Process::new(1000).found(&[WAKERS, HEAP]).len(), 3 * MOST_TASKS);
    }
}
