//! Memory that a thread's captures work in. The caller's: on a stack, in a static, from anywhere.
#![allow(unsafe_code, reason = "memory of C programs")]

use alloc::boxed::Box;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::{NonNull, slice_from_raw_parts_mut};
use core::sync::atomic::{AtomicU32, Ordering};

use symseal_unwind::{Cache, CacheEntry, Frame};

use crate::sized::{self, Sized32};
use crate::status::{dwunw_status, dwunw_status as S};

/// Frames of a capture unless told otherwise.
pub const DWUNW_DEFAULT_FRAMES: u32 = 256;
/// Addresses whose rules a scratch memory remembers unless told otherwise.
pub const DWUNW_DEFAULT_CACHE_ENTRIES: u32 = 2048;
/// Bytes for copies of a target's memory unless told otherwise.
pub const DWUNW_DEFAULT_TARGET_BYTES: u32 = 32768;
/// Bytes that are enough for a scratch memory with default options, at any address.
pub const DWUNW_SCRATCH_SIZE: usize = 114_688;

/// More of anything is a mistake.
const MOST: u32 = 1 << 24;
/// Lines of the processor's cache.
const ALIGNMENT: usize = 64;
/// Tells initialised memory from other memory, together with its own address.
const MAGIC: usize = 0x6477_756e_u32 as usize;

/// What a scratch memory is to have room for. A field that is 0 stands for the default; none may be above 2^24, but for UINT32_MAX where that is told of.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_scratch_options {
    /// sizeof(dwunw_scratch_options).
    pub struct_size: u32,
    /// The most frames of one capture.
    pub max_frames: u32,
    /// Addresses whose rules are remembered; best a power of two. UINT32_MAX remembers as few as can be.
    pub cache_entries: u32,
    /// Bytes for copies of a target's memory. UINT32_MAX has none: then a target is read word by word.
    pub target_bytes: u32,
}

// SAFETY: integers alone, the size first.
unsafe impl Sized32 for dwunw_scratch_options {}

/// Initialised scratch memory. One capture at a time uses it.
pub struct dwunw_scratch {
    magic: usize,
    /// The process whose call uses it, or 0.
    busy: AtomicU32,
    /// Its box lies in the caller's memory, and is never dropped.
    cache: ManuallyDrop<Cache>,
    frames: NonNull<Frame>,
    max_frames: usize,
    blocks: *mut u8,
    block_bytes: usize,
}

/// Where things lie behind the aligned start.
struct Plan {
    entries: usize,
    frames: usize,
    block_bytes: usize,
    entries_at: usize,
    frames_at: usize,
    blocks_at: usize,
    size: usize,
}

const fn or_default(given: u32, default: u32) -> u32 {
    match given {
        0 => default,
        u32::MAX => 0,
        given => given,
    }
}

impl Plan {
    const fn new(max_frames: u32, cache_entries: u32, target_bytes: u32) -> Option<Self> {
        let frames = if max_frames == 0 { DWUNW_DEFAULT_FRAMES } else { max_frames };
        // One at least: a cache without any would allocate it.
        let entries = match or_default(cache_entries, DWUNW_DEFAULT_CACHE_ENTRIES) {
            0 => 1,
            entries => entries,
        };
        let bytes = or_default(target_bytes, DWUNW_DEFAULT_TARGET_BYTES);
        if frames > MOST || entries > MOST || bytes > MOST {
            return None;
        }
        // Two blocks, each of whole cache lines.
        let block_bytes = bytes as usize / 2 / ALIGNMENT * ALIGNMENT;
        let entries_at = size_of::<dwunw_scratch>().next_multiple_of(ALIGNMENT);
        let frames_at = entries_at + entries as usize * size_of::<CacheEntry>();
        let blocks_at = (frames_at + frames as usize * size_of::<Frame>()).next_multiple_of(ALIGNMENT);
        let size = blocks_at + 2 * block_bytes;
        Some(Self {
            entries: entries as usize,
            frames: frames as usize,
            block_bytes,
            entries_at,
            frames_at,
            blocks_at,
            size,
        })
    }

    /// # Safety
    /// `options` is null or what its type says.
    unsafe fn of(options: *const dwunw_scratch_options) -> Result<Self, S> {
        let (mut frames, mut entries, mut bytes) = (0, 0, 0);
        if !options.is_null() {
            // SAFETY: the caller's contract.
            let options = unsafe { sized::read(options) }?;
            (frames, entries, bytes) = (options.max_frames, options.cache_entries, options.target_bytes);
        }
        Self::new(frames, entries, bytes).ok_or(S::BadArgument)
    }
}

const _: () = match Plan::new(0, 0, 0) {
    Some(plan) => assert!(plan.size + ALIGNMENT <= DWUNW_SCRATCH_SIZE),
    None => panic!(),
};

