//! A unit's line table: rows by address. (DWARF 5, 6.2)

use super::files::{Files, Program};
use super::line_program::{self, Row};
use super::own_lines::Nearness;
use super::unit::Unit;
use crate::code_ranges::{Text, disjoint, touches};
use crate::paint;
use crate::work::Work;
use std::ops::{ControlFlow, Range};
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

/// A part of a sequence that is of the function whose code it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Which one in the table.
    pub(crate) sequence: usize,
    pub(crate) nearness: Nearness,
}

/// The line table of one unit; buffers are kept from unit to unit.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rows: Vec<LineRow>,
    /// As the table has them, until they are put in order: then sorted by start, not overlapping.
    pub(crate) sequences: Vec<Sequence>,
    /// There are sequences of code that the linker dropped.
    pub(crate) has_dropped: bool,
    /// What several sequences claim, once they are in order: sorted, not overlapping.
    shared: Vec<Range<u64>>,
}

/// Takes a program's rows into a table.
struct Taker<'t, 's> {
    lines: &'t mut Lines,
    /// Where the rows of the sequence at hand start.
    first: usize,
    /// Those that are the address.
    address_bits: u64,
    /// Files change seldom from row to row.
    last_file: (u64, StrId),
    unit: &'t Unit<'s>,
    text: &'t Text,
    files: &'t mut Files,
    work: &'t mut Work,
}

impl<'s> Taker<'_, 's> {
    #[inline]
    fn take(&mut self, program: &Program<'s>, row: &Row) -> ControlFlow<()> {
        if self.work.budget.charge(1).is_err() {
            return ControlFlow::Break(());
        }
        let svma = row.address & self.address_bits;
        if row.end_sequence {
            self.lines.end_sequence(self.first, svma, self.text);
            self.first = self.lines.rows.len();
            return ControlFlow::Continue(());
        }
        if row.file != self.last_file.0 {
            self.last_file = (row.file, self.files.path(self.unit, program, row.file, self.work));
        }
        let narrow = |number: u64| u32::try_from(number).unwrap_or(0);
        let (line, column) = (narrow(row.line), narrow(row.column));
        self.lines.push(self.first, LineRow { svma, file: self.last_file.1, line, column });
        ControlFlow::Continue(())
    }
}

impl Lines {
    /// Fills the table from a unit's line program, or with nothing. The sequences are still to be put in order.
    pub(crate) fn fill<'s>(
        &mut self,
        unit: &Unit<'s>,
        program: Option<&Program<'s>>,
        text: &Text,
        files: &mut Files,
        work: &mut Work,
    ) {
        self.rows.clear();
        self.sequences.clear();
        self.shared.clear();
        self.has_dropped = false;
        let Some(program) = program else { return };
        let header = program.header();
        // Units may share a table, whose instructions need not give rows.
        let bytes = (header.header_length() as u64).saturating_add(header.raw_program_buf().slice().len() as u64);
        if work.budget.charge(bytes).is_err() {
            return;
        }
        let is_little_endian = unit.sections().is_little_endian;
        let address_bits = unit.sections().address_bits();
        let last_file = (u64::MAX, StrId::EMPTY);
        let mut taker = Taker { lines: self, first: 0, address_bits, last_file, unit, text, files, work };
        let run = line_program::run(header, is_little_endian, |row| taker.take(program, row));
        let first = taker.first;
        let is_open = taker.lines.rows.len() > first && !taker.work.budget.is_exhausted();
        match run {
            Err(_) => taker.work.skip("damaged line program"),
            Ok(_) if is_open => taker.work.skip("line table whose last sequence has no end"),
            Ok(_) => {}
        }
        let dropped = run.unwrap_or_default();
        self.has_dropped |= dropped > 0;
        // Rows without an end are nobody's.
        self.rows.truncate(first);
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
            None => {
                self.has_dropped |= start != end;
                self.rows.truncate(first);
            }
        }
    }

    /// Whether the sequences stand in order, and none overlaps another one.
    pub(crate) fn are_apart(&self) -> bool {
        self.sequences.is_sorted_by(|a, b| a.end <= b.start)
    }

    /// Before they are put in order: the sequences that share an address with another one, by start, each with its number.
    pub(crate) fn contested(&self) -> Vec<(usize, Sequence)> {
        let mut all: Vec<(usize, Sequence)> = self.sequences.iter().copied().enumerate().collect();
        all.sort_by_key(|(_, sequence)| sequence.start);
        let mut reached = 0;
        let mut contested = Vec::new();
        let mut next = all.iter().skip(1);
        for claim @ (_, sequence) in &all {
            let meets_next = next.next().is_some_and(|(_, next)| next.start < sequence.end);
            if meets_next || sequence.start < reached {
                contested.push(*claim);
            }
            reached = sequence.end.max(reached);
        }
        contested
    }

    /// Sorts the sequences, of which some are contested; where several claim an address, that wins which is nearest to what the function there declares, else a
    /// later one in the table.
    pub(crate) fn order(&mut self, contested: &[(usize, Sequence)], own: &[Own]) {
        let mut reached = 0;
        let shared = contested.iter().map(|(_, sequence)| {
            let shared = sequence.start..sequence.end.min(reached);
            reached = sequence.end.max(reached);
            shared
        });
        self.shared = disjoint(shared.filter(|range| !range.is_empty()).collect());
        let all = self.sequences.iter().enumerate().map(|(at, sequence)| paint::Interval {
            start: sequence.start,
            end: sequence.end,
            priority: (None, at),
        });
        let own_intervals = own.iter().map(|own| paint::Interval {
            start: own.start,
            end: own.end,
            priority: (Some(own.nearness), own.sequence),
        });
        let intervals: Vec<paint::Interval<(Option<Nearness>, usize)>> = all.chain(own_intervals).collect();
        let painted = paint::paint(&intervals).into_iter().filter_map(|segment| {
            let (_, number) = intervals.get(segment.index)?.priority;
            let sequence = self.sequences.get(number)?;
            Some(Sequence { start: segment.start, end: segment.end, ..*sequence })
        });
        self.sequences = painted.collect();
    }

    /// Whether several sequences claim some of the range.
    pub(crate) fn is_shared(&self, start: u64, end: u64) -> bool {
        touches(&self.shared, &(start..end))
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
