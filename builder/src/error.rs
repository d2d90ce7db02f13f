//! Why a bundle was not built.

use std::io;
use std::path::PathBuf;

use symseal_artifact::ArtifactError;
use symseal_bundle::compose::ComposeError;
use symseal_bundle::seal::StatementError;
use symseal_bundle::{FileRole, IndexError, LayoutError};

/// Why a bundle was not built. Nothing became visible in the layout.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An input cannot be read.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file that was named is no ELF file, or is damaged.
    #[error("{path}: {source}")]
    Artifact {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ArtifactError,
    },
    /// A file that was named is of a kind that bundles do not hold.
    #[error("{path}: expected {expected}, found {found}")]
    Unsuitable {
        /// The file.
        path: PathBuf,
        /// What a bundle holds.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// Two different files for one role of one module.
    #[error("{first} and {second} both claim to be the {role} file of {id}, and differ; leave one out")]
    Conflict {
        /// The debug id.
        id: String,
        /// The role.
        role: FileRole,
        /// The one file.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
    },
    /// A file that a debugger would run, or that holds text that it would run.
    #[error("{path} is refused: {problem}")]
    DebuggerScript {
        /// The file.
        path: PathBuf,
        /// What it holds.
        problem: &'static str,
    },
    /// The file was written to while the bundle was built.
    #[error("{path} changed while the bundle was built; build again when it is finished")]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The inputs hold no module.
    #[error("expected at least one ELF executable, library or debug file, found none in {paths} ({files} other files)")]
    NoModules {
        /// What was looked at.
        paths: String,
        /// Files that are something else.
        files: u64,
    },
    /// A file has more symbols than a symbol table can hold.
    #[error("{path}: {source}")]
    SymbolTable {
        /// The file.
        path: PathBuf,
        /// What the writer says.
        source: symseal_symx::WriteError,
    },
    /// The release's name or version.
    #[error(transparent)]
    Release(#[from] StatementError),
    /// The layout cannot be written.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The manifests cannot be made.
    #[error(transparent)]
    Compose(#[from] ComposeError),
    /// The index cannot be written.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A module's index cannot be written.
    #[error("the index of {module} cannot be written: {problem}")]
    ModuleIndex {
        /// The module.
        module: String,
        /// What the JSON writer says.
        problem: String,
    },
}
