//! The steps that read files of this machine: a separate debug file, then the binary's own debug information, then its symbols.
//!
//! A file counts only if it is of the module that was asked for, by its own debug id. What is read is read whole and never mapped: nobody keeps others
//! from writing to it.

pub(crate) mod companions;
pub(crate) mod debug_file;
pub(crate) mod last_binary;
mod own;
pub(crate) mod pair;
mod places;
pub(crate) mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use symseal_artifact::FunctionStream;
use symseal_bundle::Digest;
use symseal_module::{DebugId, MappedModule, MissReason, Proof, ResolverStep, Rva, Svma};
use symseal_symx::{SymbolSource, TableInput};

use self::companions::Described;
use self::last_binary::LastBinary;
use self::pair::Program;
use crate::flights::Flights;
use crate::resolver::NamedBy;
use crate::table::{LoadedTable, Named, TableBytes};
use crate::trail::{hit, miss, skip};
use crate::{DigestOf, DigestRef, FileBytes, ModuleFiles, Outcome, ThisMachine, Tried};

/// Tables of files that are kept open.
const OPEN_TABLES: usize = 256;

/// More addresses of one module are most of what it has, and all of it is read.
const MOST_EXPECTED: usize = 4096;

/// Why a file gave no table: the reason and, for people, a word about it.
pub(crate) type NoTable = (MissReason, String);

pub(crate) type Opened = Result<Arc<LocalTable>, NoTable>;

/// The files of this machine, or of what a process sees, with the tables that were made of them so far.
#[derive(Debug)]
pub(crate) struct Local {
    files: Arc<dyn ModuleFiles>,
    directories: Vec<PathBuf>,
    debug_files: Flights<TableKey, Opened>,
    binaries: Flights<TableKey, Opened>,
    /// All addresses that will be asked for, of modules of which that is known: few, and they rise.
    expected: BTreeMap<DebugId, Vec<Rva>>,
    last_binary: LastBinary,
}

/// A module, by its path where it is mapped, and whether the table may tell of the expected addresses alone.
type TableKey = (Option<String>, DebugId, bool);

/// What one file, with what it refers to, names.
#[derive(Debug)]
pub(crate) struct LocalTable {
    pub(crate) table: LoadedTable,
    /// Whether it names all that the file describes, and not some addresses alone.
    pub(crate) is_whole: bool,
    /// Whether it has debug information, as opposed to symbols alone.
    pub(crate) has_debug_info: bool,
    /// The digest of the file, and those of the files that it refers to.
    pub(crate) digest: Digest,
    pub(crate) companions: Vec<Digest>,
    /// Where it is.
    pub(crate) detail: String,
    /// What it lacks, for people; empty where it lacks nothing.
    pub(crate) lacks: String,
    /// The module's own file, where a debug file was read with it.
    pub(crate) program: Option<Program>,
}

impl Default for Local {
    fn default() -> Self {
        Self::new(Arc::new(ThisMachine), places::DEBUG_DIRECTORIES.iter().map(PathBuf::from).collect())
    }
}

impl Local {
    fn new(files: Arc<dyn ModuleFiles>, directories: Vec<PathBuf>) -> Self {
        let (debug_files, binaries) = (Flights::with_capacity(OPEN_TABLES), Flights::with_capacity(OPEN_TABLES));
        let (expected, last_binary) = (BTreeMap::new(), LastBinary::default());
        Self { files, directories, debug_files, binaries, expected, last_binary }
    }

    /// The same, where of these modules these addresses will be asked for and hardly others.
    pub(crate) fn expecting(&self, modules: BTreeMap<DebugId, BTreeSet<Rva>>) -> Self {
        let few = modules.into_iter().filter(|(_, addresses)| (1..=MOST_EXPECTED).contains(&addresses.len()));
        let expected = few.map(|(id, addresses)| (id, addresses.into_iter().collect())).collect();
        Self { expected, ..Self::new(Arc::clone(&self.files), self.directories.clone()) }
    }

    /// The same, read from elsewhere.
    pub(crate) fn with_files(&self, files: Arc<dyn ModuleFiles>) -> Self {
        Self::new(files, self.directories.clone())
    }

    /// The same with other debug directories.
    pub(crate) fn with_directories(&self, directories: Vec<PathBuf>) -> Self {
        Self::new(Arc::clone(&self.files), directories)
    }

