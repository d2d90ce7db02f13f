//! What DWARF tells of a build: producers, options, macros and whole source files.

use std::collections::BTreeSet;

use super::dwarf_files::DwarfFiles;
use super::files;
use super::line_files::{self, Seen, SplitDirectories};
use super::unit::{AbbreviationTables, Unit};
use super::value::Value;
use crate::budget::Budget;
use crate::cursor::{Cursor, Damaged, Result};
use crate::headers::ObjectHeaders;
use crate::told::Gathering;
use crate::work::Work;

/// Reads every unit's first entry, each table of files and each macro unit once. What is damaged ends what it is part of.
pub(crate) fn build_texts(headers: &dyn ObjectHeaders<'_>, into: &mut Gathering) {
    let mut work = Work::new();
    let dwarf = DwarfFiles::load(headers, None, &[headers], std::num::NonZeroUsize::MIN, &mut work);
    work.budget = Budget::for_bytes(dwarf.total_bytes());
    let section = |name: &str| headers.debug_section(name).and_then(std::result::Result::ok).unwrap_or_default();
    let mut macros = Macros {
        sections: [section("macro"), section("macro.dwo")],
        old: section("macinfo"),
        is_little_endian: headers.is_little_endian(),
        seen: BTreeSet::new(),
    };
    let mut tables = AbbreviationTables::default();
    let (mut line_tables, mut seen) = (BTreeSet::new(), Seen::default());
    let mut directories = SplitDirectories::default();
    for header in &dwarf.units(&mut work) {
        let unit = Unit::open(&dwarf, header, &mut tables, &mut work.budget).ok();
        directories.add(header, unit.as_ref());
        let Some(unit) = unit else { continue };
        seen.of_unit(&unit, &mut |path, _| into.debug_path(path), &mut work);
        if header.type_unit.is_some() {
            continue;
        }
        if let Some(offset) = unit.root.line_offset
            && line_tables.insert(offset)
        {
            sources(&unit, into, &mut work);
        }
        let Ok(attributes) = unit.root_attributes(&mut work.budget) else { continue };
        for (name, value) in attributes {
            match (name, value) {
                (gimli::DW_AT_producer, value) => into.producer(unit.text(value).unwrap_or_default()),
                (gimli::DW_AT_name | gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, value) => {
                    let name = unit.text(value).unwrap_or_default();
                    if work.budget.charge(name.len() as u64).is_ok() {
                        into.debug_path(&files::joined(unit.root.comp_dir, name));
                    }
                }
                (gimli::DW_AT_APPLE_flags, value) => into.command_line(unit.text(value).unwrap_or_default()),
                (gimli::DW_AT_macros | gimli::DW_AT_GNU_macros, Value::Number(offset)) => {
                    told_whole(macros.read(&unit, offset, into, &mut work.budget), ".debug_macro", into);
                }
                (gimli::DW_AT_macro_info, Value::Number(offset)) => {
                    told_whole(macros.read_old(offset, into, &mut work.budget), ".debug_macinfo", into);
                }
                _ => {}
            }
        }
    }
    line_files::of_type_units(&dwarf, &directories, &mut |path, _| into.debug_path(path), &mut work);
    if work.budget.is_exhausted() {
        into.not_read("a part of the debug information: it takes more work than its size allows");
    }
}

/// Tells it where macros of a section were not read to their end.
fn told_whole(read: Result<()>, section: &str, into: &mut Gathering) {
    if read.is_err() {
        into.not_read(&format!("a part of the macros in {section}"));
    }
}

/// Files of a line table whose text stands in it. (LLVM's `DW_LNCT_LLVM_source`)
fn sources<'s>(unit: &Unit<'s>, into: &mut Gathering, work: &mut Work) {
    let Some(program) = files::program(unit, work) else { return };
    let header = program.header();
    if !header.file_has_source() || work.budget.charge(header.file_names().len() as u64).is_err() {
        return;
    }
    for (number, file) in (0_u64..).zip(header.file_names()) {
        let text = file.source().and_then(|source| files::text(unit, source)).filter(|text| !text.is_empty());
        if let Some((text, path)) = text.zip(files::path(unit, &program, number, work)) {
            into.embedded_source(&path, text.len() as u64);
        }
    }
}

/// The sections with macros.
struct Macros<'d> {
    /// `.debug_macro` and its split form.
    sections: [std::borrow::Cow<'d, [u8]>; 2],
    /// `.debug_macinfo`, before DWARF 5.
    old: std::borrow::Cow<'d, [u8]>,
    is_little_endian: bool,
    /// Macro units that were read: of which section, and where. Units import those of headers, all of them the same.
    seen: BTreeSet<(bool, u64)>,
}

