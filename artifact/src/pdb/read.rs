//! A PDB's functions, module after module.

use super::addresses::Addresses;
use super::cross::CrossModule;
use super::files::{Files, PATH, checksum};
use super::header::u32_at;
use super::identity::PdbFile;
use super::lines::{self, ModuleLines};
use super::names::{Function, FunctionName, PdbNames};
use super::pages::Pages;
use super::procedures::{ModuleSymbols, OUTSIDE_OF_CODE, ProcedureName};
use super::publics::{self, Public};
use super::rows::{Laid, ModuleRows, Numbered};
use crate::budget::Budget;
use crate::code_ranges::Text;
use crate::cursor::Damaged;
use crate::described::{Described, Piece};
use crate::symbols::{FunctionSymbol, Symbol};
use crate::work::Work;
use crate::{ArtifactError, Checksum};
use pdb2::{DebugInformation, FallibleIterator, Module, PDB};
use std::borrow::Cow;
use std::collections::BTreeSet;
use symseal_module::Svma;
use symseal_symx::SymbolSource;

/// An open PDB: what its functions, and its public symbols, are read from.
pub(crate) struct PdbReader<'d> {
    pdb: PDB<'d, Pages<'d>>,
    addresses: Addresses,
    globals: Option<pdb2::SymbolTable<'d>>,
    /// Original relative address and name of labels outside of procedures, once the modules were read.
    labels: Vec<(u32, Vec<u8>)>,
}

/// Why all functions are left out.
const ALL_OUTSIDE: &str = "function outside of the code, as are all of the PDB";

/// Which module gave a stretch of code, by original address.
struct Contribution {
    start: u32,
    end: u32,
    module: usize,
}

impl<'d> PdbReader<'d> {
    /// Opens the streams that others are found by.
    pub(crate) fn open(file: &PdbFile<'d>, work: &mut Work) -> Result<Self, ArtifactError> {
        let mut pdb = file.open()?;
        let addresses = Addresses::read(&mut pdb, work);
        let globals = pdb.global_symbols().ok();
        Ok(Self { pdb, addresses, globals, labels: Vec::new() })
    }

    /// The public symbols that are functions.
    pub(super) fn public_functions(file: &PdbFile<'_>) -> Result<Vec<FunctionSymbol<'static>>, ArtifactError> {
        let mut work = Work::new();
        work.budget = Budget::for_bytes(file.bytes());
        let reader = PdbReader::open(file, &mut work)?;
        let functions = reader.publics(&mut work).into_iter().filter(Public::is_function);
        Ok(functions
            .map(|public| FunctionSymbol {
                svma: Svma(public.original.into()),
                size: 0,
                name: Cow::Owned(public.name.to_vec()),
            })
            .collect())
    }

    /// The names in the list of modules.
    pub(super) fn module_names(file: &PdbFile<'_>) -> Result<BTreeSet<String>, ArtifactError> {
        let mut work = Work::new();
        let mut pdb = file.open()?;
        let Ok(information) = pdb.debug_information() else { return Ok(BTreeSet::new()) };
        Ok(modules(&information, &mut work).iter().map(|module| module.module_name().into_owned()).collect())
    }

    /// The source files of all modules, each with its checksum, as far as the work is allowed; a path comes as often as modules name it.
    pub(crate) fn source_files(file: &PdbFile<'_>, take: &mut dyn FnMut(&[u8], Option<Checksum>), work: &mut Work) {
        let Ok(mut pdb) = file.open() else { return };
        let Ok(information) = pdb.debug_information() else { return };
        let files = Files::read(&mut pdb);
        for module in &modules(&information, work) {
            let Ok(Some(stream)) = pdb.raw_stream(module.info().stream) else { continue };
            if work.budget.charge(stream.len() as u64).is_err() {
                return;
            }
            let all = lines::subsections(subsections_of(&stream, module).unwrap_or_default());
            for (_, content) in all.filter(|(kind, _)| *kind == lines::kind::FILE_CHECKSUMS) {
                for (name, kind, bytes) in lines::files(content) {
                    let Some(path) = files.text(name, PATH).filter(|path| !path.is_empty()) else { continue };
                    // One long path may be named again and again.
                    if work.budget.charge_path(path).is_err() {
                        return;
                    }
                    take(path, checksum(kind, bytes));
                }
            }
        }
    }

    /// Executable ranges of the image, relative.
    pub(crate) fn text(&self) -> Vec<std::ops::Range<u64>> {
        self.addresses.text()
    }

    /// Adds the public symbols, and labels outside of procedures, that lie in code.
    pub(crate) fn symbols<'s>(&'s self, base: Svma, text: &Text, all: &mut Vec<Symbol<'s>>, work: &mut Work) {
        let mut named = self.publics(work);
        named.extend(self.labels.iter().map(|(original, name)| Public::label(*original, name)));
        publics::symbols(&named, &self.addresses, base, text, all, work);
    }