/// Bytes that scratch memory with these options takes, at any address; 0 if the options are none. options may be null.
///
/// # Safety
/// The pointer is null or what its type says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_scratch_size(options: *const dwunw_scratch_options) -> usize {
    // SAFETY: the caller's contract.
    unsafe { Plan::of(options) }.map_or(0, |plan| plan.size + ALIGNMENT)
}

/// Makes scratch memory of size bytes at memory. It needs no ending: the caller takes its memory back when it likes.
///
/// Gives DWUNW_STATUS_OK and the scratch memory in *scratch, else null there. The memory must not be copied, moved or shared by processes. It may
/// serve several contexts in turn, and one call at a time. In a child of fork it is free if another thread of the parent was using it (from Linux 4.14 on).
///
/// # Safety
/// The pointers are null or what their types say; memory has size bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_scratch_init(
    memory: *mut c_void,
    size: usize,
    options: *const dwunw_scratch_options,
    scratch: *mut *mut dwunw_scratch,
) -> dwunw_status {
    if scratch.is_null() {
        return S::BadArgument;
    }
    // SAFETY: the caller's contract.
    unsafe { scratch.write(core::ptr::null_mut()) };
    if memory.is_null() {
        return S::BadArgument;
    }
    // SAFETY: the caller's contract.
    let plan = match unsafe { Plan::of(options) } {
        Ok(plan) => plan,
        Err(status) => return status,
    };
    let start = memory.cast::<u8>();
    let padding = start.align_offset(ALIGNMENT);
    if padding.checked_add(plan.size).is_none_or(|needed| needed > size) {
        return S::BadScratch;
    }
    // SAFETY: everything lies within the caller's memory, by the plan, and is aligned: cache entries to 32, frames to 8. The box is of
    // memory that malloc did not give; it is never dropped.
    unsafe {
        let start = start.add(padding);
        let entries = start.add(plan.entries_at).cast::<CacheEntry>();
        for at in 0..plan.entries {
            entries.add(at).write(CacheEntry::EMPTY);
        }
        let entries = Box::from_raw(slice_from_raw_parts_mut(entries, plan.entries));
        let frames = start.add(plan.frames_at).cast::<Frame>();
        for at in 0..plan.frames {
            frames.add(at).write(Frame::EMPTY);
        }
        let header = start.cast::<dwunw_scratch>();
        header.write(dwunw_scratch {
            magic: MAGIC ^ header as usize,
            busy: AtomicU32::new(0),
            cache: ManuallyDrop::new(Cache::of(entries)),
            frames: NonNull::new_unchecked(frames),
            max_frames: plan.frames,
            blocks: start.add(plan.blocks_at),
            block_bytes: plan.block_bytes,
        });
        scratch.write(header);
    }
    S::Ok
}

/// Scratch memory that this call has for itself.
pub(crate) struct InUse<'s> {
    busy: &'s AtomicU32,
    pub(crate) cache: &'s mut Cache,
    pub(crate) frames: &'s mut [Frame],
    /// Two blocks of `block_bytes` each.
    pub(crate) blocks: *mut u8,
    pub(crate) block_bytes: usize,
}

impl<'s> InUse<'s> {
    /// Takes `scratch` for this call of `process`. What another thread of the parent used when this process came of `fork` is free: it has no such
    /// thread. What it remembers may be half written then, and is forgotten.
    ///
    /// # Safety
    /// `scratch` is null or what [`dwunw_scratch_init`] gave, or at least memory of that size.
    pub(crate) unsafe fn take(scratch: *mut dwunw_scratch, process: u32) -> Result<Self, S> {
        if scratch.is_null() || !scratch.is_aligned() {
            return Err(S::BadScratch);
        }
        // SAFETY: the caller's contract; fields are borrowed one by one, as another call may look at `busy`.
        unsafe {
            if (&raw const (*scratch).magic).read() != MAGIC ^ scratch as usize {
                return Err(S::BadScratch);
            }
            let busy = &(*scratch).busy;
            let take = |from| busy.compare_exchange(from, process, Ordering::Acquire, Ordering::Relaxed);
            let left = match take(0) {
                Ok(_) => false,
                Err(other) if other != process && take(other).is_ok() => true,
                Err(_) => return Err(S::ScratchBusy),
            };
            let cache = &mut *(&raw mut (*scratch).cache).cast::<Cache>();
            if left {
                cache.clear();
            }
            Ok(Self {
                busy,
                cache,
                frames: core::slice::from_raw_parts_mut((*scratch).frames.as_ptr(), (*scratch).max_frames),
                blocks: (*scratch).blocks,
                block_bytes: (*scratch).block_bytes,
            })
        }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.busy.store(0, Ordering::Release);
    }
}
