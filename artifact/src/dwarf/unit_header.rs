//! Where units lie. (DWARF 5, 7.5.1; packages: 7.3.5)

use super::sections::{DwarfSections, Slice};
use super::value::Encoding;
use crate::work::{Skipped, note};
use gimli::{DebugCuIndex, DebugInfo, DebugTuIndex, DebugTypes, IndexSectionId, UnitIndex, UnitType};
use hashbrown::HashMap;

/// Where a unit lies in the space of entries, and how to read it.
#[derive(Clone, Debug)]
pub(crate) struct UnitHeader {
    /// Which file of [`DwarfFiles`](super::dwarf_files::DwarfFiles).
    pub(crate) file: u32,
    /// Of the header.
    pub(crate) offset: u64,
    /// Of the first entry.
    pub(crate) entries: u64,
    /// Behind the unit.
    pub(crate) end: u64,
    /// In `.debug_abbrev`.
    pub(crate) abbrev_offset: u64,
    pub(crate) encoding: Encoding,
    /// Holds a type alone.
    pub(crate) type_unit: Option<TypeUnit>,
    /// Of a DWARF 5 skeleton or split unit.
    pub(crate) dwo_id: Option<u64>,
    pub(crate) bases: Bases,
    /// Of a skeleton: the number of its split unit. Of a split unit: that of its skeleton.
    pub(crate) partner: Option<u32>,
}

/// The type that a type unit holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TypeUnit {
    pub(crate) signature: u64,
    /// Place of the type in the space of entries. The header says it: it need not be in the unit.
    pub(crate) entry: u64,
}

/// Where a unit's parts of the sections start; 0 but in a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bases {
    pub(crate) info: u64,
    pub(crate) abbrev: u64,
    pub(crate) str_offsets: u64,
    pub(crate) rnglists: u64,
    /// In `.debug_line.dwo`.
    pub(crate) line_dwo: u64,
}

/// All headers of a file by rising offset. A damaged header ends its section's, as where the next unit starts is unknown.
pub(crate) fn unit_headers(sections: &DwarfSections<'_>, file: u32, skipped: &mut Skipped) -> Vec<UnitHeader> {
    let package = Package::of(sections, skipped);
    let mut headers = Vec::new();
    let mut units = DebugInfo::from(sections.slice(&sections.info)).units();
    let next = || units.next();
    each_header(next, sections.base, file, package.as_ref(), &mut headers, skipped);
    let mut units = DebugTypes::from(sections.slice(&sections.types)).units();
    let next = || units.next();
    each_header(next, sections.types_base(), file, package.as_ref(), &mut headers, skipped);
    headers
}

/// The headers of a section whose entries start at `base`.
fn each_header<'s>(
    mut next: impl FnMut() -> gimli::Result<Option<gimli::UnitHeader<Slice<'s>>>>,
    base: u64,
    file: u32,
    package: Option<&Package<'_>>,
    headers: &mut Vec<UnitHeader>,
    skipped: &mut Skipped,
) {
    loop {
        let header = match next() {
            Ok(Some(header)) => header,
            Ok(None) => break,
            Err(_) => {
                note(skipped, "damaged unit header");
                break;
            }
        };
        let local = header.offset().0 as u64;
        // Sections are shorter than 2^63 bytes, and so are all files together.
        let offset = base + local;
        let (type_unit, dwo_id) = match header.type_() {
            UnitType::Type { type_signature, type_offset } | UnitType::SplitType { type_signature, type_offset } => {
                let entry = offset.saturating_add(type_offset.0 as u64);
                (Some(TypeUnit { signature: type_signature.0, entry }), None)
            }
            UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => (None, Some(id.0)),
            UnitType::Compilation | UnitType::Partial => (None, None),
        };
        let length = header.length_including_self() as u64;
        let bases = match (package, type_unit) {
            (None, _) => Bases::default(),
            (Some(package), Some(unit)) => match package.type_bases(local, unit.signature) {
                Some(bases) => bases,
                // It is missed where a name is.
                None => continue,
            },
            (Some(package), None) => match package.bases(local, length, dwo_id) {
                Ok(bases) => bases,
                Err(reason) => {
                    note(skipped, reason);
                    continue;
                }
            },
        };
        let encoding = header.encoding();
        headers.push(UnitHeader {
            file,
            offset,
            entries: offset + header.header_size() as u64,
            end: offset + length,
            abbrev_offset: (header.debug_abbrev_offset().0 as u64).saturating_add(bases.abbrev),
            encoding: Encoding {
                version: encoding.version,
                address_size: encoding.address_size,
                offset_size: encoding.format.word_size(),
            },
            type_unit,
            dwo_id,
            bases,
            partner: None,
        });
    }
}

