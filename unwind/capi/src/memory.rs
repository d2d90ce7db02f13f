//! Where the words of a stack come from: windows that the caller copied, a function of the caller's, another process.
#![allow(unsafe_code, reason = "memory of C programs")]

use core::cell::Cell;
use core::ffi::c_void;

use symseal_module::Avma;
use symseal_unwind::Memory;

use crate::sized::{self, Sized32};
use crate::status::dwunw_status as S;

/// More windows are a mistake.
const MAX_WINDOWS: u32 = 1024;
/// How often a target is read at most, for each frame that there is room for: a frame takes one block, rarely two, and word by word some ten
/// words. More means a stack that was made to cost time.
const READS_PER_FRAME: u32 = 64;
/// Where there is room for few frames.
const LEAST_MAX_READS: u32 = 1024;
/// A block begins this much below the first word that is asked for: slots of the frame lie there.
const BELOW: u64 = 512;
const WORD: usize = 8;
/// A frame pointer leads no further than this, in bytes: what it leads over is read.
const LONGEST_LEAP: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// No process has memory elsewhere: the first page is never mapped, and the upper half is the kernel's.
const PLAUSIBLE: core::ops::Range<u64> = 4096..1 << 63;

/// A copy of one range of a stack, or the stack itself. Several windows follow each other as in an array of C, at most 1,024.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_window {
    /// sizeof(dwunw_window).
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// The actual address of the first byte; on aarch64 without a tag in its top byte, whatever the stack pointer has there.
    pub start: u64,
    /// The bytes, in the order of the target's memory.
    pub bytes: *const c_void,
    /// How many.
    pub size: usize,
}

// SAFETY: integers and a pointer, the size first.
unsafe impl Sized32 for dwunw_window {}

/// Copies size bytes at the actual address of the target to buffer, and returns how many it could from the front on. It is called
/// by the thread that captures, and must not call dwunw_module_add, dwunw_module_remove or dwunw_shutdown.
///
/// It must return. Where it is left otherwise (siglongjmp, an exception of C++, pthread_exit) the scratch memory stays busy, and whoever adds or
/// removes a module waits for ever. The thread is not cancelled in it.
pub type dwunw_read = Option<extern "C" fn(data: *mut c_void, address: u64, buffer: *mut c_void, size: usize) -> usize>;

/// Who reads what no window holds.
pub(crate) enum Reader {
    None,
    Function(extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> usize, *mut c_void),
    Process(i32),
}

/// One range of bytes, ready to be read.
#[derive(Clone, Copy)]
struct Window {
    start: u64,
    size: u64,
    /// Offsets at which a whole word lies are below this.
    words: u64,
    bytes: *const u8,
}

impl Window {
    const NONE: Self = Self { start: 0, size: 0, words: 0, bytes: core::ptr::null() };

    fn of(given: &dwunw_window) -> Result<Self, S> {
        if given.size > 0 && given.bytes.is_null() || isize::try_from(given.size).is_err() {
            return Err(S::BadArgument);
        }
        Ok(Self::at(given.start, given.size as u64, given.bytes.cast()))
    }

    fn at(start: u64, size: u64, bytes: *const u8) -> Self {
        Self { start, size, words: size.saturating_sub(WORD as u64 - 1), bytes }
    }

    #[inline(always)]
    fn read(&self, address: u64) -> Option<u64> {
        // An address below wraps to one past the end.
        let offset = address.wrapping_sub(self.start);
        if offset >= self.words {
            return None;
        }
        // SAFETY: a whole word lies there. The bytes may be a live stack, whose frames above the stack pointer nobody changes
        // while their thread is here or stopped; they are read as they are, and believed in nothing.
        let word = unsafe { self.bytes.add(offset as usize).cast::<[u8; WORD]>().read_unaligned() };
        Some(u64::from_le_bytes(word))
    }

    fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.size > 0 && other.size > 0 && (self.holds(other.start) || other.holds(self.start))
    }
}

/// The memory of one capture.
pub(crate) struct CaptureMemory {
    /// The window, or the block of the target, that is asked first: the one where the last word from elsewhere was, unless another window counts
    /// before it there.
    latest: Cell<Window>,
    windows: *const dwunw_window,
    count: u32,
    stride: usize,
    reader: Reader,
    blocks: [Cell<Window>; 2],
    buffer: *mut u8,
    block_bytes: usize,
    reads: Cell<u32>,
    max_reads: u32,
    /// What was found to be readable from the first to the second address, which the next question mostly is about as well.
    readable: Cell<(u64, u64)>,
    /// Why nothing can be read of the target.
    refusal: Cell<Option<S>>,
}

