//! Debug information as far as a runtime's structures are looked for in it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugAddr, DebugAddrBase, DebugInfo,
    DebugInfoUnitHeadersIter, DebugLocListsBase, DebugStrOffsets, DebugStrOffsetsBase, DebuggingInformationEntry,
    Encoding, EndianSlice, LittleEndian, UnitHeader,
};

pub(super) type Reader<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Entry<'a> = DebuggingInformationEntry<Reader<'a>>;

/// The sections of debug information that are read.
pub const DEBUG_INFO_SECTIONS: [&str; 6] =
    [".debug_info", ".debug_abbrev", ".debug_str", ".debug_line_str", ".debug_str_offsets", ".debug_addr"];

/// How many entries and attributes are looked at for each byte of debug information: most take more than one.
const MOST_ATTRIBUTES_PER_BYTE: usize = 4;

/// Debug information, with what may be read of it: the time grows with its size, whatever it holds.
pub(super) struct Information<'a> {
    units: DebugInfo<Reader<'a>>,
    /// By where they begin in their section.
    abbreviations: BTreeMap<usize, Abbreviations>,
    outside: Outside<'a>,
    /// Bytes of `.debug_info`.
    pub(super) bytes: usize,
    /// Entries and their attributes that may still be looked at, in all units.
    budget: usize,
}

/// What entries refer to in other sections.
#[derive(Clone, Copy)]
struct Outside<'a> {
    strings: &'a [u8],
    line_strings: &'a [u8],
    string_offsets: DebugStrOffsets<Reader<'a>>,
    addresses: DebugAddr<Reader<'a>>,
}

/// What the entries of a unit mean.
#[derive(Clone)]
pub(super) struct UnitContext<'a> {
    outside: Outside<'a>,
    pub(super) encoding: Encoding,
    strings_base: DebugStrOffsetsBase<usize>,
    pub(super) addresses_base: DebugAddrBase<usize>,
    pub(super) locations_base: DebugLocListsBase<usize>,
    /// What lists of the unit count from.
    pub(super) low_pc: u64,
}

impl<'a> Information<'a> {
    pub(super) fn of(section: impl Fn(&str) -> &'a [u8]) -> Self {
        let of = |id: gimli::SectionId| section(id.name());
        let (information, abbreviations) = (of(gimli::SectionId::DebugInfo), of(gimli::SectionId::DebugAbbrev));
        let units = DebugInfo::new(information, LittleEndian);
        Self {
            abbreviations: read_abbreviations(&units, abbreviations),
            units,
            outside: Outside {
                strings: of(gimli::SectionId::DebugStr),
                line_strings: of(gimli::SectionId::DebugLineStr),
                string_offsets: DebugStrOffsets::from(EndianSlice::new(
                    of(gimli::SectionId::DebugStrOffsets),
                    LittleEndian,
                )),
                addresses: DebugAddr::from(EndianSlice::new(of(gimli::SectionId::DebugAddr), LittleEndian)),
            },
            bytes: information.len(),
            budget: information.len().saturating_mul(MOST_ATTRIBUTES_PER_BYTE),
        }
    }

    pub(super) fn units(&self) -> DebugInfoUnitHeadersIter<Reader<'a>> {
        self.units.units()
    }

    /// Calls `note` with each entry of a unit, and with what it means.
    pub(super) fn entries(
        &mut self,
        unit: &UnitHeader<Reader<'a>>,
        mut note: impl FnMut(&Entry<'a>, &UnitContext<'a>),
    ) {
        let Self { abbreviations, outside, budget, .. } = self;
        if *budget == 0 {
            return;
        }
        let Some(abbreviations) = abbreviations.get(&unit.debug_abbrev_offset().0) else { return };
        let mut context = UnitContext::new(*outside, unit.encoding());
        let mut entries = unit.entries(abbreviations);
        let mut is_root = true;
        while let Ok(Some(entry)) = entries.next_dfs() {
            // Attributes may take no bytes at all.
            let Some(left) = budget.checked_sub(1 + entry.attrs().len()) else {
                *budget = 0;
                return;
            };
            *budget = left;
            if core::mem::take(&mut is_root) {
                context.begin(entry);
            }
            note(entry, &context);
        }
    }
}

