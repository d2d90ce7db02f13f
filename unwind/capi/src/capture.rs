//! Registers and stack bytes to frames.
#![allow(unsafe_code, reason = "functions with C names")]

use core::ffi::c_void;

use symseal_module::StopReason;
use symseal_unwind::{Frame, Options, unwind_with};

use crate::cancel::Uncancelled;
use crate::context::dwunw_context;
use crate::memory::{CaptureMemory, Reader, dwunw_read, dwunw_window};
use crate::registers::{self, dwunw_registers, engine_registers};
use crate::scratch::{InUse, dwunw_scratch};
use crate::sized::{self, Sized32};
use crate::status::{dwunw_status, dwunw_status as S};
use crate::target::{self, Stopped};

/// dwunw_capture_request.flags: what no window holds is read from process pid, by process_vm_readv or through /proc/PID/mem.
pub const DWUNW_CAPTURE_READ_TARGET: u32 = 1;
/// dwunw_capture_request.flags: thread tid of process pid is stopped with ptrace while it is captured; its registers are read then, and registers
/// must be null. Goes with DWUNW_CAPTURE_READ_TARGET. A library for another processor than x86_64 says DWUNW_STATUS_UNSUPPORTED_ARCH and stops
/// nothing. Each stop is a SIGCHLD for this process, and a status for whoever of its threads waits
/// for any child.
pub const DWUNW_CAPTURE_STOP_TARGET: u32 = 2;
/// dwunw_capture_request.flags: where no rule and no frame pointer leads on, the stack is searched for the one word that calls account for.
/// Frames found so have the method DWUNW_METHOD_SCAN: they are guesses. Frame pointers and leaves are held to the calls that were made then, and
/// not believed where another word may be meant.
pub const DWUNW_CAPTURE_SCAN: u32 = 4;
/// dwunw_capture_request.flags: behind a complete stack come the frames that wait for its innermost asynchronous function and are on no stack
/// (DWUNW_FRAME_LOGICAL), as far as windows or the reader have the contexts that lead there.
pub const DWUNW_CAPTURE_CONTINUATIONS: u32 = 8;

/// dwunw_frame.module: the frame lies in none.
pub const DWUNW_NO_MODULE: u32 = u32::MAX;
/// dwunw_frame.flags: pc is the next instruction to run. Without it, pc is a return address, and the call lies at pc - 1.
pub const DWUNW_FRAME_EXACT: u16 = 1;
/// dwunw_frame.flags: the frame is on no stack, and no depth of one. It waits for the one before it, the first such frame for an asynchronous
/// function of the stack; cfa is the address of its context.
pub const DWUNW_FRAME_LOGICAL: u16 = 2;

/// One frame.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_frame {
    /// sizeof(dwunw_frame) of the library.
    pub struct_size: u32,
    /// The number of the module that holds the frame, or DWUNW_NO_MODULE.
    pub module: u32,
    /// Program counter, an actual address.
    pub pc: u64,
    /// Canonical frame address: the stack pointer of the caller; 0 where it is not known.
    pub cfa: u64,
    /// The frame pointer register in this frame; 0 where it is not known.
    pub fp: u64,
    /// A dwunw_method: how the frame was found.
    pub method: u16,
    /// DWUNW_FRAME_EXACT, DWUNW_FRAME_LOGICAL.
    pub flags: u16,
    /// 0.
    pub reserved: u32,
}

// SAFETY: integers alone, the size first.
unsafe impl Sized32 for dwunw_frame {}

