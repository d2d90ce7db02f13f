//! Procedures, line tables and inlined calls of one module, laid over each other.

use super::addresses::{Addresses, Mapped};
use super::files::Files;
use super::lines::ModuleLines;
use super::procedures::{InlineCall, ModuleSymbols, Procedure, ProcedureName};
use crate::cursor::Result;
use crate::described::{Loser, OrphanRow, Piece, Site};
use crate::paint::{Interval, Segment, paint};
use crate::work::Work;
use std::cmp::Reverse;
use std::collections::HashMap;
use symseal_module::{Rva, Svma};
use symseal_symx::{NO_INLINE, Row, StrId};

/// A place in a source file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Position {
    file: StrId,
    line: u32,
    column: u32,
}

/// A stretch of a function's own line table.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    end: u32,
    position: Position,
}

/// Set in the unit of pieces whose code was folded with another module's, so that they come behind all others.
const FOLDED: u32 = 0x8000_0000;

/// What tells one call site from another: an inlined function is called from as many places as its caller's line table
/// gives to its code.
type SiteKey = (u32, u32, Position);

/// Pieces and what is left over, of all modules so far.
#[derive(Debug, Default)]
pub(crate) struct Laid {
    /// Of the modules whose code was kept.
    pub(crate) pieces: Vec<Piece>,
    /// Of modules whose code was folded with another's.
    pub(crate) folded: Vec<Piece>,
    pub(crate) losers: Vec<Loser>,
    pub(crate) orphans: Vec<OrphanRow>,
}

/// One module, and what its pieces are made from.
pub(crate) struct ModuleRows<'m> {
    pub(crate) unit: u32,
    pub(crate) image_base: Svma,
    pub(crate) addresses: &'m Addresses,
    pub(crate) lines: &'m ModuleLines,
    pub(crate) symbols: &'m ModuleSymbols,
    pub(crate) files: &'m mut Files,
}

/// A procedure's number in the whole PDB, and whether its code came from this module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered {
    pub(crate) function: u64,
    pub(crate) is_owner: bool,
}

