//! Files, read once: those that modules use (active) and a few that none uses any more (warm).
//!
//! Two modules of one file share what was made of it, also across contexts that share their files. Nothing is held
//! while a file is read and compiled, so that many are at once.
#![allow(unsafe_code, reason = "maps of files, and memory of C programs")]

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};

use crate::elf::ElfImage;
use crate::status::dwunw_status as S;

/// What a file is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// An ELF file whose unwind rules are compiled.
    Elf,
    /// An ELF file that comes with a table: only its code and symbols are used.
    ElfWithoutRules,
    /// A `.uwt` table.
    UnwindTable,
    /// A `.symx` table.
    SymbolTable,
}

/// Bytes that stay where they are as long as this is.
pub(crate) enum Bytes {
    Owned(Vec<u8>),
    /// Of a C program, which promised to leave them.
    Lent(*const u8, usize),
    Mapped(*mut c_void, usize),
}

// SAFETY: they are only read; a C program that lends bytes promises that they stay as they are.
unsafe impl Send for Bytes {}
// SAFETY: likewise.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// A copy of the bytes at `from`.
    ///
    /// # Safety
    /// `from` points to `size` readable bytes.
    pub(crate) unsafe fn copied(from: *const u8, size: usize) -> Result<Self, S> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(size).map_err(|_| S::OutOfMemory)?;
        // SAFETY: the caller's contract.
        copy.extend_from_slice(unsafe { core::slice::from_raw_parts(from, size) });
        Ok(Self::Owned(copy))
    }

    /// # Safety
    /// The slice must not be used after `self` is gone.
    unsafe fn get(&self) -> &'static [u8] {
        let (start, size) = match self {
            Self::Owned(bytes) => (bytes.as_ptr(), bytes.len()),
            Self::Lent(start, size) => (*start, *size),
            Self::Mapped(start, size) => (start.cast_const().cast(), *size),
        };
        // SAFETY: they stay as long as self does, which the caller heeds.
        unsafe { core::slice::from_raw_parts(start, size) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Self::Mapped(start, size) = self {
            // SAFETY: our own map, of which nobody has a slice any more.
            unsafe { libc::munmap(*start, *size) };
        }
    }
}

/// What was made of a file. It borrows from the bytes beside it.
pub(crate) enum Content {
    Elf(ElfImage),
    Unwind(symseal_unwind::Table<'static>),
    Symbols(Box<symseal_symx::Table<'static>>),
}

/// A file with what was made of it.
pub(crate) struct File {
    /// Before `bytes`, so that it is dropped first.
    pub(crate) content: Content,
    _bytes: Bytes,
}

impl File {
    /// Reads `bytes` as `kind` says. With `verify` a table is looked at as a whole.
    pub(crate) fn read(bytes: Bytes, kind: FileKind, verify: bool) -> Result<Self, S> {
        // SAFETY: the content is kept beside the bytes, and gives out nothing that outlives it.
        let all = unsafe { bytes.get() };
        let content = match kind {
            FileKind::Elf => Content::Elf(ElfImage::read(all, true)?),
            FileKind::ElfWithoutRules => Content::Elf(ElfImage::read(all, false)?),
            FileKind::UnwindTable => {
                let table = symseal_unwind::Table::open(all).map_err(|error| match error {
                    symseal_unwind::OpenError::Arch { .. } => S::UnsupportedArch,
                    _ => S::BadTable,
                })?;
                if verify && table.verify().is_err() {
                    return Err(S::BadTable);
                }
                Content::Unwind(table)
            }
            FileKind::SymbolTable => {
                let table = symseal_symx::Table::open(all).map_err(|_| S::BadTable)?;
                if verify && table.verify().is_err() {
                    return Err(S::BadTable);
                }
                Content::Symbols(Box::new(table))
            }
        };
        Ok(Self { content, _bytes: bytes })
    }
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    kind: FileKind,
    verified: bool,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

struct Entry {
    identity: Identity,
    file: Arc<File>,
    /// When it was last taken, counted.
    used: u64,
}

/// The files of one context, or of several that share them.
pub(crate) struct Files {
    lock: Mutex,
    entries: UnsafeCell<(Vec<Entry>, u64)>,
    most_warm: usize,
}

// SAFETY: the entries are touched with the lock held alone.
unsafe impl Send for Files {}
// SAFETY: likewise.
unsafe impl Sync for Files {}

impl Files {
    pub(crate) fn new(most_warm: usize) -> Self {
        Self { lock: Mutex::new(), entries: UnsafeCell::new((Vec::new(), 0)), most_warm }
    }

    /// The file at `path`: as it was read before if it is still the same, else read now. Says whether it was there.
    pub(crate) fn open(&self, path: &CStr, kind: FileKind, verify: bool) -> Result<(Arc<File>, bool), S> {
        let opened = Descriptor::open(path)?;
        let identity = opened.identity(kind, verify)?;
        if let Some(file) = self.find(&identity) {
            return Ok((file, true));
        }
        // Without the lock: another thread may read the same file now, and then one of the two is kept.
        let file = Arc::new(File::read(opened.map(&identity)?, kind, verify)?);
        let file = self.insert(identity, file)?;
        Ok((file, false))
    }

    /// How many files are in use, and how many are kept for the next time.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.with(|entries, _| {
            let warm = entries.iter().filter(|entry| is_warm(entry)).count();
            (entries.len() - warm, warm)
        })
    }