    /// Takes over the bytes of a module's own file.
    pub(crate) fn keep_read(&self, module: &MappedModule, bytes: FileBytes) {
        self.last_binary.keep(module, bytes);
    }

    /// The bytes of memory that the tables of files take.
    pub(crate) fn held_bytes(&self) -> u64 {
        let opened = self.debug_files.kept().into_iter().chain(self.binaries.kept());
        opened.flatten().map(|opened| opened.table.held_bytes()).sum()
    }

    /// The image base of the module `id` in a file.
    pub(crate) fn image_base(&self, file: &Path, id: &DebugId) -> Option<Svma> {
        let image_base =
            |bytes: FileBytes| read::object_of(&bytes, id, &places::shown(file)).ok().map(|object| object.image_base());
        self.read_path(file).flatten().find_map(image_base)
    }

    /// The table that tells of an address: of the expected ones alone where that does, else of all. `open` is given the addresses that do, none for all.
    fn table(
        &self,
        tables: &Flights<TableKey, Opened>,
        (path, id): (Option<&str>, &DebugId),
        lookup: Rva,
        open: impl Fn(&[Rva]) -> Result<LocalTable, NoTable>,
    ) -> Opened {
        let opened = |wanted: &[Rva]| {
            let key = (path.map(str::to_owned), id.clone(), !wanted.is_empty());
            tables.get(key, || open(wanted).map(Arc::new))
        };
        let Some(expected) = self.expected.get(id).filter(|expected| expected.binary_search(&lookup).is_ok()) else {
            return opened(&[]);
        };
        match opened(expected) {
            Ok(part) if !part.is_whole && part.table.lookup(lookup).is_none() => opened(&[]),
            told => told,
        }
    }

    /// Asks for a separate debug file, of a module whose own file is not at hand.
    pub(crate) fn ask_debug_file(&self, id: &DebugId, lookup: Rva, tried: &mut Vec<Tried>) -> Option<NamedBy> {
        ask_table(self.debug_table(id, None, lookup), (ResolverStep::DebugFile, DigestOf::DebugFile), lookup, tried)
    }

    /// Asks a separate debug file together with the module's own file; without a debug file that one alone.
    pub(crate) fn ask_files(
        &self,
        (id, module): (&DebugId, &MappedModule),
        lookup: Rva,
        tried: &mut Vec<Tried>,
    ) -> Option<NamedBy> {
        let table = self.debug_table(id, Some(module), lookup);
        if let Ok(table) = &table
            && let Some(program) = &table.program
        {
            return table.ask_pair(program, lookup, tried);
        }
        ask_table(table, (ResolverStep::DebugFile, DigestOf::DebugFile), lookup, tried)
            .or_else(|| self.ask_binary((id, module), lookup, tried))
    }

    fn debug_table(&self, id: &DebugId, module: Option<&MappedModule>, lookup: Rva) -> Opened {
        let path = module.map(|module| module.path.as_str());
        self.table(&self.debug_files, (path, id), lookup, |wanted| self.open_debug_file(module, id, wanted))
    }

    /// Asks the module's own file: its debug information, then its symbols.
    fn ask_binary(
        &self,
        (id, module): (&DebugId, &MappedModule),
        lookup: Rva,
        tried: &mut Vec<Tried>,
    ) -> Option<NamedBy> {
        let (debug_info, symbols) = (ResolverStep::BinaryDebugInfo, ResolverStep::BinarySymbols);
        let open = |wanted: &[Rva]| self.open_own(module, id, wanted);
        let table = match self.table(&self.binaries, (Some(&module.path), id), lookup, open) {
            Ok(table) => table,
            Err((reason, detail)) => {
                for step in [debug_info, symbols] {
                    tried.push(miss(step, reason, detail.clone(), None));
                }
                return None;
            }
        };
        let named = table.table.lookup(lookup);
        let source = named.as_ref().map(|named| named.source);
        let LocalTable { has_debug_info, digest, detail, lacks, .. } = &*table;
        let own = OwnTold { has_debug_info: *has_debug_info, detail, lacks, digest: *digest };
        let step = note_own(source, &own, tried)?;
        Some(table.answer(step, &[(DigestOf::Binary, table.digest)], named?))
    }
}

/// The module's own file, as its steps are noted.
struct OwnTold<'t> {
    has_debug_info: bool,
    detail: &'t str,
    lacks: &'t str,
    digest: Digest,
}

