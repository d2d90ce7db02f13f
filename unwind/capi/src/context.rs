//! A set of modules: one address space, or one program.
#![allow(unsafe_code, reason = "functions with C names")]

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};

use symseal_unwind::Arch;

use crate::files::{Bytes, File, FileKind, Files, Mutex};
use crate::module::Module;
use crate::registers::engine_arch;
use crate::sized::{self, Sized32};
use crate::snapshot::{Published, Snapshot};
use crate::status::{dwunw_status, dwunw_status as S};

/// Modules that a context takes unless told otherwise.
pub const DWUNW_DEFAULT_MODULES: u32 = 4096;
/// Files without a module that a context keeps unless told otherwise.
pub const DWUNW_DEFAULT_WARM_FILES: u32 = 16;

/// dwunw_module.flags: what is given in memory stays there, unchanged, until the module is removed; it is not copied.
pub const DWUNW_MODULE_LENT: u32 = 1;
/// dwunw_module.flags: every byte of a table is looked at, not its header alone.
pub const DWUNW_MODULE_VERIFY: u32 = 2;

/// Settings of a context.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_options {
    /// sizeof(dwunw_options).
    pub struct_size: u32,
    /// The most modules at a time; 0 is DWUNW_DEFAULT_MODULES.
    pub max_modules: u32,
    /// The most files that are kept after their last module was removed; 0 is DWUNW_DEFAULT_WARM_FILES, UINT32_MAX is none.
    pub max_warm_files: u32,
    /// A dwunw_arch: the processor of all modules and captures. 0 is that of the first module with an ELF file or a .uwt, and until there
    /// is one, the processor that this library runs on.
    pub arch: u32,
    /// A context whose files this one shares, and whose max_warm_files count; or null. Either may be shut down first.
    pub share_files_of: *const dwunw_context,
}

// SAFETY: integers and a pointer, the size first.
unsafe impl Sized32 for dwunw_options {}

/// What is known of a module. Of each of the three files give a path, or memory, or neither. Without any, the module is a range
/// of addresses: its frames are numbered, and unwound by their frame pointers.
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
    /// The actual address after its last byte; 0 where the files say it.
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
}

// SAFETY: integers and pointers, the size first.
unsafe impl Sized32 for dwunw_module {}

/// What came of a module.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_module_info {
    /// sizeof(dwunw_module_info), set by the caller.
    pub struct_size: u32,
    /// Its number, which frames refer to. Numbers are not given twice in one context.
    pub module: u32,
    /// DWUNW_STATUS_OK, or DWUNW_STATUS_NO_UNWIND_DATA: frames in it are unwound by frame pointers alone.
    pub unwind: i32,
    /// DWUNW_STATUS_OK, or DWUNW_STATUS_NO_SYMBOLS.
    pub symbols: i32,
    /// First actual address, and the one after the last.
    pub start: u64,
    /// See start.
    pub end: u64,
    /// Actual minus stated address (svma), modulo 2^64.
    pub bias: u64,
    /// How many of its files were known already, in use or warm.
    pub known_files: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: integers alone, the size first.
unsafe impl Sized32 for dwunw_module_info {}

/// How full a context is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_statistics {
    /// sizeof(dwunw_statistics), set by the caller.
    pub struct_size: u32,
    /// Modules now.
    pub modules: u32,
    /// The most modules at a time.
    pub max_modules: u32,
    /// Files that modules use, of all contexts that share them.
    pub active_files: u32,
    /// Files that are kept for the next time.
    pub warm_files: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: integers alone, the size first.
unsafe impl Sized32 for dwunw_statistics {}

/// A set of modules.
pub struct dwunw_context {
    pub(crate) published: Published,
    files: Arc<Files>,
    /// Held while a set is exchanged for another, and not while a file is read.
    writers: Mutex,
    /// Under the writers' lock.
    next_number: Cell<u32>,
    max_modules: usize,
    /// What the options say.
    arch: Option<Arch>,
}

// SAFETY: what changes does so under the writers' lock or is atomic.
unsafe impl Send for dwunw_context {}
// SAFETY: likewise.
unsafe impl Sync for dwunw_context {}

