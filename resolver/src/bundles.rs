//! The step "local bundle": symbol tables by debug id.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use symseal_bundle::stored_modules::{self, StoredModules};
use symseal_bundle::{
    Bundle, BundleError, DebugInfo, Digest, FileEntry, FileRole, LayoutDir, LayoutError, ModuleFacts,
};
use symseal_module::{DebugId, MissReason, Proof};

use crate::flights::Flights;
use crate::table::{LoadedTable, TableBytes};

/// Tables kept open per bundle.
const OPEN_TABLES: usize = 1024;

/// How the files of a bundle may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The bundle lies in a store that symseal itself wrote, where nothing is rewritten after its
    /// rename: tables may be mapped.
    OwnStore,
    /// Anything else, such as what another tool pulled: tables are read.
    Foreign,
}

/// Why a bundle has no table of a module: the reason and, for people, a word about it.
pub(crate) type NoTable = (MissReason, String);

/// A bundle of our own store, opened by the list of its modules alone: no JSON is read, and its tables are mapped without being hashed. Their digests were
/// checked when they came into the store (`symseal store scrub` checks them again); who asks for proof opens a [`Bundle`] and verifies it.
#[derive(Debug)]
pub struct StoredBundle {
    layout: LayoutDir,
    modules: TableBytes,
    /// Whether all of the list is as it was written: looked at when it is to say that there is no such module.
    is_whole: OnceLock<bool>,
    /// The bundle itself, in the place of a damaged list.
    index: OnceLock<Result<Box<Bundle>, NoTable>>,
    digest: Digest,
    index_digest: Digest,
}

impl StoredBundle {
    /// Opens the bundle `digest` of the store `layout`. Where the list of its modules is not there yet, it is made of the symbol index.
    ///
    /// # Errors
    /// Where the list is not there and the bundle cannot be opened.
    pub fn open(layout: LayoutDir, digest: &Digest) -> Result<Self, BundleError> {
        let kept = File::open(layout.modules_path(digest)).and_then(|file| TableBytes::map(&file)).ok();
        if let Some(modules) = kept
            && let Ok(list) = StoredModules::open(modules.as_slice())
            && list.bundle() == *digest
        {
            let index_digest = list.symbol_index();
            return Ok(Self::new(layout, modules, *digest, index_digest));
        }
        let bundle = Bundle::open(layout.clone(), Some(digest))?;
        let index_digest = bundle.index_digest();
        let modules = keep_list(&layout, &bundle, digest);
        Ok(Self::new(layout, TableBytes::Owned(modules), *digest, index_digest))
    }

    fn new(layout: LayoutDir, modules: TableBytes, digest: Digest, index_digest: Digest) -> Self {
        Self { layout, modules, is_whole: OnceLock::new(), index: OnceLock::new(), digest, index_digest }
    }

    /// What is known of a module.
    ///
    /// # Errors
    /// Where the list is damaged and the index that it was made of cannot be read: nobody can say whether the bundle has the module.
    fn facts(&self, id: &DebugId) -> Result<Option<ModuleFacts>, NoTable> {
        if let Ok(list) = StoredModules::open(self.modules.as_slice()) {
            match list.module(id) {
                Ok(Some(facts)) => return Ok(Some(facts)),
                Ok(None) if *self.is_whole.get_or_init(|| list.check().is_ok()) => return Ok(None),
                Ok(None) | Err(_) => {}
            }
        }
        let opened = self.index.get_or_init(|| {
            let bundle = Bundle::open(self.layout.clone(), Some(&self.digest)).map_err(|error| {
                let list = self.layout.modules_path(&self.digest);
                let why =
                    format!("the list of the bundle's modules {} is damaged, and its index: {error}", list.display());
                (miss_reason(&error), why)
            })?;
            keep_list(&self.layout, &bundle, &self.digest);
            Ok(Box::new(bundle))
        });
        opened.as_ref().map(|bundle| bundle.module(id).map(ModuleFacts::from)).map_err(Clone::clone)
    }
}