impl ModuleRows<'_> {
    /// Adds the module's pieces. `numbers` has one entry for each procedure.
    pub(crate) fn finish(&mut self, numbers: &[Numbered], laid: &mut Laid, work: &mut Work) -> Result<()> {
        let symbols = self.symbols;
        let intervals: Vec<Interval<(bool, Reverse<usize>)>> = symbols
            .procedures
            .iter()
            .zip(numbers)
            .enumerate()
            .map(|(at, (procedure, number))| Interval {
                start: u64::from(procedure.start),
                end: u64::from(procedure.end),
                priority: (number.is_owner, Reverse(at)),
            })
            .collect();
        let segments = paint(&intervals);
        self.losers(&intervals, &segments, numbers, laid);
        let (first_piece, first_folded) = (laid.pieces.len(), laid.folded.len());
        for segment in &segments {
            let (Some(procedure), Some(number)) = (symbols.procedures.get(segment.index), numbers.get(segment.index))
            else {
                continue;
            };
            let (Ok(start), Ok(end)) = (u32::try_from(segment.start), u32::try_from(segment.end)) else { continue };
            let inlines = self.inline_segments(procedure, start, end, work)?;
            for part in self.addresses.mapped(start..end) {
                let (rows, sites) = self.rows(&part, &inlines, work)?;
                let start = self.image_base.0.saturating_add(u64::from(part.image));
                let piece = Piece {
                    start,
                    end: start.saturating_add(u64::from(part.end - part.start)),
                    function: number.function,
                    // Where code was folded, an owner's description holds.
                    unit: if number.is_owner { self.unit } else { self.unit | FOLDED },
                    is_entry: part.start == procedure.start && !matches!(procedure.name, ProcedureName::PartOf(_)),
                    rows,
                    sites,
                };
                if number.is_owner { laid.pieces.push(piece) } else { laid.folded.push(piece) }
            }
        }
        for pieces in [laid.pieces.get_mut(first_piece..), laid.folded.get_mut(first_folded..)] {
            pieces.unwrap_or_default().sort_by_key(|piece| piece.start);
        }
        self.orphans(&segments, laid, work)
    }

    /// Procedures that did not get all of their range.
    fn losers<P>(&self, intervals: &[Interval<P>], segments: &[Segment], numbers: &[Numbered], laid: &mut Laid) {
        let mut painted = vec![0_u64; intervals.len()];
        for segment in segments {
            if let Some(bytes) = painted.get_mut(segment.index) {
                *bytes += segment.end - segment.start;
            }
        }
        for ((interval, painted), number) in intervals.iter().zip(painted).zip(numbers) {
            let (Ok(start), Ok(end)) = (u32::try_from(interval.start), u32::try_from(interval.end)) else { continue };
            if painted < interval.end - interval.start {
                for part in self.addresses.mapped(start..end) {
                    let start = self.image_base.0.saturating_add(u64::from(part.image));
                    let end = start.saturating_add(u64::from(part.end - part.start));
                    laid.losers.push(Loser { start, end, function: number.function, alias_of: None });
                }
            }
        }
    }

    /// Which inlined call is the innermost where, by original address.
    fn inline_segments(&self, procedure: &Procedure, start: u32, end: u32, work: &mut Work) -> Result<Vec<Inlined>> {
        let sites = self.symbols.sites.get(procedure.first_site..procedure.behind_sites).unwrap_or_default();
        let mut intervals = Vec::new();
        let mut rows = Vec::new();
        for (number, site) in (procedure.first_site..).zip(sites) {
            let Ok(number) = u32::try_from(number) else { break };
            for row in self.symbols.rows(site) {
                let (from, to) = (row.start.max(start), row.end.min(end));
                if from < to {
                    // Of two calls at one depth the first one holds, as debuggers have it.
                    let priority = (site.depth, Reverse(number));
                    intervals.push(Interval { start: u64::from(from), end: u64::from(to), priority });
                    rows.push((number, *row));
                }
            }
        }
        work.budget.charge(rows.len() as u64)?;
        let segments = paint(&intervals).into_iter();
        let inlined = segments.filter_map(|segment| {
            let (site, row) = rows.get(segment.index)?;
            Some(Inlined {
                start: u32::try_from(segment.start).ok()?,
                end: u32::try_from(segment.end).ok()?,
                site: *site,
                file: row.file,
                line: row.line,
                column: row.column,
            })
        });
        Ok(inlined.collect())
    }

    fn rows(&mut self, part: &Mapped, inlines: &[Inlined], work: &mut Work) -> Result<(Vec<Row>, Vec<Site>)> {
        let stretches = self.stretches(part.start, part.end, work)?;
        let mut rows: Vec<Row> = Vec::new();
        let mut sites = Sites::default();
        let first = inlines.partition_point(|inline| inline.end <= part.start);
        let mut inlines = inlines.get(first..).unwrap_or_default().iter().peekable();
        let mut position = part.start;
        for stretch in stretches {
            while position < stretch.end {
                while inlines.next_if(|inline| inline.end <= position).is_some() {}
                let (here, until) = match inlines.peek() {
                    Some(inline) if inline.start <= position => (Some(**inline), inline.end.min(stretch.end)),
                    Some(inline) => (None, inline.start.min(stretch.end)),
                    None => (None, stretch.end),
                };
                let (place, inline) = match here {
                    Some(inlined) => self.called(&inlined, position, stretch.position, &mut sites, work)?,
                    None => (stretch.position, NO_INLINE),
                };
                let start = Rva(u64::from(part.image).saturating_add(u64::from(position - part.start)));
                let row = Row { start, file: place.file, line: place.line, column: place.column, inline };
                if !rows.last().is_some_and(|last| {
                    (last.file, last.line, last.column, last.inline) == (row.file, row.line, row.column, row.inline)
                }) {
                    rows.push(row);
                }
                position = until;
            }
        }
        work.budget.charge(rows.len() as u64 + sites.list.len() as u64 + 1)?;
        if let [only] = rows.as_slice()
            && only.file.is_empty()
            && only.line == 0
            && only.inline == NO_INLINE
        {
            rows.clear();
        }
        Ok((rows, sites.list))
    }

    /// The place of the innermost inlined call's code at an address, and its number in the piece, with all its callers.
    ///
    /// In a PDB each inlined call has a line table of its own, and its caller's table has the line of the call in the
    /// same place; so each caller's line is the one that its own table has at the address.
    fn called(
        &mut self,
        inlined: &Inlined,
        at: u32,
        outermost: Position,
        sites: &mut Sites,
        work: &mut Work,
    ) -> Result<(Position, u32)> {
        let symbols = self.symbols;
        let mut chain: Vec<(u32, &InlineCall)> = Vec::new();
        let mut next = inlined.site;
        while let Some(site) = symbols.sites.get(next as usize).filter(|_| next != NO_INLINE) {
            chain.push((next, site));
            next = site.parent;
        }
        work.budget.charge(chain.len() as u64)?;
        let mut place = outermost;
        let mut parent = NO_INLINE;
        for (number, site) in chain.into_iter().rev() {
            parent = sites.number(parent, site.inlinee, place, self.unit);
            place = if number == inlined.site {
                self.position(inlined.file, inlined.line, inlined.column, work)
            } else {
                // A caller whose own table leaves the address out is at the line that it had before it.
                let rows = symbols.rows(site);
                let row = rows.partition_point(|row| row.start <= at).checked_sub(1).and_then(|row| rows.get(row));
                row.or(rows.first())
                    .map_or(Position::default(), |row| self.position(row.file, row.line, row.column, work))
            };
        }
        Ok((place, parent))
    }

    /// The function's own lines from `start` to `end`, without gaps; no position where no table reaches.
    fn stretches(&mut self, start: u32, end: u32, work: &mut Work) -> Result<Vec<Stretch>> {
        let lines = self.lines;
        let mut stretches = Vec::new();
        let mut reached = start;
        let none = |end: u32| Stretch { end, position: Position::default() };
        for block in lines.blocks_in(start, end) {
            let (from, to) = (block.start.max(reached), block.end.min(end));
            let rows = lines.rows(block);
            // A procedure whose code is all inlined, at a line that the compiler made up, may have a block without rows.
            if from >= to || rows.is_empty() {
                continue;
            }
            if reached < from {
                stretches.push(none(from));
            }
            work.budget.charge(rows.len() as u64 + 1)?;
            // Of rows with one start the last holds.
            let first = rows.partition_point(|row| row.start <= from).saturating_sub(1);
            let rows = rows.get(first..).unwrap_or_default();
            if let Some(row) = rows.first()
                && row.start > from
            {
                stretches.push(none(row.start.min(to)));
            }
            let ends = rows.iter().skip(1).map(|row| row.start).chain([to]);
            for (row, until) in rows.iter().zip(ends) {
                if row.start.max(from) < until.min(to) {
                    let position = self.position(row.file, row.line, row.column, work);
                    stretches.push(Stretch { end: until.min(to), position });
                }
            }
            reached = to;
        }
        if reached < end {
            stretches.push(none(end));
        }
        Ok(stretches)
    }

    fn position(&mut self, file: u32, line: u32, column: u32, work: &mut Work) -> Position {
        Position { file: self.files.path(self.lines, file, work), line, column }
    }

    /// Lines that no procedure of the module covers: assembly, mostly.
    fn orphans(&mut self, segments: &[Segment], laid: &mut Laid, work: &mut Work) -> Result<()> {
        let lines = self.lines;
        let mut segments = segments.iter().peekable();
        for block in lines.blocks() {
            let (mut position, block_end) = (u64::from(block.start), u64::from(block.end));
            while segments.next_if(|segment| segment.end <= position).is_some() {}
            let mut ahead = segments.clone();
            while position < block_end {
                let (covered, until) = match ahead.peek() {
                    Some(segment) if segment.start <= position => (true, segment.end),
                    Some(segment) => (false, segment.start.min(block_end)),
                    None => (false, block_end),
                };
                if covered {
                    ahead.next();
                } else if let (Ok(start), Ok(end)) = (u32::try_from(position), u32::try_from(until)) {
                    self.orphans_between(start, end, laid, work)?;
                }
                position = until;
            }
        }
        Ok(())
    }

    fn orphans_between(&mut self, start: u32, end: u32, laid: &mut Laid, work: &mut Work) -> Result<()> {
        let mut from = start;
        for stretch in self.stretches(start, end, work)? {
            let Position { file, line, column } = stretch.position;
            if !file.is_empty() {
                for part in self.addresses.mapped(from..stretch.end) {
                    let start = self.image_base.0.saturating_add(u64::from(part.image));
                    let end = start.saturating_add(u64::from(part.end - part.start));
                    // Public symbols reach up to each other: in a PDB nothing lacks a name but for a gap that aligns.
                    laid.orphans.push(OrphanRow { start, end, file, line, column, begins: false });
                }
            }
            from = stretch.end;
        }
        Ok(())
    }
}

/// A stretch in which one inlined call is the innermost.
#[derive(Clone, Copy, Debug)]
struct Inlined {
    start: u32,
    end: u32,
    site: u32,
    file: u32,
    line: u32,
    column: u32,
}

/// The call sites of a piece, each once.
#[derive(Default)]
struct Sites {
    list: Vec<Site>,
    numbers: HashMap<SiteKey, u32>,
}

impl Sites {
    fn number(&mut self, parent: u32, inlinee: u32, place: Position, unit: u32) -> u32 {
        let list = &mut self.list;
        *self.numbers.entry((parent, inlinee, place)).or_insert_with(|| {
            let number = u32::try_from(list.len()).unwrap_or(NO_INLINE);
            list.push(Site {
                parent,
                origin: u64::from(unit) << 32 | u64::from(inlinee),
                call_file: place.file,
                call_line: place.line,
                call_column: place.column,
            });
            number
        })
    }
}