/// Notes what the module's own file said, whose name comes from `source`, and gives the step that answered.
fn note_own(source: Option<SymbolSource>, own: &OwnTold<'_>, tried: &mut Vec<Tried>) -> Option<ResolverStep> {
    let (debug_info, symbols) = (ResolverStep::BinaryDebugInfo, ResolverStep::BinarySymbols);
    let noted = |noted: Tried| Tried {
        detail: own.detail.to_owned(),
        lacks: own.lacks.to_owned(),
        digest: Some(own.digest),
        ..noted
    };
    let missed = |step, reason| noted(miss(step, reason, String::new(), None));
    let found_by = source.map(|source| match source {
        SymbolSource::Dwarf | SymbolSource::Pdb | SymbolSource::Breakpad => debug_info,
        _ => symbols,
    });
    if found_by != Some(debug_info) {
        let reason = if own.has_debug_info { MissReason::NoSymbolAtAddress } else { MissReason::NoDebugInfo };
        tried.push(missed(debug_info, reason));
    }
    tried.push(match found_by {
        Some(step) => noted(hit(step)),
        None => missed(symbols, MissReason::NoSymbolAtAddress),
    });
    found_by
}

/// Asks the table of a file, and notes how that went.
pub(crate) fn ask_table(
    table: Opened,
    (step, of): (ResolverStep, DigestOf),
    lookup: Rva,
    tried: &mut Vec<Tried>,
) -> Option<NamedBy> {
    let table = match table {
        Ok(table) => table,
        Err((reason, detail)) => {
            tried.push(miss(step, reason, detail, None));
            return None;
        }
    };
    let Some(named) = table.table.lookup(lookup) else {
        tried.push(table.noted(Outcome::Miss(MissReason::NoSymbolAtAddress), step));
        return None;
    };
    tried.push(table.noted(Outcome::Hit, step));
    Some(table.answer(step, &[(of, table.digest)], named))
}

impl LocalTable {
    /// How a step that asked it ended.
    fn noted(&self, outcome: Outcome, step: ResolverStep) -> Tried {
        let (detail, lacks) = (self.detail.clone(), self.lacks.clone());
        Tried { step, outcome, detail, lacks, digest: Some(self.digest) }
    }

    /// The answer with the digests that it rests on. What lies on a machine proves nothing.
    fn answer(&self, step: ResolverStep, files: &[(DigestOf, Digest)], named: Named) -> NamedBy {
        let companions = self.companions.iter().map(|digest| (DigestOf::Companion, *digest));
        let digests = files.iter().copied().chain(companions).map(|(of, digest)| DigestRef { of, digest }).collect();
        NamedBy { step, proof: Proof::None, named, digests }
    }
}

/// The three steps, not asked.
pub(crate) fn skipped(reason: MissReason, tried: &mut Vec<Tried>) {
    for step in [ResolverStep::DebugFile, ResolverStep::BinaryDebugInfo, ResolverStep::BinarySymbols] {
        tried.push(skip(step, reason));
    }
}

/// The `.symx` table of what a file at `name` describes: files and bundles are then read by the same code.
pub(crate) fn table_of(
    described: Described,
    image_base: Svma,
    (id, digest, name): (&DebugId, Digest, String),
    has_debug_info: bool,
) -> Result<LocalTable, NoTable> {
    let Described { stream, is_whole, companions, lacks } = described;
    if stream.functions.is_empty() {
        return Err((MissReason::NoDebugInfo, name));
    }
    let table = write_table(&stream, image_base, id, &digest);
    let table = table.map_err(|error| (MissReason::Malformed, format!("{name}: {error}")))?;
    let table = LoadedTable::open(TableBytes::Owned(table), Some(id), None, Vec::new())?;
    Ok(LocalTable { table, is_whole, has_debug_info, digest, companions, detail: name, lacks, program: None })
}

/// The `.symx` table of a function stream.
pub(crate) fn write_table(
    stream: &FunctionStream,
    image_base: Svma,
    id: &DebugId,
    source: &Digest,
) -> Result<Vec<u8>, String> {
    symseal_symx::write(&TableInput {
        debug_id: id,
        image_base,
        source_sha256: *source.as_bytes(),
        producer: concat!("symseal ", env!("CARGO_PKG_VERSION")),
        strings: &stream.strings,
        functions: &stream.functions,
    })
    .map_err(|error| error.to_string())
}