/// Codes of entries. (DWARF 5, 7.23; GNU's of before are the same as far as they go)
mod entry {
    pub(super) const END: u8 = 0;
    pub(super) const DEFINE: u8 = 1;
    pub(super) const UNDEFINE: u8 = 2;
    pub(super) const START_FILE: u8 = 3;
    pub(super) const END_FILE: u8 = 4;
    pub(super) const DEFINE_OFFSET: u8 = 5;
    pub(super) const UNDEFINE_OFFSET: u8 = 6;
    pub(super) const IMPORT: u8 = 7;
    pub(super) const DEFINE_ELSEWHERE: u8 = 8;
    pub(super) const UNDEFINE_ELSEWHERE: u8 = 9;
    pub(super) const IMPORT_ELSEWHERE: u8 = 10;
    pub(super) const DEFINE_INDEX: u8 = 11;
    pub(super) const UNDEFINE_INDEX: u8 = 12;
    /// Of `.debug_macinfo`.
    pub(super) const VENDOR: u8 = 255;
}

impl Macros<'_> {
    fn read(&mut self, unit: &Unit<'_>, offset: u64, into: &mut Gathering, budget: &mut Budget) -> Result<()> {
        let is_split = unit.sections().is_split;
        let mut pending = vec![offset];
        while let Some(offset) = pending.pop() {
            if self.seen.insert((is_split, offset)) {
                self.read_unit(unit, offset, &mut pending, into, budget)?;
            }
        }
        Ok(())
    }

    fn read_unit(
        &self,
        unit: &Unit<'_>,
        offset: u64,
        imports: &mut Vec<u64>,
        into: &mut Gathering,
        budget: &mut Budget,
    ) -> Result<()> {
        const WIDE: u8 = 1;
        const HAS_LINES: u8 = 2;
        const HAS_OPERANDS: u8 = 4;
        let [whole, split] = &self.sections;
        let mut cursor =
            cursor_at(if unit.sections().is_split { split } else { whole }, offset, self.is_little_endian)?;
        let _version = cursor.unsigned(2)?;
        let flags = cursor.u8()?;
        let size = if flags & WIDE == 0 { 4 } else { 8 };
        if flags & HAS_LINES != 0 {
            cursor.skip(size.into())?;
        }
        if flags & HAS_OPERANDS != 0 {
            // Entries that a vendor defines, which none does.
            return Err(Damaged);
        }
        loop {
            budget.charge(1)?;
            match cursor.u8()? {
                entry::END => return Ok(()),
                entry::DEFINE => {
                    cursor.skip_uleb()?;
                    into.macro_text(cursor.text()?);
                }
                entry::UNDEFINE => {
                    cursor.skip_uleb()?;
                    cursor.text()?;
                }
                entry::START_FILE => drop(cursor.two_ulebs()?),
                entry::END_FILE => {}
                entry::DEFINE_OFFSET => {
                    cursor.skip_uleb()?;
                    let offset = cursor.unsigned(size)?;
                    into.macro_text(unit.text(Value::StrOffset(offset)).ok_or(Damaged)?);
                }
                entry::UNDEFINE_OFFSET | entry::UNDEFINE_ELSEWHERE => {
                    cursor.skip_uleb()?;
                    cursor.skip(size.into())?;
                }
                entry::IMPORT => imports.push(cursor.unsigned(size)?),
                entry::DEFINE_ELSEWHERE => {
                    cursor.skip_uleb()?;
                    cursor.skip(size.into())?;
                    into.not_read("macros in another file, to which dwz moved them");
                }
                entry::IMPORT_ELSEWHERE => {
                    cursor.skip(size.into())?;
                    into.not_read("macros in another file, to which dwz moved them");
                }
                entry::DEFINE_INDEX => {
                    let (_, index) = cursor.two_ulebs()?;
                    into.macro_text(unit.text(Value::StrIndex(index)).ok_or(Damaged)?);
                }
                entry::UNDEFINE_INDEX => drop(cursor.two_ulebs()?),
                _ => return Err(Damaged),
            }
        }
    }

    fn read_old(&mut self, offset: u64, into: &mut Gathering, budget: &mut Budget) -> Result<()> {
        // An offset of the other section has the same number.
        if !self.seen.insert((false, u64::MAX - offset)) {
            return Ok(());
        }
        let mut cursor = cursor_at(&self.old, offset, self.is_little_endian)?;
        loop {
            budget.charge(1)?;
            match cursor.u8()? {
                entry::END => return Ok(()),
                entry::DEFINE => {
                    cursor.skip_uleb()?;
                    into.macro_text(cursor.text()?);
                }
                entry::UNDEFINE | entry::VENDOR => {
                    cursor.skip_uleb()?;
                    cursor.text()?;
                }
                entry::START_FILE => drop(cursor.two_ulebs()?),
                entry::END_FILE => {}
                _ => return Err(Damaged),
            }
        }
    }
}

fn cursor_at(section: &[u8], offset: u64, is_little_endian: bool) -> Result<Cursor<'_>> {
    let rest = usize::try_from(offset).ok().and_then(|offset| section.get(offset..)).ok_or(Damaged)?;
    Ok(Cursor::new(rest, is_little_endian))
}
