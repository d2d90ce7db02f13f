//! What leads from a coroutine of C++ that a stack runs to those that wait for it.
//!
//! The frame of a coroutine begins with the function that resumes it, which is null once it is at its end, and the one that destroys it; who awaits it
//! has left its own frame's address in the promise, which follows. Which members those are is told by debug information, which nobody reads while a process
//! stands still; so whatever a register or a word of a stack points to counts that begins so, and whatever such a structure points to in its turn. (GCC,
//! `gcc/cp/coroutines.cc`; LLVM, `CoroSplit`)

use std::collections::{BTreeSet, VecDeque};

use symseal_module::Avma;
use symseal_trace::StackSegment;

use crate::tasks::Kind;

/// Bytes of a frame that are copied: promise, parameters and the index of the suspension come first in it.
const FRAME_BYTES: u64 = 1024;
/// The most coroutines of one thread.
const MOST_FRAMES: usize = 64;
/// The most reads for one thread: what keeps a process standing still whose stacks have many addresses of its heap.
const MOST_READS: u32 = 256;

/// First address and bytes of the frames of coroutines that registers and the copied stretches lead to, directly or through others. `read` gives the
/// number of bytes that could be read.
pub(crate) fn coroutines(
    registers: &[u64],
    segments: &[StackSegment],
    kind: impl Fn(u64) -> Kind,
    mut read: impl FnMut(Avma, &mut [u8]) -> usize,
) -> Vec<(Avma, u64)> {
    let mut reads = MOST_READS;
    let mut fetch = |address: u64, out: &mut [u8]| {
        if let Some(copied) = copied(segments, address, out.len()) {
            out.copy_from_slice(copied);
            return out.len();
        }
        match reads.checked_sub(1) {
            Some(left) => {
                reads = left;
                read(Avma(address), out)
            }
            None => 0,
        }
    };
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    let words = segments.iter().flat_map(StackSegment::words);
    let mut candidates = registers.iter().copied().chain(words);
    let mut next = VecDeque::new();
    while let Some(address) = next.pop_front().or_else(|| candidates.next()) {
        if found.len() >= MOST_FRAMES {
            break;
        }
        // By rising cost: nearly every word fails the first tests.
        if address == 0 || !address.is_multiple_of(8) || kind(address) != Kind::Data || !seen.insert(address) {
            continue;
        }
        let mut functions = [0; 16];
        if fetch(address, &mut functions) != functions.len() {
            continue;
        }
        let [resumes, destroys] = functions.as_chunks::<8>().0 else { continue };
        let (resumes, destroys) = (u64::from_le_bytes(*resumes), u64::from_le_bytes(*destroys));
        if kind(destroys) != Kind::Code || (resumes != 0 && kind(resumes) != Kind::Code) {
            continue;
        }
        found.push((Avma(address), FRAME_BYTES));
        let mut frame = [0; FRAME_BYTES as usize];
        let length = fetch(address, &mut frame);
        let words = frame.get(..length).unwrap_or_default().as_chunks::<8>().0;
        next.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
    }
    found
}

/// The bytes from `address` on, if one stretch has as many.
fn copied(segments: &[StackSegment], address: u64, length: usize) -> Option<&[u8]> {
    segments.iter().find_map(|segment| {
        let from = usize::try_from(address.checked_sub(segment.start.0)?).ok()?;
        segment.bytes.get(from..from.checked_add(length)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const STACK: u64 = 0x7000_0000;
    const HEAP: u64 = 0x9000_0000;
    const CODE: u64 = 0x5000_0000;
    const NOTHING: [u64; 0] = [];

    /// The frames that are found, and how much was read; `heap` are the words that are not zero.
    fn found(registers: &[u64], stack: &[u64], heap: &[(u64, u64)]) -> (Vec<u64>, u32) {
        let reads = Cell::new(0);
        let kind = |address: u64| match address >> 28 {
            9 | 7 => Kind::Data,
            5 => Kind::Code,
            _ => Kind::Other,
        };
        let read = |address: Avma, out: &mut [u8]| {
            reads.set(reads.get() + 1);
            for (word, at) in out.as_chunks_mut::<8>().0.iter_mut().zip((address.0..).step_by(8)) {
                let value = heap.iter().find(|(known, _)| *known == at).map_or(0, |(_, value)| *value);
                *word = value.to_le_bytes();
            }
            out.len()
        };
        let bytes = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        let segment =
            StackSegment { start: Avma(STACK), mapping_start: Avma(STACK), mapping_end: Avma(STACK + 0x1000), bytes };
        let found = coroutines(registers, &[segment], kind, read).into_iter().map(|(start, _)| start.0).collect();
        (found, reads.get())
    }

    /// The words of a frame whose promise leads to `parent`.
    fn frame(at: u64, resumes: u64, parent: u64) -> [(u64, u64); 3] {
        [(at, resumes), (at + 8, CODE + 8), (at + 24, parent)]
    }

    #[test]
    fn frames_are_followed_from_registers_and_words_to_those_that_wait() {
        let heap = [frame(HEAP, CODE, HEAP + 0x1000), frame(HEAP + 0x1000, CODE, HEAP + 0x2000)].concat();
        let last = frame(HEAP + 0x2000, 0, 0);
        let heap = [&heap[..], &last].concat();
        let all = vec![HEAP, HEAP + 0x1000, HEAP + 0x2000];
        assert_eq!(found(&[HEAP], &[], &heap).0, all);
        assert_eq!(found(&[1, 2], &[7, HEAP, 9], &heap).0, all);
        // One that the compiler put on the stack needs no reading.
        let on_stack = [CODE, CODE + 8, 0, HEAP + 0x2000];
        let stack: Vec<u64> = on_stack.into_iter().chain([0; 200]).collect();
        assert_eq!(found(&[STACK], &stack, &heap), (vec![STACK, HEAP + 0x2000], 2));
    }

    #[test]
    fn what_only_looks_like_a_frame_is_left_out_at_little_cost() {
        assert_eq!(found(&[HEAP + 4, CODE, 0], &[5], &[]), (NOTHING.to_vec(), 0));
        assert_eq!(found(&[HEAP, HEAP], &[HEAP], &[(HEAP, CODE)]), (NOTHING.to_vec(), 1));
        assert_eq!(found(&[HEAP], &[], &[(HEAP, 1), (HEAP + 8, CODE)]), (NOTHING.to_vec(), 1));
        let many: Vec<u64> = (0..4096).map(|at| HEAP + 16 * at).collect();
        assert!(found(&[], &many, &[]).1 <= MOST_READS);
        let circle = [frame(HEAP, CODE, HEAP + 0x1000), frame(HEAP + 0x1000, CODE, HEAP)].concat();
        assert_eq!(found(&[HEAP], &[], &circle).0, [HEAP, HEAP + 0x1000]);
    }
}
