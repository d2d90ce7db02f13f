//! A module's functions as one stream.

use crate::beside::beside;
use crate::budget::Budget;
use crate::code_ranges::Text;
use crate::descriptors::Descriptors;
use crate::dwarf::{self, AtZero, Code, DwarfFiles, Selected};
use crate::elf::Elf;
use crate::go::{self, GoTable};
use crate::headers::ObjectHeaders;
use crate::merge::Merge;
use crate::mini_debug_info;
use crate::pdb::PdbReader;
use crate::symbols::{self, SymbolTable};
use crate::work::Work;
use crate::{ArtifactError, IdKind, ObjectFile, PdbFile};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::ops::Range;
use symseal_module::{DebugId, Svma};
use symseal_symx::{FunctionRecord, StrId, Strings, SymbolSource};

/// What a symbol table is written from.
#[derive(Debug)]
pub struct FunctionStream {
    /// Sorted by start, not overlapping.
    pub functions: Vec<FunctionRecord>,
    /// The texts that the records refer to.
    pub strings: Strings,
    /// The source files that rows, calls and declarations name, by path; [`source_files`](crate::source_files) gives those of whole line tables.
    pub sources: Vec<SourceFile>,
    /// How much of everything there was, and what was left out.
    pub statistics: StreamStatistics,
}

/// A source file that the debug information names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// Its path, as the records have it.
    pub path: StrId,
    /// What the compiler noted of its content.
    pub checksum: Option<Checksum>,
}

/// A digest of a source file's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Checksum {
    /// From DWARF 5 line tables and PDB files.
    Md5([u8; 16]),
    /// From PDB files.
    Sha1([u8; 20]),
    /// From PDB files.
    Sha256([u8; 32]),
}

/// The files beside a binary that its functions are read from.
#[derive(Clone, Copy, Debug, Default)]
pub struct DebugFiles<'a, 'd> {
    /// A separate debug file of the binary's format: `.debug`, a dSYM's DWARF file.
    pub debug: Option<&'a ObjectFile<'d>>,
    /// The program database of a PE file.
    pub pdb: Option<&'a PdbFile<'d>>,
    /// The supplementary file that dwz made, which the debug information refers to.
    pub supplementary: Option<&'a ObjectFile<'d>>,
    /// Split DWARF: `.dwp` and `.dwo` files.
    pub split: &'a [ObjectFile<'d>],
}

impl<'a, 'd> DebugFiles<'a, 'd> {
    /// A separate debug file, if any, and nothing else.
    pub fn debug(debug: Option<&'a ObjectFile<'d>>) -> Self {
        Self { debug, ..Self::default() }
    }
}

/// What went into a [`FunctionStream`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatistics {
    /// Records by what named them.
    pub functions: BTreeMap<SymbolSource, u64>,
    /// Line rows in all records.
    pub rows: u64,
    /// Inlined calls in all records.
    pub inlines: u64,
    /// Bytes of executable sections.
    pub text_bytes: u64,
    /// Bytes of them that lie in a record with a name.
    pub covered_bytes: u64,
    /// Bytes of DWARF after decompression.
    pub dwarf_bytes: u64,
    /// What was left out: reason → how often.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Names of the split DWARF files (`.dwo`) that units ask for and that were not given, as the units have them.
    pub missing_split: BTreeSet<String>,
}

/// Reasons in [`StreamStatistics::skipped`] by which a whole unit or all behind some place in it, a section or a part of one, or the list of units is
/// missing.
const DAMAGED_UNITS: [&str; 26] = [
    "damaged unit",
    // What it tells of the functions is wrong.
    "split DWARF of another build of the unit's source",
    "rest of a unit, behind a damaged entry",
    // These lie in sections of their own, one of which is cut short then.
    "name outside the strings",
    "damaged range list",
    "damaged unit header",
    "damaged index of a DWARF package (.dwp)",
    "damaged line program",
    "damaged line table header",
    "line table whose last sequence has no end",
    "unit that ends before its stated length",
    "functions whose addresses are not there, beside lines that nothing else has",
    "damaged table of range lists",
    "damaged table of addresses",
    "damaged list of modules in a PDB",
    "PDB module whose stream is missing",
    "PDB module whose stream is cut short",
    "rest of a PDB module, behind a damaged symbol",
    "damaged symbols of a PDB module",
    "damaged lines of a PDB module",
    "source file outside of a PDB's lists of files and names",
    "section headers of a PDB that are not those of its PE file",
    "function outside of the code, as are all of the PDB",
    "damaged list of a PDB's ids",
    "damaged list of a PDB's types",
    "rest of a PDB's public symbols, behind a damaged one",
];

