//! The units that describe a few addresses, and no others.
//!
//! What a unit's first entry says of its code leads there (DWARF 5, 3.1.1). A unit that leaves code out that it describes is missed:
//! then an address of that code is described by nothing here, and whoever asks has to read all units. A unit that says an address is of its code, and has
//! lines of it but no function, as those have whose compiler was to write lines alone, leaves its name to the symbols.

use super::dwarf_files::DwarfFiles;
use super::read::{Code, read_units};
use super::unit::{AbbreviationTables, Unit};
use super::unit_header::UnitHeader;
use crate::code_ranges::{Text, disjoint, joined, touches};
use crate::described::Described;
use crate::work::Work;
use std::collections::BTreeSet;
use std::ops::Range;
use symseal_module::Svma;

/// How often units are looked for that share code with those that were found. Each finds fewer.
const MOST_ROUNDS: usize = 4;

/// What describes some addresses.
pub(crate) struct Selected<'s> {
    /// The pieces of functions that hold the addresses, and all that share code with them; lines without a function there.
    pub(crate) described: Described<'s>,
    /// The code of the pieces that hold the addresses, and of symbols that do where there are lines alone: sorted, not overlapping.
    pub(crate) ranges: Vec<Range<u64>>,
}

/// Code that a unit says it has.
struct UnitRange {
    range: Range<u64>,
    unit: u32,
}

/// Reads the units that describe these addresses. `symbols_at` gives the code of the sized symbols that would name some. `None` where that is more than a
/// quarter of all, or where what was read is not all that bears on them.
pub(crate) fn read_selected<'s>(
    dwarf: &'s DwarfFiles<'s>,
    code: Code<'_>,
    addresses: &[Svma],
    mut symbols_at: impl FnMut(&[Range<u64>], &mut Work) -> Vec<Range<u64>>,
    work: &mut Work,
) -> Option<Selected<'s>> {
    let headers = dwarf.units(work);
    let unit_ranges = unit_ranges(dwarf, &headers, code.text, work)?;
    let points: Vec<Range<u64>> =
        disjoint(addresses.iter().filter_map(|address| Some(address.0..address.0.checked_add(1)?)).collect());
    let units_at = |ranges: &[Range<u64>]| -> BTreeSet<u32> {
        unit_ranges.iter().filter(|of| touches(ranges, &of.range)).map(|of| of.unit).collect()
    };
    let mut units = units_at(&points);
    for _ in 0..MOST_ROUNDS {
        if units.is_empty() || is_most(&headers, &units) {
            return None;
        }
        let mut described = read_units(dwarf, headers.clone(), code, units.iter().copied(), work);
        // What holds an address, and then what overlaps that: who has which part of it is for all of these to say.
        let pieces = described.pieces.iter().map(|piece| piece.start..piece.end);
        let mut holding: Vec<Range<u64>> = pieces.filter(|range| touches(&points, range)).collect();
        let held = joined(holding.clone());
        let unheld: Vec<Range<u64>> = points.iter().filter(|point| !touches(&held, point)).cloned().collect();
        let mut of_nothing = Vec::new();
        if !unheld.is_empty() {
            let lines = disjoint(described.orphans.iter().map(|row| row.start..row.end).collect());
            let (of_lines, others) = unheld.into_iter().partition::<Vec<_>, _>(|point| touches(&lines, point));
            holding.extend(symbols_at(&of_lines, work));
            of_nothing = others;
        }
        let ranges = joined(holding);
        if of_nothing.iter().any(|point| touches(&ranges, point)) {
            return None;
        }
        let known = units.len();
        units.extend(units_at(&ranges));
        if units.len() == known {
            described.pieces.retain(|piece| touches(&ranges, &(piece.start..piece.end)));
            described.losers.retain(|loser| touches(&ranges, &(loser.start..loser.end)));
            described.orphans.retain(|row| touches(&ranges, &(row.start..row.end)));
            return Some(Selected { described, ranges });
        }
    }
    None
}

/// What the units say that they have code at.
fn unit_ranges(dwarf: &DwarfFiles<'_>, headers: &[UnitHeader], text: &Text, work: &mut Work) -> Option<Vec<UnitRange>> {
    let mut tables = AbbreviationTables::default();
    let (mut all, mut ranges) = (Vec::new(), Vec::new());
    for (unit, header) in (0_u32..).zip(headers).take_while(|(_, header)| header.file == DwarfFiles::MAIN) {
        if header.type_unit.is_some() {
            continue;
        }
        let opened = Unit::open(dwarf, header, &mut tables, &mut work.budget).ok()?;
        ranges.clear();
        opened.push_code(text, &mut work.budget, &mut ranges).ok()?;
        all.extend(ranges.iter().map(|(start, end)| UnitRange { range: *start..*end, unit }));
    }
    Some(all)
}

/// Whether the units, with those that their skeletons stand for, have more than a quarter of all entries: then reading all is hardly slower, as a
/// part may be read more than once.
fn is_most(headers: &[UnitHeader], units: &BTreeSet<u32>) -> bool {
    let bytes = |header: &UnitHeader| header.end.saturating_sub(header.offset);
    let all: u64 = headers.iter().map(bytes).fold(0, u64::saturating_add);
    let of = |unit: &u32| {
        let header = headers.get(*unit as usize)?;
        let partner = header.partner.and_then(|partner| headers.get(partner as usize));
        Some(bytes(header).saturating_add(partner.map_or(0, bytes)))
    };
    units.iter().filter_map(of).fold(0, u64::saturating_add) > all / 4
}
