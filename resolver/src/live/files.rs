//! The files of a module as its process sees them.

use std::fs::File;
use std::io;
use std::path::Path;

use symseal_module::MappedModule;
use symseal_process::{ProcessError, ProcessModule, open_in_root, open_module};

use crate::{ModuleFiles, ThisMachine};

/// The files of one module of a process: its own, by the mapping, and those beside it, below the process's root directory.
#[derive(Debug)]
pub(super) struct ProcessFiles {
    pub(super) pid: u32,
    pub(super) module: ProcessModule,
}

impl ModuleFiles for ProcessFiles {
    fn open(&self, _module: &MappedModule) -> io::Result<File> {
        match open_module(self.pid, &self.module) {
            Ok(opened) => Ok(opened.file),
            Err(ProcessError::Io { error, .. }) => Err(error),
            Err(error @ ProcessError::NotPermitted { .. }) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, error.to_string()))
            }
            Err(error @ (ProcessError::Replaced { .. } | ProcessError::NoSuchProcess { .. })) => {
                Err(io::Error::new(io::ErrorKind::NotFound, error.to_string()))
            }
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn open_path(&self, path: &Path) -> io::Result<File> {
        open_in_root(self.pid, path)
    }

    /// Containers are seldom given debug files, and an image may bring those of another build: the ones of this machine count where their ids are the
    /// module's.
    fn open_elsewhere(&self, path: &Path) -> io::Result<File> {
        let file = ThisMachine.open_path(path)?;
        match open_in_root(self.pid, path) {
            Ok(inside) if is_one_file(&inside, &file) => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(file),
        }
    }
}

#[cfg(unix)]
fn is_one_file(a: &File, b: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let place = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).ok();
    place(a) == place(b)
}

/// Other systems have no root directory for each process.
#[cfg(not(unix))]
fn is_one_file(_: &File, _: &File) -> bool {
    true
}
