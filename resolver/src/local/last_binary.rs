//! The file that was read last, for the step behind the one that read it.

use std::sync::{Mutex, PoisonError};

use symseal_module::MappedModule;

/// A module's own file, which is asked for its link first and, where that leads nowhere, for its functions next.
#[derive(Debug, Default)]
pub(super) struct LastBinary(Mutex<Option<(MappedModule, Vec<u8>)>>);

impl LastBinary {
    /// Keeps the bytes of one module's file, and no other's.
    pub(super) fn keep(&self, module: &MappedModule, bytes: Vec<u8>) {
        self.put(Some((module.clone(), bytes)));
    }

    /// The bytes, where they are of this module.
    pub(super) fn take(&self, module: &MappedModule) -> Option<Vec<u8>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.take_if(|(of, _)| of == module).map(|(_, bytes)| bytes)
    }

    fn put(&self, kept: Option<(MappedModule, Vec<u8>)>) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), kept);
        drop(before);
    }
}
