//! Which of several line sequences of one stretch of code are of the function that has it.
//!
//! A linker that folds equal functions (`--icf` of gold and lld) puts the line sequences of all to the address of the one that it
//! kept. What debug information says of a function's declaration tells its own from the others: its lines are in the file of the
//! declaration, at that line or behind it, and those of another function in the file stand before it, or further behind.

use super::lines::{Lines, Own, Sequence};
use super::names::Names;
use super::rows::function_intervals;
use super::walk::UnitEntries;
use crate::paint::paint;
use crate::work::Work;
use std::cmp::Reverse;
use symseal_symx::StrId;

/// How near a sequence's lines are to a declaration, the nearest last: first by the nearest line at or behind it, then by
/// the bytes of code that have such lines, then by the last line. A function that the other one inlines is as near in both, but for the rest of the other.
pub(crate) type Nearness = (Reverse<u32>, u64, Reverse<u32>);

/// The sequences of functions that hold code which several sequences claim, which are `claims`.
pub(crate) fn own_lines(
    claims: &[(usize, Sequence)],
    entries: &UnitEntries,
    lines: &Lines,
    names: &mut Names<'_>,
    work: &mut Work,
) -> Vec<Own> {
    let mut reached = 0;
    // Behind each claim, where it and all before it end.
    let reach: Vec<u64> = claims
        .iter()
        .map(|(_, sequence)| {
            reached = sequence.end.max(reached);
            reached
        })
        .collect();
    let (intervals, owners) = function_intervals(entries);
    let mut all = Vec::new();
    for segment in paint(&intervals) {
        let first = reach.partition_point(|end| *end <= segment.start);
        let behind = claims.partition_point(|(_, sequence)| sequence.start < segment.end);
        let here = claims.get(first..behind).unwrap_or_default();
        if here.is_empty() {
            continue;
        }
        // One that reaches over all others has these looked at for each function.
        if work.budget.charge(here.len() as u64).is_err() {
            return all;
        }
        let Some(function) = owners.get(segment.index).and_then(|owner| entries.functions.get(*owner as usize)) else {
            continue;
        };
        let Some((file, line)) = names.declaration(function.entry, work) else { continue };
        for (number, sequence) in here.iter().filter(|(_, sequence)| sequence.end > segment.start) {
            let (start, end) = (sequence.start.max(segment.start), sequence.end.min(segment.end));
            let rows = lines.rows_between(sequence, start, end).len() as u64;
            // When the work limit is reached, the rest of the unit is left out as well.
            if work.budget.charge(rows + 1).is_err() {
                return all;
            }
            if let Some(nearness) = nearness(lines, sequence, (start, end), file, line) {
                all.push(Own { start, end, sequence: *number, nearness });
            }
        }
    }
    all
}

/// `None` where the sequence has no line of this file at or behind this one.
fn nearness(lines: &Lines, sequence: &Sequence, (start, end): (u64, u64), file: StrId, line: u32) -> Option<Nearness> {
    let rows = lines.rows_between(sequence, start, end);
    let ends = rows.iter().skip(1).map(|row| row.svma).chain([end]);
    let mut found: Option<Nearness> = None;
    for (row, row_end) in rows.iter().zip(ends).filter(|(row, _)| row.file == file) {
        let Some(behind) = row.line.checked_sub(line) else { continue };
        let (Reverse(nearest), bytes, Reverse(farthest)) = found.unwrap_or((Reverse(behind), 0, Reverse(behind)));
        let bytes = bytes.saturating_add(row_end.saturating_sub(row.svma.max(start)));
        found = Some((Reverse(nearest.min(behind)), bytes, Reverse(farthest.max(behind))));
    }
    found
}
