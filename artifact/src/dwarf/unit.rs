//! Units: what their first entry says, and what their values stand for.

use super::abbrev::{AbbreviationParser, Abbreviations};
use super::address_expression;
use super::dwarf_files::DwarfFiles;
use super::ranges::{CodeRanges, RangeAttributes, each_range, push_ranges};
use super::sections::DwarfSections;
use super::tables;
use super::unit_header::UnitHeader;
use super::value::{self, Value};
use crate::budget::Budget;
use crate::code_ranges::Text;
use crate::cursor::{Cursor, Damaged, Result};
use gimli::DwLang;
use hashbrown::HashMap;
use std::sync::Arc;

/// Abbreviation tables that were read, as units share them and are opened more than once.
#[derive(Debug, Default)]
pub(crate) struct AbbreviationTables {
    tables: HashMap<(u32, u64, value::Encoding), Arc<Abbreviations>>,
    parser: AbbreviationParser,
}

impl AbbreviationTables {
    /// Some three kilobytes each.
    const MOST: usize = 8192;

    fn get(
        &mut self,
        sections: &DwarfSections<'_>,
        header: &UnitHeader,
        budget: &mut Budget,
    ) -> Result<Arc<Abbreviations>> {
        let key = (header.file, header.abbrev_offset, header.encoding);
        if let Some(known) = self.tables.get(&key) {
            return Ok(Arc::clone(known));
        }
        let bytes =
            sections.abbrev.get(usize::try_from(header.abbrev_offset).map_err(|_| Damaged)?..).ok_or(Damaged)?;
        let table = Arc::new(self.parser.parse(bytes, header.encoding, sections.is_little_endian, budget)?);
        if self.tables.len() >= Self::MOST {
            self.tables.clear();
        }
        self.tables.insert(key, Arc::clone(&table));
        Ok(table)
    }

    /// Takes over the tables of another pass.
    pub(crate) fn absorb(&mut self, others: Self) {
        if self.tables.len() + others.tables.len() <= Self::MOST {
            self.tables.extend(others.tables);
        }
    }
}

/// A unit that can be read: its abbreviations, and what its first entry says.
#[derive(Clone)]
pub(crate) struct Unit<'s> {
    pub(crate) header: UnitHeader,
    pub(crate) abbreviations: Arc<Abbreviations>,
    pub(crate) root: Root<'s>,
    /// Of a split unit: the one in the main file that has its addresses and lines.
    skeleton: Option<Box<Self>>,
    files: &'s DwarfFiles<'s>,
    own: &'s DwarfSections<'s>,
}

/// What a skeleton has of its code, in every form of split DWARF.
const OF_CODE: [gimli::DwAt; 4] =
    [gimli::DW_AT_low_pc, gimli::DW_AT_ranges, gimli::DW_AT_addr_base, gimli::DW_AT_GNU_addr_base];

/// The first entry of a unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Root<'s> {
    /// Holds what other units refer to.
    pub(crate) is_partial: bool,
    pub(crate) comp_dir: &'s [u8],
    pub(crate) line_offset: Option<u64>,
    pub(crate) low_pc: u64,
    pub(crate) language: Option<DwLang>,
    /// Says that it stands for split code: by its tag, or by addresses.
    has_split_code: bool,
    /// The file that describes the code, if it is another one: its name, or empty bytes.
    pub(crate) dwo_name: Option<&'s [u8]>,
    /// Ties skeleton and split unit to each other.
    pub(crate) dwo_id: Option<u64>,
    str_offsets_base: Option<u64>,
    addr_base: Option<u64>,
    pub(crate) rnglists_base: Option<u64>,
    gnu_ranges_base: u64,
    /// What the root refers to and the file does not have, the first of it, as a reason for what was left out.
    pub(crate) lacks: Option<&'static str>,
}

/// Why a name is missing that an entry or a line table has: where it refers to there is no text.
pub(crate) const NAME_OUTSIDE: &str = "name outside the strings";

impl<'s> Unit<'s> {
    /// Opens a unit that stands for itself.
    pub(crate) fn open(
        files: &'s DwarfFiles<'s>,
        header: &UnitHeader,
        tables: &mut AbbreviationTables,
        budget: &mut Budget,
    ) -> Result<Self> {
        Self::open_with(files, header, None, tables, budget)
    }

