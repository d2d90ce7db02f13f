//! What can be wrong with a log.

use std::io;
use std::path::{Path, PathBuf};

use symseal_seal::CheckpointError;

/// A log cannot be made, opened or appended to.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// No checkpoint in the directory.
    #[error("{}: expected a log with a checkpoint, found none; create one first", path.display())]
    NoLog {
        /// The directory.
        path: PathBuf,
    },
    /// A file of a log that is read over HTTP did not come.
    #[error("{url}: {reason}")]
    Unreachable {
        /// The URL.
        url: String,
        /// What was expected and found.
        reason: String,
    },
    /// Something is in the way of a new log.
    #[error("{}: expected nothing of this name, found something; a log is never overwritten", path.display())]
    Exists {
        /// The file or directory.
        path: PathBuf,
    },
    /// Another process appends to the log.
    #[error("{}: another process holds the log's lease; try again when it is done", path.display())]
    Leased {
        /// The directory.
        path: PathBuf,
    },
    /// A checkpoint is malformed, or signed by another key.
    #[error("{}: {source}; is this the log's own key?", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: CheckpointError,
    },
    /// A file of the log does not hold what the others say.
    #[error("{}: expected {expected}, found {found}; restore the log from an intact copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the other files ask for.
        expected: String,
        /// What it holds.
        found: String,
    },
    /// The log is older than what was seen of it.
    #[error(
        "{}: expected at least {seen} entries of {origin}, as last seen, found {found}: the log was put back from a backup. Appending would sign a second history; bring back the newer log, or start a new one under a new origin",
        path.display()
    )]
    WentBack {
        /// The directory.
        path: PathBuf,
        /// Size last seen.
        seen: u64,
        /// Size now.
        found: u64,
        /// The log.
        origin: String,
    },
    /// The log has another history than the one that was seen.
    #[error(
        "{}: the first {size} entries of {origin} are not those last seen: the log has a second history. Bring back the log that was seen, or start a new one under a new origin",
        path.display()
    )]
    Forked {
        /// The directory.
        path: PathBuf,
        /// Size last seen.
        size: u64,
        /// The log.
        origin: String,
    },
    /// The memory of the last checkpoint is gone.
    #[error(
        "{}: expected the last checkpoint seen of this log of {size} entries, found no such file. If you are sure that the log is its newest state, copy its `checkpoint` there",
        path.display()
    )]
    NothingSeen {
        /// The file.
        path: PathBuf,
        /// Size of the log.
        size: u64,
    },
    /// The log has fewer entries than were asked for.
    #[error("{}: expected a place within its {size} entries, found {found}", path.display())]
    Size {
        /// The directory.
        path: PathBuf,
        /// Its number of entries.
        size: u64,
        /// The place or size that was asked for.
        found: u64,
    },
    /// The entry does not fit a log.
    #[error("expected an entry of at most 65535 bytes, found {found}")]
    EntryTooLarge {
        /// Its size in bytes.
        found: usize,
    },
    /// An earlier append failed at a point where the directory may be ahead.
    #[error("{}: an append failed half-way; open the log again", path.display())]
    MustReopen {
        /// The directory.
        path: PathBuf,
    },
    /// The log key is of small order.
    #[error("expected a log key as `symseal key generate` makes it, found one of small order")]
    WeakKey,
    /// The operating system gave no random bytes.
    #[error("cannot get random bytes for an origin: {reason}")]
    Entropy {
        /// What it said.
        reason: String,
    },
    /// The file system said no.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl LogError {
    pub(super) fn io(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, doing, source }
    }

    pub(super) fn damaged(path: &Path, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), expected: expected.into(), found: found.into() }
    }
}
