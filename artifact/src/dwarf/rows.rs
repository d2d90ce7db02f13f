//! Functions, line rows and inlined calls of one unit, laid over each other.

use super::lines::{LineRow, Lines, Sequence};
use super::read::Read;
use super::walk::{InlineRange, UnitEntries};
use crate::budget::Budget;
use crate::described::{Loser, Piece, Site};
use crate::paint::{Interval, Painter, Segment, paint};
use symseal_module::Svma;
use symseal_symx::{NO_INLINE, Row, StrId};

/// Buffers that are kept from unit to unit.
#[derive(Debug, Default)]
pub(crate) struct UnitRows {
    /// The number of a site in the piece at hand, by its number in the unit; `UNUSED` elsewhere.
    renumbered: Vec<u32>,
    used: Vec<u32>,
    rows: Vec<Row>,
    inlines: Inlines,
}

const UNUSED: u32 = u32::MAX;

impl UnitRows {
    /// Turns what a unit's entries and lines say into pieces.
    pub(crate) fn finish(
        &mut self,
        unit: u32,
        entries: &mut UnitEntries,
        lines: &Lines,
        image_base: Svma,
        budget: &mut Budget,
        read: &mut Read,
    ) {
        // Entries come function by function, unless functions are nested.
        if !entries.inline_ranges.is_sorted_by_key(|range| range.function) {
            entries.inline_ranges.sort_by_key(|range| range.function);
        }
        self.renumbered.clear();
        self.renumbered.resize(entries.sites.len(), UNUSED);
        let (intervals, owners) = function_intervals(entries);
        let segments = paint(&intervals);
        let mut inlines = std::mem::take(&mut self.inlines);
        let mut of_function = u32::MAX;
        for segment in &segments {
            let (Some(owner), Some(interval)) = (owners.get(segment.index), intervals.get(segment.index)) else {
                continue;
            };
            let Some(function) = entries.functions.get(*owner as usize) else { continue };
            if of_function != *owner {
                of_function = *owner;
                inlines.fill(&entries.inline_ranges, *owner);
                if budget.charge(inlines.segments.len() as u64).is_err() {
                    break;
                }
            }
            let within = inlines.within(segment.start, segment.end);
            let (rows, sites) = self.rows(segment, lines, within, entries, image_base);
            if budget.charge(rows.len() as u64 + sites.len() as u64 + 1).is_err() {
                break;
            }
            read.pieces.push(Piece {
                start: segment.start,
                end: segment.end,
                function: function.entry,
                unit,
                is_entry: interval.start == segment.start
                    && entries.ranges.get(function.first_range).is_some_and(|range| range.0 == interval.start),
                rows,
                sites,
            });
        }
        self.inlines = inlines;
        losers(&intervals, &segments, &owners, entries, lines, &mut read.losers);
    }

    fn rows(
        &mut self,
        segment: &Segment,
        lines: &Lines,
        inlines: &[Inline],
        entries: &UnitEntries,
        image_base: Svma,
    ) -> (Vec<Row>, Vec<Site>) {
        self.rows.clear();
        self.used.clear();
        let mut inlines = inlines.iter().peekable();
        stretches(lines, segment.start, segment.end, |start, end, line| {
            let mut position = start;
            while position < end {
                while inlines.next_if(|inline| inline.end <= position).is_some() {}
                let (inline, until) = match inlines.peek() {
                    Some(inline) if inline.start <= position => (inline.site, inline.end.min(end)),
                    Some(inline) => (NO_INLINE, inline.start.min(end)),
                    None => (NO_INLINE, end),
                };
                let rva = Svma(position).to_rva(image_base).unwrap_or_default();
                let row = Row { start: rva, file: line.file, line: line.line, column: line.column, inline };
                if !self.rows.last().is_some_and(|last| says_the_same(last, &row)) {
                    self.rows.push(row);
                    self.mark(inline, entries);
                }
                position = until;
            }
        });
        if let [only] = self.rows.as_slice()
            && only.file.is_empty()
            && only.line == 0
            && only.inline == NO_INLINE
        {
            self.rows.clear();
        }
        let sites = self.take_sites(entries);
        (self.rows.clone(), sites)
    }

    /// Notes the site and its callers as used.
    fn mark(&mut self, site: u32, entries: &UnitEntries) {
        let mut site = site;
        while site != NO_INLINE
            && let Some(slot) = self.renumbered.get_mut(site as usize)
            && *slot == UNUSED
        {
            // Any other number will do until they are given out.
            *slot = 0;
            self.used.push(site);
            site = entries.sites.get(site as usize).map_or(NO_INLINE, |site| site.parent);
        }
    }

    /// The used sites, callers before what they call, and rows and parents by their new numbers.
    fn take_sites(&mut self, entries: &UnitEntries) -> Vec<Site> {
        self.used.sort_unstable();
        for (number, site) in (0_u32..).zip(&self.used) {
            if let Some(slot) = self.renumbered.get_mut(*site as usize) {
                *slot = number;
            }
        }
        let renumbered = &self.renumbered;
        // `NO_INLINE` lies behind every table and stays what it is.
        let number = |site: u32| renumbered.get(site as usize).copied().unwrap_or(NO_INLINE);
        let mut sites = Vec::with_capacity(self.used.len());
        for site in &self.used {
            let Some(site) = entries.sites.get(*site as usize) else { continue };
            sites.push(Site { parent: number(site.parent), ..*site });
        }
        for row in &mut self.rows {
            row.inline = number(row.inline);
        }
        for site in &self.used {
            if let Some(slot) = self.renumbered.get_mut(*site as usize) {
                *slot = UNUSED;
            }
        }
        sites
    }
}

