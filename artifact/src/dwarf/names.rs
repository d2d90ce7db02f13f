//! Names of functions, found through the entries that they refer to. (DWARF 5, 2.13.2 and 3.3.8)

use super::files::{self, Files};
use super::scopes::Scopes;
use super::sections::{DwarfSections, Slice};
use super::unit::{AbbreviationTables, Unit, UnitHeader};
use super::value::{self, Value};
use crate::budget::Budget;
use crate::cursor::{Damaged, Result};
use crate::described::{FunctionNames, Naming};
use crate::work::Work;
use gimli::{DwLang, IncompleteLineProgram};
use std::collections::HashMap;
use symseal_symx::StrId;

/// From an entry to its origin or specification, to that one's, and so on; some files have circles.
const LONGEST_CHAIN: usize = 16;

/// Units that are kept open. One costs some ten kilobytes, mostly abbreviations.
const MOST_OPEN_UNITS: usize = 1024;

/// Reads names from entries anywhere in `.debug_info`.
pub(crate) struct Names<'s> {
    sections: &'s DwarfSections<'s>,
    headers: Vec<UnitHeader>,
    scopes: Scopes,
    tables: AbbreviationTables,
    units: HashMap<usize, OpenUnit<'s>>,
    inlined: HashMap<u64, FunctionNames>,
}

struct OpenUnit<'s> {
    unit: Unit<'s>,
    files: Files,
    program: Option<IncompleteLineProgram<Slice<'s>>>,
}

/// What the entries of a chain say, the first one that says it.
#[derive(Default)]
struct Chain<'s> {
    name: Option<(&'s [u8], u64)>,
    separator: &'static str,
    linkage: Option<&'s [u8]>,
    file: Option<StrId>,
    line: Option<u32>,
}

impl<'s> Names<'s> {
    pub(crate) fn new(
        sections: &'s DwarfSections<'s>,
        headers: Vec<UnitHeader>,
        scopes: Scopes,
        tables: AbbreviationTables,
    ) -> Self {
        Self { sections, headers, scopes, tables, units: HashMap::new(), inlined: HashMap::new() }
    }

    fn names(&mut self, entry: u64, with_file: bool, work: &mut Work) -> FunctionNames {
        let mut chain = Chain::default();
        if self.follow(entry, with_file, &mut chain, work).is_err() {
            work.skip("damaged reference to a name");
        }
        let mut names = FunctionNames {
            file: chain.file.unwrap_or_default(),
            line: chain.line.unwrap_or_default(),
            ..FunctionNames::default()
        };
        if let Some((name, named)) = chain.name {
            names.symbol = work.text(name);
            let mut qualified = self.scopes.prefix(&self.headers, named, chain.separator).into_bytes();
            names.name = if qualified.is_empty() {
                names.symbol
            } else {
                qualified.extend_from_slice(name);
                work.text(&qualified)
            };
        }
        if let Some(linkage) = chain.linkage {
            names.symbol = work.text(linkage);
            names.has_linkage_name = true;
            if names.name.is_empty() {
                names.name = names.symbol;
            }
        }
        names
    }

    fn follow(&mut self, entry: u64, with_file: bool, chain: &mut Chain<'s>, work: &mut Work) -> Result<()> {
        let mut entry = entry;
        for _ in 0..LONGEST_CHAIN {
            let sections = self.sections;
            let open = self.open(entry, &mut work.budget)?;
            let unit = &open.unit;
            let mut cursor = unit.cursor_at(sections, entry)?;
            let abbreviation = unit.abbreviations.get(cursor.uleb()?)?;
            let attributes = unit.abbreviations.attributes(abbreviation);
            work.budget.charge(attributes.len() as u64 + 1)?;
            let mut next = None;
            let mut file = None;
            for attribute in attributes {
                let value = value::read(&mut cursor, attribute, unit.header.encoding)?;
                match attribute.name {
                    gimli::DW_AT_name if chain.name.is_none() => {
                        if value == Value::Supplementary {
                            work.skip("name in a supplementary file (dwz)");
                        }
                        chain.name = unit.text(sections, value).map(|name| (name, entry));
                        chain.separator = separator(unit.root.language);
                    }
                    gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name if chain.linkage.is_none() => {
                        chain.linkage = unit.text(sections, value);
                    }
                    gimli::DW_AT_decl_file => file = Some(value),
                    gimli::DW_AT_decl_line if chain.line.is_none() => {
                        if let Value::Number(line) = value {
                            chain.line = u32::try_from(line).ok();
                        }
                    }
                    gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                        if value == Value::Supplementary {
                            work.skip("function in a supplementary file (dwz)");
                        }
                        next = unit.reference(value);
                    }
                    _ => {}
                }
            }
            if with_file
                && chain.file.is_none()
                && let Some(Value::Number(number)) = file
            {
                chain.file = open.path(sections, number, work);
            }
            let Some(origin) = next else { return Ok(()) };
            let is_complete = chain.name.is_some()
                && chain.linkage.is_some()
                && (!with_file || (chain.file.is_some() && chain.line.is_some()));
            if is_complete {
                return Ok(());
            }
            entry = origin;
        }
        Ok(())
    }

    /// The unit that holds the entry.
    fn open(&mut self, entry: u64, budget: &mut Budget) -> Result<&mut OpenUnit<'s>> {
        let number = self.headers.partition_point(|header| header.offset <= entry).checked_sub(1).ok_or(Damaged)?;
        if !self.units.contains_key(&number) && self.units.len() >= MOST_OPEN_UNITS {
            self.units.clear();
        }
        match self.units.entry(number) {
            std::collections::hash_map::Entry::Occupied(open) => Ok(open.into_mut()),
            std::collections::hash_map::Entry::Vacant(free) => {
                let header = self.headers.get(number).ok_or(Damaged)?;
                let unit = Unit::open(self.sections, header, &mut self.tables, budget)?;
                Ok(free.insert(OpenUnit { unit, files: Files::default(), program: None }))
            }
        }
    }
}

impl Naming for Names<'_> {
    fn function(&mut self, entry: u64, work: &mut Work) -> FunctionNames {
        self.names(entry, true, work)
    }

    /// Remembered, as the same function is inlined in many places.
    fn inlined(&mut self, origin: u64, work: &mut Work) -> FunctionNames {
        if let Some(known) = self.inlined.get(&origin) {
            return *known;
        }
        let names = self.names(origin, false, work);
        self.inlined.insert(origin, names);
        names
    }
}

impl<'s> OpenUnit<'s> {
    fn path(&mut self, sections: &'s DwarfSections<'s>, number: u64, work: &mut Work) -> Option<StrId> {
        if self.program.is_none() {
            self.program = files::program(sections, &self.unit)?.ok();
        }
        let header = self.program.as_ref()?.header();
        Some(self.files.path(sections, &self.unit, header, number, work))
    }
}

/// What a language writes between a namespace and a name.
fn separator(language: Option<DwLang>) -> &'static str {
    match language {
        Some(
            gimli::DW_LANG_D
            | gimli::DW_LANG_Java
            | gimli::DW_LANG_Go
            | gimli::DW_LANG_Swift
            | gimli::DW_LANG_OCaml
            | gimli::DW_LANG_Haskell
            | gimli::DW_LANG_Modula2
            | gimli::DW_LANG_Modula3
            | gimli::DW_LANG_Python,
        ) => ".",
        _ => "::",
    }
}
