//! What the units of a split DWARF file are, beyond their ids: what was compiled, where, and which functions came of it.
//!
//! An id is taken on trust by debuggers. Two files that give different units under one id are told apart by this.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gimli::{
    DwarfFileType, DwarfPackage, EndianSlice, Reader as _, RunTimeEndian, Section as _, SectionId, Unit, UnitType,
};

use super::split::split_kind;
use crate::budget::Budget;
use crate::cursor::Damaged;
use crate::headers::ObjectHeaders;
use crate::{SplitContents, SplitKind};

type Slice<'s> = EndianSlice<'s, RunTimeEndian>;
type Dwarf<'s> = gimli::Dwarf<Slice<'s>>;

/// Contents by the id of the unit. Of units that cannot be read there is nothing, and of one that is damaged what stands before the
/// damage.
pub(crate) fn split_contents(headers: &dyn ObjectHeaders<'_>) -> BTreeMap<u64, SplitContents> {
    let sections = Sections::read(headers);
    let mut reader = Reader { budget: Budget::for_bytes(sections.total_bytes()), found: BTreeMap::new() };
    // What ends the reading is damage: no more is known then.
    let _ = match split_kind(headers) {
        Some(SplitKind::Dwp) => reader.package(&sections),
        Some(SplitKind::Dwo) => reader.file(&sections),
        None => Ok(()),
    };
    reader.found
}

/// The sections of split DWARF and of a package's indexes, by name without `.debug_`, decompressed.
struct Sections<'d> {
    bytes: BTreeMap<&'static str, Cow<'d, [u8]>>,
    endian: RunTimeEndian,
}

/// What names are read from, and what an index says where to find parts of: a part that is not there is damage.
const WANTED: [&str; 13] = [
    "info.dwo",
    "abbrev.dwo",
    "str.dwo",
    "str_offsets.dwo",
    "line.dwo",
    "types.dwo",
    "loc.dwo",
    "loclists.dwo",
    "rnglists.dwo",
    "macinfo.dwo",
    "macro.dwo",
    "cu_index",
    "tu_index",
];

impl<'d> Sections<'d> {
    fn read(headers: &dyn ObjectHeaders<'d>) -> Self {
        let bytes = WANTED.iter().filter_map(|name| Some((*name, headers.debug_section(name)?.ok()?)));
        let endian = if headers.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        Self { bytes: bytes.collect(), endian }
    }

    fn get(&self, id: SectionId) -> Slice<'_> {
        let name = id.dwo_name().unwrap_or_else(|| id.name());
        let bytes = name.strip_prefix(".debug_").and_then(|name| self.bytes.get(name));
        EndianSlice::new(bytes.map_or(&[][..], |bytes| bytes), self.endian)
    }

    fn total_bytes(&self) -> u64 {
        self.bytes.values().map(|bytes| bytes.len() as u64).fold(0, u64::saturating_add)
    }
}

struct Reader {
    /// Of rows of an index, units and texts any number may lead to the same bytes.
    budget: Budget,
    found: BTreeMap<u64, SplitContents>,
}

impl Reader {
    fn file(&mut self, sections: &Sections<'_>) -> Result {
        let mut dwarf: Dwarf<'_> = gimli::Dwarf::load(|id| gimli::Result::Ok(sections.get(id)))?;
        dwarf.file_type = DwarfFileType::Dwo;
        self.units(&dwarf)
    }

    fn package(&mut self, sections: &Sections<'_>) -> Result {
        let empty = EndianSlice::new(&[], sections.endian);
        let package = DwarfPackage::load(|id| gimli::Result::Ok(sections.get(id)), empty)?;
        let parent: Dwarf<'_> = gimli::Dwarf::load(|_| gimli::Result::Ok(empty))?;
        for row in 1..=package.cu_index.unit_count() {
            self.budget.charge(1)?;
            let Ok(dwarf) = package.cu_sections(row, &parent) else { continue };
            match self.units(&dwarf) {
                // The next row tells of another unit, whatever is wrong with this one.
                Ok(()) | Err(Stop::Damaged) => {}
                Err(Stop::Enough) => return Err(Stop::Enough),
            }
        }
        Ok(())
    }

    fn units(&mut self, dwarf: &Dwarf<'_>) -> Result {
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            self.budget.charge(1)?;
            if matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. }) {
                continue;
            }
            // The table of abbreviations is read from its place on.
            let abbreviations = dwarf.debug_abbrev.reader().len().saturating_sub(header.debug_abbrev_offset().0);
            self.budget.charge((abbreviations as u64).saturating_add(header.length_including_self() as u64))?;
            let Ok(unit) = dwarf.unit(header) else { continue };
            let Some(id) = unit.dwo_id.filter(|id| !self.found.contains_key(&id.0)) else { continue };
            let mut contents = SplitContents::default();
            let read = self.unit(dwarf, &unit, &mut contents);
            self.found.insert(id.0, contents);
            read?;
        }
        Ok(())
    }

    fn unit(&mut self, dwarf: &Dwarf<'_>, unit: &Unit<Slice<'_>>, contents: &mut SplitContents) -> Result {
        let text = |bytes: Option<Slice<'_>>| bytes.map(|bytes| bytes.slice().to_vec()).unwrap_or_default();
        contents.name = text(unit.name);
        contents.comp_dir = text(unit.comp_dir);
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            let Some(value) = entry.attr_value(gimli::DW_AT_name) else { continue };
            let Ok(name) = dwarf.attr_string(unit, value) else { continue };
            self.budget.charge(name.slice().len() as u64)?;
            contents.functions.insert(name.slice().to_vec());
        }
        Ok(())
    }
}

/// Why no more is read.
enum Stop {
    Damaged,
    /// The work that is allowed is done.
    Enough,
}

type Result = std::result::Result<(), Stop>;

impl From<gimli::Error> for Stop {
    fn from(_: gimli::Error) -> Self {
        Self::Damaged
    }
}

impl From<Damaged> for Stop {
    fn from(_: Damaged) -> Self {
        Self::Enough
    }
}