fn says_the_same(a: &Row, b: &Row) -> bool {
    (a.file, a.line, a.column, a.inline) == (b.file, b.line, b.column, b.inline)
}

/// Ranges of all functions; a later entry has the higher rank. With each the number of its function.
pub(crate) fn function_intervals(entries: &UnitEntries) -> (Vec<Interval<u32>>, Vec<u32>) {
    let mut intervals = Vec::with_capacity(entries.functions.len());
    let mut owners = Vec::with_capacity(entries.functions.len());
    for (number, function) in (0_u32..).zip(&entries.functions) {
        for (start, end) in entries.ranges.get(function.first_range..function.behind_ranges).unwrap_or_default() {
            intervals.push(Interval { start: *start, end: *end, priority: number });
            owners.push(number);
        }
    }
    (intervals, owners)
}

/// A stretch in which one inlined call is the innermost.
#[derive(Clone, Copy, Debug)]
struct Inline {
    start: u64,
    end: u64,
    site: u32,
}

/// The inlined calls of a function by address; an inner one stands behind its caller and wins.
#[derive(Debug, Default)]
struct Inlines {
    segments: Vec<Inline>,
    intervals: Vec<Interval<u32>>,
    painter: Painter<u32>,
}

impl Inlines {
    /// Those of that function, of `ranges` in the order of functions.
    fn fill(&mut self, ranges: &[InlineRange], function: u32) {
        let first = ranges.partition_point(|range| range.function < function);
        let ranges = ranges.get(first..).unwrap_or_default();
        let behind = ranges.partition_point(|range| range.function == function);
        let ranges = ranges.get(..behind).unwrap_or_default();
        let Self { segments, intervals, painter } = self;
        intervals.clear();
        intervals.extend(ranges.iter().map(|range| Interval {
            start: range.start,
            end: range.end,
            priority: range.site,
        }));
        segments.clear();
        segments.extend(painter.paint(intervals).iter().filter_map(|segment| {
            let range = ranges.get(segment.index)?;
            Some(Inline { start: segment.start, end: segment.end, site: range.site })
        }));
    }

    /// Those with code from `start` to `end`.
    fn within(&self, start: u64, end: u64) -> &[Inline] {
        let first = self.segments.partition_point(|inline| inline.end <= start);
        let behind = self.segments.partition_point(|inline| inline.start < end);
        self.segments.get(first..behind).unwrap_or_default()
    }
}

/// Calls `each` with consecutive stretches from `start` to `end` and the line row that holds in them; a row without file
/// and line where no sequence reaches.
fn stretches(lines: &Lines, start: u64, end: u64, mut each: impl FnMut(u64, u64, &LineRow)) {
    let none = LineRow { svma: 0, file: StrId::EMPTY, line: 0, column: 0 };
    let mut position = start;
    for sequence in lines.sequences_in(start, end) {
        let (from, to) = (sequence.start.max(start), sequence.end.min(end));
        if position < from {
            each(position, from, &none);
        }
        sequence_stretches(lines, sequence, from, to, &mut each);
        position = to;
    }
    if position < end {
        each(position, end, &none);
    }
}

pub(crate) fn sequence_stretches(
    lines: &Lines,
    sequence: &Sequence,
    from: u64,
    to: u64,
    each: &mut impl FnMut(u64, u64, &LineRow),
) {
    let rows = lines.rows_between(sequence, from, to);
    let ends = rows.iter().skip(1).map(|row| row.svma).chain([to]);
    for (row, until) in rows.iter().zip(ends) {
        let (row_start, row_end) = (row.svma.max(from), until.min(to));
        if row_start < row_end {
            each(row_start, row_end, row);
        }
    }
}

/// Functions that did not get all of their range.
fn losers(
    intervals: &[Interval<u32>],
    segments: &[Segment],
    owners: &[u32],
    entries: &UnitEntries,
    lines: &Lines,
    out: &mut Vec<Loser>,
) {
    let mut painted = vec![0_u64; intervals.len()];
    for segment in segments {
        if let Some(bytes) = painted.get_mut(segment.index) {
            *bytes += segment.end - segment.start;
        }
    }
    for ((interval, painted), owner) in intervals.iter().zip(painted).zip(owners) {
        if painted < interval.end - interval.start
            && let Some(function) = entries.functions.get(*owner as usize)
        {
            let (start, end) = (interval.start, interval.end);
            // An assembler folds nothing, and a linker whole sections: then the code has lines of each.
            let alias_of = if entries.are_assembled && !lines.is_shared(start, end) {
                let holder = segments.binary_search_by_key(&start, |segment| segment.start).ok();
                let holder = holder.and_then(|at| segments.get(at)).filter(|holder| holder.end == end);
                let holder = holder.and_then(|holder| owners.get(holder.index));
                holder.and_then(|owner| entries.functions.get(*owner as usize)).map(|function| function.entry)
            } else {
                None
            };
            out.push(Loser { start, end, function: function.entry, alias_of });
        }
    }
}