    /// Opens a split unit, whose addresses and lines are its skeleton's.
    pub(crate) fn open_split(
        files: &'s DwarfFiles<'s>,
        header: &UnitHeader,
        skeleton: Self,
        tables: &mut AbbreviationTables,
        budget: &mut Budget,
    ) -> Result<Self> {
        Self::open_with(files, header, Some(Box::new(skeleton)), tables, budget)
    }

    fn open_with(
        files: &'s DwarfFiles<'s>,
        header: &UnitHeader,
        skeleton: Option<Box<Self>>,
        tables: &mut AbbreviationTables,
        budget: &mut Budget,
    ) -> Result<Self> {
        let own = files.file(header.file).ok_or(Damaged)?;
        let abbreviations = tables.get(own, header, budget)?;
        let root = Root { dwo_id: header.dwo_id, ..Root::default() };
        let mut unit = Self { header: header.clone(), abbreviations, root, skeleton, files, own };
        unit.read_root(budget)?;
        Ok(unit)
    }

    /// The unit whose line table holds for this one.
    pub(crate) fn of_lines(&self) -> &Self {
        self.skeleton.as_deref().unwrap_or(self)
    }

    /// The sections of the file that the unit stands in.
    pub(crate) fn sections(&self) -> &'s DwarfSections<'s> {
        self.own
    }

    /// The sections that addresses and, before DWARF 5, range lists stand in.
    pub(crate) fn address_sections(&self) -> &'s DwarfSections<'s> {
        self.of_lines().own
    }