/// The index of a DWARF package.
///
/// Its offsets have 32 bits, also where the package's sections are longer: then they are what the lower 32 bits of the
/// true ones would be. (llvm-dwp writes such packages with `--continue-on-cu-index-overflow`.) A unit says itself where
/// it starts, and is found by its id, or where it has none in its header by the lower bits and its length. Where the
/// other sections are longer, nothing says where a unit's part of them starts.
struct Package<'s> {
    index: UnitIndex<Slice<'s>>,
    /// Of type units, by their signatures.
    types: Option<UnitIndex<Slice<'s>>>,
    /// Rows by the lower 32 bits of where their units start, and their units' lengths. None where there are several.
    places: HashMap<(u32, u32), Option<u32>>,
    /// Rows by where their units start, in a package in which that is all of it.
    starts: HashMap<u64, u32>,
    /// A section other than that of the entries is longer than offsets reach.
    is_beyond_offsets: bool,
}

/// Why a unit of a package is left out.
const NOT_IN_INDEX: &str = "unit that the index of its DWARF package (.dwp) does not have";
const BEYOND_OFFSETS: &str =
    "unit of a DWARF package (.dwp) with sections longer than 4 GiB, more than the offsets of its index reach";

impl<'s> Package<'s> {
    fn of(sections: &'s DwarfSections<'_>, skipped: &mut Skipped) -> Option<Self> {
        if sections.cu_index.is_empty() {
            return None;
        }
        let others = [&sections.abbrev, &sections.str_offsets, &sections.rnglists].map(|section| section.len() as u64);
        let mut package = Self::parse(sections.slice(&sections.cu_index), sections.info.len() as u64, &others);
        if let Some(package) = &mut package {
            package.types = DebugTuIndex::from(sections.slice(&sections.tu_index)).index().ok();
        }
        if package.is_none() {
            note(skipped, "damaged index of a DWARF package (.dwp)");
        }
        package
    }

    /// `info` and `others` are the lengths of the sections that the index has offsets into.
    fn parse(bytes: Slice<'s>, info: u64, others: &[u64]) -> Option<Self> {
        let is_long = |length: &u64| *length > u64::from(u32::MAX);
        let index = DebugCuIndex::from(bytes).index().ok()?;
        let (mut places, mut starts) = (HashMap::new(), HashMap::new());
        for row in 1..=index.unit_count() {
            let Ok(mut parts) = index.sections(row) else { continue };
            if let Some(part) = parts.find(|part| part.section == IndexSectionId::DebugInfo) {
                places.entry((part.offset, part.size)).and_modify(|known| *known = None).or_insert(Some(row));
                if !is_long(&info) {
                    starts.insert(u64::from(part.offset), row);
                }
            }
        }
        Some(Self { index, types: None, places, starts, is_beyond_offsets: others.iter().any(is_long) })
    }

    /// `unit` is where the unit starts, `length` that of the unit with its header.
    fn bases(&self, unit: u64, length: u64, dwo_id: Option<u64>) -> Result<Bases, &'static str> {
        if self.is_beyond_offsets {
            return Err(BEYOND_OFFSETS);
        }
        // The lower bits are what the index has.
        let place = (unit as u32, length as u32);
        let row = dwo_id
            .and_then(|id| self.index.find(id))
            .or_else(|| self.places.get(&place).copied().flatten())
            .or_else(|| self.starts.get(&unit).copied())
            .ok_or(NOT_IN_INDEX)?;
        bases_of(&self.index, row, unit).ok_or(NOT_IN_INDEX)
    }

    /// Those of the type unit with that signature, which starts at `unit`.
    fn type_bases(&self, unit: u64, signature: u64) -> Option<Bases> {
        let index = self.types.as_ref().filter(|_| !self.is_beyond_offsets)?;
        bases_of(index, index.find(signature)?, unit)
    }
}

