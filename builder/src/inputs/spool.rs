//! Members of archives, kept until the bundle is built.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use symseal_bundle::pages::{DEBUG_FILE_PAGE, Measured, measure_reader};
use symseal_bundle::{Digest, LayoutDir, Scratch};

use super::file_bytes::FileBytes;
use crate::error::{BuildError, io_error};

/// A directory for release files that came out of archives, each once, by its digest. It is made when the first one
/// comes, and removed with what is left in it when this is dropped.
///
/// It lies in the layout's `ingest/`, so that a kept file becomes a blob by a rename; where nothing is stored, among the
/// system's temporary files.
#[derive(Debug)]
pub(crate) struct Spool {
    parent: PathBuf,
    directory: Mutex<Option<Scratch>>,
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
        let path = self.directory()?.join(digest.hex());
        if path.exists() {
            return Ok(path);
        }
        let (mut file, unfinished) = self.begin()?;
        file.write_all(bytes).map_err(io_error("write", &unfinished.path))?;
        drop(file);
        unfinished.finish(digest)
    }

    /// Writes down what `input` gives, to its end, without holding it in memory; `place` is what errors call it. It is kept when it is
    /// [finished](Written::keep).
    pub(crate) fn write(&self, input: &mut dyn Read, place: &str) -> Result<Written, BuildError> {
        let (file, unfinished) = self.begin()?;
        let mut copied = Copied { input, file, failure: None };
        let measured = measure_reader(&mut copied, DEBUG_FILE_PAGE);
        if let Some(error) = copied.failure {
            return Err(io_error("write", &unfinished.path)(error));
        }
        let measured = measured.map_err(io_error("read", Path::new(place)))?;
        let bytes = FileBytes::of_own(&unfinished.path).map_err(io_error("read", &unfinished.path))?;
        Ok(Written { bytes, measured, unfinished })
    }

    /// A file of its own for each: two threads may have the same bytes, and the name is given to whole files alone.
    fn begin(&self) -> Result<(File, Unfinished), BuildError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let directory = self.directory()?;
        let path = directory.join(format!("{}.tmp", NEXT.fetch_add(1, Ordering::Relaxed)));
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(io_error("create", &path))?;
        Ok((file, Unfinished { path }))
    }

    fn directory(&self) -> Result<PathBuf, BuildError> {
        let mut made = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scratch) = &*made {
            return Ok(scratch.path().to_owned());
        }
        fs::create_dir_all(&self.parent).map_err(io_error("create the directory", &self.parent))?;
        let scratch = Scratch::beside(&self.parent).map_err(io_error("create a directory in", &self.parent))?;
        Ok(made.insert(scratch).path().to_owned())
    }
}

/// A file without its name. It goes when this does.
#[derive(Debug)]
struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Gives it its name; where it is then.
    fn finish(self, digest: &Digest) -> Result<PathBuf, BuildError> {
        let path = self.path.with_file_name(digest.hex());
        fs::rename(&self.path, &path).map_err(io_error("rename a file to", &path))?;
        Ok(path)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After the rename there is none; and what stays goes with the directory.
        let _ = fs::remove_file(&self.path);
    }
}

/// Bytes that were written down, whether they are worth keeping or not.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) bytes: FileBytes,
    pub(crate) measured: Measured,
    unfinished: Unfinished,
}

impl Written {
    /// Keeps them; where they are, and what was measured.
    pub(crate) fn keep(self) -> Result<(PathBuf, Measured), BuildError> {
        let Self { bytes, measured, unfinished } = self;
        drop(bytes);
        Ok((unfinished.finish(&measured.digest)?, measured))
    }
}

/// What is read is written down as well.
struct Copied<'i> {
    input: &'i mut dyn Read,
    file: File,
    /// Why it could not be written, apart from why it could not be read.
    failure: Option<io::Error>,
}

impl Read for Copied<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        if let Err(error) = self.file.write_all(buffer.get(..read).unwrap_or_default()) {
            self.failure = Some(error);
            return Err(io::ErrorKind::Other.into());
        }
        Ok(read)
    }
}
