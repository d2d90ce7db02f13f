//! Names of functions, found through the entries that they refer to. (DWARF 5, 2.13.2 and 3.3.8)

use super::dwarf_files::DwarfFiles;
use super::files::{self, Files, Program};
use super::scope_name::{SaidOfScope, ScopeName, said_of_scope};
use super::scopes::{MOST_NESTED, Outer, ROOT, ScopeId, Scopes};
use super::unit::{AbbreviationTables, NAME_OUTSIDE, Unit};
use super::unit_header::UnitHeader;
use super::value::{self, Value};
use super::walk::{REST_OF_UNIT, UnitEntries, Walk};
use crate::budget::Budget;
use crate::code_ranges::Text;
use crate::cursor::{Damaged, Result};
use crate::described::{FunctionNames, InlinedNames, Naming};
use crate::escaped;
use crate::work::Work;
use gimli::DwLang;
use hashbrown::HashMap;
use std::borrow::Cow;
use std::cell::Cell;
use symseal_symx::StrId;

/// From an entry to its origin or specification, to that one's, and so on; some files have circles.
const LONGEST_CHAIN: usize = 16;

/// Units that are kept open. One costs some five kilobytes, mostly abbreviations.
const MOST_OPEN_UNITS: usize = 1024;

/// Reads names from entries in any file.
pub(crate) struct Names<'s> {
    dwarf: &'s DwarfFiles<'s>,
    headers: Cow<'s, [UnitHeader]>,
    scopes: Scopes,
    tables: AbbreviationTables,
    /// Files that lines and calls named, by the number of the unit whose line table has them.
    files: HashMap<u32, Files>,
    units: HashMap<u32, OpenUnit<'s>>,
    /// The unit that held an entry last.
    last_unit: Cell<u32>,
    inlined: HashMap<u64, InlinedNames>,
    /// Names of scopes that stand elsewhere, once looked up.
    scope_names: HashMap<ScopeName<StrId>, Option<StrId>>,
    type_places: Option<HashMap<u64, u64>>,
    /// The names around one, innermost first, and all of it in one: kept so that not every name takes memory of its own.
    around: Vec<StrId>,
    qualified: Vec<u8>,
}

struct OpenUnit<'s> {
    unit: Unit<'s>,
    files: Files,
    program: Option<Program<'s>>,
}

/// What the entries of a chain say, the first one that says it.
#[derive(Default)]
struct Chain<'s> {
    name: Option<(&'s [u8], u64)>,
    language: Option<DwLang>,
    linkage: Option<&'s [u8]>,
    file: Option<StrId>,
    line: Option<u32>,
}

impl<'s> Names<'s> {
    pub(crate) fn new(
        dwarf: &'s DwarfFiles<'s>,
        headers: Cow<'s, [UnitHeader]>,
        scopes: Scopes,
        tables: AbbreviationTables,
        files: HashMap<u32, Files>,
    ) -> Self {
        Self {
            dwarf,
            headers,
            scopes,
            tables,
            files,
            units: HashMap::new(),
            last_unit: Cell::new(0),
            inlined: HashMap::new(),
            scope_names: HashMap::new(),
            type_places: None,
            around: Vec::new(),
            qualified: Vec::new(),
        }
    }

    /// The abbreviation tables, those that were read since among them.
    pub(crate) fn into_tables(self) -> AbbreviationTables {
        self.tables
    }

    /// File and line of a function's declaration.
    pub(crate) fn declaration(&mut self, entry: u64, work: &mut Work) -> Option<(StrId, u32)> {
        let mut chain = Chain::default();
        // What was found before a damaged reference holds.
        let _ = self.follow(entry, true, &mut chain, work);
        Some((chain.file?, chain.line?))
    }