/// Makes the list of a bundle's modules, and keeps it for the next who asks.
fn keep_list(layout: &LayoutDir, bundle: &Bundle, digest: &Digest) -> Vec<u8> {
    // A bundle of more than fits the list is none that an index can describe: 4 GiB of facts.
    let modules = stored_modules::write(bundle.index(), &bundle.index_digest(), digest).unwrap_or_default();
    // A store that may not be written to is slower to open, and no worse.
    let _ = layout.keep_modules(digest, &modules);
    modules
}

#[derive(Debug)]
enum Form {
    Opened(Box<Bundle>, Access),
    Stored(StoredBundle),
}

/// A bundle, with the tables that were opened so far.
#[derive(Debug)]
pub(crate) struct BundleSource {
    form: Form,
    pub(crate) proof: Proof,
    /// The bundle's digest; what `oras pull` left has none.
    pub(crate) digest: Option<Digest>,
    pub(crate) index_digest: Digest,
    tables: Flights<DebugId, Result<Arc<LoadedTable>, NoTable>>,
}

impl BundleSource {
    pub(crate) fn new(bundle: Bundle, proof: Proof, access: Access) -> Self {
        let (digest, index_digest) = (bundle.digest(), bundle.index_digest());
        let tables = Flights::with_capacity(OPEN_TABLES);
        Self { form: Form::Opened(Box::new(bundle), access), proof, digest, index_digest, tables }
    }

    pub(crate) fn of_store(bundle: StoredBundle, proof: Proof) -> Self {
        let (digest, index_digest) = (Some(bundle.digest), bundle.index_digest);
        Self { form: Form::Stored(bundle), proof, digest, index_digest, tables: Flights::with_capacity(OPEN_TABLES) }
    }

    /// Whether the bundle has the module.
    pub(crate) fn has(&self, id: &DebugId) -> bool {
        match &self.form {
            Form::Opened(bundle, _) => bundle.module(id).is_some(),
            Form::Stored(stored) => matches!(stored.facts(id), Ok(Some(_))),
        }
    }

    /// What the bundle says of the module.
    ///
    /// # Errors
    /// Where it cannot be said whether it has the module.
    pub(crate) fn find(&self, id: &DebugId) -> Result<Option<ModuleFacts>, NoTable> {
        match &self.form {
            Form::Opened(bundle, _) => Ok(bundle.module(id).map(ModuleFacts::from)),
            Form::Stored(stored) => stored.facts(id),
        }
    }

    /// The same, where a bundle that cannot say it says nothing.
    pub(crate) fn facts(&self, id: &DebugId) -> Option<ModuleFacts> {
        self.find(id).ok()?
    }

    /// How much debug information the bundle has of the module.
    pub(crate) fn debug_info(&self, id: &DebugId) -> Option<DebugInfo> {
        match &self.form {
            Form::Opened(bundle, _) => bundle.module(id).map(|module| module.debug_info),
            Form::Stored(stored) => stored.facts(id).ok()?.map(|facts| facts.debug_info),
        }
    }

    /// The symbol table of a module. Its digest is checked when it is opened, once; in a [`StoredBundle`] it was before.
    pub(crate) fn table(&self, id: &DebugId) -> Result<Arc<LoadedTable>, NoTable> {
        self.tables.get(id.clone(), || self.open(id).map(Arc::new))
    }

