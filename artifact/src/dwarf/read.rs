//! Over the units: what each says, gathered in their order.

use super::at_zero::{AtZero, Claim, keep_best};
use super::dwarf_files::DwarfFiles;
use super::files::{self, Files};
use super::lines::Lines;
use super::lost_addresses::{self, Suspect};
use super::names::Names;
use super::orphans::orphans;
use super::own_lines::own_lines;
use super::rows::UnitRows;
use super::scopes::Scopes;
use super::split_fit::{OF_ANOTHER_BUILD, misfits_of};
use super::unit::{AbbreviationTables, Unit};
use super::unit_header::UnitHeader;
use super::walk::{REST_OF_UNIT, UnitEntries, Walk};
use crate::code_ranges::Text;
use crate::cursor::{Damaged, Result};
use crate::described::{Described, Loser, OrphanRow, Piece};
use crate::escaped;
use crate::in_order::in_order;
use crate::work::Work;
use hashbrown::{HashMap, HashSet};
use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use symseal_module::Svma;
use symseal_symx::{StrId, SymbolSource};

/// Bytes of entries that are read in one pass at least. Passes are the same whatever the number of threads, so that the
/// order in which texts get their numbers is; a thread takes one after the other.
const PASS_BYTES: u64 = 256 << 10;

/// Assembly, as the standard's list of languages has it. (<https://dwarfstd.org/languages.html>)
const DW_LANG_ASSEMBLY: gimli::DwLang = gimli::DwLang(0x3d);

/// What was read so far, but for names.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) scopes: Scopes,
    pub(crate) tables: AbbreviationTables,
    /// Files that were named so far, by the number of the unit whose line table has them.
    pub(crate) files: HashMap<u32, Files>,
    /// In the order of units; within a unit by address and not overlapping.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) losers: Vec<Loser>,
    pub(crate) orphans: Vec<OrphanRow>,
    pub(crate) without_code: Vec<u64>,
    /// Functions at address 0, as far as their units tell, where that is code.
    at_zero: Vec<Claim>,
    /// Units that may have lost addresses.
    suspects: Vec<Suspect>,
}

/// The code that is described.
#[derive(Clone, Copy)]
pub(crate) struct Code<'c> {
    pub(crate) text: &'c Text,
    pub(crate) image_base: Svma,
    /// Where address 0 is code, and symbols tell of it.
    pub(crate) at_zero: Option<&'c AtZero>,
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
    code: Code<'r>,
}

/// Reads every unit, on so many threads.
pub(crate) fn read<'s>(
    dwarf: &'s DwarfFiles<'s>,
    code: Code<'_>,
    threads: NonZeroUsize,
    work: &mut Work,
) -> Described<'s> {
    let headers = dwarf.units(work);
    dwarf.look_at_range_lists(&headers, work);
    let passes = passes(&headers);
    read_passes(dwarf, headers, code, &passes, threads, work)
}

/// Reads the units with these numbers, which rise.
pub(crate) fn read_units<'s>(
    dwarf: &'s DwarfFiles<'s>,
    headers: Vec<UnitHeader>,
    code: Code<'_>,
    units: impl Iterator<Item = u32>,
    work: &mut Work,
) -> Described<'s> {
    let passes: Vec<Range<u32>> = units.map(|unit| unit..unit.saturating_add(1)).collect();
    read_passes(dwarf, headers, code, &passes, NonZeroUsize::MIN, work)
}

fn read_passes<'s>(
    dwarf: &'s DwarfFiles<'s>,
    headers: Vec<UnitHeader>,
    code: Code<'_>,
    passes: &[Range<u32>],
    threads: NonZeroUsize,
    work: &mut Work,
) -> Described<'s> {
    let reader = Reader { dwarf, headers: &headers, code };
    let mut read = Read::default();
    let before = work.budget.of_part();
    let make = |buffers: &mut Buffers, pass: usize| {
        let mut work = Work { budget: before.of_part(), ..Work::new() };
        let units = passes.get(pass).cloned().unwrap_or_default();
        (reader.pass(units, buffers, &mut work), work)
    };
    let end = in_order(passes.len(), threads, make, |(part, part_work)| match work.absorb(part_work, &before) {
        Ok(texts) => {
            read.absorb(part, &texts);
            ControlFlow::Continue(())
        }
        Err(Damaged) => ControlFlow::Break(()),
    });
    if end.is_break() || work.budget.is_exhausted() {
        work.skip("work limit reached");
    }
    read.settle_at_zero();
    for _ in 0..lost_addresses::lost(&read.suspects, &read.pieces) {
        work.skip("functions whose addresses are not there, beside lines that nothing else has");
    }
    let Read { scopes, tables, files, pieces, losers, orphans, without_code, .. } = read;
    let names = Box::new(Names::new(dwarf, Cow::Owned(headers), scopes, tables, files));
    Described { source: SymbolSource::Dwarf, pieces, losers, orphans, without_code, names }
}