/// Whether a reason in [`StreamStatistics::skipped`] says that functions or lines of a whole unit, or of more, are missing because
/// debug information is damaged. Single symbols that are left out say nothing of the kind.
pub fn is_damaged_unit(reason: &str) -> bool {
    DAMAGED_UNITS.contains(&reason)
        || reason.starts_with("section .debug_")
            && ["that cannot be decompressed", "that is not there"].iter().any(|what| reason.ends_with(what))
}

/// The functions of `binary`, with the debug information of the files `with` it.
///
/// `binary` gives addresses, code ranges and symbols; it may itself be a debug file. DWARF is read from the debug file
/// if that has any, else from `binary`; symbols from both. A supplementary file must have the id that this file names;
/// of split DWARF files the units are taken whose ids skeletons ask for, whatever the files' names.
///
/// # Which name an address gets
///
/// 1. DWARF comes first: `name` is the name of the subprogram with its namespaces and types. Where several claim an
///    address, an earlier unit wins, and within a unit the later entry, which is the inner one where they are nested.
///    The record is flagged `folded`, and the others' symbols are among its aliases where they start alike. At address 0, where that is code,
///    those are left out that do not agree with the symbols there, as linkers put what they dropped there too.
/// 2. Where no subprogram is, the symbol tables name: a symbol covers its size, a later start wins over an earlier one.
///    A symbol of size 0 reaches to whatever comes next, a function start of the file's own list included, and is flagged
///    `approximate`; of dynamic tables and exports alone it covers its own address only, unless there is such a list.
///    A function start without a symbol gives a record without a name, `approximate` too. So does code of assembly that has lines
///    and no symbol: a record of its lines.
/// 3. `symbol` is the first of the symbols at the record's start, in this order: function before indirect function
///    before untyped; with a size before without; global before weak before local; DWARF's linkage name before others;
///    no leading underscore before one before two; shorter before longer; then by bytes. The others are `aliases`.
///    Versions (`@@GLIBC_2.2.5`) are cut off, and the underscore that Mach-O puts before every name. Where there is no
///    symbol, it is DWARF's linkage name, else its bare name.
/// 4. Go's own function table stands in for DWARF where there is none for its functions. Symbols of MiniDebugInfo come
///    after those of the full symbol table and before the dynamic ones.
/// 5. Suffixes such as `.cold`, `.part.0`, `.constprop.0`, `.lto_priv.0` stay on symbols.
/// 6. In a PDB, `name` is the procedure's, and its linkage name is the public symbol of its address that is made from that
///    name. Of modules whose equal code was folded, the one whose code was kept wins. What public symbols or labels of
///    exception handlers name alone is `approximate`. Of a PDB and DWARF in one PE file, the one with more line rows holds.
///
/// # Addresses of a relocatable object
///
/// Its sections have none yet. Each executable one of an ELF object is given a range of its own, in the order in which
/// the Linux kernel lays out a module: those not for initialization from 0 on, each aligned as its header says, then
/// those named `.init…` from a new page on. In an object with one executable section an address is an offset in it.
///
/// An [`ArtifactError`] says that two files do not belong together. Damage within is counted in the statistics.
pub fn functions(binary: &ObjectFile<'_>, with: &DebugFiles<'_, '_>) -> Result<FunctionStream, ArtifactError> {
    functions_on(NonZeroUsize::MIN, binary, with)
}

