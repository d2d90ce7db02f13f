//! Padding between functions. It is never run and no return address is looked up in it, so that a row of its own that says
//! "no information" is only bytes: it takes on the rule before it. But only what its bytes prove to be padding, and no
//! more than aligns a function.

use alloc::vec::Vec;

use super::pieces::Piece;
use crate::arch::Arch;

/// Stretches `pieces` (sorted) over the padding that follows them in `code`.
pub(super) fn absorb(arch: Arch, code: &[(u64, &[u8])], pieces: &mut [Piece]) {
    let machine = arch.machine();
    let mut sorted: Vec<_> = code.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    // By keys of two numbers, as all such lists are: the sort is then compiled once for all of them.
    sorted.sort_by_cached_key(|(start, _)| (*start, 0_u64));
    let bytes_of = |start: u64, length: u64| -> Option<&[u8]> {
        let at = sorted.partition_point(|(section, _)| *section <= start).checked_sub(1)?;
        let (section, bytes) = sorted.get(at)?;
        let from = usize::try_from(start.checked_sub(*section)?).ok()?;
        bytes.get(from..from.checked_add(usize::try_from(length).ok()?)?)
    };
    let mut next = u64::MAX;
    for piece in pieces.iter_mut().rev() {
        let gap = next.saturating_sub(piece.end());
        if (1..machine.function_alignment).contains(&gap) && bytes_of(piece.end(), gap).is_some_and(machine.is_padding)
        {
            piece.end_at(next);
        }
        next = piece.start();
    }
}