/// What is to be captured.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_capture_request {
    /// sizeof(dwunw_capture_request).
    pub struct_size: u32,
    /// DWUNW_CAPTURE_READ_TARGET, DWUNW_CAPTURE_STOP_TARGET, DWUNW_CAPTURE_SCAN, DWUNW_CAPTURE_CONTINUATIONS.
    pub flags: u32,
    /// The registers, unless the target is stopped for them.
    pub registers: *const dwunw_registers,
    /// Stack bytes that are at hand: none, one or several. Each is taken for a stack of its own.
    pub windows: *const dwunw_window,
    /// How many windows, at most 1,024.
    pub window_count: u32,
    /// sizeof(dwunw_frame) of the caller: what one element of frames takes, a multiple of 8.
    pub frame_size: u32,
    /// Where the frames go, the innermost first.
    pub frames: *mut dwunw_frame,
    /// How many frames there is room for.
    pub max_frames: u32,
    /// With DWUNW_CAPTURE_READ_TARGET: the process. Without DWUNW_CAPTURE_STOP_TARGET it may be any thread of it; where the first has ended, one that has not.
    pub pid: i32,
    /// With DWUNW_CAPTURE_STOP_TARGET: the thread; 0 for the one with the number of the process. One of another process is
    /// DWUNW_STATUS_BAD_ARGUMENT, and is not stopped.
    pub tid: i32,
    /// 0.
    pub reserved: u32,
    /// Memory that no other call uses.
    pub scratch: *mut dwunw_scratch,
    /// Reads what no window holds, in place of DWUNW_CAPTURE_READ_TARGET; or null.
    pub read: dwunw_read,
    /// Passed to read.
    pub read_data: *mut c_void,
}

// SAFETY: integers and pointers, one of them an optional function; the size first.
unsafe impl Sized32 for dwunw_capture_request {}

/// How far a capture came.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_capture_result {
    /// sizeof(dwunw_capture_result), set by the caller.
    pub struct_size: u32,
    /// Frames that were written, whatever the status is.
    pub written: u32,
    /// A dwunw_stop: why there are no more. Holds where frames were written.
    pub stop: u32,
    /// How often the target was read.
    pub target_reads: u32,
}

// SAFETY: integers alone, the size first.
unsafe impl Sized32 for dwunw_capture_result {}

/// Unwinds one stack. Allocates nothing, takes no lock, leaves errno alone, and reads no memory but what the request names. The
/// registers are of the processor of the context: DWUNW_STATUS_UNSUPPORTED_ARCH says that they are not.
///
/// Gives DWUNW_STATUS_OK for a complete stack; a status from 32 on for one that ends early, with the frames so far and the
/// reason in *result; DWUNW_STATUS_NO_SUCH_PROCESS or DWUNW_STATUS_NOT_PERMITTED where that is so because the target is gone or may not be
/// read, with the frames so far as well; other statuses without frames. May be called by many threads at once, each with its own scratch memory, and
/// from a signal handler. A handler that interrupts it must return to it, and not leave by siglongjmp: see dwunw_read.
///
/// # Safety
/// The pointers are null or what their types say; arrays have the lengths that the request gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_capture(
    context: *const dwunw_context,
    request: *const dwunw_capture_request,
    result: *mut dwunw_capture_result,
) -> dwunw_status {
    // Before anything is done: where the answer cannot be given, no frame is written and no thread stopped.
    // SAFETY: the caller's contract.
    if let Err(status) = unsafe { sized::size_of_struct(result.cast_const()) } {
        return status;
    }
    let mut outcome =
        dwunw_capture_result { struct_size: 0, written: 0, stop: StopReason::NoModule as u32, target_reads: 0 };
    // In a signal handler the interrupted code may be about to look at it.
    // SAFETY: the C library's variable of this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: likewise.
    let before = unsafe { errno.read() };
    // SAFETY: the caller's contract.
    let status = unsafe { capture(context, request, &mut outcome) };
    // SAFETY: as above.
    unsafe { errno.write(before) };
    // SAFETY: likewise.
    match unsafe { sized::write(result, outcome) } {
        Ok(()) => status.unwrap_or_else(|status| status),
        Err(status) => status,
    }
}

