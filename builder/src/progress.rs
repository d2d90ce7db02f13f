//! What a build tells while it goes on.

use std::path::Path;
use std::sync::Arc;

/// Called as a build goes on, from several threads.
pub type ProgressFn = Arc<dyn Fn(&Progress<'_>) + Send + Sync>;

/// The same, as it is passed around within.
pub(crate) type Tell<'t> = dyn Fn(&Progress<'_>) + Send + Sync + 't;

/// What a build is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A file was looked at.
    Looked {
        /// The file.
        path: &'a Path,
        /// Its bytes.
        bytes: u64,
        /// Files in all; the members of archives are not counted.
        total: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
    /// A module is begun: all inputs were looked at.
    Begun {
        /// Modules that are begun, this one among them.
        begun: u64,
        /// Modules in all.
        total: u64,
        /// Its file name.
        name: &'a str,
        /// Bytes of the files of all modules.
        total_bytes: u64,
    },
    /// A module was finished.
    Module {
        /// Modules that are finished.
        done: u64,
        /// Modules in all.
        total: u64,
        /// Its file name.
        name: &'a str,
        /// Bytes of its files.
        bytes: u64,
        /// Bytes of the files of all modules.
        total_bytes: u64,
    },
}