/// The same, read by so many threads at most. The stream is the same whatever their number.
pub fn functions_on(
    threads: NonZeroUsize,
    binary: &ObjectFile<'_>,
    with: &DebugFiles<'_, '_>,
) -> Result<FunctionStream, ArtifactError> {
    if let Some(debug) = with.debug {
        check_pair(binary, debug)?;
    }
    if let Some(pdb) = with.pdb {
        check_pdb(binary, pdb)?;
    }
    let mut work = Work::new();
    let mut statistics = StreamStatistics::default();
    let text = Text::new(binary.headers().text_sections());
    statistics.text_bytes = text.bytes();
    let files = files_with_symbols(binary, with);
    let mini = unpacked(&files, &mut work);
    let mini: Vec<Elf<'_>> = mini.iter().filter_map(|bytes| mini_debug_info::parsed(bytes, &mut work)).collect();
    let pdb_bytes = with.pdb.map_or(0, PdbFile::bytes);
    let symbol_bytes = symbol_bytes(&files, &mini).saturating_add(pdb_bytes);
    let dwarf = load_dwarf(binary, with, threads, &mut work)?;
    statistics.dwarf_bytes = dwarf.total_bytes();
    let go = go::find(binary.headers(), statistics.dwarf_bytes == 0);
    let go_bytes = go.as_ref().map_or(0, GoTable::bytes);
    work.budget = Budget::for_bytes(statistics.dwarf_bytes.saturating_add(symbol_bytes).saturating_add(go_bytes));
    let at_zero = at_zero(&files, &mini, &text);
    let code = Code { text: &text, image_base: binary.image_base(), at_zero: at_zero.as_ref() };
    let mut described = dwarf::read(&dwarf, code, threads, &mut work);
    let mut pdb = with.pdb.map(|pdb| PdbReader::open(pdb, &mut work)).transpose()?;
    if let Some(pdb) = &mut pdb {
        // Compilers for MinGW write DWARF into files whose linker makes a PDB; which one tells more shows in the lines.
        pdb.compare_sections(binary.image_base(), &binary.headers().text_sections(), &mut work);
        let from_pdb = pdb.read(binary.image_base(), &text, &mut work);
        described = match (described.pieces.is_empty(), from_pdb.pieces.is_empty()) {
            (true, _) => from_pdb,
            (false, true) => described,
            _ if from_pdb.rows() > described.rows() => beside(from_pdb, described),
            _ => beside(described, from_pdb),
        };
    }
    if let Some(go) = go.as_ref().filter(|go| !go.is_described_by(&described)) {
        described = go.read(&text, binary.image_base(), &mut work).beside(described);
    }

    let starts = files.iter().flat_map(|file| file.function_starts()).collect();
    let mut symbols = Vec::new();
    if let Some(pdb) = &pdb {
        pdb.symbols(binary.image_base(), &text, &mut symbols, &mut work);
    }
    collect_symbols(&files, &mini, &text, &mut symbols, &mut work);
    let groups = symbols::groups(symbols, &mut work);
    let groups = symbols::with_starts(groups, starts, &text, &mut work);
    let functions = Merge::new(binary.image_base(), &text, described, groups, &mut work).run();
    Ok(finish(functions, work, statistics))
}