    fn publics(&self, work: &mut Work) -> Vec<Public<'_>> {
        self.globals.as_ref().map(|table| publics::publics(table, &self.addresses, work)).unwrap_or_default()
    }

    /// Counts section headers that are not those of the PE file, whose code lies in these ranges: nothing in the PDB is where it says then.
    pub(crate) fn compare_sections(&self, image_base: Svma, code: &[std::ops::Range<u64>], work: &mut Work) {
        if !self.addresses.hold(code.iter().filter_map(|range| range.start.checked_sub(image_base.0))) {
            work.skip("section headers of a PDB that are not those of its PE file");
        }
    }

    /// Procedures, lines and inlined calls of every module; `text` is the code of the image.
    pub(crate) fn read(&mut self, image_base: Svma, text: &Text, work: &mut Work) -> Described<'static> {
        // DWARF beside it may have some that were dropped.
        let before = work.skipped.remove(OUTSIDE_OF_CODE);
        let mut laid = Laid::default();
        let mut functions = Vec::new();
        let mut cross = CrossModule::default();
        let information = self.pdb.debug_information().ok();
        if let Some(information) = &information {
            let modules = modules(information, work);
            let contributions = self.contributions(information, work);
            let mut files = Files::read(&mut self.pdb);
            let mut module_rows = ModuleReader {
                contributions: &contributions,
                image_base,
                buffers: Buffers::default(),
                cross: &mut cross,
            };
            for (number, module) in modules.iter().enumerate() {
                let read = module_rows.read(self, number, module, &mut files, &mut laid, &mut functions, work);
                if read.is_err() {
                    break;
                }
            }
        }
        if work.budget.is_exhausted() {
            work.skip("work limit reached");
        }
        // A linker does not drop all that it has: sections or symbols are not what they were.
        if functions.is_empty()
            && text.bytes() > 0
            && let Some(count) = work.skipped.remove(OUTSIDE_OF_CODE)
        {
            *work.skipped.entry(ALL_OUTSIDE).or_default() += count;
        }
        if let Some(count) = before {
            *work.skipped.entry(OUTSIDE_OF_CODE).or_default() += count;
        }
        let Laid { mut pieces, folded, losers, orphans } = laid;
        pieces.extend(folded);
        let names = self.names(functions, &cross, &pieces, work);
        let without_code = Vec::new();
        Described { source: SymbolSource::Pdb, pieces, losers, orphans, without_code, names: Box::new(names) }
    }

    fn names(&mut self, functions: Vec<Function>, cross: &CrossModule, pieces: &[Piece], work: &mut Work) -> PdbNames {
        let mut names = PdbNames::new(functions);
        names.link(&self.publics(work), work);
        names.read_inlined(&mut self.pdb, cross, pieces, work);
        names
    }

    fn contributions(&self, information: &DebugInformation<'_>, work: &mut Work) -> Vec<Contribution> {
        let mut found = Vec::new();
        let Ok(mut contributions) = information.section_contributions() else { return found };
        while let Ok(Some(contribution)) = contributions.next() {
            if work.budget.charge(1).is_err() {
                break;
            }
            if let Some(start) = self.addresses.original(contribution.offset) {
                let end = start.saturating_add(contribution.size);
                found.push(Contribution { start, end, module: contribution.module });
            }
        }
        found.sort_by_key(|contribution| contribution.start);
        // Folded code has one contribution of each module that had it; debuggers take the first.
        found.dedup_by_key(|contribution| contribution.start);
        found
    }
}

/// The part of a module's stream that has its lines and files.
fn subsections_of<'s>(stream: &'s [u8], module: &Module<'_>) -> Option<&'s [u8]> {
    let info = module.info();
    let at = u64::from(info.symbols_size).saturating_add(u64::from(info.lines_size));
    let end = at.checked_add(u64::from(info.c13_lines_size))?;
    stream.get(usize::try_from(at).ok()?..usize::try_from(end).ok()?)
}