/// # Safety
/// That of [`dwunw_capture`].
unsafe fn capture(
    context: *const dwunw_context,
    request: *const dwunw_capture_request,
    outcome: &mut dwunw_capture_result,
) -> Result<S, S> {
    // SAFETY: the caller's contract, here and below.
    let context = unsafe { context.as_ref() }.ok_or(S::BadArgument)?;
    // SAFETY: likewise.
    let request = unsafe { sized::read(request) }?;
    let stops = request.flags & DWUNW_CAPTURE_STOP_TARGET != 0;
    let reads_target = request.flags & DWUNW_CAPTURE_READ_TARGET != 0;
    let scan = request.flags & DWUNW_CAPTURE_SCAN != 0;
    let continuations = request.flags & DWUNW_CAPTURE_CONTINUATIONS != 0;
    let options = DWUNW_CAPTURE_SCAN | DWUNW_CAPTURE_CONTINUATIONS;
    let is_known = request.flags & !(DWUNW_CAPTURE_STOP_TARGET | DWUNW_CAPTURE_READ_TARGET | options) == 0;
    sized::stride_of::<dwunw_frame>(request.frame_size)?;
    if !is_known || request.frames.is_null() || !request.frames.is_aligned() || request.max_frames == 0 {
        return Err(S::BadArgument);
    }
    if stops && (!reads_target || !request.registers.is_null()) || reads_target && request.pid <= 0 || request.tid < 0 {
        return Err(S::BadArgument);
    }
    // Nothing is stopped whose registers would then not be read.
    if stops && !registers::CAN_STOP {
        return Err(S::UnsupportedArch);
    }
    let thread = if stops && request.tid != 0 { request.tid } else { request.pid };
    let reader = match request.read {
        Some(_) if reads_target => return Err(S::BadArgument),
        Some(read) => Reader::Function(read, request.read_data),
        // By the thread: of a process whose first thread has ended the kernel reads nothing.
        None if reads_target => Reader::Process(thread),
        None => Reader::None,
    };
    // Before what it is for, so that it ends last. A capture from windows alone asks nothing of the system.
    let _uncancelled = if matches!(reader, Reader::None) { None } else { Some(Uncancelled::new()) };
    // SAFETY: likewise.
    let scratch = unsafe { InUse::take(request.scratch, context.published.process()) }?;
    let max_frames = request.max_frames as usize;
    let frames = scratch.frames.get_mut(..max_frames).ok_or(S::BadScratch)?;
    // SAFETY: likewise; the scratch memory is ours while `scratch` is.
    let memory = unsafe {
        let (blocks, size) = (scratch.blocks, scratch.block_bytes);
        CaptureMemory::new(request.windows, request.window_count, reader, blocks, size, request.max_frames)
    }?;
    if stops && thread != request.pid && target::is_of_another(thread, request.pid) {
        return Err(S::BadArgument);
    }
    let stopped = if stops { Some(Stopped::stop(thread)?) } else { None };
    let registers = match &stopped {
        Some(stopped) => stopped.registers()?,
        // SAFETY: likewise.
        None => unsafe { sized::read(request.registers) }?,
    };
    let signature_mask = Some(registers.pac_mask).filter(|mask| *mask != 0);
    let modules = context.published.read(request.scratch as usize);
    let registers = engine_registers(&registers, modules.engine.arch())?;
    let options = Options { signature_mask, scan, continuations };
    let walk = unwind_with(&modules.engine, &registers, &memory, scratch.cache, frames, options);
    // Nothing more is read of the target: it goes on.
    drop(stopped);
    let mut to = request.frames;
    for frame in frames.iter().take(walk.frames) {
        let number = frame.module.and_then(|at| modules.modules.get(at as usize)).map(|module| module.number);
        // SAFETY: the caller's array has room for max_frames elements of frame_size bytes, aligned as a frame is.
        unsafe {
            to.write(outer_frame(frame, number));
            to = to.wrapping_byte_add(request.frame_size as usize);
        }
    }
    outcome.written = walk.frames as u32;
    outcome.stop = u32::from(walk.stop.number());
    outcome.target_reads = memory.reads();
    Ok(match (S::of_stop(walk.stop), memory.refusal()) {
        (whole @ (S::Ok | S::Truncated), _) | (whole, None) => whole,
        (_, Some(why)) => why,
    })
}

#[inline(always)]
fn outer_frame(frame: &Frame, module: Option<u32>) -> dwunw_frame {
    let exact = if frame.exact { DWUNW_FRAME_EXACT } else { 0 };
    let logical = if frame.method.is_logical() { DWUNW_FRAME_LOGICAL } else { 0 };
    dwunw_frame {
        struct_size: size_of::<dwunw_frame>() as u32,
        module: module.unwrap_or(DWUNW_NO_MODULE),
        pc: frame.pc.0,
        cfa: frame.cfa.0,
        fp: frame.fp,
        method: u16::from(frame.method.number()),
        flags: exact | logical,
        reserved: 0,
    }
}
