//! Symbol tables of modules that came without one: made of a loose file, of a file of a tree, or of one that another server has, when somebody
//! first asks, and kept in the cache.
//!
//! What they are made of: debug files (with what dwz moved out of them, and split DWARF that lies in trees), PDBs (with their PE file where
//! that is here too), dSYMs, and symbol files of Breakpad. A bundle's own
//! table goes before them all, and its names rest on the bundle; these rest on a file that somebody uploaded, or that another server sent.

mod companions;

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use companions::{Beside, Companions, Digests};
use symseal_artifact::{
    ArtifactError, BreakpadFile, DebugFiles, FunctionStream, ObjectFile, ReleaseFile, functions, pdb_functions,
};
use symseal_module::{DebugId, Svma};
use symseal_symx::{Strings, Table, TableInput};
use tempfile::NamedTempFile;

use crate::app::App;
use crate::blobs::{BlobDigest, BlobDirectory};
use crate::breakpad::{SymbolFiles, is_title_of, symbol_files};
use crate::debug_files::{FileKind, Key, Scope};
use crate::file_cache::{CacheKey, CachedFile, Note};
use crate::ingest::breakpad_ids;
use crate::unbundled::{FileBytes, MappedFile, Unbundled};
use crate::upstream::Sought;

/// Counts the forms that were made so far: tables of an older one are made again.
const FORM: u32 = 5;

/// What a note of the cache calls the processor of a table.
const ARCH: &str = "arch";

/// And what its file refers to and was not there.
const LACKS: &str = "lacks";

/// And that a package of split DWARF beside it had units of it.
const HAS_PACKAGE: &str = "package";

/// What made them.
const PRODUCER: &str = concat!("symseal-server ", env!("CARGO_PKG_VERSION"));

/// Files of one kind that are tried for one id.
const TRIED: usize = 4;

/// Files that are remembered as giving no table.
const REMEMBERED: usize = 1 << 14;

/// The files that give no table, with the reason: for as long as the server runs, none of them is read again in vain.
#[derive(Debug, Default)]
pub(crate) struct Tableless {
    known: Mutex<HashMap<CacheKey, String>>,
}

impl Tableless {
    fn check(&self, key: &CacheKey) -> io::Result<()> {
        self.lock().get(key).map_or(Ok(()), |why| Err(io::Error::new(io::ErrorKind::InvalidData, why.clone())))
    }