/// The numbers of the main file's units, in passes of some size. Units of other files are read where one of the main
/// file leads to them.
fn passes(headers: &[UnitHeader]) -> Vec<Range<u32>> {
    let bytes = |header: &UnitHeader| header.end.saturating_sub(header.offset);
    let mut passes = Vec::new();
    let (mut start, mut end, mut size) = (0, 0, 0_u64);
    let of_main = headers.iter().take_while(|header| header.file == DwarfFiles::MAIN);
    for (number, header) in (1_u32..).zip(of_main) {
        let partner = header.partner.and_then(|partner| headers.get(partner as usize));
        size = size.saturating_add(bytes(header)).saturating_add(partner.map_or(0, bytes));
        if size >= PASS_BYTES {
            passes.push(start..number);
            (start, size) = (number, 0);
        }
        end = number;
    }
    if start < end {
        passes.push(start..end);
    }
    passes
}

impl Read {
    /// Takes over what another pass read, with its texts' numbers here.
    fn absorb(&mut self, part: Self, texts: &[StrId]) {
        let Self { scopes, tables, files, mut pieces, losers, mut orphans, without_code, at_zero, suspects } = part;
        let text = |text: &mut StrId| *text = texts.get(text.0 as usize).copied().unwrap_or_default();
        for piece in &mut pieces {
            piece.rows.iter_mut().for_each(|row| text(&mut row.file));
            piece.sites.iter_mut().for_each(|site| text(&mut site.call_file));
        }
        orphans.iter_mut().for_each(|row| text(&mut row.file));
        for (unit, mut files) in files {
            files.renumber(text);
            self.files.insert(unit, files);
        }
        self.scopes.absorb(scopes);
        self.tables.absorb(tables);
        self.pieces.append(&mut pieces);
        self.losers.extend(losers);
        self.without_code.extend(without_code);
        self.orphans.append(&mut orphans);
        self.at_zero.extend(at_zero);
        self.suspects.extend(suspects);
    }

    /// Of the functions at 0 those of one unit may agree better with the symbols there than those of another one.
    fn settle_at_zero(&mut self) {
        let all = std::mem::take(&mut self.at_zero);
        let mut best = all.clone();
        keep_best(&mut best);
        if best.len() < all.len() {
            let functions = |claims: Vec<Claim>| claims.into_iter().map(|claim| claim.function).collect::<HashSet<_>>();
            let (all, best) = (functions(all), functions(best));
            let is_beaten = |piece: &Piece| all.contains(&piece.function) && !best.contains(&piece.function);
            self.pieces.retain(|piece| piece.start != 0 || !is_beaten(piece));
        }
    }
}