impl<'a> UnitContext<'a> {
    fn new(outside: Outside<'a>, encoding: Encoding) -> Self {
        Self {
            outside,
            encoding,
            strings_base: DebugStrOffsetsBase(0),
            addresses_base: DebugAddrBase(0),
            locations_base: DebugLocListsBase(0),
            low_pc: 0,
        }
    }

    /// Notes what the unit's own entry says of the others.
    fn begin(&mut self, unit: &Entry<'a>) {
        for attribute in unit.attrs() {
            match attribute.value() {
                AttributeValue::DebugStrOffsetsBase(base) => self.strings_base = base,
                AttributeValue::DebugAddrBase(base) => self.addresses_base = base,
                AttributeValue::DebugLocListsBase(base) => self.locations_base = base,
                _ => {}
            }
        }
        self.low_pc = unit.attr_value(gimli::DW_AT_low_pc).and_then(|value| self.address(value)).unwrap_or(0);
    }

    /// The name of an entry, if it has fewer bytes than `longest`: each costs as much as is looked at.
    pub(super) fn name(&self, entry: &Entry<'a>, longest: usize) -> Option<&'a [u8]> {
        if let Some(AttributeValue::String(name)) = entry.attr_value(gimli::DW_AT_name) {
            return Some(name.slice());
        }
        let from = self.name_onwards(entry)?;
        let from = from.get(..longest).unwrap_or(from);
        from.get(..from.iter().position(|byte| *byte == 0)?)
    }

    /// Whether the name of an entry begins so.
    pub(super) fn name_begins(&self, entry: &Entry<'a>, beginning: &[u8]) -> bool {
        self.name_onwards(entry).is_some_and(|name| name.starts_with(beginning))
    }

    /// Which of these names an entry has.
    pub(super) fn named<K: Copy>(&self, entry: &Entry<'a>, names: &[(&[u8], K)]) -> Option<K> {
        let onwards = self.name_onwards(entry)?;
        let is_it = |name: &[u8]| onwards.strip_prefix(name).is_some_and(|rest| rest.first().is_none_or(|it| *it == 0));
        names.iter().find(|(name, _)| is_it(name)).map(|(_, kind)| *kind)
    }

    /// The name of an entry, with what comes behind it in its section.
    fn name_onwards(&self, entry: &Entry<'a>) -> Option<&'a [u8]> {
        let Outside { strings, line_strings, string_offsets, .. } = &self.outside;
        match entry.attr_value(gimli::DW_AT_name)? {
            AttributeValue::String(name) => Some(name.slice()),
            AttributeValue::DebugStrRef(at) => strings.get(at.0..),
            AttributeValue::DebugLineStrRef(at) => line_strings.get(at.0..),
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let at = string_offsets.get_str_offset(self.encoding.format, self.strings_base, index);
                strings.get(at.ok()?.0..)
            }
            _ => None,
        }
    }

    pub(super) fn address(&self, value: AttributeValue<Reader<'a>>) -> Option<u64> {
        match value {
            AttributeValue::Addr(address) => Some(address),
            AttributeValue::DebugAddrIndex(index) => self.address_of(index),
            _ => None,
        }
    }

    /// The address of this number in the unit's list of addresses.
    pub(super) fn address_of(&self, index: gimli::DebugAddrIndex<usize>) -> Option<u64> {
        self.outside.addresses.get_address(self.encoding.address_size, self.addresses_base, index).ok()
    }

    pub(super) fn addresses(&self) -> &DebugAddr<Reader<'a>> {
        &self.outside.addresses
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
