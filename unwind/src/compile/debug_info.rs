//! Debug information as far as a runtime's structures are looked for in it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfo, DebugInfoUnitHeadersIter,
    DebuggingInformationEntry, EndianSlice, LittleEndian, UnitHeader,
};

pub(super) type Reader<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Entry<'a> = DebuggingInformationEntry<Reader<'a>>;

/// The sections of debug information that are read.
pub const DEBUG_INFO_SECTIONS: [&str; 4] = [".debug_info", ".debug_abbrev", ".debug_str", ".debug_line_str"];

/// Gives the name of an entry, if it has fewer bytes than that: each costs as much as is looked at.
pub(super) type NameOf<'n, 'a> = dyn Fn(&Entry<'a>, usize) -> Option<&'a [u8]> + 'n;

/// How many entries and attributes are looked at for each byte of debug information: most take more than one.
const MOST_ATTRIBUTES_PER_BYTE: usize = 4;

/// Debug information, with what may be read of it: the time grows with its size, whatever it holds.
pub(super) struct Information<'a> {
    units: DebugInfo<Reader<'a>>,
    /// By where they begin in their section.
    abbreviations: BTreeMap<usize, Abbreviations>,
    strings: &'a [u8],
    line_strings: &'a [u8],
    /// Bytes of `.debug_info`.
    pub(super) bytes: usize,
    /// Entries and their attributes that may still be looked at, in all units.
    budget: usize,
}

impl<'a> Information<'a> {
    pub(super) fn of(section: impl Fn(&str) -> &'a [u8]) -> Self {
        let of = |id: gimli::SectionId| section(id.name());
        let (information, abbreviations) = (of(gimli::SectionId::DebugInfo), of(gimli::SectionId::DebugAbbrev));
        let units = DebugInfo::new(information, LittleEndian);
        Self {
            abbreviations: read_abbreviations(&units, abbreviations),
            units,
            strings: of(gimli::SectionId::DebugStr),
            line_strings: of(gimli::SectionId::DebugLineStr),
            bytes: information.len(),
            budget: information.len().saturating_mul(MOST_ATTRIBUTES_PER_BYTE),
        }
    }

    pub(super) fn units(&self) -> DebugInfoUnitHeadersIter<Reader<'a>> {
        self.units.units()
    }

    /// Calls `note` with each entry of a unit, and with what gives the name of one.
    pub(super) fn entries(&mut self, unit: &UnitHeader<Reader<'a>>, mut note: impl FnMut(&Entry<'a>, &NameOf<'_, 'a>)) {
        let Self { abbreviations, strings, line_strings, budget, .. } = self;
        let name = |entry: &Entry<'a>, longest| match entry.attr_value(gimli::DW_AT_name)? {
            AttributeValue::String(name) => Some(name.slice()),
            AttributeValue::DebugStrRef(at) => string(strings, at.0, longest),
            AttributeValue::DebugLineStrRef(at) => string(line_strings, at.0, longest),
            _ => None,
        };
        if *budget == 0 {
            return;
        }
        let Some(abbreviations) = abbreviations.get(&unit.debug_abbrev_offset().0) else { return };
        let mut entries = unit.entries(abbreviations);
        while let Ok(Some(entry)) = entries.next_dfs() {
            // Attributes may take no bytes at all.
            let Some(left) = budget.checked_sub(1 + entry.attrs().len()) else {
                *budget = 0;
                return;
            };
            *budget = left;
            note(entry, &name);
        }
    }
}

/// The tables of abbreviations that units name, each read once, and no further than to where the next one begins.
fn read_abbreviations(units: &DebugInfo<Reader<'_>>, section: &[u8]) -> BTreeMap<usize, Abbreviations> {
    let mut starts = Vec::new();
    let mut units = units.units();
    while let Ok(Some(unit)) = units.next() {
        starts.push(unit.debug_abbrev_offset().0);
    }
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([section.len()]);
    let tables = starts.iter().zip(ends).filter_map(|(start, end)| {
        let table = DebugAbbrev::new(section.get(*start..end.min(section.len()))?, LittleEndian);
        Some((*start, table.abbreviations(DebugAbbrevOffset(0)).ok()?))
    });
    tables.collect()
}

/// A string of a section of strings, if it has fewer bytes than `longest`.
fn string(section: &[u8], at: usize, longest: usize) -> Option<&[u8]> {
    let rest = section.get(at..)?;
    let rest = rest.get(..longest).unwrap_or(rest);
    rest.get(..rest.iter().position(|byte| *byte == 0)?)
}
