//! Over the units: what each says, gathered in their order.

use super::dwarf_files::DwarfFiles;
use super::files::{self, Files};
use super::lines::Lines;
use super::names::Names;
use super::rows::UnitRows;
use super::scopes::Scopes;
use super::unit::{AbbreviationTables, Unit};
use super::unit_header::UnitHeader;
use super::walk::{UnitEntries, Walk};
use crate::code_ranges::Text;
use crate::cursor::{Damaged, Result};
use crate::described::{Described, Loser, OrphanRow, Piece};
use crate::escaped;
use crate::work::Work;
use symseal_module::Svma;
use symseal_symx::SymbolSource;

/// What was read so far, but for names.
pub(crate) struct Read {
    pub(crate) scopes: Scopes,
    pub(crate) tables: AbbreviationTables,
    /// In the order of units; within a unit by address and not overlapping.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) losers: Vec<Loser>,
    pub(crate) orphans: Vec<OrphanRow>,
}

/// Buffers that are kept from unit to unit.
#[derive(Default)]
struct Buffers {
    entries: UnitEntries,
    lines: Lines,
    rows: UnitRows,
}

/// What all units are read with.
#[derive(Clone, Copy)]
struct Reader<'s, 'r> {
    dwarf: &'s DwarfFiles<'s>,
    headers: &'r [UnitHeader],
    text: &'r Text,
    image_base: Svma,
}

/// Reads every unit.
pub(crate) fn read<'s>(dwarf: &'s DwarfFiles<'s>, text: &Text, image_base: Svma, work: &mut Work) -> Described<'s> {
    let headers = dwarf.units(work);
    let mut read = Read {
        scopes: Scopes::new(),
        tables: AbbreviationTables::default(),
        pieces: Vec::new(),
        losers: Vec::new(),
        orphans: Vec::new(),
    };
    let reader = Reader { dwarf, headers: &headers, text, image_base };
    let mut buffers = Buffers::default();
    // Units of other files are read where one of the main file leads to them.
    for (number, header) in (0_u32..).zip(&headers).filter(|(_, header)| header.file == DwarfFiles::MAIN) {
        if !header.is_type_unit && reader.unit(number, header, &mut buffers, &mut read, work).is_err() {
            work.skip("damaged unit");
        }
    }
    if work.budget.is_exhausted() {
        work.skip("work limit reached");
    }
    let Read { scopes, tables, pieces, losers, orphans } = read;
    let names = Box::new(Names::new(dwarf, headers, scopes, tables));
    Described { source: SymbolSource::Dwarf, pieces, losers, orphans, names }
}

impl<'s> Reader<'s, '_> {
    fn unit(
        &self,
        number: u32,
        header: &UnitHeader,
        buffers: &mut Buffers,
        read: &mut Read,
        work: &mut Work,
    ) -> Result<()> {
        let mut unit = Unit::open(self.dwarf, header, &mut read.tables, &mut work.budget)?;
        let mut walked = number;
        if unit.is_skeleton() {
            match header.partner.and_then(|partner| Some((partner, self.headers.get(partner as usize)?))) {
                Some((partner, split)) => {
                    unit = Unit::open_split(self.dwarf, split, unit, &mut read.tables, &mut work.budget)?;
                    walked = partner;
                }
                None => missing(&unit, work),
            }
        }
        let of_lines = unit.of_lines();
        let mut files = Files::default();
        let program = files::program(of_lines, work);
        let Buffers { entries, lines, rows } = buffers;
        entries.clear();
        read.scopes.start_unit(walked);
        let mut walk = Walk::new(&unit, self.text, entries, &mut read.scopes, work);
        let walked = walk.run(&mut |file, work| {
            let header = program.as_ref()?.header();
            Some(files.path(of_lines, header, file, work))
        });
        read.scopes.end_unit();
        if walked == Err(Damaged) {
            work.skip("damaged entry");
        }
        // A partial unit names the line table of a unit that imports it, for the files in it.
        let has_lines = !unit.root.is_partial || !entries.functions.is_empty();
        lines.fill(of_lines, program.filter(|_| has_lines), self.text, &mut files, work);
        rows.finish(number, entries, lines, self.image_base, &mut work.budget, read);
        Ok(())
    }
}

/// Counts a unit whose entries are in a file that was not given.
fn missing(skeleton: &Unit<'_>, work: &mut Work) {
    work.skip("unit in a split DWARF file (.dwo, .dwp) that was not given");
    let name = skeleton.root.dwo_name.unwrap_or_default();
    if work.budget.charge(name.len() as u64 + 1).is_ok() {
        work.missing_split.insert(escaped(name).into_owned());
    }
}
