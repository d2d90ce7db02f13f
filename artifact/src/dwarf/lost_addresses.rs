//! Units whose functions lost their addresses, which stand in a table apart (`.debug_addr`), while their lines did not.
//!
//! What a linker drops has no address, and its lines are dropped with it. lld leaves the lines of a function that it folded at the address of the
//! one that it kept, and takes its address away; so lines that another unit's function has say nothing.

use super::lines::Lines;
use super::walk::UnitEntries;
use crate::code_ranges::{joined, touches};
use crate::described::Piece;
use std::ops::Range;

/// So many rows begin behind no function: where the next one is aligned, one does.
const FUNCTION_ROWS: usize = 3;
/// So many sequences no function has, and more than a quarter of the unit's. Trivial functions, which are few, may be folded into those of a library without
/// debug information.
const FEWEST_SEQUENCES: usize = 8;

/// Lines in the code that no function of their unit has, although the unit has functions without an address in the code.
#[derive(Debug, Default)]
pub(crate) struct Suspect {
    /// Within sequences of which functions have the rest. A linker drops and folds none in parts.
    parts: Vec<Range<u64>>,
    /// Sequences that no function has any of.
    whole: Vec<Range<u64>>,
    /// How many sequences there are.
    sequences: usize,
}

impl Suspect {
    /// Looks at a unit whose pieces and sequences are in order.
    pub(crate) fn of(entries: &UnitEntries, pieces: &[Piece], lines: &Lines) -> Option<Self> {
        if !entries.has_dropped || lines.has_dropped {
            return None;
        }
        let mut found = Self { sequences: lines.sequences.len(), ..Self::default() };
        for sequence in &lines.sequences {
            let first = pieces.partition_point(|piece| piece.end <= sequence.start);
            let here = pieces.get(first..).unwrap_or_default().iter().take_while(|piece| piece.start < sequence.end);
            let (mut gaps, mut reached, mut is_named) = (Vec::new(), sequence.start, false);
            for piece in here {
                gaps.push(reached..piece.start);
                reached = reached.max(piece.end);
                is_named = true;
            }
            if !is_named {
                found.whole.push(sequence.start..sequence.end);
                continue;
            }
            gaps.push(reached..sequence.end);
            let begins = |gap: &Range<u64>| {
                let rows = lines.rows_between(sequence, gap.start, gap.end);
                rows.iter().filter(|row| row.svma >= gap.start).count() >= FUNCTION_ROWS
            };
            found.parts.extend(gaps.into_iter().filter(|gap| gap.start < gap.end && begins(gap)));
        }
        (!found.parts.is_empty() || !found.whole.is_empty()).then_some(found)
    }

    /// Whether the unit lost addresses, as no function of any unit has those lines.
    fn is_lost(&self, named: &[Range<u64>]) -> bool {
        let left = |ranges: &[Range<u64>]| ranges.iter().filter(|range| !touches(named, range)).count();
        let whole = left(&self.whole);
        left(&self.parts) > 0 || whole >= FEWEST_SEQUENCES && whole * 4 > self.sequences
    }
}

/// How many units lost addresses, by the pieces of all.
pub(crate) fn lost(suspects: &[Suspect], pieces: &[Piece]) -> usize {
    if suspects.is_empty() {
        return 0;
    }
    let named = joined(pieces.iter().map(|piece| piece.start..piece.end).collect());
    suspects.iter().filter(|suspect| suspect.is_lost(&named)).count()
}
