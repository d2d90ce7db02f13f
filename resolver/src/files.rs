//! Where the files of modules are read from.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use symseal_module::MappedModule;
use symseal_module::escape::unescape;

/// Opens the files of modules, and those beside them, as the process sees them.
///
/// Implementations open regular files alone: a pipe or a device could block for ever, or do something.
pub trait ModuleFiles: std::fmt::Debug + Send + Sync {
    /// The module's own file. The caller compares its debug id with the module's.
    ///
    /// # Errors
    /// As [`File::open`]; `InvalidInput` for what is no regular file.
    fn open(&self, module: &MappedModule) -> io::Result<File> {
        self.open_path(&path_of(&module.path))
    }

    /// A file by its absolute path.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn open_path(&self, path: &Path) -> io::Result<File>;

    /// Another file by the same absolute path, where there are two: in a container, and on the machine that it runs on. It is asked for where the
    /// first one is not of the module.
    ///
    /// # Errors
    /// As [`Self::open`]; `NotFound` where there is no other.
    fn open_elsewhere(&self, _path: &Path) -> io::Result<File> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The files of this machine, by the paths that the trace has.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisMachine;

impl ModuleFiles for ThisMachine {
    fn open_path(&self, path: &Path) -> io::Result<File> {
        // The kind of file is asked before it is opened.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        File::open(path)
    }
}

/// The path that a trace's text means; a text that means none is taken as it is.
pub(crate) fn path_of(text: &str) -> PathBuf {
    let Some(bytes) = unescape(text) else { return PathBuf::from(text) };
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt;
        PathBuf::from(std::ffi::OsString::from_vec(bytes))
    }
    #[cfg(not(unix))]
    PathBuf::from(String::from_utf8(bytes).unwrap_or_else(|_| text.to_string()))
}
