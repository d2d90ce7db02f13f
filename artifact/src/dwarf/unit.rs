//! Units: their headers, and what their first entry says.

use super::abbrev::Abbreviations;
use super::sections::DwarfSections;
use super::value::{self, Encoding, Value};
use crate::budget::Budget;
use crate::cursor::{Cursor, Damaged, Result};
use crate::work::{Skipped, note};
use gimli::{DebugInfo, DwLang, UnitType};
use std::collections::HashMap;
use std::rc::Rc;

/// Where a unit lies in `.debug_info`, and how to read it.
#[derive(Clone, Debug)]
pub(crate) struct UnitHeader {
    /// Of the header in the section.
    pub(crate) offset: u64,
    /// Of the first entry in the section.
    pub(crate) entries: u64,
    /// Behind the unit in the section.
    pub(crate) end: u64,
    pub(crate) abbrev_offset: u64,
    pub(crate) encoding: Encoding,
    /// Holds a type alone.
    pub(crate) is_type_unit: bool,
}

/// All headers by rising offset. A damaged header ends the list, as where the next unit starts is unknown.
pub(crate) fn unit_headers(sections: &DwarfSections<'_>, skipped: &mut Skipped) -> Vec<UnitHeader> {
    let info: DebugInfo<_> = sections.slice(&sections.info).into();
    let mut units = info.units();
    let mut headers = Vec::new();
    loop {
        match units.next() {
            Ok(Some(header)) => {
                let Some(offset) = header.debug_info_offset().map(|offset| offset.0 as u64) else { break };
                let encoding = header.encoding();
                headers.push(UnitHeader {
                    offset,
                    entries: offset + header.header_size() as u64,
                    end: offset + header.length_including_self() as u64,
                    abbrev_offset: header.debug_abbrev_offset().0 as u64,
                    encoding: Encoding {
                        version: encoding.version,
                        address_size: encoding.address_size,
                        offset_size: encoding.format.word_size(),
                    },
                    is_type_unit: matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. }),
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

/// Abbreviation tables that were read, as units share them and are opened more than once.
#[derive(Debug, Default)]
pub(crate) struct AbbreviationTables {
    tables: HashMap<(u64, Encoding), Rc<Abbreviations>>,
}

impl AbbreviationTables {
    /// Some six kilobytes each.
    const MOST: usize = 8192;

    fn get(
        &mut self,
        sections: &DwarfSections<'_>,
        header: &UnitHeader,
        budget: &mut Budget,
    ) -> Result<Rc<Abbreviations>> {
        let key = (header.abbrev_offset, header.encoding);
        if let Some(known) = self.tables.get(&key) {
            return Ok(Rc::clone(known));
        }
        let bytes =
            sections.abbrev.get(usize::try_from(header.abbrev_offset).map_err(|_| Damaged)?..).ok_or(Damaged)?;
        let table = Rc::new(Abbreviations::parse(bytes, header.encoding, sections.is_little_endian, budget)?);
        if self.tables.len() >= Self::MOST {
            self.tables.clear();
        }
        self.tables.insert(key, Rc::clone(&table));
        Ok(table)
    }
}

/// A unit that can be read: its abbreviations, and what its first entry says.
#[derive(Debug)]
pub(crate) struct Unit<'s> {
    pub(crate) header: UnitHeader,
    pub(crate) abbreviations: Rc<Abbreviations>,
    pub(crate) root: Root<'s>,
}

/// The first entry of a unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Root<'s> {
    pub(crate) comp_dir: &'s [u8],
    pub(crate) line_offset: Option<u64>,
    pub(crate) low_pc: u64,
    pub(crate) language: Option<DwLang>,
    /// The code is described in another file.
    pub(crate) is_skeleton: bool,
    str_offsets_base: Option<u64>,
    addr_base: Option<u64>,
    pub(crate) rnglists_base: Option<u64>,
    pub(crate) gnu_ranges_base: u64,
}

impl<'s> Unit<'s> {
    pub(crate) fn open(
        sections: &'s DwarfSections<'_>,
        header: &UnitHeader,
        tables: &mut AbbreviationTables,
        budget: &mut Budget,
    ) -> Result<Self> {
        let abbreviations = tables.get(sections, header, budget)?;
        let mut unit = Self { header: header.clone(), abbreviations, root: Root::default() };
        unit.read_root(sections)?;
        Ok(unit)
    }

    /// Reads from an offset in `.debug_info` to the unit's end.
    pub(crate) fn cursor_at(&self, sections: &'s DwarfSections<'_>, offset: u64) -> Result<Cursor<'s>> {
        if offset < self.header.entries || offset >= self.header.end {
            return Err(Damaged);
        }
        let range =
            usize::try_from(offset).map_err(|_| Damaged)?..usize::try_from(self.header.end).map_err(|_| Damaged)?;
        Ok(Cursor::new(sections.info.get(range).ok_or(Damaged)?, sections.is_little_endian))
    }

    fn read_root(&mut self, sections: &'s DwarfSections<'_>) -> Result<()> {
        let mut cursor = self.cursor_at(sections, self.header.entries)?;
        let code = cursor.uleb()?;
        let mut root = Root::default();
        let mut texts = Vec::new();
        let mut low_pc = None;
        for attribute in self.abbreviations.attributes(self.abbreviations.get(code)?) {
            let value = value::read(&mut cursor, attribute, self.header.encoding)?;
            match (attribute.name, value) {
                (gimli::DW_AT_comp_dir, value) => texts.push(value),
                (gimli::DW_AT_stmt_list, Value::Number(offset)) => root.line_offset = Some(offset),
                (gimli::DW_AT_low_pc, value) => low_pc = Some(value),
                (gimli::DW_AT_language, Value::Number(language)) => {
                    root.language = u16::try_from(language).ok().map(DwLang);
                }
                (gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, _) => root.is_skeleton = true,
                (gimli::DW_AT_str_offsets_base, Value::Number(base)) => root.str_offsets_base = Some(base),
                (gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base, Value::Number(base)) => {
                    root.addr_base = Some(base)
                }
                (gimli::DW_AT_rnglists_base, Value::Number(base)) => root.rnglists_base = Some(base),
                (gimli::DW_AT_GNU_ranges_base, Value::Number(base)) => root.gnu_ranges_base = base,
                _ => {}
            }
        }
        self.root = root;
        // These need the bases, which may stand behind them.
        let comp_dir = texts.first().and_then(|value| self.text(sections, *value));
        self.root.comp_dir = comp_dir.unwrap_or_default();
        self.root.low_pc = low_pc.and_then(|value| self.address(sections, value)).unwrap_or_default();
        Ok(())
    }

    /// The text that a value stands for.
    pub(crate) fn text(&self, sections: &'s DwarfSections<'_>, value: Value<'s>) -> Option<&'s [u8]> {
        match value {
            Value::Text(text) => Some(text),
            Value::StrOffset(offset) => DwarfSections::text(&sections.str, offset),
            Value::LineStrOffset(offset) => DwarfSections::text(&sections.line_str, offset),
            Value::StrIndex(index) => {
                let size = self.header.encoding.offset_size;
                let base = self.root.str_offsets_base.unwrap_or_else(|| self.default_base());
                let offset = self.table_entry(sections, &sections.str_offsets, base, index, size)?;
                DwarfSections::text(&sections.str, offset)
            }
            _ => None,
        }
    }

    /// The address that a value stands for.
    pub(crate) fn address(&self, sections: &DwarfSections<'_>, value: Value<'_>) -> Option<u64> {
        match value {
            Value::Address(address) => Some(address),
            Value::AddressIndex(index) => {
                let base = self.root.addr_base.unwrap_or_else(|| self.default_base());
                self.table_entry(sections, &sections.addr, base, index, self.header.encoding.address_size)
            }
            _ => None,
        }
    }

    /// Offset in `.debug_info` of the entry that a value refers to.
    pub(crate) fn reference(&self, value: Value<'_>) -> Option<u64> {
        match value {
            Value::UnitReference(offset) => self.header.offset.checked_add(offset),
            Value::InfoReference(offset) => Some(offset),
            _ => None,
        }
    }

    pub(crate) fn addr_base(&self) -> u64 {
        self.root.addr_base.unwrap_or_else(|| self.default_base())
    }

    /// Where tables start behind their header if no attribute says so. (DWARF 5, 7.26 and 7.27; none before)
    fn default_base(&self) -> u64 {
        match (self.header.encoding.version, self.header.encoding.offset_size) {
            (..=4, _) => 0,
            (_, 8) => 16,
            _ => 8,
        }
    }

    fn table_entry(&self, sections: &DwarfSections<'_>, table: &[u8], base: u64, index: u64, size: u8) -> Option<u64> {
        let at = index.checked_mul(u64::from(size))?.checked_add(base)?;
        let rest = table.get(usize::try_from(at).ok()?..)?;
        Cursor::new(rest, sections.is_little_endian).unsigned(size).ok()
    }
}