/// The list of modules as far as it is whole.
fn modules<'m>(information: &'m DebugInformation<'_>, work: &mut Work) -> Vec<Module<'m>> {
    let mut found = Vec::new();
    let Ok(mut modules) = information.modules() else { return found };
    loop {
        match modules.next() {
            Ok(Some(module)) => found.push(module),
            Ok(None) => return found,
            Err(_) => {
                work.skip("damaged list of modules in a PDB");
                return found;
            }
        }
    }
}

/// Buffers that are kept from module to module.
#[derive(Default)]
struct Buffers {
    lines: ModuleLines,
    symbols: ModuleSymbols,
}

struct ModuleReader<'r> {
    contributions: &'r [Contribution],
    image_base: Svma,
    buffers: Buffers,
    cross: &'r mut CrossModule,
}

impl ModuleReader<'_> {
    /// Reads one module. Fails when the work that is allowed is done.
    #[expect(clippy::too_many_arguments, reason = "what one pass over a module reads and writes")]
    fn read(
        &mut self,
        reader: &mut PdbReader<'_>,
        number: usize,
        module: &Module<'_>,
        files: &mut Files,
        laid: &mut Laid,
        functions: &mut Vec<Function>,
        work: &mut Work,
    ) -> Result<(), Damaged> {
        let info = module.info();
        let Ok(unit) = u32::try_from(number) else { return Err(Damaged) };
        let stream = match reader.pdb.raw_stream(info.stream) {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(()),
            Err(_) => {
                work.skip("PDB module whose stream is missing");
                return Ok(());
            }
        };
        // Two modules that name one stream would be as much work as two streams.
        work.budget.charge(stream.len() as u64)?;
        let subsections = subsections_of(&stream, module);
        if subsections.is_none() {
            work.skip("PDB module whose stream is cut short");
        }
        if info.lines_size > 0 {
            work.skip("PDB module with line tables of before 2002 (C11)");
        }
        files.start_module();
        let addresses = &reader.addresses;
        let original = |at| addresses.original(at);
        self.buffers.lines.fill(subsections.unwrap_or_default(), &original, &mut work.budget)?;
        if self.buffers.lines.is_damaged {
            work.skip("damaged lines of a PDB module");
        }
        self.cross.name(unit, &module.module_name());
        self.cross.fill(unit, subsections.unwrap_or_default(), files, &mut work.budget)?;
        let signature = u32_at(&stream, 0);
        drop(stream);
        let Ok(Some(module_info)) = reader.pdb.module_info(module) else { return Ok(()) };
        self.buffers.symbols.fill(&module_info, signature, &self.buffers.lines, &reader.addresses, work);
        reader.labels.append(&mut self.buffers.symbols.labels);
        let numbers = self.number(number, functions, work);
        let mut rows = ModuleRows {
            unit,
            image_base: self.image_base,
            addresses: &reader.addresses,
            lines: &self.buffers.lines,
            symbols: &self.buffers.symbols,
            files,
        };
        rows.finish(&numbers, laid, work)
    }

    /// Gives the module's procedures numbers.
    fn number(&self, module: usize, functions: &mut Vec<Function>, work: &mut Work) -> Vec<Numbered> {
        let mut numbers = Vec::with_capacity(self.buffers.symbols.procedures.len());
        for procedure in &self.buffers.symbols.procedures {
            let name = match &procedure.name {
                ProcedureName::Own(name) => FunctionName::Own(work.text(name)),
                ProcedureName::PartOf(parent) => FunctionName::PartOf(*parent),
                ProcedureName::IncrementalThunk { target } => {
                    let table = self.contribution(procedure.start).map_or(procedure.start, |found| found.start);
                    FunctionName::IncrementalThunk { target: *target, offset: procedure.start.saturating_sub(table) }
                }
            };
            // A module whose code was dropped in favour of another's equal code does not own its address.
            let is_owner = self.contribution(procedure.start).is_none_or(|found| found.module == module);
            numbers.push(Numbered { function: functions.len() as u64, is_owner });
            functions.push(Function::new(procedure.start, name));
        }
        numbers
    }

    fn contribution(&self, at: u32) -> Option<&Contribution> {
        let behind = self.contributions.partition_point(|contribution| contribution.start <= at);
        self.contributions.get(behind.checked_sub(1)?).filter(|contribution| at < contribution.end)
    }
}
