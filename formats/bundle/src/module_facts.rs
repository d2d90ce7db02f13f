//! What the naming of addresses needs to know of a module, in few bytes: the symbol index has far more.

use symseal_module::Svma;

use crate::{DebugInfo, Digest, FileEntry, FileRole, ModuleEntry};

/// A module of a bundle as the resolver sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleFacts {
    /// File name of the binary, without directories.
    pub name: String,
    /// File name of its program database, where it has one.
    pub pdb: Option<String>,
    /// The lowest loaded svma.
    pub image_base: Svma,
    /// The best debug information that the bundle holds of it.
    pub debug_info: DebugInfo,
    /// Its symbol table.
    pub table: Option<TableFacts>,
    /// The digests of its files and of what these were derived from.
    pub digests: Vec<Digest>,
}

/// A symbol table of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFacts {
    /// Its digest, which is that of its blob.
    pub sha256: Digest,
    /// Bytes.
    pub size: u64,
    /// What it was derived from.
    pub derived_from: Vec<Digest>,
}

impl From<&ModuleEntry> for ModuleFacts {
    fn from(module: &ModuleEntry) -> Self {
        let of_file = |file: &FileEntry| std::iter::once(file.sha256).chain(file.derived_from.clone());
        Self {
            name: module.name.clone(),
            pdb: module.pdb.as_ref().map(|pdb| pdb.name.clone()),
            image_base: module.image_base,
            debug_info: module.debug_info,
            table: module.file(FileRole::SymbolTable).map(|file| TableFacts {
                sha256: file.sha256,
                size: file.size,
                derived_from: file.derived_from.clone(),
            }),
            digests: module.files.iter().flat_map(of_file).collect(),
        }
    }
}