/// Of the same functions those at these addresses, read from the units that describe them alone; sources and statistics are those of what
/// was read. An address that no record holds has one in the whole stream perhaps, and none that a subprogram names, nor a symbol with a size where a
/// unit has lines alone.
///
/// `None` where only the whole stream tells: more than a quarter of the entries would have to be read, the file is a Go program or comes with a PDB, split units are
/// missing, or a name depends on functions elsewhere.
pub fn functions_at(
    binary: &ObjectFile<'_>,
    with: &DebugFiles<'_, '_>,
    addresses: &[Svma],
) -> Result<Option<FunctionStream>, ArtifactError> {
    if let Some(debug) = with.debug {
        check_pair(binary, debug)?;
    }
    if with.pdb.is_some() || go::find(binary.headers(), false).is_some() {
        return Ok(None);
    }
    let mut work = Work::new();
    let text = Text::new(binary.headers().text_sections());
    let files = files_with_symbols(binary, with);
    let mini = unpacked(&files, &mut work);
    let mini: Vec<Elf<'_>> = mini.iter().filter_map(|bytes| mini_debug_info::parsed(bytes, &mut work)).collect();
    let dwarf = load_dwarf(binary, with, NonZeroUsize::MIN, &mut work)?;
    let statistics = StreamStatistics { dwarf_bytes: dwarf.total_bytes(), ..StreamStatistics::default() };
    work.budget = Budget::for_bytes(statistics.dwarf_bytes.saturating_add(symbol_bytes(&files, &mini)));
    let symbols_at = |points: &[Range<u64>], work: &mut Work| {
        let headers = files.iter().copied().chain(mini.iter().map(|mini| mini as &dyn ObjectHeaders<'_>));
        let starts = symbols::starts_of_holders(headers, descriptors(&files).as_ref(), points, &text, work);
        let mut symbols = Vec::new();
        collect_symbols(&files, &mini, &Text::new(starts), &mut symbols, work);
        symbols::holders(&symbols::groups(symbols, work), points, &text)
    };
    let at_zero = at_zero(&files, &mini, &text);
    let code = Code { text: &text, image_base: binary.image_base(), at_zero: at_zero.as_ref() };
    let selected = dwarf::read_selected(&dwarf, code, addresses, symbols_at, &mut work);
    let Some(Selected { described, ranges }) = selected else { return Ok(None) };
    // Only symbols at the start of a described function bear on its record, and on that of a symbol those within it.
    let text = Text::new(ranges);
    let mut symbols = Vec::new();
    collect_symbols(&files, &mini, &text, &mut symbols, &mut work);
    let groups = symbols::groups(symbols, &mut work);
    let merged = Merge::new(binary.image_base(), &text, described, groups, &mut work).run_on_part();
    let Some(mut functions) = merged.filter(|_| work.missing_split.is_empty()) else { return Ok(None) };
    let asked: BTreeSet<u64> =
        addresses.iter().filter_map(|address| Some(address.to_rva(binary.image_base())?.0)).collect();
    functions.retain(|function| {
        let end = function.start.0.saturating_add(function.size);
        !function.flags.approximate && asked.range(function.start.0..end).next().is_some()
    });
    Ok(Some(finish(functions, work, statistics)))
}

/// The files whose symbols count.
fn files_with_symbols<'a, 'd>(
    binary: &'a ObjectFile<'d>,
    with: &DebugFiles<'a, 'd>,
) -> Vec<&'a (dyn ObjectHeaders<'d> + 'a)> {
    std::iter::once(binary).chain(with.debug).map(ObjectFile::headers).collect()
}

/// The MiniDebugInfo of the files, unpacked.
fn unpacked(files: &[&dyn ObjectHeaders<'_>], work: &mut Work) -> Vec<Vec<u8>> {
    let packed = files.iter().filter_map(|file| file.mini_debug_info());
    packed.filter_map(|packed| mini_debug_info::unpacked(packed, work)).collect()
}

/// Bytes of symbols, for the bound on work.
fn symbol_bytes(files: &[&dyn ObjectHeaders<'_>], mini: &[Elf<'_>]) -> u64 {
    let of_files: u64 = files.iter().map(|file| file.symbol_bytes()).sum();
    of_files.saturating_add(mini.iter().map(ObjectHeaders::symbol_bytes).sum())
}

/// The DWARF that describes `binary`, in all its files.
pub(crate) fn load_dwarf<'d>(
    binary: &ObjectFile<'d>,
    with: &DebugFiles<'_, 'd>,
    threads: NonZeroUsize,
    work: &mut Work,
) -> Result<DwarfFiles<'d>, ArtifactError> {
    let described = with.debug.filter(|debug| debug.has_debug_info()).unwrap_or(binary);
    let supplementary = supplementary(described, with)?;
    // An object file may keep its split units.
    let split = with.split.iter().chain([described]).filter(|file| file.split_kind().is_some());
    let split: Vec<&dyn ObjectHeaders<'_>> = split.map(ObjectFile::headers).collect();
    Ok(match described.headers().relocation_problem() {
        Some(problem) => {
            work.skip(problem.reason());
            DwarfFiles::none()
        }
        None => DwarfFiles::load(described.headers(), supplementary, &split, threads, work),
    })
}

/// The function descriptors of the binary, which its debug file and its MiniDebugInfo name and do not have.
fn descriptors<'d>(files: &[&(dyn ObjectHeaders<'d> + '_)]) -> Option<Descriptors<'d>> {
    files.iter().find_map(|file| file.descriptors())
}

/// All symbols that lie in code.
fn collect_symbols<'a, 'd: 'a>(
    files: &[&'a (dyn ObjectHeaders<'d> + 'a)],
    mini: &'a [Elf<'d>],
    text: &Text,
    symbols: &mut Vec<symbols::Symbol<'a>>,
    work: &mut Work,
) {
    let descriptors = descriptors(files);
    for file in files {
        symbols::collect(*file, SymbolTable::Symtab, descriptors.as_ref(), text, symbols, work);
    }
    for file in mini {
        symbols::collect(file, SymbolTable::MiniDebugInfo, descriptors.as_ref(), text, symbols, work);
    }
}

/// What the symbols say of the code at address 0, if there is some. One without a symbol may have lost it with the full table.
fn at_zero<'a, 'd: 'a>(files: &[&'a (dyn ObjectHeaders<'d> + 'a)], mini: &'a [Elf<'d>], text: &Text) -> Option<AtZero> {
    text.clip(0, 1)?;
    if !files.iter().any(|file| file.has_symtab()) {
        return None;
    }
    // They are collected again for their names, and what is left out counts then.
    let mut work = Work::new();
    work.budget = Budget::for_bytes(symbol_bytes(files, mini));
    let mut symbols = Vec::new();
    collect_symbols(files, mini, text, &mut symbols, &mut work);
    AtZero::of(&symbols, text)
}