impl<'s> Reader<'s, '_> {
    fn pass(&self, units: Range<u32>, buffers: &mut Buffers, work: &mut Work) -> Read {
        let mut read = Read::default();
        for number in units {
            let Some(header) = self.headers.get(number as usize) else { break };
            if header.type_unit.is_none() && self.unit(number, header, buffers, &mut read, work).is_err() {
                work.skip("damaged unit");
            }
        }
        read
    }

    fn unit(
        &self,
        number: u32,
        header: &UnitHeader,
        buffers: &mut Buffers,
        read: &mut Read,
        work: &mut Work,
    ) -> Result<()> {
        let mut unit = Unit::open(self.dwarf, header, &mut read.tables, &mut work.budget)?;
        let mut files = Files::default();
        let program = files::program(&unit, work);
        let Buffers { entries, lines, rows } = buffers;
        let mut path =
            |of_lines: &Unit<'s>, file, work: &mut Work| Some(files.path(of_lines, program.as_ref()?, file, work));
        let mut is_read = false;
        if unit.is_skeleton() {
            match header.partner.and_then(|partner| Some((partner, self.headers.get(partner as usize)?))) {
                Some((partner, split)) => {
                    let skipped = work.skipped.clone();
                    let split = Unit::open_split(self.dwarf, split, unit.clone(), &mut read.tables, &mut work.budget)?;
                    self.walk(&split, partner, &mut path, entries, &mut read.scopes, work);
                    // What cannot be compared is believed.
                    let misfits = misfits_of(self.dwarf, &unit, entries, &mut work.budget).unwrap_or_default();
                    if misfits.functions == 0 {
                        unit = split;
                        is_read = true;
                    } else {
                        work.skipped = skipped;
                        work.skip(OF_ANOTHER_BUILD);
                    }
                }
                None => missing(&unit, work),
            }
        }
        if !is_read {
            self.walk(&unit, number, &mut path, entries, &mut read.scopes, work);
        }
        let of_lines = unit.of_lines();
        if let Some(reason) = unit.root.lacks.or(of_lines.root.lacks) {
            work.skip(reason);
        }
        // What GNU and LLVM write, and the standard has since.
        entries.are_assembled = matches!(unit.root.language, Some(gimli::DW_LANG_Mips_Assembler | DW_LANG_ASSEMBLY));
        // A partial unit names the line table of a unit that imports it, for the files in it.
        let has_lines = !unit.root.is_partial || !entries.functions.is_empty();
        lines.fill(of_lines, program.as_ref().filter(|_| has_lines), self.code.text, &mut files, work);
        self.settle_at_zero(&unit, entries, lines, read, work);
        self.order(lines, entries, read, work);
        let first_piece = read.pieces.len();
        rows.finish(number, entries, lines, self.code.image_base, &mut work.budget, read);
        let pieces = read.pieces.get(first_piece..).unwrap_or_default();
        read.suspects.extend(Suspect::of(entries, pieces, lines));
        read.orphans.append(&mut orphans(of_lines, entries, pieces, lines, self.code.text, work));
        read.without_code.extend_from_slice(&entries.without_code);
        read.files.insert(number, files);
        Ok(())
    }

    /// Reads the entries of a unit, whose number that is.
    fn walk(
        &self,
        unit: &Unit<'s>,
        number: u32,
        path: &mut dyn FnMut(&Unit<'s>, u64, &mut Work) -> Option<StrId>,
        entries: &mut UnitEntries,
        scopes: &mut Scopes,
        work: &mut Work,
    ) {
        entries.clear();
        scopes.start_unit(number);
        let mut walk = Walk::new(unit, self.code.text, entries, scopes, work);
        let walked = walk.run(&mut |file, work| path(unit.of_lines(), file, work));
        scopes.end_unit();
        if walked == Err(Damaged) {
            work.skip(REST_OF_UNIT);
        }
    }

    /// Leaves at address 0 what is there. It takes the names of the functions that claim it.
    fn settle_at_zero(
        &self,
        unit: &Unit<'_>,
        entries: &mut UnitEntries,
        lines: &mut Lines,
        read: &mut Read,
        work: &mut Work,
    ) {
        let Some(at_zero) = self.code.at_zero else { return };
        let is_claimed = entries.ranges.iter().any(|(start, _)| *start == 0);
        let mut claims = Vec::new();
        if is_claimed {
            let mut names = self.names(std::mem::take(&mut read.tables));
            claims = at_zero.settle(unit, entries, &mut names, work);
            read.tables = names.into_tables();
        }
        at_zero.settle_lines(is_claimed, &claims, entries, lines);
        read.at_zero.extend(claims);
    }

    /// Names of entries whose scopes do not count.
    fn names(&self, tables: AbbreviationTables) -> Names<'_> {
        Names::new(self.dwarf, Cow::Borrowed(self.headers), Scopes::default(), tables, HashMap::new())
    }

    /// Puts the sequences of a unit in order. Where some overlap, it takes the declarations of the functions there.
    fn order(&self, lines: &mut Lines, entries: &UnitEntries, read: &mut Read, work: &mut Work) {
        if lines.are_apart() {
            return;
        }
        let contested = lines.contested();
        if contested.is_empty() {
            return lines.order(&[], &[]);
        }
        // Names are asked for again, and count then what they miss.
        let skipped = work.skipped.clone();
        let mut names = self.names(std::mem::take(&mut read.tables));
        let own = own_lines(&contested, entries, lines, &mut names, work);
        read.tables = names.into_tables();
        work.skipped = skipped;
        lines.order(&contested, &own);
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
