//! A file that a command was told to write: it appears whole or not at all; what is no file is written into.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

/// Where the bytes go. Opened before the work is done that they come from, so that an output which cannot be written costs nothing.
pub(crate) enum OutputFile {
    /// Beside the name, under a temporary one.
    Whole(NamedTempFile, PathBuf),
    /// A pipe or a device, which keeps its place.
    Through(File),
}

impl OutputFile {
    /// A link leads to what is written; a file of the name is replaced when the new one is complete.
    pub(crate) fn open(output: &Path) -> Result<Self> {
        let named = || format!("output {}", output.display());
        let path = match fs::canonicalize(output) {
            Ok(path) => path,
            Err(_) if output.is_symlink() => bail!("{}: expected a file or nothing, found a link to nothing", named()),
            Err(_) => output.to_owned(),
        };
        let dir = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => bail!("{}: expected the name of a file, found a directory", named()),
            Ok(found) if !found.is_file() => {
                Ok(Self::Through(File::options().write(true).open(&path).with_context(named)?))
            }
            _ if !dir.is_dir() => bail!("{}: there is no directory {}", named(), dir.display()),
            _ => Ok(Self::Whole(NamedTempFile::new_in(dir).with_context(named)?, path)),
        }
    }

    /// Shows the file under its name, durable.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        match self {
            Self::Whole(file, path) => {
                file.as_file().sync_all()?;
                file.persist(path).map_err(|error| error.error)?;
                Ok(())
            }
            Self::Through(_) => Ok(()),
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Whole(file, _) => file.write(bytes),
            Self::Through(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Whole(file, _) => file.flush(),
            Self::Through(file) => file.flush(),
        }
    }
}