/// The functions of a PDB whose PE file is not at hand. Addresses count from the image base, which is 0; code ranges are
/// those of the section headers in the PDB.
pub fn pdb_functions(file: &PdbFile<'_>) -> Result<FunctionStream, ArtifactError> {
    let mut work = Work::new();
    work.budget = Budget::for_bytes(file.bytes());
    let mut pdb = PdbReader::open(file, &mut work)?;
    let text = Text::new(pdb.text());
    let statistics = StreamStatistics { text_bytes: text.bytes(), ..StreamStatistics::default() };
    let described = pdb.read(Svma(0), &text, &mut work);
    let mut symbols = Vec::new();
    pdb.symbols(Svma(0), &text, &mut symbols, &mut work);
    let groups = symbols::groups(symbols, &mut work);
    let functions = Merge::new(Svma(0), &text, described, groups, &mut work).run();
    Ok(finish(functions, work, statistics))
}

/// Counts the records, and orders the source files.
pub(crate) fn finish(functions: Vec<FunctionRecord>, work: Work, mut statistics: StreamStatistics) -> FunctionStream {
    for function in &functions {
        *statistics.functions.entry(function.source).or_default() += 1;
        statistics.rows += function.rows.len() as u64;
        statistics.inlines += function.inlines.len() as u64;
        // A start without a name names nothing.
        if function.source != SymbolSource::FunctionStarts {
            statistics.covered_bytes += function.size;
        }
    }
    let Work { strings, skipped, sources, missing_split, .. } = work;
    statistics.skipped = skipped;
    statistics.missing_split = missing_split;
    let mut sources: Vec<SourceFile> =
        sources.into_iter().map(|(path, checksum)| SourceFile { path, checksum }).collect();
    sources.sort_by(|a, b| strings.get(a.path).cmp(strings.get(b.path)));
    FunctionStream { functions, strings, sources, statistics }
}

/// The supplementary file, if it is needed; it must be the one that is asked for.
fn supplementary<'a, 'd>(
    described: &ObjectFile<'d>,
    with: &DebugFiles<'a, 'd>,
) -> Result<Option<&'a (dyn ObjectHeaders<'d> + 'a)>, ArtifactError> {
    let (Some(link), Some(file)) = (described.debug_alt_link(), with.supplementary) else { return Ok(None) };
    let id = file.debug_id().filter(|_| file.id_kind() == IdKind::GnuBuildId);
    let expected = DebugId::from_build_id(link.build_id);
    let is_known = id.is_some_and(|id| expected.as_ref().is_ok_and(|expected| expected == id))
        || file.headers().supplementary_checksum() == Some(link.build_id);
    if !is_known {
        return Err(ArtifactError::Mismatch {
            expected: format!("supplementary file {}", hex(link.build_id)),
            found: id.map_or("none".to_owned(), ToString::to_string),
        });
    }
    Ok(Some(file.headers()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The PE file names its PDB by GUID and age.
fn check_pdb(binary: &ObjectFile<'_>, pdb: &PdbFile<'_>) -> Result<(), ArtifactError> {
    let expected = binary.pdb_reference().map(|pdb| DebugId::Pdb { guid: pdb.guid, age: pdb.age });
    if expected == Some(pdb.debug_id()) {
        return Ok(());
    }
    Err(ArtifactError::Mismatch {
        expected: expected.map_or("no PDB, as the file names none".to_owned(), |id| format!("debug id {id}")),
        found: format!("debug id {}", pdb.debug_id()),
    })
}

fn check_pair(binary: &ObjectFile<'_>, debug: &ObjectFile<'_>) -> Result<(), ArtifactError> {
    if binary.arch() != debug.arch() {
        return Err(ArtifactError::Mismatch {
            expected: format!("architecture {}", binary.arch()),
            found: format!("architecture {}", debug.arch()),
        });
    }
    let noted = |file: &ObjectFile<'_>| file.debug_id().filter(|_| file.id_kind() != IdKind::TextHash).cloned();
    match (noted(binary), noted(debug)) {
        (Some(expected), Some(found)) if expected != found => Err(ArtifactError::Mismatch {
            expected: format!("debug id {expected}"),
            found: format!("debug id {found}"),
        }),
        _ => Ok(()),
    }
}