/// Makes an empty context. options may be null.
///
/// Gives DWUNW_STATUS_OK and the context in *context, else null there. To be ended with dwunw_shutdown.
///
/// A child of fork may go on with it, unless another thread was adding or removing a module, or this one was capturing, when it was made; then
/// it makes one of its own.
///
/// # Safety
/// The pointers are null or what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_init(options: *const dwunw_options, context: *mut *mut dwunw_context) -> dwunw_status {
    if context.is_null() {
        return S::BadArgument;
    }
    // SAFETY: the caller's contract.
    unsafe { context.write(core::ptr::null_mut()) };
    let (mut max_modules, mut max_warm, mut share, mut arch) = (0, 0, core::ptr::null(), None);
    if !options.is_null() {
        // SAFETY: the caller's contract.
        match unsafe { sized::read(options) } {
            Ok(options) => {
                (max_modules, max_warm, share) = (options.max_modules, options.max_warm_files, options.share_files_of);
                arch = match options.arch {
                    0 => None,
                    number => match u16::try_from(number).ok().and_then(engine_arch) {
                        None => return S::UnsupportedArch,
                        known => known,
                    },
                };
            }
            Err(status) => return status,
        }
    }
    // SAFETY: a context of this library that is not shut down, or null.
    let files = match unsafe { share.as_ref() } {
        Some(other) => Arc::clone(&other.files),
        None => Arc::new(Files::new(match max_warm {
            0 => DWUNW_DEFAULT_WARM_FILES as usize,
            u32::MAX => 0,
            given => given as usize,
        })),
    };
    let snapshot = match Snapshot::new(arch, Vec::new()) {
        Ok(snapshot) => snapshot,
        Err(status) => return status,
    };
    let published = match Published::new(snapshot) {
        Ok(published) => published,
        Err(status) => return status,
    };
    let made = Box::new(dwunw_context {
        published,
        files,
        writers: Mutex::new(),
        next_number: Cell::new(0),
        arch,
        max_modules: if max_modules == 0 { DWUNW_DEFAULT_MODULES } else { max_modules } as usize,
    });
    // SAFETY: the caller's contract.
    unsafe { context.write(Box::into_raw(made)) };
    S::Ok
}

/// Removes every module and frees the context. Nothing may use it at this moment or later. Null is taken for nothing to do.
///
/// # Safety
/// A context that dwunw_init gave and that was not shut down, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_shutdown(context: *mut dwunw_context) {
    if context.is_null() {
        return;
    }
    // SAFETY: the caller's contract.
    let context = unsafe { Box::from_raw(context) };
    let files = Arc::clone(&context.files);
    drop(context);
    files.trim();
}

/// Adds a module. Its files are read and its unwind rules compiled before anything is locked, so that many threads add at once.
///
/// Gives the module's number and what can be expected of it in *info, which may be null. Frames that are being unwound at this
/// moment see the module or do not.
///
/// # Safety
/// The pointers are null or what their types say; memory that is lent stays until the module is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_module_add(
    context: *mut dwunw_context,
    module: *const dwunw_module,
    info: *mut dwunw_module_info,
) -> dwunw_status {
    // SAFETY: the caller's contract.
    match unsafe { add(context, module, info) } {
        Ok(()) => S::Ok,
        Err(status) => {
            // SAFETY: likewise. Files that no module came of are warm at best.
            if let Some(context) = unsafe { context.as_ref() } {
                context.files.trim();
            }
            status
        }
    }
}

unsafe fn add(
    context: *const dwunw_context,
    module: *const dwunw_module,
    info: *mut dwunw_module_info,
) -> Result<(), S> {
    // SAFETY: the caller's contract, here and below.
    let context = unsafe { context.as_ref() }.ok_or(S::BadArgument)?;
    // SAFETY: likewise.
    let given = unsafe { sized::read(module) }?;
    if !info.is_null() {
        // SAFETY: likewise. Before anything is done, so that nothing needs to be undone.
        unsafe { sized::size_of_struct(info.cast_const()) }?;
    }
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
        Source { kind: FileKind::UnwindTable, path: given.uwt_path, memory: given.uwt.cast(), size: given.uwt_size },
        Source { kind: FileKind::SymbolTable, path: given.symx_path, memory: given.symx.cast(), size: given.symx_size },
    ];
    let mut files = Vec::new();
    files.try_reserve_exact(sources.len()).map_err(|_| S::OutOfMemory)?;
    let mut known_files = 0;
    for source in sources {
        // SAFETY: likewise.
        if let Some((file, was_known)) = unsafe { source.file(&context.files, given.flags) }? {
            known_files += u32::from(was_known);
            files.push(file);
        }
    }
    let made = Module::new(0, given.start, given.end, files)?;
    let (start, end, bias) = (made.start, made.end, made.bias);
    let (unwind, symbols) = (made.unwind_status() as i32, made.symbol_status() as i32);
    let number = context.publish(made)?;
    if !info.is_null() {
        let size = size_of::<dwunw_module_info>() as u32;
        let made = dwunw_module_info {
            struct_size: size,
            module: number,
            unwind,
            symbols,
            start,
            end,
            bias,
            known_files,
            reserved: 0,
        };
        // SAFETY: read above.
        unsafe { sized::write(info, made) }?;
    }
    Ok(())
}