/// What a row of an index says of the unit that starts at `unit`.
fn bases_of(index: &UnitIndex<Slice<'_>>, row: u32, unit: u64) -> Option<Bases> {
    let mut bases = Bases { info: unit, ..Bases::default() };
    for part in index.sections(row).ok()? {
        let base = match part.section {
            IndexSectionId::DebugAbbrev => &mut bases.abbrev,
            IndexSectionId::DebugStrOffsets => &mut bases.str_offsets,
            IndexSectionId::DebugRngLists => &mut bases.rnglists,
            IndexSectionId::DebugLine => &mut bases.line_dwo,
            _ => continue,
        };
        *base = part.offset.into();
    }
    Some(bases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimli::{EndianSlice, RunTimeEndian};

    /// Columns of version 5: entries, abbreviations, offsets of strings.
    const COLUMNS: [u32; 3] = [1, 3, 6];

    /// An index whose rows are an id, and offset and size of each column.
    fn index(rows: &[(u64, [(u32, u32); 3])]) -> Vec<u8> {
        let slots = (rows.len() * 2).next_power_of_two();
        let mut ids = vec![0_u64; slots];
        let mut numbers = vec![0_u32; slots];
        for (number, (id, _)) in (1..).zip(rows) {
            let mask = slots as u64 - 1;
            let mut at = id & mask;
            while numbers[at as usize] != 0 {
                at = (at + (((id >> 32) & mask) | 1)) & mask;
            }
            (ids[at as usize], numbers[at as usize]) = (*id, number);
        }
        let mut bytes = [5_u16, 0].map(u16::to_le_bytes).concat();
        for number in [COLUMNS.len(), rows.len(), slots] {
            bytes.extend((number as u32).to_le_bytes());
        }
        bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        bytes.extend(numbers.iter().chain(&COLUMNS).flat_map(|number| number.to_le_bytes()));
        for pick in [|part: &(u32, u32)| part.0, |part: &(u32, u32)| part.1] {
            bytes.extend(rows.iter().flat_map(|(_, parts)| parts.iter().map(pick)).flat_map(u32::to_le_bytes));
        }
        bytes
    }

    fn package(bytes: &[u8], info: u64, others: [u64; 2]) -> Package<'_> {
        Package::parse(EndianSlice::new(bytes, RunTimeEndian::Little), info, &others).expect("an index")
    }

    const FOUR_GIB: u64 = 1 << 32;

    #[test]
    fn units_beyond_4_gib_are_found_by_their_id_or_their_length() {
        let bytes = index(&[
            (0xa, [(0x40, 0x100), (0, 0x10), (0, 0x20)]),
            (0xb, [(0x40, 0x200), (0x10, 0x10), (0x20, 0x20)]),
            (0xc, [(0x140, 0x80), (0x20, 0x10), (0x40, 0x20)]),
        ]);
        let package = package(&bytes, 3 * FOUR_GIB, [0x30, 0x60]);
        let abbrev = |unit, length, id| package.bases(unit, length, id).map(|bases| (bases.info, bases.abbrev));
        assert_eq!(abbrev(0x40, 0x100, Some(0xa)), Ok((0x40, 0)));
        // What the index says of the place is cut to 32 bits; the id, or the length, tells the units apart.
        assert_eq!(abbrev(FOUR_GIB + 0x40, 0x200, Some(0xb)), Ok((FOUR_GIB + 0x40, 0x10)));
        assert_eq!(abbrev(FOUR_GIB + 0x40, 0x200, None), Ok((FOUR_GIB + 0x40, 0x10)));
        assert_eq!(abbrev(0x40, 0x100, None), Ok((0x40, 0)));
        assert_eq!(abbrev(2 * FOUR_GIB + 0x140, 0x80, None), Ok((2 * FOUR_GIB + 0x140, 0x20)));
    }

    #[test]
    fn a_unit_that_the_index_does_not_tell_apart_is_left_out() {
        let bytes =
            index(&[(0xa, [(0x40, 0x100), (0, 0x10), (0, 0x20)]), (0xb, [(0x40, 0x100), (0x10, 0x10), (0x20, 0x20)])]);
        let package = package(&bytes, 2 * FOUR_GIB, [0x20, 0x40]);
        assert_eq!(package.bases(0x40, 0x100, None), Err(NOT_IN_INDEX));
        assert_eq!(package.bases(0x80, 0x100, None), Err(NOT_IN_INDEX));
        assert_eq!(package.bases(FOUR_GIB + 0x40, 0x100, Some(0xb)).map(|bases| bases.abbrev), Ok(0x10));
    }

    #[test]
    fn a_package_with_other_sections_beyond_4_gib_is_refused() {
        let bytes = index(&[(0xa, [(0x40, 0x100), (0, 0x10), (0, 0x20)])]);
        let package = package(&bytes, 0x200, [0x10, FOUR_GIB + 0x20]);
        assert_eq!(package.bases(0x40, 0x100, Some(0xa)), Err(BEYOND_OFFSETS));
    }
}
