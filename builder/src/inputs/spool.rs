//! Members of archives, kept until the bundle is built.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use symseal_bundle::ingest::temporary_directory;
use symseal_bundle::{Digest, LayoutDir};

use crate::error::{BuildError, io_error};

/// A directory for release files that came out of archives, each once, by its digest. It is made when the first one
/// comes, and removed with what is left in it when this is dropped.
///
/// It lies in the layout's `ingest/`, so that a kept file becomes a blob by a rename; where nothing is stored, among the
/// system's temporary files.
#[derive(Debug)]
pub(crate) struct Spool {
    parent: PathBuf,
    /// With what shows others that it is in use.
    directory: Mutex<Option<(Option<File>, PathBuf)>>,
}

impl Spool {
    /// In a layout's directory for unfinished files.
    pub(crate) fn in_layout(layout: &LayoutDir) -> Self {
        Self { parent: layout.root().join("ingest"), directory: Mutex::new(None) }
    }

    /// Among the system's temporary files.
    pub(crate) fn temporary() -> Self {
        Self { parent: std::env::temp_dir(), directory: Mutex::new(None) }
    }

    /// Keeps the bytes, whose digest is known; where they are.
    pub(crate) fn keep(&self, bytes: &[u8], digest: &Digest) -> Result<PathBuf, BuildError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let directory = self.directory()?;
        let path = directory.join(digest.hex());
        if path.exists() {
            return Ok(path);
        }
        // Two threads may have the same file: each writes its own, and the name is given to whole files alone.
        let unfinished = directory.join(format!("{}.tmp", NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&unfinished)
            .map_err(io_error("create", &unfinished))?;
        file.write_all(bytes).map_err(io_error("write", &unfinished))?;
        drop(file);
        fs::rename(&unfinished, &path).map_err(io_error("rename a file to", &path))?;
        Ok(path)
    }

    fn directory(&self) -> Result<PathBuf, BuildError> {
        let mut made = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, directory)) = &*made {
            return Ok(directory.clone());
        }
        fs::create_dir_all(&self.parent).map_err(io_error("create the directory", &self.parent))?;
        let (held, directory) =
            temporary_directory(&self.parent).map_err(io_error("create a directory in", &self.parent))?;
        *made = Some((held, directory.clone()));
        Ok(directory)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let directory = self.directory.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, directory)) = directory.take() {
            // What is left behind is only untidy: readers ignore `ingest/`.
            let _ = fs::remove_dir_all(directory);
        }
    }
}