impl CaptureMemory {
    /// # Safety
    /// `windows` has `count` elements, each of the size of the first; `buffer` has two blocks. All stay while this is used.
    pub(crate) unsafe fn new(
        windows: *const dwunw_window,
        count: u32,
        reader: Reader,
        buffer: *mut u8,
        block_bytes: usize,
        max_frames: u32,
    ) -> Result<Self, S> {
        let mut memory = Self {
            latest: Cell::new(Window::NONE),
            windows,
            count,
            stride: 0,
            reader,
            blocks: [Cell::new(Window::NONE), Cell::new(Window::NONE)],
            buffer,
            block_bytes,
            reads: Cell::new(0),
            max_reads: max_frames.saturating_mul(READS_PER_FRAME).max(LEAST_MAX_READS),
            readable: Cell::new((0, 0)),
            refusal: Cell::new(None),
        };
        if count > MAX_WINDOWS {
            return Err(S::BadArgument);
        }
        if count > 0 {
            // SAFETY: the caller's contract, here and below.
            let first = unsafe { sized::read(windows) }?;
            sized::stride_of::<dwunw_window>(first.struct_size)?;
            memory.stride = first.struct_size as usize;
            memory.latest.set(Window::of(&first)?);
            for at in 1..count {
                // SAFETY: likewise.
                Window::of(&unsafe { sized::read(memory.element(at)) }?)?;
            }
        }
        Ok(memory)
    }

    /// How often the target was read.
    pub(crate) fn reads(&self) -> u32 {
        self.reads.get()
    }

    /// Why nothing can be read of the target, wherever that was tried: it is gone, or may not be read.
    pub(crate) fn refusal(&self) -> Option<S> {
        self.refusal.get()
    }

    fn element(&self, at: u32) -> *const dwunw_window {
        self.windows.wrapping_byte_add(self.stride * at as usize)
    }

    fn windows(&self) -> impl Iterator<Item = Window> {
        // SAFETY: `new` read each of them.
        (0..self.count).filter_map(|at| Window::of(&unsafe { self.element(at).read() }).ok())
    }

    #[cold]
    #[inline(never)]
    fn elsewhere(&self, address: u64) -> Option<u64> {
        self.windows().find_map(|window| window.read(address)).or_else(|| self.target(address))
    }

    fn target(&self, address: u64) -> Option<u64> {
        // The engine reads before it knows whether it needs the word; at the outermost frame that is somewhere around 0.
        if matches!(self.reader, Reader::None) || !PLAUSIBLE.contains(&address) {
            return None;
        }
        for block in self.blocks.iter().map(Cell::get) {
            if let Some(word) = block.read(address) {
                self.ask_first(block);
                return Some(word);
            }
        }
        if self.block_bytes < 2 * BELOW as usize {
            let mut word = [0; WORD];
            let read = self.fill(address, word.as_mut_ptr(), WORD)?;
            return (read == WORD).then_some(u64::from_le_bytes(word));
        }
        let turn = self.reads.get() as usize & 1;
        let block = self.blocks.get(turn)?;
        let to = self.buffer.wrapping_add(turn * self.block_bytes);
        // What lies below may not be there at all: then from the word itself on.
        // It is about to be written over.
        self.latest.set(Window::NONE);
        for start in [address.saturating_sub(BELOW) & !63, address] {
            block.set(Window::NONE);
            let read = self.fill(start, to, self.block_bytes)? as u64;
            let window = Window::at(start, read, to);
            if let Some(word) = window.read(address) {
                block.set(window);
                self.ask_first(window);
                return Some(word);
            }
        }
        None
    }

    /// Lets a block answer without a look at the windows. Where it lies over one, that counts, and stays first.
    fn ask_first(&self, block: Window) {
        if !self.windows().any(|window| window.overlaps(&block)) {
            self.latest.set(block);
        }
    }

    /// Whether a target has memory from `low` to `high`, which are not far apart. Where a stack ends in it nobody has said; below each is a page
    /// that cannot be read, or nothing at all.
    #[cold]
    #[inline(never)]
    fn is_readable(&self, low: u64, high: u64) -> bool {
        if matches!(self.reader, Reader::None) || high - low > LONGEST_LEAP {
            return false;
        }
        let (from, to) = self.readable.get();
        let is_known = from <= low && low <= to;
        if is_known && high <= to {
            return true;
        }
        let rest = if is_known { to } else { low };
        let word_of = |address: u64| Avma(address & !(WORD as u64 - 1));
        let pages = (rest..high).step_by(PAGE as usize).chain([high]);
        let is_readable = pages.map(word_of).all(|address| self.read_u64(address).is_some());
        if is_readable {
            self.readable.set((if is_known { from } else { low }, high));
        }
        is_readable
    }

    /// Reads the target once; `None` where nothing can be read of it, and where that was done too often.
    fn fill(&self, address: u64, to: *mut u8, size: usize) -> Option<usize> {
        if self.refusal.get().is_some() || self.reads.get() >= self.max_reads {
            return None;
        }
        self.reads.set(self.reads.get() + 1);
        match self.reader {
            Reader::None => Some(0),
            Reader::Function(read, data) => Some(read(data, address, to.cast(), size).min(size)),
            Reader::Process(pid) => {
                crate::target::read_process(pid, address, to, size).map_err(|why| self.refusal.set(Some(why))).ok()
            }
        }
    }
}

impl Memory for CaptureMemory {
    #[inline(always)]
    fn read_u64(&self, address: Avma) -> Option<u64> {
        match self.latest.get().read(address.0) {
            Some(word) => Some(word),
            None => self.elsewhere(address.0),
        }
    }

    #[inline(always)]
    fn prefetch(&self, address: Avma) -> u64 {
        self.latest.get().read(address.0).unwrap_or(0)
    }

    fn same_stack(&self, a: Avma, b: Avma) -> bool {
        self.windows().any(|window| window.holds(a.0) && window.holds(b.0))
            || self.is_readable(a.0.min(b.0), a.0.max(b.0))
    }
}
