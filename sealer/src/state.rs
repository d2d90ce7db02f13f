//! The state directory of a verifier: what it saw last.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use symseal_seal::Seen;
use symseal_seal::seen::{SEEN_LIMIT, SeenError};

use crate::durable::Disk;

/// The one file in it, beside its lock.
const SEEN_FILE: &str = "seen.json";
/// Held while the file is changed.
const LOCK_FILE: &str = ".lock";

/// A state directory.
#[derive(Debug, Clone)]
pub struct StateDir {
    directory: PathBuf,
}

/// The state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file system said no.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The file is damaged. It is not taken for an empty one: that would forget.
    #[error("{}: {source}; restore it, or remove it knowing that older policies and other histories are not noticed then", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SeenError,
    },
}

impl StateDir {
    /// The state in this directory, which need not be there yet.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// What was seen; nothing where there is no state yet.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn load(&self) -> Result<Seen, StateError> {
        let path = self.directory.join(SEEN_FILE);
        let io = |source| StateError::Io { path: path.clone(), doing: "read it", source };
        let length = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Seen::default()),
            metadata => metadata.map_err(io)?.len(),
        };
        // One byte more than allowed is enough to be refused.
        if length > SEEN_LIMIT as u64 {
            return Err(io(io::Error::other(format!("{length} bytes are more than any state has"))));
        }
        let bytes = fs::read(&path).map_err(io)?;
        Seen::parse(&bytes).map_err(|source| StateError::Content { path: path.clone(), source })
    }

    /// Changes the state: reads it, lets `change` add to it, and puts it back whole. One process at a time. Gives what `change`
    /// gave.
    ///
    /// # Errors
    /// [`StateError`]; on a read-only medium always.
    pub fn record<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> Result<T, StateError> {
        let io = |path: &Path, doing| {
            let path = path.to_owned();
            move |source| StateError::Io { path, doing, source }
        };
        let disk = Disk::default();
        disk.make_directory(&self.directory).map_err(io(&self.directory, "make it"))?;
        let lock = self.directory.join(LOCK_FILE);
        let file =
            File::options().create(true).truncate(false).write(true).open(&lock).map_err(io(&lock, "open it"))?;
        file.lock().map_err(io(&lock, "lock it"))?;
        let before = self.load()?;
        let mut seen = before.clone();
        let told = change(&mut seen);
        if seen == before {
            return Ok(told);
        }
        let path = self.directory.join(SEEN_FILE);
        disk.replace(&path, &seen.to_json()).map_err(io(&path, "write it"))?;
        Ok(told)
    }
}