    /// A function's linkage name, and its name without its scopes.
    pub(crate) fn called(&mut self, entry: u64, work: &mut Work) -> (Option<String>, Option<String>) {
        let mut chain = Chain::default();
        let _ = self.follow(entry, false, &mut chain, work);
        let mut text = |bytes: &[u8]| {
            let charged = work.budget.charge(bytes.len() as u64);
            charged.ok().map(|()| escaped(bytes).into_owned())
        };
        (chain.linkage.and_then(&mut text), chain.name.and_then(|(name, _)| text(name)))
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
        // With a linkage name and scopes nobody asks for the bare one.
        let mut bare = StrId::EMPTY;
        if let Some((name, named)) = chain.name {
            let separator = chain.language.map_or("::", separator);
            let around = self.find_around(named, work);
            if chain.linkage.is_none() || (around.is_some() && self.around.is_empty()) {
                bare = work.text(name);
            }
            match around {
                Some(()) if self.around.is_empty() => names.name = bare,
                Some(()) => names.name = work.text(self.qualify(name, separator)),
                // A guess would be a wrong name. The symbol says all of it.
                None => work.skip(
                    "name of the namespace or type around a function, in a file that was not given or is damaged",
                ),
            }
        }
        names.symbol = bare;
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
            let open = self.open(entry, &mut work.budget)?;
            let unit = &open.unit;
            // Partial units may have none: then it is that of the unit that led here.
            chain.language = chain.language.or(unit.root.language);
            let mut cursor = unit.cursor_at(entry)?;
            let abbreviation = unit.abbreviations.get(cursor.uleb()?)?;
            let attributes = unit.abbreviations.attributes(abbreviation);
            work.budget.charge(attributes.len() as u64 + 1)?;
            let mut next = None;
            let mut file = None;
            for attribute in attributes {
                let value = value::read(&mut cursor, attribute, unit.header.encoding)?;
                match attribute.name {
                    gimli::DW_AT_name if chain.name.is_none() => {
                        chain.name = unit.text(value).map(|name| (name, entry));
                        if chain.name.is_none() && matches!(value, Value::SupplementaryText(_)) {
                            work.skip("name in a supplementary file (dwz)");
                        }
                        if chain.name.is_none() && unit.is_outside(value) {
                            work.skip(NAME_OUTSIDE);
                        }
                    }
                    gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name if chain.linkage.is_none() => {
                        chain.linkage = unit.text(value);
                        if chain.linkage.is_none() && unit.is_outside(value) {
                            work.skip(NAME_OUTSIDE);
                        }
                    }
                    gimli::DW_AT_decl_file => file = Some(value),
                    gimli::DW_AT_decl_line if chain.line.is_none() => {
                        if let Value::Number(line) = value {
                            chain.line = u32::try_from(line).ok();
                        }
                    }
                    gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                        next = unit.reference(value);
                        if next.is_none() && matches!(value, Value::SupplementaryReference(_)) {
                            work.skip("function in a supplementary file (dwz)");
                        }
                    }
                    _ => {}
                }
            }
            if with_file
                && chain.file.is_none()
                && let Some(Value::Number(number)) = file
            {
                chain.file = open.path(number, work);
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

    /// The names around an entry, for [`Self::qualify`]. None where one of them is not known.
    fn find_around(&mut self, entry: u64, work: &mut Work) -> Option<()> {
        self.around.clear();
        let mut scope = self.scope_of(entry, work);
        while scope != ROOT && self.around.len() < MOST_NESTED {
            let Some((name, outer)) = self.scopes.get(scope) else { break };
            let name = self.scope_name(name, work)?;
            self.around.push(name);
            scope = match outer {
                Outer::Scope(outer) => outer,
                Outer::Entry(entry) => self.scope_of(entry, work),
            };
        }
        Some(())
    }

    /// A name behind those that were found around it, outermost first, each ended by `separator`.
    fn qualify(&mut self, name: &[u8], separator: &str) -> &[u8] {
        self.qualified.clear();
        for around in self.around.iter().rev() {
            self.qualified.extend_from_slice(self.scopes.text(*around).as_bytes());
            self.qualified.extend_from_slice(separator.as_bytes());
        }
        self.qualified.extend_from_slice(name);
        &self.qualified
    }

    /// A scope's name, as a text of the scopes; None where it is not known. What stands elsewhere is remembered.
    fn scope_name(&mut self, name: ScopeName<StrId>, work: &mut Work) -> Option<StrId> {
        if let ScopeName::Text(text) = name {
            return Some(text);
        }
        if let Some(known) = self.scope_names.get(&name) {
            return *known;
        }
        let found = self.name_elsewhere(name, work);
        self.scope_names.insert(name, found);
        found
    }

    fn name_elsewhere(&mut self, name: ScopeName<StrId>, work: &mut Work) -> Option<StrId> {
        let mut name = name;
        for _ in 0..LONGEST_CHAIN {
            let entry = match name {
                ScopeName::Text(text) => return Some(text),
                ScopeName::Entry(entry) => entry,
                ScopeName::Type(signature) => *self.type_places().get(&signature)?,
                ScopeName::Unknown => return None,
            };
            let said = self.said_of_scope(entry, &mut work.budget).ok()?;
            name = said.name.map(|text| self.scopes.intern(&text));
        }
        None
    }

    fn said_of_scope(&mut self, entry: u64, budget: &mut Budget) -> Result<SaidOfScope<'s>> {
        let header = self.unit_of(entry).and_then(|number| self.headers.get(number as usize)).ok_or(Damaged)?;
        if header.type_unit.is_some() {
            // Each is asked once, and there are too many to keep them open.
            let unit = Unit::open(self.dwarf, header, &mut self.tables, budget)?;
            return said_of_scope(&unit, entry, budget);
        }
        said_of_scope(&self.open(entry, budget)?.unit, entry, budget)
    }

    /// Places of the types that have units of their own, by signature; of several with one signature the first.
    fn type_places(&mut self) -> &HashMap<u64, u64> {
        self.type_places.get_or_insert_with(|| {
            let mut places = HashMap::new();
            for unit in self.headers.iter().filter_map(|header| header.type_unit) {
                places.entry(unit.signature).or_insert(unit.entry);
            }
            places
        })
    }

