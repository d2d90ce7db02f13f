//! A set of modules: one address space, or one program.
#![allow(unsafe_code, reason = "functions with C names")]

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;

use symseal_unwind::Arch;

use crate::cancel::Uncancelled;
use crate::files::{Files, Locked, Mutex};
use crate::given::dwunw_module;
use crate::module::Module;
use crate::registers::engine_arch;
use crate::sized::{self, Sized32};
use crate::snapshot::{Published, Snapshot};
use crate::status::{dwunw_status, dwunw_status as S};

/// Modules that a context takes unless told otherwise.
pub const DWUNW_DEFAULT_MODULES: u32 = 4096;
/// Files without a module that a context keeps unless told otherwise.
pub const DWUNW_DEFAULT_WARM_FILES: u32 = 16;

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
/// A child of fork may go on with it, and with scratch memory that other threads of its parent were using, unless another thread was adding or
/// removing a module, or this one was capturing, when it was made; then it makes one of its own.
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
/// moment see the module or do not. Takes time for each module that there is: many at once are added by dwunw_modules_add. Takes some 30 KB of stack.
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
    unsafe { dwunw_modules_add(context, module, 1, info, core::ptr::null_mut()) }
}

/// Adds count modules as dwunw_module_add does, and makes them known together: frames that are being unwound at this moment see all of them
/// or none. Elements of modules, and of infos, follow each other as in an array of C, each as large as the first.
///
/// Gives DWUNW_STATUS_OK if all were added. Else those that could be are there, and the first other status is given; statuses has that of each.
/// infos and statuses may be null; the info of a module that was not added is left alone.
///
/// # Safety
/// The pointers are null or what their types say, and arrays have count elements; memory that is lent stays until the module is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_modules_add(
    context: *mut dwunw_context,
    modules: *const dwunw_module,
    count: u32,
    infos: *mut dwunw_module_info,
    statuses: *mut i32,
) -> dwunw_status {
    // SAFETY: the caller's contract, here and below.
    let Some(context) = (unsafe { context.as_ref() }) else { return S::BadArgument };
    if count == 0 {
        return S::Ok;
    }
    let _uncancelled = Uncancelled::new();
    // SAFETY: likewise.
    let status = unsafe { context.add(modules, count as usize, infos, statuses) }.unwrap_or_else(|status| status);
    if status != S::Ok {
        // Files that no module came of are warm at best.
        context.files.trim();
    }
    status
}

/// Removes a module. When this returns, no other call uses the module or memory that was lent for it. Waits for walks that are
/// under way; so it must not be called from a dwunw_read function, nor from a signal handler. Takes time for each module that there is.
///
/// # Safety
/// A context, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_module_remove(context: *mut dwunw_context, module: u32) -> dwunw_status {
    // SAFETY: the caller's contract.
    let Some(context) = (unsafe { context.as_ref() }) else { return S::BadArgument };
    let _uncancelled = Uncancelled::new();
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

fn info_of(module: &Module, known_files: u32) -> dwunw_module_info {
    dwunw_module_info {
        struct_size: 0,
        module: module.number,
        unwind: module.unwind_status() as i32,
        symbols: module.symbol_status() as i32,
        start: module.start,
        end: module.end,
        bias: module.bias,
        known_files,
        reserved: 0,
    }
}

impl dwunw_context {
    /// # Safety
    /// That of [`dwunw_modules_add`].
    unsafe fn add(
        &self,
        modules: *const dwunw_module,
        count: usize,
        infos: *mut dwunw_module_info,
        statuses: *mut i32,
    ) -> Result<S, S> {
        // SAFETY: the caller's contract, here and below.
        let stride = unsafe { sized::size_of_struct(modules) }?;
        sized::stride_of::<dwunw_module>(stride)?;
        let mut info_stride = 0;
        if !infos.is_null() {
            // SAFETY: likewise. Before anything is done, so that nothing needs to be undone.
            info_stride = unsafe { sized::size_of_struct(infos.cast_const()) }?;
            sized::stride_of::<dwunw_module_info>(info_stride)?;
        }
        let mut made = Vec::new();
        made.try_reserve_exact(count).map_err(|_| S::OutOfMemory)?;
        for at in 0..count {
            let module = modules.wrapping_byte_add(stride as usize * at);
            // SAFETY: likewise.
            made.push(unsafe { dwunw_module::read(module, &self.files) });
        }
        let outcome = self.publish(made, |at, outcome| {
            let status = outcome.as_ref().map_or_else(|status| *status, |_| S::Ok);
            if !statuses.is_null() {
                // SAFETY: likewise.
                unsafe { statuses.wrapping_add(at).write(status as i32) };
            }
            if let (Ok(info), false) = (outcome, infos.is_null()) {
                let info = dwunw_module_info { struct_size: info_stride, ..info };
                // SAFETY: likewise.
                unsafe { infos.wrapping_byte_add(info_stride as usize * at).write(info) };
            }
            status
        });
        if let (Err(none_added), false) = (outcome, statuses.is_null()) {
            for at in 0..count {
                // SAFETY: likewise.
                unsafe { statuses.wrapping_add(at).write(none_added as i32) };
            }
        }
        outcome
    }