    /// The bytes of the file that a module's code stands in, and their digest: its executable, or one that is its debug file too.
    pub(crate) fn executable(&self, id: &DebugId, most_bytes: u64) -> Result<(Vec<u8>, Digest), NoTable> {
        let read = |bundle: &Bundle| {
            let module = bundle.module(id).ok_or((MissReason::NotInBundle, String::new()))?;
            let file = module.file(FileRole::Executable).or_else(|| module.file(FileRole::Debuginfo));
            let file =
                file.ok_or((MissReason::NotInBundle, "the bundle has no executable of the module".to_owned()))?;
            if file.size > most_bytes {
                let detail = format!("{}: {} bytes, at most {most_bytes} are read", file.path, file.size);
                return Err((MissReason::FileUnreadable, detail));
            }
            let bytes = bundle.read(file).map_err(|error| (miss_reason(&error), error.to_string()))?;
            Ok((bytes, file.sha256))
        };
        match &self.form {
            Form::Opened(bundle, _) => read(bundle),
            Form::Stored(stored) => {
                let opened = Bundle::open(stored.layout.clone(), Some(&stored.digest));
                read(&opened.map_err(|error| (miss_reason(&error), error.to_string()))?)
            }
        }
    }

    fn open(&self, id: &DebugId) -> Result<LoadedTable, NoTable> {
        let absent = || (MissReason::NotInBundle, String::new());
        let without = || (MissReason::NoSymbolTable, String::new());
        let (bytes, digest, derived_from, path) = match &self.form {
            Form::Opened(bundle, access) => {
                let module = bundle.module(id).ok_or_else(absent)?;
                let file = module.file(FileRole::SymbolTable).ok_or_else(without)?;
                let bytes = match access {
                    Access::OwnStore => checked(map(&bundle.file_path(file))?, file, bundle)?,
                    Access::Foreign => {
                        TableBytes::Owned(bundle.read(file).map_err(|error| (miss_reason(&error), error.to_string()))?)
                    }
                };
                (bytes, file.sha256, file.derived_from.clone(), bundle.file_path(file))
            }
            Form::Stored(stored) => {
                let table = stored.facts(id)?.ok_or_else(absent)?.table.ok_or_else(without)?;
                let path = stored.layout.blob_path(&table.sha256);
                let bytes = map(&path)?;
                let found = bytes.as_slice().len() as u64;
                if found != table.size {
                    let detail = format!("{}: expected {} bytes, found {found}", path.display(), table.size);
                    return Err((MissReason::DigestMismatch, detail));
                }
                (bytes, table.sha256, table.derived_from, path)
            }
        };
        LoadedTable::open(bytes, Some(id), Some(digest), derived_from)
            .map_err(|(reason, detail)| (reason, format!("{}: {detail}", path.display())))
    }
}

fn map(path: &Path) -> Result<TableBytes, NoTable> {
    let unreadable = |error: std::io::Error| (io_reason(&error), format!("{}: {error}", path.display()));
    File::open(path).and_then(|file| TableBytes::map(&file)).map_err(unreadable)
}

fn checked(bytes: TableBytes, entry: &FileEntry, bundle: &Bundle) -> Result<TableBytes, NoTable> {
    let found = Digest::of(bytes.as_slice());
    if found != entry.sha256 {
        let path = bundle.file_path(entry);
        let detail = format!("{}: expected {}, found {found}", path.display(), entry.sha256);
        return Err((MissReason::DigestMismatch, detail));
    }
    Ok(bytes)
}

/// Why a file of a bundle could not be used, as a code.
pub fn miss_reason(error: &BundleError) -> MissReason {
    match error {
        BundleError::File { .. } | BundleError::Layout(LayoutError::Digest { .. } | LayoutError::TooLarge { .. }) => {
            MissReason::DigestMismatch
        }
        BundleError::Layout(LayoutError::Missing { .. }) => MissReason::FileNotFound,
        BundleError::Layout(LayoutError::Io { source, .. }) => io_reason(source),
        _ => MissReason::FileUnreadable,
    }
}

pub(crate) fn io_reason(error: &std::io::Error) -> MissReason {
    match error.kind() {
        std::io::ErrorKind::NotFound => MissReason::FileNotFound,
        _ => MissReason::FileUnreadable,
    }
}