    /// Forgets the warm files that have not been used for longest, but for as many as are to be kept.
    pub(crate) fn trim(&self) {
        let dropped = self.with(|entries, _| {
            let mut dropped = Vec::new();
            while entries.iter().filter(|entry| is_warm(entry)).count() > self.most_warm {
                let oldest = entries.iter().enumerate().filter(|(_, entry)| is_warm(entry));
                let Some((at, _)) = oldest.min_by_key(|(_, entry)| entry.used) else { break };
                dropped.push(entries.swap_remove(at));
            }
            dropped
        });
        // Unmapping takes time, and here nobody waits for the lock.
        drop(dropped);
    }

    fn find(&self, identity: &Identity) -> Option<Arc<File>> {
        self.with(|entries, clock| {
            let entry = entries.iter_mut().find(|entry| entry.identity == *identity)?;
            *clock += 1;
            entry.used = *clock;
            Some(Arc::clone(&entry.file))
        })
    }

    fn insert(&self, identity: Identity, file: Arc<File>) -> Result<Arc<File>, S> {
        self.with(|entries, clock| {
            if let Some(entry) = entries.iter().find(|entry| entry.identity == identity) {
                return Ok(Arc::clone(&entry.file));
            }
            entries.try_reserve(1).map_err(|_| S::OutOfMemory)?;
            *clock += 1;
            entries.push(Entry { identity, file: Arc::clone(&file), used: *clock });
            Ok(file)
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Vec<Entry>, &mut u64) -> T) -> T {
        let _locked = self.lock.lock();
        // SAFETY: the lock is held, and `act` cannot come back here: it knows only what it is given.
        let (entries, clock) = unsafe { &mut *self.entries.get() };
        act(entries, clock)
    }
}

fn is_warm(entry: &Entry) -> bool {
    Arc::strong_count(&entry.file) == 1
}

struct Descriptor(libc::c_int);

impl Descriptor {
    fn open(path: &CStr) -> Result<Self, S> {
        // SAFETY: a terminated string.
        let number = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if number >= 0 {
            return Ok(Self(number));
        }
        Err(match crate::target::last_error() {
            libc::ENOENT | libc::ENOTDIR => S::FileNotFound,
            _ => S::FileUnreadable,
        })
    }

    fn identity(&self, kind: FileKind, verified: bool) -> Result<Identity, S> {
        let mut found = core::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: an open descriptor, and room for the answer.
        if unsafe { libc::fstat(self.0, found.as_mut_ptr()) } != 0 {
            return Err(S::FileUnreadable);
        }
        // SAFETY: fstat filled it.
        let found = unsafe { found.assume_init() };
        if found.st_mode & libc::S_IFMT != libc::S_IFREG || found.st_size <= 0 {
            return Err(S::FileUnreadable);
        }
        // The types differ between processors.
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion, reason = "not everywhere")]
        Ok(Identity {
            kind,
            verified,
            device: found.st_dev as u64,
            inode: found.st_ino as u64,
            size: found.st_size as u64,
            modified: (found.st_mtime as i64, found.st_mtime_nsec as i64),
            changed: (found.st_ctime as i64, found.st_ctime_nsec as i64),
        })
    }

    fn map(&self, identity: &Identity) -> Result<Bytes, S> {
        let size = usize::try_from(identity.size).map_err(|_| S::FileUnreadable)?;
        // SAFETY: a new private map of an open file.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_PRIVATE, self.0, 0) };
        if start == libc::MAP_FAILED {
            return Err(if crate::target::last_error() == libc::ENOMEM { S::OutOfMemory } else { S::FileUnreadable });
        }
        Ok(Bytes::Mapped(start, size))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { libc::close(self.0) };
    }
}

/// The C library's mutex, at a place that does not move once it is used.
pub(crate) struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: that is what it is for.
unsafe impl Send for Mutex {}
// SAFETY: likewise.
unsafe impl Sync for Mutex {}

pub(crate) struct Locked<'m>(&'m Mutex);

impl Mutex {
    pub(crate) fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        // SAFETY: an initialised mutex that stays where it is: contexts and lists of files are on the heap.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
        Locked(self)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: locked by this thread.
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
    }
}
