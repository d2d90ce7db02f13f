//! The symbols and the identities of the running kernel and its modules.

use std::fs;
use std::path::PathBuf;

use symseal_module::DebugId;

use crate::elf::build_id_in;
use crate::{KernelSymbols, ProcessError};

/// The functions of the running kernel, as this process may see them. Takes some ten milliseconds.
///
/// # Errors
/// [`ProcessError::KernelSymbols`] where the kernel hides its addresses.
pub fn kernel_symbols() -> Result<KernelSymbols, ProcessError> {
    let path = PathBuf::from("/proc/kallsyms");
    let text = fs::read(&path).map_err(|error| ProcessError::Io { path, error })?;
    KernelSymbols::parse(&text).map_err(|error| ProcessError::KernelSymbols { error })
}

/// The build-id of the running kernel, or of one of its modules by name; `None` where it tells none.
pub fn kernel_build_id(module: Option<&str>) -> Option<DebugId> {
    let path = match module {
        None => PathBuf::from("/sys/kernel/notes"),
        Some(module) if module.contains('/') || module.starts_with('.') => return None,
        Some(module) => PathBuf::from(format!("/sys/module/{module}/notes/.note.gnu.build-id")),
    };
    build_id_in(&fs::read(path).ok()?, 4)
}