/// Removes a module. When this returns, no other call uses the module or memory that was lent for it. Waits for walks that are
/// under way; so it must not be called from a dwunw_read function, nor from a signal handler.
///
/// # Safety
/// A context, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_module_remove(context: *mut dwunw_context, module: u32) -> dwunw_status {
    // SAFETY: the caller's contract.
    let Some(context) = (unsafe { context.as_ref() }) else { return S::BadArgument };
    match context.remove(module) {
        Ok(()) => S::Ok,
        Err(status) => status,
    }
}

/// Says how full a context is.
///
/// # Safety
/// The pointers are null or what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_context_statistics(
    context: *const dwunw_context,
    statistics: *mut dwunw_statistics,
) -> dwunw_status {
    // SAFETY: the caller's contract.
    let Some(context) = (unsafe { context.as_ref() }) else { return S::BadArgument };
    let (active, warm) = context.files.counts();
    let found = dwunw_statistics {
        struct_size: 0,
        modules: context.published.read(0).modules.len() as u32,
        max_modules: context.max_modules as u32,
        active_files: active as u32,
        warm_files: warm as u32,
        reserved: 0,
    };
    // SAFETY: likewise.
    match unsafe { sized::write(statistics, found) } {
        Ok(()) => S::Ok,
        Err(status) => status,
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

impl dwunw_context {
    fn publish(&self, mut module: Module) -> Result<u32, S> {
        let locked = self.writers.lock();
        // SAFETY: the lock is held.
        let current = unsafe { self.published.for_writer() };
        if current.modules.len() >= self.max_modules {
            return Err(S::CacheFull);
        }
        if current.modules.iter().any(|other| other.start == module.start) {
            return Err(S::AddressInUse);
        }
        let known = self.arch.or_else(|| current.arch_of_files());
        if known.zip(module.arch()).is_some_and(|(known, other)| known != other) {
            return Err(S::UnsupportedArch);
        }
        let number = self.next_number.get();
        // The last number stands for "no module".
        let next = number.checked_add(1).ok_or(S::CacheFull)?;
        module.number = number;
        let mut modules = Vec::new();
        modules.try_reserve_exact(current.modules.len() + 1).map_err(|_| S::OutOfMemory)?;
        modules.extend(current.modules.iter().cloned());
        modules.push(Arc::new(module));
        let snapshot = Snapshot::new(self.arch, modules)?;
        self.next_number.set(next);
        // SAFETY: the lock is held, and this thread reads no set: a call from a reader function is forbidden.
        let before = unsafe { self.published.exchange(snapshot) };
        drop(locked);
        drop(before);
        Ok(number)
    }

    fn remove(&self, number: u32) -> Result<(), S> {
        let locked = self.writers.lock();
        // SAFETY: the lock is held.
        let current = unsafe { self.published.for_writer() };
        if current.module(number).is_none() {
            return Err(S::NoSuchModule);
        }
        let mut modules = Vec::new();
        modules.try_reserve_exact(current.modules.len()).map_err(|_| S::OutOfMemory)?;
        modules.extend(current.modules.iter().filter(|module| module.number != number).cloned());
        let snapshot = Snapshot::new(self.arch, modules)?;
        // SAFETY: as above.
        let before = unsafe { self.published.exchange(snapshot) };
        drop(locked);
        drop(before);
        self.files.trim();
        Ok(())
    }
}
