//! Lines of code that no function of their unit has: of assembly, and of functions that are described by lines alone.

use super::lines::{LineRow, Lines, Sequence};
use super::rows::sequence_stretches;
use super::unit::Unit;
use super::walk::UnitEntries;
use crate::code_ranges::{Text, disjoint, touches};
use crate::described::{OrphanRow, Piece};
use crate::work::Work;
use std::ops::Range;

/// The rows of a unit's sequences that no piece of it covers, in the code that the unit says it has (DWARF 5, 3.1.1).
///
/// lld leaves the lines of a function that it folded at the address of the one that it kept, so that a debugger can stop there, and
/// takes the function itself and its range out of the unit. Such lines tell of another function than the one that is there.
pub(crate) fn orphans(
    unit: &Unit<'_>,
    entries: &UnitEntries,
    pieces: &[Piece],
    lines: &Lines,
    text: &Text,
    work: &mut Work,
) -> Vec<OrphanRow> {
    // A compiler puts all code into functions; that a row of its table begins behind one, where the next one is aligned, says nothing.
    let mut rows = uncovered(pieces, lines, entries.are_assembled);
    if rows.is_empty() {
        return rows;
    }
    // A unit that says nothing of its code, as compilers write them for several sections in strict DWARF 2, or whose ranges cannot be read, keeps all.
    if let Some(code) = stated_code(unit, text, work) {
        rows = within(&rows, &code);
    }
    rows
}

/// The code that a unit says it has; `None` where it says nothing of it, or nothing that can be read.
fn stated_code(unit: &Unit<'_>, text: &Text, work: &mut Work) -> Option<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let is_said = unit.push_code(text, &mut work.budget, &mut ranges).unwrap_or(false);
    is_said.then(|| disjoint(ranges.into_iter().map(|(start, end)| start..end).collect()))
}

fn uncovered(pieces: &[Piece], lines: &Lines, are_assembled: bool) -> Vec<OrphanRow> {
    let mut rows = Vec::new();
    let mut pieces = pieces.iter().peekable();
    let mut push = |sequence: &Sequence, from: u64, to: u64| {
        sequence_stretches(lines, sequence, from, to, &mut |start, end, row: &LineRow| {
            let begins = are_assembled && start == row.svma;
            rows.push(OrphanRow { start, end, file: row.file, line: row.line, column: row.column, begins });
        });
    };
    for sequence in &lines.sequences {
        let mut position = sequence.start;
        while let Some(piece) = pieces.peek()
            && piece.start < sequence.end
        {
            if position < piece.start {
                push(sequence, position, piece.start);
            }
            position = position.max(piece.end);
            if piece.end > sequence.end {
                break;
            }
            pieces.next();
        }
        if position < sequence.end {
            push(sequence, position, sequence.end);
        }
    }
    rows
}

/// The parts of rows in these ranges, which are sorted and do not overlap. Rows rise too.
fn within(rows: &[OrphanRow], code: &[Range<u64>]) -> Vec<OrphanRow> {
    let mut kept = Vec::new();
    for row in rows.iter().filter(|row| touches(code, &(row.start..row.end))) {
        let first = code.partition_point(|range| range.end <= row.start);
        let here = code.get(first..).unwrap_or_default().iter().take_while(|range| range.start < row.end);
        kept.extend(here.map(|range| OrphanRow {
            start: row.start.max(range.start),
            end: row.end.min(range.end),
            begins: row.begins && range.start <= row.start,
            ..*row
        }));
    }
    kept
}
