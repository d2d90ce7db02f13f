//! What leads from an asynchronous function of Swift on the stack to those that wait for it and are on none.
//!
//! Such a function marks the frame pointer that it saves with bit 60, and keeps its context in the word below; a context begins with that of who waits
//! for it and the function that goes on then. Nobody evaluates unwind rules while a process stands still,
//! so every marked word of a stack counts: they are few, and sixteen bytes for each context are copied.

use std::collections::BTreeSet;

use symseal_module::Avma;
use symseal_trace::StackSegment;

/// Bytes of a context that say who waits for it.
const CONTEXT_BYTES: u64 = 16;
/// The most contexts of one thread: what keeps a process standing still if a chain is long or leads in circles.
const MOST_CONTEXTS: usize = 256;
/// Marked words that are looked at, from the innermost on.
const MOST_MARKS: usize = 64;

/// First address and bytes of the contexts that functions on the copied stretches lead to. `read` gives the number of bytes that could be read.
pub(crate) fn contexts(
    segments: &[StackSegment],
    is_readable: impl Fn(u64) -> bool,
    mut read: impl FnMut(Avma, &mut [u8]) -> usize,
) -> Vec<(Avma, u64)> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for mut context in segments.iter().flat_map(slots).take(MOST_MARKS) {
        while found.len() < MOST_CONTEXTS
            && context != 0
            && context.is_multiple_of(8)
            && is_readable(context)
            && seen.insert(context)
        {
            let mut bytes = [0; CONTEXT_BYTES as usize];
            if read(Avma(context), &mut bytes) != bytes.len() {
                break;
            }
            found.push((Avma(context), CONTEXT_BYTES));
            let [parent, ..] = bytes.as_chunks::<8>().0 else { break };
            context = u64::from_le_bytes(*parent);
        }
    }
    found
}

/// The words below the marked ones of a stretch.
fn slots(segment: &StackSegment) -> impl Iterator<Item = u64> {
    // The bit, and nothing else above an address: those of the kernel have all of them.
    let marked = |pair: &&[[u8; 8]]| pair.get(1).is_some_and(|word| u64::from_le_bytes(*word) >> 48 == 1 << 12);
    segment.word_bytes().windows(2).filter(marked).filter_map(|pair| pair.first().map(|slot| u64::from_le_bytes(*slot)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: u64 = 0x7000;
    const HEAP: u64 = 0x9000;
    const MARK: u64 = 1 << 60;
    const NOTHING: [u64; 0] = [];

    fn stack(words: &[u64]) -> StackSegment {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        StackSegment { start: Avma(STACK), mapping_start: Avma(STACK), mapping_end: Avma(STACK + 0x1000), bytes }
    }

    /// Contexts at the beginning of the heap, each with the next one as its parent.
    fn found(words: &[u64], heap: &[u64]) -> Vec<u64> {
        let bytes: Vec<u8> = heap.iter().flat_map(|word| word.to_le_bytes()).collect();
        let read = |address: Avma, out: &mut [u8]| {
            let from = bytes.get((address.0 - HEAP) as usize..).unwrap_or_default();
            let length = from.len().min(out.len());
            out[..length].copy_from_slice(&from[..length]);
            length
        };
        let found = contexts(&[stack(words)], |address| (HEAP..HEAP + 0x4000).contains(&address), read);
        found.into_iter().map(|(start, _)| start.0).collect()
    }

    #[test]
    fn contexts_are_followed_from_the_word_below_a_marked_one() {
        let heap = [HEAP + 32, 1, 0, 0, 0, 2];
        assert_eq!(found(&[5, HEAP, STACK | MARK, 7], &heap), [HEAP, HEAP + 32]);
        assert_eq!(found(&[HEAP, MARK], &heap), [HEAP, HEAP + 32], "the outermost frame pointer of a thread is zero");
        assert_eq!(found(&[HEAP, STACK, HEAP, u64::MAX, HEAP, MARK | 1 << 50], &heap), NOTHING, "no mark");
    }

    #[test]
    fn what_leads_nowhere_or_in_circles_ends() {
        assert_eq!(found(&[HEAP, MARK], &[HEAP, 1]), [HEAP]);
        assert_eq!(found(&[HEAP, MARK, HEAP + 16, MARK], &[HEAP + 16, 1, HEAP, 1]), [HEAP, HEAP + 16]);
        assert_eq!(found(&[HEAP + 4, MARK, 0, MARK, 0x100, MARK], &[0; 8]), NOTHING);
        assert_eq!(found(&[HEAP, MARK], &[HEAP + 16]), NOTHING, "half of one");
        let long: Vec<u64> = (1..600).flat_map(|at| [HEAP + 16 * at, 1]).collect();
        assert_eq!(found(&[HEAP, MARK], &long).len(), 256);
    }
}
