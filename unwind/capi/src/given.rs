//! What a C program gives of a module: its place and its files.
#![allow(unsafe_code, reason = "memory of C programs")]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_void};

use symseal_module::DebugId;

use crate::files::{Bytes, File, FileKind, Files};
use crate::module::Module;
use crate::sized::{self, Sized32};
use crate::status::dwunw_status as S;

/// dwunw_module.flags: what is given in memory stays there, unchanged, until the module is removed; it is not copied.
pub const DWUNW_MODULE_LENT: u32 = 1;
/// dwunw_module.flags: every byte of a table is looked at, not its header alone.
pub const DWUNW_MODULE_VERIFY: u32 = 2;

/// What is known of a module. Of each of the three files give a path, or memory, or neither; both are DWUNW_STATUS_BAD_ARGUMENT, and so is a
/// size without memory, also beside a path. Without any, the module is a range of addresses: its frames are numbered, and unwound by their frame pointers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_module {
    /// sizeof(dwunw_module).
    pub struct_size: u32,
    /// DWUNW_MODULE_LENT, DWUNW_MODULE_VERIFY.
    pub flags: u32,
    /// The actual address of its first page: where the lowest loaded segment is mapped. Without any file it may be the address of any byte;
    /// with one, a start that is not whole pages (of 4,096 bytes) away from where the file says is DWUNW_STATUS_BAD_ARGUMENT.
    pub start: u64,
    /// The actual address after its last byte; 0 where the ELF file or the .uwt says it. A range and a .symx alone need one.
    pub end: u64,
    /// An ELF file: its unwind rules are compiled unless there is a .uwt, its symbols are used where no .symx names an address.
    pub elf_path: *const c_char,
    /// The same in memory.
    pub elf: *const c_void,
    /// Bytes at elf.
    pub elf_size: usize,
    /// A bundle's unwind table.
    pub uwt_path: *const c_char,
    /// The same in memory.
    pub uwt: *const c_void,
    /// Bytes at uwt.
    pub uwt_size: usize,
    /// A bundle's symbol table.
    pub symx_path: *const c_char,
    /// The same in memory.
    pub symx: *const c_void,
    /// Bytes at symx.
    pub symx_size: usize,
    /// The build-id that its files must have, as a mapping's in a perf record; or null. Another one, or none, is DWUNW_STATUS_ID_MISMATCH.
    pub build_id: *const c_void,
    /// Bytes at build_id.
    pub build_id_size: usize,
}

// SAFETY: integers and pointers, the size first.
unsafe impl Sized32 for dwunw_module {}

impl dwunw_module {
    /// Reads what is given at `module`, and makes a module without a number of it. Says how many of its files were known.
    ///
    /// # Safety
    /// `module` is null or what its type says.
    pub(crate) unsafe fn read(module: *const Self, files: &Files) -> Result<(Module, u32), S> {
        // SAFETY: the caller's contract.
        let given = unsafe { sized::read(module) }?;
        if given.flags & !(DWUNW_MODULE_LENT | DWUNW_MODULE_VERIFY) != 0 {
            return Err(S::BadArgument);
        }
        let has_uwt = !given.uwt_path.is_null() || !given.uwt.is_null();
        let sources = [
            Source {
                kind: if has_uwt { FileKind::ElfWithoutRules } else { FileKind::Elf },
                path: given.elf_path,
                memory: given.elf.cast(),
                size: given.elf_size,
            },
            Source {
                kind: FileKind::UnwindTable,
                path: given.uwt_path,
                memory: given.uwt.cast(),
                size: given.uwt_size,
            },
            Source {
                kind: FileKind::SymbolTable,
                path: given.symx_path,
                memory: given.symx.cast(),
                size: given.symx_size,
            },
        ];
        let mut found = Vec::new();
        found.try_reserve_exact(sources.len()).map_err(|_| S::OutOfMemory)?;
        let mut known_files = 0;
        for source in sources {
            // SAFETY: likewise.
            if let Some((file, was_known)) = unsafe { source.file(files, given.flags) }? {
                known_files += u32::from(was_known);
                found.push(file);
            }
        }
        let build_id = match (given.build_id.is_null(), given.build_id_size) {
            (true, 0) => None,
            (true, _) => return Err(S::BadArgument),
            (false, size) => {
                // SAFETY: likewise.
                let bytes = unsafe { core::slice::from_raw_parts(given.build_id.cast(), size) };
                Some(DebugId::from_build_id(bytes).map_err(|_| S::BadArgument)?)
            }
        };
        Ok((Module::new(given.start, given.end, found, build_id)?, known_files))
    }
}

struct Source {
    kind: FileKind,
    path: *const c_char,
    memory: *const u8,
    size: usize,
}

impl Source {
    /// The file, and whether it was known; `None` where none is given.
    ///
    /// # Safety
    /// The path is null or terminated; the memory is null or has `size` bytes.
    unsafe fn file(&self, files: &Files, flags: u32) -> Result<Option<(Arc<File>, bool)>, S> {
        let verify = flags & DWUNW_MODULE_VERIFY != 0;
        // Memory that the caller could not get, say: without the file the module would seem to be a range.
        if self.memory.is_null() && self.size != 0 {
            return Err(S::BadArgument);
        }
        match (self.path.is_null(), self.memory.is_null()) {
            (true, true) => Ok(None),
            (false, false) => Err(S::BadArgument),
            (false, true) => {
                // SAFETY: the caller's contract.
                let path = unsafe { CStr::from_ptr(self.path) };
                files.open(path, self.kind, verify).map(Some)
            }
            (true, false) => {
                if isize::try_from(self.size).is_err() {
                    return Err(S::BadArgument);
                }
                let bytes = if flags & DWUNW_MODULE_LENT != 0 {
                    Bytes::Lent(self.memory, self.size)
                } else {
                    // SAFETY: the caller's contract.
                    unsafe { Bytes::copied(self.memory, self.size) }?
                };
                Ok(Some((Arc::new(File::read(bytes, self.kind, verify)?), false)))
            }
        }
    }
}
