//! One module: from its files to its tables, its index and its entry in the symbol index.

mod lines;
mod load;
mod places;
mod store;
mod unwind;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use symseal_artifact::{DebugFiles, DebugInfoKind, FunctionStream, ObjectFile, PdbFile, StreamStatistics};
use symseal_bundle::compose::FileFormat;
use symseal_bundle::index::platform_of;
use symseal_bundle::page_hashes::FilePages;
use symseal_bundle::{
    DebugInfo, Digest, FileRole, InputEntry, LayoutDir, ModuleEntry, ModuleStatistics, PdbEntry, module_index, title,
};
use symseal_module::{DebugId, Rva, Svma};
use symseal_symx::SymbolSource;

use crate::error::BuildError;
use crate::inputs::InputFile;
use crate::pairing::{Module, Part};
use crate::report::{ModuleReport, PairedBy, PairedFile, PairedRole};
use crate::sources::WantedSources;
use lines::Lines;
use load::Files;
use store::Stored;
use unwind::{Unwind, unwind_table};

pub use unwind::loose_unwind_table;

/// Modules with more bytes than this are worked on by several threads, so that the last large one is finished sooner.
const WORTH_A_THREAD: u64 = 16 << 20;

/// How modules are built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Building<'l> {
    /// Where files are stored; nowhere, if only the report is wanted.
    pub(crate) layout: Option<&'l LayoutDir>,
    pub(crate) store_executables: bool,
    /// So many threads may work on a large module.
    pub(crate) jobs: NonZeroUsize,
    /// The paths of source files are kept.
    pub(crate) wants_sources: bool,
}

/// A finished module: its entry, the page hashes of its files, and what to report.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) id: DebugId,
    pub(crate) entry: ModuleEntry,
    pub(crate) pages: Vec<FilePages>,
    pub(crate) report: ModuleReport,
    pub(crate) sources: WantedSources,
}

/// The parsed files of a module.
struct Parsed<'d> {
    binary: Option<ObjectFile<'d>>,
    debug: Option<ObjectFile<'d>>,
    pdb: Option<PdbFile<'d>>,
    supplementary: Option<ObjectFile<'d>>,
    split: Vec<ObjectFile<'d>>,
}

