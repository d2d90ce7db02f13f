//! The step "local bundle": symbol tables by debug id.

use std::fs::File;
use std::sync::Arc;

use symseal_bundle::{Bundle, BundleError, Digest, FileEntry, FileRole, LayoutError, ModuleEntry};
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

/// A bundle, with the tables that were opened so far.
#[derive(Debug)]
pub(crate) struct BundleSource {
    bundle: Bundle,
    access: Access,
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
        Self { bundle, access, proof, digest, index_digest, tables }
    }

    /// The module's entry in the index.
    pub(crate) fn module(&self, id: &DebugId) -> Option<&ModuleEntry> {
        self.bundle.module(id)
    }

    /// The symbol table of a module. Its digest is checked when it is opened, once.
    pub(crate) fn table(&self, id: &DebugId) -> Result<Arc<LoadedTable>, NoTable> {
        self.tables.get(id.clone(), || self.open(id).map(Arc::new))
    }

    fn open(&self, id: &DebugId) -> Result<LoadedTable, NoTable> {
        let module = self.bundle.module(id).ok_or((MissReason::NotInBundle, String::new()))?;
        let file = module.file(FileRole::SymbolTable).ok_or((MissReason::NoSymbolTable, String::new()))?;
        let bytes = match self.access {
            Access::OwnStore => self.map(file)?,
            Access::Foreign => {
                TableBytes::Owned(self.bundle.read(file).map_err(|error| (miss_reason(&error), error.to_string()))?)
            }
        };
        LoadedTable::open(bytes, Some(id), Some(file.sha256), file.derived_from.clone())
    }

    fn map(&self, entry: &FileEntry) -> Result<TableBytes, NoTable> {
        let path = self.bundle.file_path(entry);
        let unreadable = |error: std::io::Error| (io_reason(&error), format!("{}: {error}", path.display()));
        let file = File::open(&path).map_err(unreadable)?;
        let bytes = TableBytes::map(&file).map_err(unreadable)?;
        let found = Digest::of(bytes.as_slice());
        if found != entry.sha256 {
            let detail = format!("{}: expected {}, found {found}", path.display(), entry.sha256);
            return Err((MissReason::DigestMismatch, detail));
        }
        Ok(bytes)
    }
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
