//! The file that was read last, for the step behind the one that read it.

use std::sync::{Mutex, PoisonError};

use symseal_module::MappedModule;

use super::Local;
use crate::FileBytes;

/// A module's own file, which is asked for its link first and, where that leads nowhere, for its functions next.
#[derive(Debug, Default)]
pub(super) struct LastBinary(Mutex<Option<(MappedModule, FileBytes)>>);

impl LastBinary {
    /// Keeps the bytes of one module's file, and no other's.
    pub(super) fn keep(&self, module: &MappedModule, bytes: FileBytes) {
        self.put(Some((module.clone(), bytes)));
    }

    /// The bytes, where they are of this module.
    pub(super) fn take(&self, module: &MappedModule) -> Option<FileBytes> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.take_if(|(of, _)| of == module).map(|(_, bytes)| bytes)
    }

    fn put(&self, kept: Option<(MappedModule, FileBytes)>) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), kept);
        drop(before);
    }
}

/// A module's own file, for a step that may read it with another one.
#[derive(Clone, Copy)]
pub(crate) struct OwnFile<'f> {
    pub(crate) local: &'f Local,
    pub(crate) module: &'f MappedModule,
}

impl OwnFile<'_> {
    /// Its bytes, where they can be read.
    pub(crate) fn read(&self) -> Option<FileBytes> {
        self.local.binary_once(self.module).ok()
    }

    /// Leaves them to the step behind.
    pub(crate) fn keep(&self, bytes: FileBytes) {
        self.local.last_binary.keep(self.module, bytes);
    }
}