    /// Remembers what the bytes of a file are to blame for. What a disk says may be another thing next time.
    fn add(&self, key: CacheKey, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            let mut known = self.lock();
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(key, error.to_string());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CacheKey, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A table in the cache.
#[derive(Debug)]
pub(crate) struct MadeTable {
    file: MappedFile,
    /// SHA-256 of the table, in hex.
    pub(crate) sha256: String,
    /// SHA-256 of the file that it was made of, in hex.
    pub(crate) source: String,
    /// That file.
    pub(crate) origin: Unbundled,
    /// The processor, as the symbol index names it; empty where that is not known.
    pub(crate) arch: String,
    /// SHA-256 of the files beside that file that it was made of as well: what dwz moved out, split DWARF. In hex.
    pub(crate) companions: Vec<String>,
    /// What the file refers to and was not to be had, for people; empty where nothing is missing.
    pub(crate) lacks: String,
}

impl MadeTable {
    pub(crate) fn has_functions(&self) -> bool {
        Table::open(self).is_ok_and(|table| table.counts().functions > 0)
    }
}

impl Deref for MadeTable {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.file
    }
}

/// The table of the module with Breakpad's id, of the best file that the caller may read and that gives one with functions; none where there is no
/// file. Where none has functions the table has none. Where nothing here gives functions, other servers are asked.
///
/// # Errors
/// No file gives one, not even one without functions. [`io::ErrorKind::InvalidData`] where that is so for what they have in them; else another time may be better.
pub(crate) async fn made_table(
    app: &App,
    scope: &Scope,
    (guid, age): ([u8; 16], u32),
    sought: &Sought<'_>,
) -> Option<io::Result<MadeTable>> {
    // It says where the image begins, wherever the PDB lies.
    let image = Unbundled::find(app, scope, &Key::Id(DebugId::Pdb { guid, age }), FileKind::Executable);
    let mut best = Best::default();
    for origin in origins(app, scope, (guid, age), sought.name).await {
        if let Some(made) = best.of(make(app, scope, (guid, age), origin, image.as_ref(), sought).await) {
            return Some(Ok(made));
        }
    }
    for origin in sought.bring(app, scope, (guid, age)).await {
        let made = match origin {
            Ok(origin) => make(app, scope, (guid, age), origin, image.as_ref(), sought).await,
            Err(error) => Err(error),
        };
        if let Some(made) = best.of(made) {
            return Some(Ok(made));
        }
    }
    best.without_functions.map(Ok).or(best.failed.map(Err))
}

/// What came of the files that were tried so far.
#[derive(Default)]
struct Best {
    without_functions: Option<MadeTable>,
    failed: Option<io::Error>,
}

impl Best {
    /// The table, if no further file need be tried.
    fn of(&mut self, made: io::Result<MadeTable>) -> Option<MadeTable> {
        match made {
            Ok(made) if made.has_functions() => return Some(made),
            Ok(made) => {
                self.without_functions.get_or_insert(made);
            }
            // One that may be had later says more than one that never will.
            Err(error) if self.failed.as_ref().is_none_or(|failed| failed.kind() == io::ErrorKind::InvalidData) => {
                self.failed = Some(error);
            }
            Err(_) => {}
        }
        None
    }
}

/// Every file here that a table may be made of, the best first: what was uploaded, then what lies in trees. Symbol files go behind what they were made of, and
/// those alone count that are called as the module is, where some are.
async fn origins(app: &App, scope: &Scope, (guid, age): ([u8; 16], u32), name: Option<&str>) -> Vec<Unbundled> {
    let key = Key::Breakpad { guid, age };
    let debug_files = app.debug_files.find_several(scope, &key, FileKind::Debuginfo, TRIED);
    let mut found: Vec<Unbundled> = debug_files.into_iter().map(Unbundled::Blob).collect();
    found.extend(Unbundled::in_trees(app, scope, &key, FileKind::Debuginfo));
    let SymbolFiles { named, others } = symbol_files(app, scope, (guid, age), name).await;
    let (in_trees, others_in_trees): (Vec<_>, Vec<_>) = Unbundled::in_trees(app, scope, &key, FileKind::SymbolFile)
        .partition(|file| name.is_some_and(|name| is_title_of(file.name(), name)));
    let is_named = !named.is_empty() || !in_trees.is_empty();
    let (uploaded, in_trees) = if is_named { (named, in_trees) } else { (others, others_in_trees) };
    found.extend(uploaded.into_iter().take(TRIED).map(Unbundled::Blob));
    found.extend(in_trees);
    found
}

async fn make(
    app: &App,
    scope: &Scope,
    (guid, age): ([u8; 16], u32),
    origin: Unbundled,
    image: Option<&Unbundled>,
    sought: &Sought<'_>,
) -> io::Result<MadeTable> {
    let mut beside = Companions::find(app, scope, &origin, sought).await?;
    let (source, with) = (origin.sha256(), image.map(Unbundled::sha256).unwrap_or_default());
    let key_of = |companions: &Digests| {
        CacheKey::of(&format!("symx {FORM} {PRODUCER} {source} {with} {guid:?} {age} {}", companions.text()))
    };
    if !app.cache.has(&key_of(&beside.digests())) {
        // What is not as it was when it was read is not what the table is made with, nor what it is known by.
        beside.gather(app).await?;
    }
    let companions = beside.digests();
    let (key, pools) = (key_of(&companions), (&app.pool, &app.making));
    app.tableless.check(&key)?;
    // What it is made of is fetched by itself: one wait within the other could hold all places of the pool.
    let parts = match app.cache.has(&key) {
        true => None,
        false => {
            let bytes = origin.bytes(app).await?;
            let image = match image {
                Some(image) => Some(image.bytes(app).await?),
                None => None,
            };
            Some(Parts { bytes, image, beside: beside.bytes(app).await? })
        }
    };
    let (blobs, largest) = (Arc::clone(&app.blobs), app.limits.symbol_file());
    let job = move |file: &mut NamedTempFile| write(&blobs, largest, (guid, age), parts, file);
    let made = app.cache.make(pools, key.clone(), job).await.inspect_err(|error| {
        tracing::warn!(sha256 = source, %error, "no symbol table is made of a file");
        app.tableless.add(key, error);
    })?;
    let Note { sha256, headers } = made.note;
    let said =
        |wanted| headers.iter().find(|(name, _)| name == wanted).map(|(_, said)| said.clone()).unwrap_or_default();
    let (arch, lacks) = (said(ARCH), said(LACKS));
    let companions = companions.made_with(headers.iter().any(|(name, _)| name == HAS_PACKAGE));
    let file = FileBytes::Copy(CachedFile { note: Note::default(), ..made }).map(&app.blobs)?;
    Ok(MadeTable { file, sha256, source, origin, arch, companions, lacks })
}

/// What a table is made of.
struct Parts<F> {
    /// The file.
    bytes: F,
    /// Of a PDB its PE file.
    image: Option<F>,
    beside: Beside<F>,
}

fn write(
    blobs: &BlobDirectory,
    largest: u64,
    id: ([u8; 16], u32),
    parts: Option<Parts<FileBytes>>,
    out: &mut NamedTempFile,
) -> io::Result<Note> {
    let Parts { bytes, image, beside } = parts.ok_or_else(|| io::Error::other("the cache let the table go"))?;
    let image = image.map(|image| image.map(blobs)).transpose()?;
    let parts = Parts { bytes: bytes.map(blobs)?, image, beside: beside.map(blobs)? };
    let Read { table, arch, lacks, has_package } =
        table(&parts, largest, id).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Table::open(&table).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    out.write_all(&table)?;
    let mut headers = vec![(ARCH.to_owned(), arch), (LACKS.to_owned(), lacks)];
    headers.extend(has_package.then(|| (HAS_PACKAGE.to_owned(), "yes".to_owned())));
    Ok(Note { sha256: BlobDigest::of(&table).hex().to_owned(), headers })
}

/// Why there is no table of a file.
#[derive(Debug, thiserror::Error)]
enum NoTable {
    #[error("no symbol table can be made of it: {0}")]
    Artifact(#[from] ArtifactError),
    #[error(
        "a symbol file of {found} bytes, at most {largest} are made a table of within the server's memory for that (limits.table_memory): publish the module's debug file in a bundle, whose table is made there, or ask the server's operator to raise it"
    )]
    TooLarge { largest: u64, found: usize },
    #[error("no symbol table can be made of it: {0}")]
    Other(String),
}