    /// Makes those that were read modules of the context, all at once, and tells `report` of each; gives the first status that is not
    /// [`S::Ok`].
    fn publish(
        &self,
        made: Vec<Result<(Module, u32), S>>,
        report: impl Fn(usize, Result<dwunw_module_info, S>) -> S,
    ) -> Result<S, S> {
        let locked = self.writers.lock();
        // SAFETY: the lock is held.
        let current = unsafe { self.published.for_writer() };
        let most = current.modules.len().saturating_add(made.len());
        let mut modules = Vec::new();
        modules.try_reserve_exact(most).map_err(|_| S::OutOfMemory)?;
        modules.extend(current.modules.iter().cloned());
        let mut starts = Starts::with_room_for(most)?;
        for module in &current.modules {
            starts.insert(module.start);
        }
        let mut known = self.arch.or_else(|| current.arch_of_files());
        let mut number = self.next_number.get();
        let mut first = S::Ok;
        for (at, read) in made.into_iter().enumerate() {
            let added = read.and_then(|(mut module, known_files)| {
                if modules.len() >= self.max_modules {
                    return Err(S::CacheFull);
                }
                if known.zip(module.arch()).is_some_and(|(known, other)| known != other) {
                    return Err(S::UnsupportedArch);
                }
                // The last number stands for "no module".
                let next = number.checked_add(1).ok_or(S::CacheFull)?;
                if !starts.insert(module.start) {
                    return Err(S::AddressInUse);
                }
                module.number = number;
                let info = info_of(&module, known_files);
                (number, known) = (next, known.or_else(|| module.arch()));
                modules.push(Arc::new(module));
                Ok(info)
            });
            let status = report(at, added);
            first = if first == S::Ok { status } else { first };
        }
        if modules.len() > current.modules.len() {
            self.next_number.set(number);
            self.exchange(locked, modules)?;
        }
        Ok(first)
    }

    /// Makes `modules` those of the context.
    #[inline(never)]
    fn exchange(&self, locked: Locked<'_>, modules: Vec<Arc<Module>>) -> Result<(), S> {
        let snapshot = Snapshot::new(self.arch, modules)?;
        // SAFETY: the lock is held, and this thread reads no set: a call from a reader function is forbidden.
        let before = unsafe { self.published.exchange(snapshot) };
        drop(locked);
        drop(before);
        Ok(())
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
        self.exchange(locked, modules)?;
        self.files.trim();
        Ok(())
    }
}

/// Addresses at which modules begin, to find each again at once however many there are: open addressing, half full at most.
struct Starts {
    /// Each one higher by one; 0 where there is none. No module begins at the last address.
    slots: Vec<u64>,
}

impl Starts {
    fn with_room_for(most: usize) -> Result<Self, S> {
        let mut slots = Vec::new();
        let size = most.checked_mul(2).and_then(usize::checked_next_power_of_two).ok_or(S::OutOfMemory)?;
        slots.try_reserve_exact(size).map_err(|_| S::OutOfMemory)?;
        slots.resize(size, 0);
        Ok(Self { slots })
    }

    /// False where it is there already.
    #[inline(never)]
    fn insert(&mut self, start: u64) -> bool {
        // The golden ratio of 64 bits spreads addresses, which differ in the middle.
        let mut at = (start.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let mask = self.slots.len() - 1;
        while let Some(slot) = self.slots.get_mut(at & mask) {
            match *slot {
                0 => {
                    *slot = start.wrapping_add(1);
                    return true;
                }
                known if known == start.wrapping_add(1) => return false,
                _ => at += 1,
            }
        }
        false
    }
}
