//! A unit's line table: rows by address. (DWARF 5, 6.2)

use super::files::Files;
use super::sections::Slice;
use super::unit::Unit;
use crate::code_ranges::Text;
use crate::paint;
use crate::work::Work;
use gimli::{ColumnType, IncompleteLineProgram};
use symseal_symx::StrId;

/// A row holds from its address to the next row's, or to its sequence's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineRow {
    pub(crate) svma: u64,
    pub(crate) file: StrId,
    /// 0 = none.
    pub(crate) line: u32,
    /// 0 = none.
    pub(crate) column: u32,
}

/// Rows of a contiguous range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    pub(crate) start: u64,
    pub(crate) end: u64,
    first: usize,
    behind: usize,
}

/// The line table of one unit; buffers are kept from unit to unit.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rows: Vec<LineRow>,
    /// Sorted by start, not overlapping.
    pub(crate) sequences: Vec<Sequence>,
}

impl Lines {
    /// Fills the table from a unit's line program, or with nothing.
    pub(crate) fn fill<'s>(
        &mut self,
        unit: &Unit<'s>,
        program: Option<IncompleteLineProgram<Slice<'s>>>,
        text: &Text,
        files: &mut Files,
        work: &mut Work,
    ) {
        self.rows.clear();
        self.sequences.clear();
        let Some(program) = program else { return };
        let header_bytes = program.header().header_length() as u64;
        if work.budget.charge(header_bytes).is_err() {
            return;
        }
        let mut program = program.rows();
        let mut first = 0;
        // Files change seldom from row to row.
        let mut last_file = (u64::MAX, StrId::EMPTY);
        loop {
            let (header, row) = match program.next_row() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(_) => {
                    work.skip("damaged line program");
                    break;
                }
            };
            if work.budget.charge(1).is_err() {
                break;
            }
            if row.end_sequence() {
                self.end_sequence(first, row.address(), text);
                first = self.rows.len();
                continue;
            }
            if row.file_index() != last_file.0 {
                last_file = (row.file_index(), files.path(unit, header, row.file_index(), work));
            }
            let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
            let column = match row.column() {
                ColumnType::LeftEdge => 0,
                ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
            };
            self.push(first, LineRow { svma: row.address(), file: last_file.1, line, column });
        }
        // Rows without an end are nobody's.
        self.rows.truncate(first);
        self.order();
    }

    fn push(&mut self, first: usize, row: LineRow) {
        if self.rows.len() > first
            && let Some(last) = self.rows.last_mut()
        {
            // Of rows with one address the last holds; equal rows are one.
            if last.svma == row.svma {
                *last = row;
                return;
            }
            if last.file == row.file && last.line == row.line && last.column == row.column && last.svma < row.svma {
                return;
            }
        }
        self.rows.push(row);
    }

    fn end_sequence(&mut self, first: usize, end: u64, text: &Text) {
        let Some(rows) = self.rows.get_mut(first..) else { return };
        // The standard has them rise; where they do not, the order by address is all that is left.
        if !rows.is_sorted_by_key(|row| row.svma) {
            rows.sort_by_key(|row| row.svma);
        }
        let start = rows.first().map_or(end, |row| row.svma);
        match text.clip(start, end) {
            Some((start, end)) => self.sequences.push(Sequence { start, end, first, behind: self.rows.len() }),
            None => self.rows.truncate(first),
        }
    }

    /// Sorts the sequences; where several claim an address, a later one in the table wins.
    fn order(&mut self) {
        if self.sequences.is_sorted_by(|a, b| a.end <= b.start) {
            return;
        }
        let intervals: Vec<paint::Interval<usize>> = self
            .sequences
            .iter()
            .enumerate()
            .map(|(at, sequence)| paint::Interval { start: sequence.start, end: sequence.end, priority: at })
            .collect();
        let painted = paint::paint(&intervals).into_iter().filter_map(|segment| {
            let sequence = self.sequences.get(segment.index)?;
            Some(Sequence { start: segment.start, end: segment.end, ..*sequence })
        });
        self.sequences = painted.collect();
    }

    /// The rows of a sequence between two addresses within it; the first starts at or before `start`.
    pub(crate) fn rows_between(&self, sequence: &Sequence, start: u64, end: u64) -> &[LineRow] {
        let rows = self.rows.get(sequence.first..sequence.behind).unwrap_or_default();
        let first = rows.partition_point(|row| row.svma <= start).saturating_sub(1);
        let rows = rows.get(first..).unwrap_or_default();
        let behind = rows.partition_point(|row| row.svma < end);
        rows.get(..behind).unwrap_or_default()
    }

    /// The sequences that touch the range, by address.
    pub(crate) fn sequences_in(&self, start: u64, end: u64) -> &[Sequence] {
        let first = self.sequences.partition_point(|sequence| sequence.end <= start);
        let rest = self.sequences.get(first..).unwrap_or_default();
        let behind = rest.partition_point(|sequence| sequence.start < end);
        rest.get(..behind).unwrap_or_default()
    }
}