/// A table with the processor of its module, what its file refers to and was not there, and whether a package had units of it.
struct Read {
    table: Vec<u8>,
    arch: String,
    lacks: String,
    has_package: bool,
}

/// The table of a file's module with this id. A symbol file has `largest` bytes at most.
fn table(parts: &Parts<MappedFile>, largest: u64, (guid, age): ([u8; 16], u32)) -> Result<Read, NoTable> {
    let (bytes, image): (&[u8], _) = (&parts.bytes, parts.image.as_deref());
    let (mut lacks, mut has_package) = (String::new(), false);
    let is_wanted = |id: &DebugId, arch: &str| breakpad_ids(id, arch).any(|found| found == (guid, age));
    let (id, arch, base, stream) = if BreakpadFile::is_one(bytes) {
        if bytes.len() as u64 > largest {
            return Err(NoTable::TooLarge { largest, found: bytes.len() });
        }
        let file = BreakpadFile::parse(bytes)?;
        (file.debug_id()?, file.arch().to_owned(), Svma(0), file.functions())
    } else {
        let mut parsed = ReleaseFile::parse(bytes)?;
        match &mut parsed {
            ReleaseFile::Object(object) => {
                let found = of_object(object, &parts.beside)?;
                (lacks, has_package) = (parts.beside.lacks(object, &found.3), parts.beside.has_units(object));
                found
            }
            ReleaseFile::Fat(slices) => {
                let is_own =
                    |slice: &&ObjectFile<'_>| slice.debug_id().is_some_and(|id| is_wanted(id, slice.arch().code()));
                let slice = slices.iter().find(is_own);
                of_object(slice.ok_or_else(|| NoTable::Other("it has no such slice".to_owned()))?, &Beside::default())?
            }
            ReleaseFile::Pdb(pdb) => {
                let image = image.and_then(|image| ObjectFile::parse(image).ok());
                let with = DebugFiles { pdb: Some(pdb), ..DebugFiles::default() };
                let paired = image.as_ref().and_then(|image| Some((image.image_base(), functions(image, &with).ok()?)));
                let (base, stream) = paired.map_or_else(|| pdb_functions(pdb).map(|stream| (Svma(0), stream)), Ok)?;
                (pdb.debug_id(), pdb.arch().code().to_owned(), base, stream)
            }
            // Its functions get their addresses at run time.
            ReleaseFile::PortablePdb(pdb) => (pdb.debug_id(), String::new(), Svma(0), nothing()),
        }
    };
    let input = TableInput {
        debug_id: &id,
        image_base: base,
        source_sha256: BlobDigest::of(bytes).bytes().try_into().unwrap_or_default(),
        producer: PRODUCER,
        strings: &stream.strings,
        functions: &stream.functions,
    };
    let table = symseal_symx::write(&input).map_err(|error| NoTable::Other(error.to_string()))?;
    Ok(Read { table, arch, lacks, has_package })
}

fn of_object(
    object: &ObjectFile<'_>,
    beside: &Beside<MappedFile>,
) -> Result<(DebugId, String, Svma, FunctionStream), NoTable> {
    let id = object.debug_id().cloned().ok_or_else(|| NoTable::Other("it has no debug id".to_owned()))?;
    let arch = object.arch().code().to_owned();
    let supplementary = beside.supplementary.as_deref().and_then(|bytes| ObjectFile::parse(bytes).ok());
    let split = beside.split();
    let with = DebugFiles { supplementary: supplementary.as_ref(), split: &split, ..DebugFiles::default() };
    Ok((id, arch, object.image_base(), functions(object, &with)?))
}

fn nothing() -> FunctionStream {
    FunctionStream {
        functions: Vec::new(),
        strings: Strings::default(),
        sources: Vec::new(),
        statistics: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_files_bytes_are_to_blame_for_is_remembered_and_what_a_disk_says_is_not() {
        let (tableless, key) = (Tableless::default(), CacheKey::of("a file"));
        tableless.add(key.clone(), &io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(tableless.check(&key).is_ok());
        tableless.add(key.clone(), &io::Error::new(io::ErrorKind::InvalidData, "no debug information"));
        assert_eq!(tableless.check(&key).unwrap_err().to_string(), "no debug information");
        for number in 0..2 * REMEMBERED {
            let error = io::Error::from(io::ErrorKind::InvalidData);
            tableless.add(CacheKey::of(&number.to_string()), &error);
        }
        assert!(tableless.lock().len() <= REMEMBERED);
    }
}