/// Makes the tables of a module and stores all its files as blobs.
pub(crate) fn build(id: &DebugId, module: &Module<'_>, building: &Building<'_>) -> Result<Finished, BuildError> {
    let files = Files::load(module, building.layout)?;
    let parsed = Parsed::of(module, &files)?;
    // One of the two is there: pairing makes no empty modules.
    let Some(main) = module.binary.or(module.debug.map(|paired| paired.part)) else {
        return Err(BuildError::NoModules { paths: id.to_string(), files: 0, hints: Vec::new(), report: None });
    };
    let main_object = parsed.binary.as_ref().or(parsed.debug.as_ref());
    // What the symbols are read from stands first; the code decides what is unwound.
    let symbols_from = module.debug.map_or(main, |paired| paired.part);

    // What dwz moved out of other files describes no code of its own.
    let symbols_of = main_object.filter(|_| !module.is_supplementary);
    let threads = if module.weight() > WORTH_A_THREAD { building.jobs } else { NonZeroUsize::MIN };
    let make_symbols = || symbol_table(id, symbols_of, &parsed, symbols_from, building.wants_sources, threads);
    let make_unwind = || {
        let binary = parsed.binary.as_ref().zip(module.binary.map(|part| part.file.digest()));
        if module.is_supplementary { Unwind::default() } else { unwind_table(id, binary, parsed.debug.as_ref()) }
    };
    let (symbols, unwind) = if threads.get() > 1 {
        std::thread::scope(|scope| {
            let unwind = scope.spawn(make_unwind);
            (make_symbols(), unwind.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    } else {
        (make_symbols(), make_unwind())
    };
    let symbols = symbols?;
    let stream = &symbols.statistics;
    let opened =
        symseal_symx::Table::open(&symbols.table).map_err(|error| module_index_error(main, error.to_string()))?;
    let index =
        module_index::write(&opened, &main.file.name).map_err(|error| module_index_error(main, error.to_string()))?;
    let counts = opened.counts();
    let statistics = ModuleStatistics {
        functions: counts.functions,
        rows: stream.rows,
        inline_sites: counts.inlines,
        text_bytes: stream.text_bytes,
        covered_bytes: stream.covered_bytes,
        unwind_rows: unwind.report.rows,
    };

    let pdb = pdb_entry(module);
    let code_id = main.object().and_then(|object| object.code_id.clone());
    let mut stored = Stored::new(building.layout);
    store_inputs(id, module, &files, building, pdb.as_ref(), &mut stored)?;
    let others = |first: Digest| {
        let read = files.all().iter().map(|loaded| loaded.file.digest());
        let rest: Vec<Digest> = read.filter(|digest| *digest != first).collect();
        std::iter::once(first).chain(rest).collect::<Vec<_>>()
    };
    let table_digest = stored.put(
        FileRole::SymbolTable,
        title::symbol_table(id),
        &symbols.table,
        others(symbols_from.file.digest()),
    )?;
    if let Some(bytes) = &unwind.bytes {
        let derived = derived_of_unwind(module, main, &unwind);
        stored.put(FileRole::UnwindTable, title::unwind_table(id), bytes, derived)?;
    }
    stored.put(FileRole::ModuleIndex, title::module_index(id), &index.json, vec![table_digest])?;

    let mut entries = stored.entries;
    entries.sort_by(|a, b| (a.role, &a.path).cmp(&(b.role, &b.path)));
    let entry = ModuleEntry {
        name: main.file.name.clone(),
        format: format_of(main).to_owned(),
        arch: arch_of(main).to_owned(),
        id_kind: id_kind_of(main).to_owned(),
        code_id: code_id.clone(),
        go_build_id: main.object().and_then(|object| object.go_build_id.clone()),
        pdb,
        supplementary: module.supplementary.as_ref().map(|(_, id)| id.clone()),
        image_base: main_object.map_or(Svma(0), ObjectFile::image_base),
        debug_info: debug_info(&parsed, stream),
        lines_of: symbols.lines.of.others(),
        stripped: parsed.binary.as_ref().is_some_and(ObjectFile::is_stripped),
        files: entries,
        inputs: inputs(module),
        statistics,
    };
    let mut report = report(id, module, main, &entry, &symbols, &unwind, &index);
    report.notes.extend(another_checksum(module, &files));
    report.notes.extend(places::renamed(&entry));
    Ok(Finished { id: id.clone(), entry, pages: stored.pages, report, sources: symbols.sources })
}

impl<'d> Parsed<'d> {
    fn of(module: &Module<'_>, files: &'d Files<'_>) -> Result<Self, BuildError> {
        let object = |part: Option<Part<'_>>| part.map(|part| files.object(part)).transpose().map(Option::flatten);
        let debug = module.debug.map(|paired| paired.part);
        let mut split = Vec::with_capacity(module.split.len());
        for paired in &module.split {
            split.extend(files.object(paired.part)?);
        }
        Ok(Self {
            binary: object(module.binary)?,
            debug: object(debug)?,
            pdb: debug.map(|part| files.pdb(part)).transpose()?.flatten(),
            supplementary: object(module.supplementary.as_ref().map(|(paired, _)| paired.part))?,
            split,
        })
    }
}

/// A `.symx` table, and what was read for it.
struct Symbols {
    table: Vec<u8>,
    statistics: StreamStatistics,
    lines: Lines,
    sources: WantedSources,
}

fn symbol_table(
    id: &DebugId,
    main: Option<&ObjectFile<'_>>,
    parsed: &Parsed<'_>,
    source: Part<'_>,
    wants_sources: bool,
    threads: NonZeroUsize,
) -> Result<Symbols, BuildError> {
    let artifact_error = |error| BuildError::Artifact { place: source.file.place.clone(), source: error };
    let mut sources = WantedSources::default();
    let stream = match main {
        Some(main) => {
            let with = DebugFiles {
                debug: parsed.debug.as_ref().filter(|_| parsed.binary.is_some()),
                pdb: parsed.pdb.as_ref(),
                supplementary: parsed.supplementary.as_ref(),
                split: &parsed.split,
            };
            let stream = symseal_artifact::functions_on(threads, main, &with).map_err(artifact_error)?;
            if wants_sources {
                let mut add = |path: &str, checksum| sources.add(path, checksum);
                symseal_artifact::source_files(main, &with, &mut add).map_err(artifact_error)?;
            }
            stream
        }
        // A program database without its binary.
        None => match &parsed.pdb {
            Some(pdb) => {
                if wants_sources {
                    symseal_artifact::pdb_source_files(pdb, &mut |path, checksum| sources.add(path, checksum));
                }
                symseal_artifact::pdb_functions(pdb).map_err(artifact_error)?
            }
            // A portable one has no functions of machine code, a supplementary file none of its own.
            None => FunctionStream {
                functions: Vec::new(),
                strings: symseal_symx::Strings::default(),
                sources: Vec::new(),
                statistics: StreamStatistics::default(),
            },
        },
    };
    let table = symseal_symx::write(&symseal_symx::TableInput {
        debug_id: id,
        image_base: main.map_or(Svma(0), ObjectFile::image_base),
        source_sha256: *source.file.digest().as_bytes(),
        producer: crate::PRODUCER,
        strings: &stream.strings,
        functions: &stream.functions,
    })
    .map_err(|error| BuildError::SymbolTable { place: source.file.place.clone(), source: error })?;
    if wants_sources {
        sources.add_stream(&stream);
    }
    let base = main.map_or(0, |main| main.image_base().0);
    let exported = main.map(ObjectFile::exported).unwrap_or_default();
    let exported = exported.iter().filter_map(|svma| svma.0.checked_sub(base).map(Rva)).collect();
    let lines = Lines::of(&stream, &exported);
    Ok(Symbols { table, statistics: stream.statistics, lines, sources })
}

/// Stores the files as they are, under the titles at which tools look.
fn store_inputs(
    id: &DebugId,
    module: &Module<'_>,
    files: &Files<'_>,
    building: &Building<'_>,
    pdb: Option<&PdbEntry>,
    stored: &mut Stored<'_>,
) -> Result<(), BuildError> {
    let bytes = |file: &InputFile| files.find(&file.digest()).map(|loaded| &*loaded.bytes).unwrap_or_default();
    let put = |stored: &mut Stored<'_>, role: FileRole, path: String, part: Part<'_>| {
        stored.put_input(role, places::format(part), path, part.file, bytes(part.file))
    };
    let own = module.binary.filter(|part| part.object().is_some_and(|object| object.is_debuginfo));
    if let Some(part) = module.debug.map(|paired| paired.part).or(own) {
        put(stored, FileRole::Debuginfo, places::debug_file(id, part, pdb.map(|pdb| pdb.name.as_str())), part)?;
        if let Some(linked) = places::linked(id, module).filter(|title| stored.is_free(title)) {
            put(stored, FileRole::Debuginfo, linked, part)?;
        }
    }
    if let Some(part) = module.binary.filter(|_| building.store_executables) {
        let code_id = part.object().and_then(|object| object.code_id.as_deref());
        put(stored, FileRole::Executable, places::executable(id, part.file, code_id), part)?;
    }
    let mut packages = 0;
    for paired in &module.split {
        let is_package =
            paired.part.object().and_then(|object| object.split.as_ref()).is_some_and(|split| split.is_package);
        packages += usize::from(is_package);
        let places = places::split(id, module, paired.part, is_package && packages == 1);
        let mut is_placed = false;
        for title in places.looked_at {
            // Names come from inputs: what another file has is that one's.
            if stored.is_free(&title) {
                put(stored, FileRole::SplitDwarf, title, paired.part)?;
                is_placed = true;
            }
        }
        if !is_placed {
            put(stored, FileRole::SplitDwarf, places.otherwise, paired.part)?;
        }
    }
    for member in &module.dsym_members {
        let Some(path) = places::dsym_member(id, member) else { continue };
        // An archive may have a file and, below its name, another.
        let path = if stored.is_free(&path) { path } else { places::apart(id, &path) };
        // These are small, and read by nobody but here.
        let bytes = member.read(building.layout)?;
        stored.put_input(FileRole::DsymMember, FileFormat::Dsym, path, member, &bytes)?;
    }
    Ok(())
}

/// What is to be said of a debug file with the binary's id that is not the one whose checksum the binary's link has: debuggers go by the
/// id, and others by the checksum. (Where dwz comes after the link, as in Fedora's packages, that is so of all.)
fn another_checksum(module: &Module<'_>, files: &Files<'_>) -> Option<String> {
    let link = module.binary?.object()?.debug_link.as_ref()?;
    let paired = module.debug.filter(|paired| matches!(paired.by, PairedBy::BuildId | PairedBy::GuidAge))?;
    let loaded = files.find(&paired.part.file.digest()).filter(|_| paired.part.file.is_named(&link.name))?;
    let found = crc32fast::hash(&loaded.bytes);
    (found != link.crc32).then(|| {
        format!(
            "its debug file {} has its id, and the CRC-32 {found:#010x} where its debug link says {:#010x}: it was changed since",
            paired.part.file.place, link.crc32
        )
    })
}

/// The unwind table comes from the binary; where `.debug_frame` was taken from the debug file, from that too.
fn derived_of_unwind(module: &Module<'_>, main: Part<'_>, unwind: &Unwind) -> Vec<Digest> {
    let debug = module.debug.filter(|_| unwind.used_debug).map(|paired| paired.part.file.digest());
    std::iter::once(main.file.digest()).chain(debug).collect()
}

/// Everything that the module was made from, by name.
fn inputs(module: &Module<'_>) -> Vec<InputEntry> {
    let files = module.files().into_iter();
    let mut inputs: Vec<InputEntry> =
        files.map(|file| InputEntry { name: file.name.clone(), sha256: file.digest() }).collect();
    inputs.sort();
    inputs.dedup();
    inputs
}

/// The program database: as the PE file names it, with what the database itself adds.
fn pdb_entry(module: &Module<'_>) -> Option<PdbEntry> {
    let held = module.debug.and_then(|paired| Some((paired.part.file, paired.part.pdb()?)));
    let named = module.binary.and_then(|part| part.object()?.pdb.as_ref());
    let (name, guid, age) = match (named, held) {
        (Some(named), _) if !named.name.is_empty() => (named.name.clone(), named.guid, named.age),
        (Some(named), held) => (held.map_or_else(String::new, |(file, _)| file.name.clone()), named.guid, named.age),
        (None, Some((file, pdb))) => match &pdb.id {
            DebugId::Pdb { guid, age } => (file.name.clone(), *guid, *age),
            _ => return None,
        },
        (None, None) => return None,
    };
    let guid = DebugId::Pdb { guid, age: 0 }.to_string().trim_end_matches("-0").to_owned();
    Some(PdbEntry { name, guid, age, stream_age: held.and_then(|(_, pdb)| pdb.stream_age) })
}

fn format_of(main: Part<'_>) -> &'static str {
    main.object().map_or("pe", |object| object.format.code())
}

fn arch_of(main: Part<'_>) -> &'static str {
    let arch = main.object().map(|object| object.arch).or_else(|| main.pdb().and_then(|pdb| pdb.arch));
    arch.map_or("other", symseal_artifact::Arch::code)
}

fn id_kind_of(main: Part<'_>) -> &'static str {
    use symseal_artifact::IdKind;
    let of_pdb =
        || if main.pdb().is_some_and(|pdb| pdb.is_portable) { IdKind::PortablePdb } else { IdKind::PdbGuidAge };
    main.object().map_or_else(of_pdb, |object| object.id_kind).code()
}

/// The best that any of the files tells.
fn debug_info(parsed: &Parsed<'_>, stream: &StreamStatistics) -> DebugInfo {
    let objects = [&parsed.binary, &parsed.debug].into_iter().flatten().chain(&parsed.split);
    let is_split = objects.clone().any(|object| object.split_kind().is_some());
    // Kinds are ordered, the best first.
    let kind = objects.map(ObjectFile::debug_info_kind).min().unwrap_or(DebugInfoKind::None);
    // Sections of debug information that gave neither a function nor a line are damaged, or hold types alone.
    let told = stream.rows > 0 || stream.functions.contains_key(&SymbolSource::Dwarf) || stream.text_bytes == 0;
    let kind = if told || parsed.pdb.is_some() { kind } else { kind.max(DebugInfoKind::Symbols) };
    match kind {
        DebugInfoKind::Full => DebugInfo::Full,
        // Skeletons have lines alone; the rest is in the split files.
        DebugInfoKind::LineTables if is_split => DebugInfo::Full,
        _ if parsed.pdb.is_some() && stream.rows > 0 => DebugInfo::Full,
        DebugInfoKind::LineTables => DebugInfo::LineTables,
        DebugInfoKind::Symbols => DebugInfo::Symbols,
        // Public symbols, and symbol tables in other places than the usual one.
        DebugInfoKind::None if parsed.pdb.is_some() => DebugInfo::Symbols,
        DebugInfoKind::None if stream.functions.contains_key(&SymbolSource::MiniDebugInfo) => DebugInfo::Symbols,
        DebugInfoKind::None => DebugInfo::None,
    }
}

fn report(
    id: &DebugId,
    module: &Module<'_>,
    main: Part<'_>,
    entry: &ModuleEntry,
    symbols: &Symbols,
    unwind: &Unwind,
    index: &module_index::Written,
) -> ModuleReport {
    let object = module.binary.and_then(|part| part.object());
    let mut paired: Vec<PairedFile> = Vec::new();
    let has_binary = module.binary.is_some();
    let file = |part: Part<'_>, role, by, debug_id| PairedFile {
        place: part.file.place.clone(),
        role,
        paired_by: Some(by).filter(|_| has_binary || role != PairedRole::DebugFile && role != PairedRole::Pdb),
        debug_id,
    };
    if let Some(debug) = module.debug {
        let role = if debug.part.pdb().is_some() { PairedRole::Pdb } else { PairedRole::DebugFile };
        paired.push(file(debug.part, role, debug.by, None));
    }
    if let Some((supplementary, id)) = &module.supplementary {
        paired.push(file(supplementary.part, PairedRole::Supplementary, supplementary.by, Some(id.clone())));
    }
    paired.extend(module.split.iter().map(|split| file(split.part, PairedRole::SplitDwarf, split.by, None)));
    paired.extend(module.dsym_members.iter().map(|member| PairedFile {
        place: member.place.clone(),
        role: PairedRole::DsymMember,
        paired_by: None,
        debug_id: None,
    }));
    let skipped = symbols.statistics.skipped.iter();
    ModuleReport {
        platform: platform_of(id),
        debug_id: id.clone(),
        id_kind: id_kind_of(main),
        code_id: entry.code_id.clone(),
        go_build_id: entry.go_build_id.clone(),
        pdb: entry.pdb.clone(),
        name: entry.name.clone(),
        format: format_of(main),
        arch: arch_of(main),
        binary: module.binary.map(|part| part.file.place.clone()),
        debug_file: module.debug.map(|paired| paired.part.file.place.clone()),
        paired,
        missing: module.missing.clone(),
        debug_info: entry.debug_info,
        stripped: entry.stripped,
        mini_debug_info: object.is_some_and(|object| object.has_mini_debug_info),
        functions: symbols
            .statistics
            .functions
            .iter()
            .map(|(source, count)| (source.code(), *count))
            .collect::<BTreeMap<_, _>>(),
        statistics: entry.statistics,
        symbol_table_bytes: symbols.table.len() as u64,
        module_index_bytes: index.json.len() as u64,
        lines_inlined: index.lines_inlined,
        lined_bytes: symbols.lines.bytes,
        lines_of: symbols.lines.of,
        notes: Vec::new(),
        skipped: skipped.map(|(reason, times)| ((*reason).to_owned(), *times)).collect(),
        unwind: unwind.report.clone(),
    }
}

fn module_index_error(main: Part<'_>, problem: String) -> BuildError {
    BuildError::ModuleIndex { module: main.file.place.clone(), problem }
}