    /// Reads from an entry, by its place in the space of entries, to the unit's end.
    pub(crate) fn cursor_at(&self, entry: u64) -> Result<Cursor<'s>> {
        if entry < self.header.entries || entry >= self.header.end {
            return Err(Damaged);
        }
        let bytes = self.own.entries(entry..self.header.end).ok_or(Damaged)?;
        Ok(Cursor::new(bytes, self.own.is_little_endian))
    }

    fn read_root(&mut self, budget: &mut Budget) -> Result<()> {
        let mut cursor = self.cursor_at(self.header.entries)?;
        let code = cursor.uleb()?;
        let mut root = self.root.clone();
        let (mut comp_dir, mut low_pc, mut dwo_name) = (None, None, None);
        let abbreviation = self.abbreviations.get(code)?;
        root.is_partial = abbreviation.tag == gimli::DW_TAG_partial_unit;
        root.has_split_code = abbreviation.tag == gimli::DW_TAG_skeleton_unit;
        let attributes = self.abbreviations.attributes(abbreviation);
        budget.charge(attributes.len() as u64)?;
        for attribute in attributes {
            let value = value::read(&mut cursor, attribute, self.header.encoding)?;
            root.has_split_code |= OF_CODE.contains(&attribute.name);
            root.lacks = root.lacks.or_else(|| self.lacks(attribute.name, value));
            match (attribute.name, value) {
                (gimli::DW_AT_comp_dir, value) => comp_dir = Some(value),
                (gimli::DW_AT_stmt_list, Value::Number(offset)) => root.line_offset = Some(offset),
                (gimli::DW_AT_low_pc, value) => low_pc = Some(value),
                (gimli::DW_AT_language, Value::Number(language)) => {
                    root.language = u16::try_from(language).ok().map(DwLang);
                }
                (gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, value) => dwo_name = Some(value),
                (gimli::DW_AT_GNU_dwo_id, Value::Number(id)) => root.dwo_id = Some(id),
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
        if self.has_damaged_addresses() {
            self.root.lacks = self.root.lacks.or(Some("damaged table of addresses"));
        }
        // These need the bases, which may stand behind them.
        let is_outside = |value: Option<Value<'s>>| value.is_some_and(|value| self.is_outside(value));
        let lacks = (is_outside(comp_dir) || is_outside(dwo_name)).then_some(NAME_OUTSIDE);
        self.root.lacks = self.root.lacks.or(lacks);
        self.root.comp_dir = comp_dir.and_then(|value| self.text(value)).unwrap_or_default();
        self.root.dwo_name = dwo_name.map(|value| self.text(value).unwrap_or_default());
        self.root.low_pc = match &self.skeleton {
            Some(skeleton) => skeleton.root.low_pc,
            None => low_pc.and_then(|value| self.address(value)).unwrap_or_default(),
        };
        Ok(())
    }

    /// Whether zeros behind what it says may be room for what the next compilation adds, as Zig's own linker leaves it.
    pub(super) fn leaves_room(&self) -> bool {
        self.root.language == Some(gimli::DW_LANG_Zig)
    }

    /// Whether no header stands in front of the unit's addresses, which they have since DWARF 5.
    fn has_damaged_addresses(&self) -> bool {
        let (section, encoding) = (&self.address_sections().addr, self.header.encoding);
        let base = self.root.addr_base.filter(|_| encoding.version >= 5 && !section.is_empty());
        base.is_some_and(|base| {
            !tables::has_address_header(section, base, encoding.offset_size, self.own.is_little_endian)
        })
    }

    /// The section that an attribute of the root refers to, if it is not there: files are stripped of single sections, too.
    fn lacks(&self, attribute: gimli::DwAt, value: Value<'_>) -> Option<&'static str> {
        let (own, addresses) = (self.own, self.address_sections());
        let (section, reason) = match (attribute, value) {
            (gimli::DW_AT_stmt_list, Value::Number(_)) if !own.is_split => {
                (&own.line, "section .debug_line that is not there")
            }
            (gimli::DW_AT_ranges, Value::Number(_)) if self.header.encoding.version < 5 => {
                (&addresses.ranges, "section .debug_ranges that is not there")
            }
            (gimli::DW_AT_ranges, Value::Number(_) | Value::RangeListIndex(_)) => {
                (&own.rnglists, "section .debug_rnglists that is not there")
            }
            (_, Value::LineStrOffset(_)) => (&own.line_str, "section .debug_line_str that is not there"),
            (_, Value::StrOffset(_) | Value::StrIndex(_)) => (&own.str, "section .debug_str that is not there"),
            (_, Value::AddressIndex(_) | Value::AddressBehind(..)) => {
                (&addresses.addr, "section .debug_addr that is not there")
            }
            _ => return None,
        };
        section.is_empty().then_some(reason)
    }

    /// Appends the ranges of code that the unit says it has; returns whether it says any. (DWARF 5, 3.1.1)
    pub(crate) fn push_code(&self, text: &Text, budget: &mut Budget, out: &mut Vec<(u64, u64)>) -> Result<bool> {
        let said = self.said_of_code()?;
        let mut ranges = CodeRanges { ranges: std::mem::take(out), cut: Vec::new() };
        let pushed = push_ranges(self, said, text, budget, &mut ranges);
        *out = ranges.ranges;
        pushed.map(|_| !said.is_empty())
    }

    /// The same as it is stated, wherever that lies; `None` where the unit says nothing of it.
    pub(crate) fn stated_code(&self, budget: &mut Budget) -> Result<Option<Vec<(u64, u64)>>> {
        let (said, mut ranges) = (self.said_of_code()?, Vec::new());
        each_range(self, said, budget, &mut |start, end| ranges.push((start, end)))?;
        Ok((!said.is_empty()).then_some(ranges))
    }

    fn said_of_code(&self) -> Result<RangeAttributes<'s>> {
        let mut cursor = self.cursor_at(self.header.entries)?;
        let abbreviation = self.abbreviations.get(cursor.uleb()?)?;
        let mut said = RangeAttributes::default();
        for attribute in self.abbreviations.attributes(abbreviation) {
            let value = value::read(&mut cursor, attribute, self.header.encoding)?;
            match attribute.name {
                gimli::DW_AT_low_pc => said.low_pc = Some(value),
                gimli::DW_AT_high_pc => said.high_pc = Some(value),
                gimli::DW_AT_ranges => said.ranges = Some(value),
                _ => {}
            }
        }
        Ok(said)
    }

    /// Whether the entry at this place defines a function whose symbol is its name.
    pub(crate) fn defines_by_name(&self, entry: u64) -> bool {
        let code = self.cursor_at(entry).and_then(|mut cursor| cursor.uleb());
        code.and_then(|code| self.abbreviations.get(code)).is_ok_and(|abbreviation| abbreviation.defines_by_name)
    }

    /// What the unit's first entry says, all of it.
    pub(crate) fn root_attributes(&self, budget: &mut Budget) -> Result<Vec<(gimli::DwAt, Value<'s>)>> {
        let mut cursor = self.cursor_at(self.header.entries)?;
        let abbreviation = self.abbreviations.get(cursor.uleb()?)?;
        let attributes = self.abbreviations.attributes(abbreviation);
        budget.charge(attributes.len() as u64)?;
        let mut read = |attribute| value::read(&mut cursor, attribute, self.header.encoding);
        attributes.iter().map(|attribute| Ok((attribute.name, read(attribute)?))).collect()
    }

    /// Says only where the code is described: in a split unit. Clang refers to a module of types (`-gmodules`) by the same attributes, in a
    /// unit without addresses.
    pub(crate) fn is_skeleton(&self) -> bool {
        self.root.dwo_name.is_some() && !self.own.is_split && self.root.has_split_code
    }

    /// The text that a value stands for.
    pub(crate) fn text(&self, value: Value<'s>) -> Option<&'s [u8]> {
        match value {
            Value::Text(text) => Some(text),
            Value::StrOffset(offset) => DwarfSections::text(&self.own.str, offset),
            Value::LineStrOffset(offset) => DwarfSections::text(&self.own.line_str, offset),
            Value::SupplementaryText(offset) => DwarfSections::text(&self.supplementary()?.str, offset),
            Value::StrIndex(index) => {
                let size = self.header.encoding.offset_size;
                let base = self.root.str_offsets_base.unwrap_or_else(|| self.default_base());
                let base = base.checked_add(self.header.bases.str_offsets)?;
                let offset = self.table_entry(&self.own.str_offsets, base, index, size)?;
                DwarfSections::text(&self.own.str, offset)
            }
            _ => None,
        }
    }

    /// Whether a value refers to a text where the file has none. What it refers to in a supplementary file may not be at hand.
    pub(crate) fn is_outside(&self, value: Value<'s>) -> bool {
        let is_reference = matches!(value, Value::StrOffset(_) | Value::LineStrOffset(_) | Value::StrIndex(_));
        is_reference && self.text(value).is_none()
    }

    /// The address that a value stands for.
    pub(crate) fn address(&self, value: Value<'_>) -> Option<u64> {
        match value {
            Value::Address(address) => Some(address),
            Value::AddressIndex(index) => {
                let size = self.header.encoding.address_size;
                self.table_entry(&self.address_sections().addr, self.addr_base(), index, size)
            }
            Value::AddressBehind(index, offset) => self.address(Value::AddressIndex(index))?.checked_add(offset),
            Value::Expression(expression) => address_expression::address(self, expression),
            _ => None,
        }
    }

    /// The place, in the space of entries, of the entry that a value refers to.
    pub(crate) fn reference(&self, value: Value<'_>) -> Option<u64> {
        match value {
            Value::UnitReference(offset) => self.header.offset.checked_add(offset),
            Value::InfoReference(offset) => self.own.base.checked_add(self.header.bases.info)?.checked_add(offset),
            Value::SupplementaryReference(offset) => self.supplementary()?.base.checked_add(offset),
            _ => None,
        }
    }

    /// The file that dwz moved shared entries and texts to; it refers to no further one.
    fn supplementary(&self) -> Option<&'s DwarfSections<'s>> {
        self.files.supplementary().filter(|_| self.header.file == DwarfFiles::MAIN)
    }

    pub(crate) fn addr_base(&self) -> u64 {
        let owner = self.of_lines();
        owner.root.addr_base.unwrap_or_else(|| owner.default_base())
    }

    /// What offsets of range lists before DWARF 5 count from: the skeleton's base for entries of its split unit, not for
    /// its own. (<https://gcc.gnu.org/wiki/DebugFission>)
    pub(crate) fn gnu_ranges_base(&self) -> u64 {
        self.skeleton.as_ref().map_or(0, |skeleton| skeleton.root.gnu_ranges_base)
    }

    /// Where tables start behind their header if no attribute says so. (DWARF 5, 7.26 and 7.27; none before)
    fn default_base(&self) -> u64 {
        match (self.header.encoding.version, self.header.encoding.offset_size) {
            (..=4, _) => 0,
            (_, 8) => 16,
            _ => 8,
        }
    }

    fn table_entry(&self, table: &[u8], base: u64, index: u64, size: u8) -> Option<u64> {
        let at = index.checked_mul(u64::from(size))?.checked_add(base)?;
        let rest = table.get(usize::try_from(at).ok()?..)?;
        Cursor::new(rest, self.own.is_little_endian).unsigned(size).ok()
    }
}