    /// The scope in which the entry stands. Units that hold no code, as those of a supplementary file, which many
    /// modules share, are read for their scopes when one is asked for.
    fn scope_of(&mut self, entry: u64, work: &mut Work) -> ScopeId {
        let Some(number) = self.unit_of(entry) else { return ROOT };
        if !self.scopes.has_unit(number)
            && let Ok(open) = self.open(entry, &mut work.budget)
        {
            // Reading the scopes needs the unit and the scopes at once.
            let unit = open.unit.clone();
            let mut entries = UnitEntries::default();
            let no_code = Text::new(Vec::new());
            self.scopes.start_unit(number);
            let mut walk = Walk::new(&unit, &no_code, &mut entries, &mut self.scopes, work);
            if walk.run(&mut |_, _| None).is_err() {
                work.skip(REST_OF_UNIT);
            }
            self.scopes.end_unit();
        }
        let offset = self.headers.get(number as usize).and_then(|header| entry.checked_sub(header.offset));
        offset.map_or(ROOT, |offset| self.scopes.scope_of(number, offset))
    }

    fn unit_of(&self, entry: u64) -> Option<u32> {
        let starts_by = |at: usize| self.headers.get(at).is_some_and(|header| header.offset <= entry);
        // Most entries lead to others of their own unit.
        let last = self.last_unit.get();
        if starts_by(last as usize) && !starts_by(last as usize + 1) {
            return Some(last);
        }
        let number = self.headers.partition_point(|header| header.offset <= entry).checked_sub(1)?;
        let number = u32::try_from(number).ok()?;
        self.last_unit.set(number);
        Some(number)
    }

    /// The unit that holds the entry.
    fn open(&mut self, entry: u64, budget: &mut Budget) -> Result<&mut OpenUnit<'s>> {
        let number = self.unit_of(entry).ok_or(Damaged)?;
        if self.units.len() >= MOST_OPEN_UNITS && !self.units.contains_key(&number) {
            self.units.clear();
        }
        match self.units.entry(number) {
            hashbrown::hash_map::Entry::Occupied(open) => Ok(open.into_mut()),
            hashbrown::hash_map::Entry::Vacant(free) => {
                let header = self.headers.get(number as usize).ok_or(Damaged)?;
                let partner = header.partner.and_then(|partner| self.headers.get(partner as usize));
                let unit = match partner {
                    Some(skeleton) if header.file != DwarfFiles::MAIN => {
                        let skeleton = Unit::open(self.dwarf, skeleton, &mut self.tables, budget)?;
                        Unit::open_split(self.dwarf, header, skeleton, &mut self.tables, budget)?
                    }
                    _ => Unit::open(self.dwarf, header, &mut self.tables, budget)?,
                };
                let of_lines = header.partner.filter(|_| header.file != DwarfFiles::MAIN).unwrap_or(number);
                // A unit that is opened again reads its names of files again, which is seldom.
                let files = self.files.remove(&of_lines).unwrap_or_default();
                Ok(free.insert(OpenUnit { unit, files, program: None }))
            }
        }
    }
}

impl Naming for Names<'_> {
    fn function(&mut self, entry: u64, work: &mut Work) -> FunctionNames {
        self.names(entry, true, work)
    }

    /// Remembered, as the same function is inlined in many places.
    fn inlined(&mut self, origin: u64, work: &mut Work) -> InlinedNames {
        if let Some(known) = self.inlined.get(&origin) {
            return *known;
        }
        let names = self.names(origin, false, work).into();
        self.inlined.insert(origin, names);
        names
    }

    /// That of the entry itself: nothing is followed.
    fn bare(&mut self, entry: u64, work: &mut Work) -> Option<String> {
        let unit = &self.open(entry, &mut work.budget).ok()?.unit;
        let mut cursor = unit.cursor_at(entry).ok()?;
        let abbreviation = unit.abbreviations.get(cursor.uleb().ok()?).ok()?;
        for attribute in unit.abbreviations.attributes(abbreviation) {
            let value = value::read(&mut cursor, attribute, unit.header.encoding).ok()?;
            if attribute.name == gimli::DW_AT_name {
                let name = unit.text(value)?;
                work.budget.charge(name.len() as u64).ok()?;
                return Some(escaped(name).into_owned());
            }
        }
        None
    }
}

impl OpenUnit<'_> {
    fn path(&mut self, number: u64, work: &mut Work) -> Option<StrId> {
        let unit = self.unit.of_lines();
        if let Some(known) = self.files.known(number) {
            return Some(known);
        }
        if self.program.is_none() {
            self.program = files::program(unit, work);
        }
        Some(self.files.path(unit, self.program.as_ref()?, number, work))
    }
}

/// What a language writes between a namespace and a name.
fn separator(language: DwLang) -> &'static str {
    match language {
        gimli::DW_LANG_D
        | gimli::DW_LANG_Java
        | gimli::DW_LANG_Go
        | gimli::DW_LANG_Swift
        | gimli::DW_LANG_OCaml
        | gimli::DW_LANG_Haskell
        | gimli::DW_LANG_Modula2
        | gimli::DW_LANG_Modula3
        | gimli::DW_LANG_Python => ".",
        _ => "::",
    }
}
