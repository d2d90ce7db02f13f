//! Files and directories of line tables, whether or not a row is of them: a header with types alone has none. (DWARF 5, 6.2.4)

use super::dwarf_files::DwarfFiles;
use super::files::{self, Place, Program};
use super::sections::{DwarfSections, Slice};
use super::unit::{AbbreviationTables, Unit};
use super::unit_header::UnitHeader;
use crate::Checksum;
use crate::cursor::Cursor;
use crate::work::Work;
use gimli::{AttributeValue, DebugLine, DebugLineOffset};
use std::collections::{BTreeMap, BTreeSet};

/// What a line table names.
pub(crate) enum Named {
    /// A file, and what the compiler noted of its content.
    File(Option<Checksum>),
    /// A directory.
    Directory,
}

/// Line tables that were read, as units share them: in which file, and where.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeSet<(u32, u64)>);

impl Seen {
    /// What the line table of a unit names, unless it is one that was read before. Paths are joined as those of rows are.
    pub(super) fn of_unit(&mut self, unit: &Unit<'_>, take: &mut dyn FnMut(&[u8], Named), work: &mut Work) {
        let Some(offset) = unit.root.line_offset else { return };
        if self.0.insert((unit.header.file, offset))
            && let Some(program) = files::program(unit, work)
        {
            let place = Place { comp_dir: unit.root.comp_dir, text: &|value| files::text(unit, value) };
            names(&place, &program, take, work);
        }
    }
}

/// Where the compilers of split units were run. Tables of `.debug_line.dwo` do not say it before DWARF 5: the compile unit does
/// that their part of the section belongs to, or its skeleton.
#[derive(Debug, Default)]
pub(super) struct SplitDirectories<'s> {
    /// By file, and where the part of `.debug_line.dwo` starts.
    parts: BTreeMap<(u32, u64), &'s [u8]>,
    /// Of every unit so far.
    of_units: Vec<&'s [u8]>,
}

impl<'s> SplitDirectories<'s> {
    /// Takes what the next of all units says; none where that cannot be read. Skeletons come before split units.
    pub(super) fn add(&mut self, header: &UnitHeader, unit: Option<&Unit<'s>>) {
        let own = unit.map_or(&[][..], |unit| unit.root.comp_dir);
        self.of_units.push(own);
        if !unit.is_some_and(|unit| unit.sections().is_split && header.type_unit.is_none()) {
            return;
        }
        let skeleton = || header.partner.and_then(|partner| self.of_units.get(partner as usize).copied());
        let directory = if own.is_empty() { skeleton().unwrap_or_default() } else { own };
        self.parts.entry((header.file, header.bases.line_dwo)).or_insert(directory);
    }

    /// That of a table of a file; empty where nothing says it.
    fn of_table(&self, file: u32, at: u64) -> &'s [u8] {
        let part = self.parts.range((file, 0)..=(file, at)).next_back();
        part.map(|(_, directory)| *directory).unwrap_or_default()
    }
}

/// What all line tables of all files name, as far as the work is allowed. A path comes as often as tables name it.
pub(crate) fn each(dwarf: &DwarfFiles<'_>, take: &mut dyn FnMut(&[u8], Named), work: &mut Work) {
    let mut tables = AbbreviationTables::default();
    let (mut seen, mut directories) = (Seen::default(), SplitDirectories::default());
    for header in dwarf.units(work) {
        let unit = Unit::open(dwarf, &header, &mut tables, &mut work.budget).ok();
        if let Some(unit) = &unit {
            seen.of_unit(unit, take, work);
        }
        directories.add(&header, unit.as_ref());
    }
    of_type_units(dwarf, &directories, take, work);
}

/// What the tables without rows name that split type units have.
pub(super) fn of_type_units(
    dwarf: &DwarfFiles<'_>,
    directories: &SplitDirectories<'_>,
    take: &mut dyn FnMut(&[u8], Named),
    work: &mut Work,
) {
    for (file, sections) in dwarf.split() {
        of_section(sections, &|at| directories.of_table(file, at), take, work);
    }
}

/// The tables of one `.debug_line.dwo`. They stand one behind the other, so that no index of a package is needed; damage to one's
/// length ends the reading.
fn of_section<'s>(
    sections: &'s DwarfSections<'_>,
    directory: &dyn Fn(u64) -> &'s [u8],
    take: &mut dyn FnMut(&[u8], Named),
    work: &mut Work,
) {
    let section: &[u8] = &sections.line_dwo;
    let lines: DebugLine<_> = sections.slice(section).into();
    // Only tables before DWARF 5 leave the size of an address to the unit, and only rows have addresses.
    const ADDRESS_BYTES: u8 = 8;
    let mut at = 0_usize;
    while let Some(rest) = section.get(at..).filter(|rest| !rest.is_empty()) {
        let mut cursor = Cursor::new(rest, sections.is_little_endian);
        let length = match cursor.unsigned(4) {
            Ok(0xffff_ffff) => cursor.unsigned(8).map(|length| (12, length)),
            length => length.map(|length| (4, length)),
        };
        let end = length.ok().and_then(|(field, length)| usize::try_from(length).ok()?.checked_add(field));
        let Some(end) = end.and_then(|length| at.checked_add(length)) else { break };
        match lines.program(DebugLineOffset(at), ADDRESS_BYTES, None, None) {
            Ok(program) => {
                let place = Place { comp_dir: directory(at as u64), text: &|value| text(sections, value) };
                names(&place, &Program::new(program, sections.is_little_endian), take, work);
            }
            Err(_) => work.skip("damaged line table header"),
        }
        at = end;
    }
}

fn text<'s>(sections: &'s DwarfSections<'_>, value: AttributeValue<Slice<'s>>) -> Option<&'s [u8]> {
    match value {
        AttributeValue::String(text) => Some(text.slice()),
        AttributeValue::DebugStrRef(offset) => DwarfSections::text(&sections.str, offset.0 as u64),
        _ => None,
    }
}

fn names<'s>(place: &Place<'s, '_>, program: &Program<'s>, take: &mut dyn FnMut(&[u8], Named), work: &mut Work) {
    let header = program.header();
    let mut give = |path: Option<Vec<u8>>, named: Named, work: &mut Work| {
        let Some(path) = path.filter(|path| !path.is_empty()) else { return Ok(()) };
        work.budget.charge_path(&path)?;
        take(&path, named);
        Ok::<(), crate::cursor::Damaged>(())
    };
    let first = u64::from(header.version() < 5);
    for (number, directory) in (first..).zip(header.include_directories()) {
        let path = (place.text)(*directory).map(|directory| place.directory(number, directory));
        if give(path, Named::Directory, work).is_err() {
            return;
        }
    }
    for (number, file) in (first..).zip(header.file_names()) {
        let named = Named::File(files::checksum(header, number));
        let path = (place.text)(file.path_name()).map(|name| place.file(header, name, file.directory_index()));
        if give(path, named, work).is_err() {
            return;
        }
    }
    for file in program.defined(work) {
        if give(Some(place.file(header, file.name, file.directory)), Named::File(None), work).is_err() {
            return;
        }
    }
}
