//! Where units lie. (DWARF 5, 7.5.1; packages: 7.3.5)

use super::sections::DwarfSections;
use super::value::Encoding;
use crate::work::{Skipped, note};
use gimli::{DebugCuIndex, DebugInfo, IndexSectionId, UnitIndex, UnitType};
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
    pub(crate) is_type_unit: bool,
    /// Of a DWARF 5 skeleton or split unit.
    pub(crate) dwo_id: Option<u64>,
    pub(crate) bases: Bases,
    /// Of a skeleton: the number of its split unit. Of a split unit: that of its skeleton.
    pub(crate) partner: Option<u32>,
}

/// Where a unit's parts of the sections start; 0 but in a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bases {
    pub(crate) info: u64,
    pub(crate) abbrev: u64,
    pub(crate) str_offsets: u64,
    pub(crate) rnglists: u64,
}

/// All headers of a file by rising offset. A damaged header ends the list, as where the next unit starts is unknown.
pub(crate) fn unit_headers(sections: &DwarfSections<'_>, file: u32, skipped: &mut Skipped) -> Vec<UnitHeader> {
    let info: DebugInfo<_> = sections.slice(&sections.info).into();
    let package = Package::of(sections, skipped);
    let mut units = info.units();
    let mut headers = Vec::new();
    loop {
        match units.next() {
            Ok(Some(header)) => {
                let Some(local) = header.debug_info_offset().map(|offset| offset.0 as u64) else { break };
                let (is_type_unit, dwo_id) = match header.type_() {
                    UnitType::Type { .. } | UnitType::SplitType { .. } => (true, None),
                    UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => (false, Some(id.0)),
                    UnitType::Compilation | UnitType::Partial => (false, None),
                };
                let bases = match &package {
                    Some(package) if !is_type_unit => package.bases(local, dwo_id, skipped),
                    _ => Bases::default(),
                };
                let encoding = header.encoding();
                // Sections are shorter than 2^63 bytes, and so are all files together.
                let offset = sections.base + local;
                headers.push(UnitHeader {
                    file,
                    offset,
                    entries: offset + header.header_size() as u64,
                    end: offset + header.length_including_self() as u64,
                    abbrev_offset: (header.debug_abbrev_offset().0 as u64).saturating_add(bases.abbrev),
                    encoding: Encoding {
                        version: encoding.version,
                        address_size: encoding.address_size,
                        offset_size: encoding.format.word_size(),
                    },
                    is_type_unit,
                    dwo_id,
                    bases,
                    partner: None,
                });
            }
            Ok(None) => break,
            Err(_) => {
                note(skipped, "damaged unit header");
                break;
            }
        }
    }
    headers
}

/// The index of a DWARF package.
struct Package<'s> {
    index: UnitIndex<super::sections::Slice<'s>>,
    /// Rows by where their units start.
    rows: HashMap<u64, u32>,
}

impl<'s> Package<'s> {
    fn of(sections: &'s DwarfSections<'_>, skipped: &mut Skipped) -> Option<Self> {
        if sections.cu_index.is_empty() {
            return None;
        }
        let Ok(index) = DebugCuIndex::from(sections.slice(&sections.cu_index)).index() else {
            note(skipped, "damaged index of a DWARF package (.dwp)");
            return None;
        };
        let offset_of = |row: u32| {
            let mut parts = index.sections(row).ok()?;
            parts.find(|part| part.section == IndexSectionId::DebugInfo).map(|part| u64::from(part.offset))
        };
        let rows = (1..=index.unit_count()).filter_map(|row| Some((offset_of(row)?, row))).collect();
        Some(Self { index, rows })
    }

    /// Offsets in the index have 32 bits, so that those of a larger package say nothing: there DWARF 5 units, whose
    /// headers have their ids, are still found.
    fn bases(&self, unit: u64, dwo_id: Option<u64>, skipped: &mut Skipped) -> Bases {
        let row = dwo_id.and_then(|id| self.index.find(id)).or_else(|| self.rows.get(&unit).copied());
        let Some(parts) = row.and_then(|row| self.index.sections(row).ok()) else {
            note(skipped, "unit that the index of its DWARF package (.dwp) does not have");
            return Bases::default();
        };
        let mut bases = Bases { info: unit, ..Bases::default() };
        for part in parts {
            let base = match part.section {
                IndexSectionId::DebugAbbrev => &mut bases.abbrev,
                IndexSectionId::DebugStrOffsets => &mut bases.str_offsets,
                IndexSectionId::DebugRngLists => &mut bases.rnglists,
                _ => continue,
            };
            *base = part.offset.into();
        }
        bases
    }
}
