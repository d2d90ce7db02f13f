//! Frames to names.
#![allow(unsafe_code, reason = "functions with C names")]

use core::ffi::c_char;

use symseal_module::{Rva, Svma};
use symseal_symx::SymbolSource;

use crate::capture::{DWUNW_FRAME_EXACT, DWUNW_NO_MODULE, dwunw_frame};
use crate::context::dwunw_context;
use crate::module::Module;
use crate::sized::{self, Sized32};
use crate::snapshot::Snapshot;
use crate::status::{dwunw_status, dwunw_status as S};
use crate::text::{TextBuffer, TextUse};

/// dwunw_symbol.flags: this function was inlined into that of the next symbol.
pub const DWUNW_SYMBOL_INLINED: u16 = 1;
/// dwunw_symbol.flags: where the function ends is not known; the address may be beyond it.
pub const DWUNW_SYMBOL_APPROXIMATE: u16 = 2;

/// Where a name was read.
#[repr(u16)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum dwunw_symbol_source {
    /// Nowhere.
    None = 0,
    /// A .symx table.
    Symx = 1,
    /// .symtab of the ELF file.
    ElfSymtab = 2,
    /// .dynsym of the ELF file: exported functions alone.
    ElfDynsym = 3,
}

/// A name of a frame. A frame has one for each function that was inlined where it is, the innermost first, and one for the function
/// itself; a frame without a name has one that says why.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_symbol {
    /// sizeof(dwunw_symbol) of the library.
    pub struct_size: u32,
    /// The index of the frame.
    pub frame: u32,
    /// DWUNW_STATUS_OK, or why there is no name.
    pub status: i32,
    /// The number of the module, or DWUNW_NO_MODULE.
    pub module: u32,
    /// The stated address (svma) that was looked up; 0 without a module.
    pub svma: u64,
    /// The stated address of the function; 0 without one. Of an inlined function: that of the one which it is part of.
    pub function_svma: u64,
    /// The name, or null. By a .symx as the source language says it, where debug information has one; else, and by an ELF file alone always, the
    /// linkage name, which is for a demangler. This and the other texts lie in the text buffer, terminated; they are not demangled.
    pub function: *const c_char,
    /// The linkage name, or null. By a .symx, where code has neither a symbol nor a linkage name in debug information (a static function that was
    /// inlined), the bare name.
    pub symbol: *const c_char,
    /// The source file, or null.
    pub file: *const c_char,
    /// The line, or 0.
    pub line: u32,
    /// The column, or 0.
    pub column: u32,
    /// DWUNW_SYMBOL_INLINED, DWUNW_SYMBOL_APPROXIMATE.
    pub flags: u16,
    /// A dwunw_symbol_source.
    pub source: u16,
    /// 0.
    pub reserved: u32,
}

// SAFETY: integers and pointers, the size first.
unsafe impl Sized32 for dwunw_symbol {}

/// What is to be named.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_resolve_request {
    /// sizeof(dwunw_resolve_request).
    pub struct_size: u32,
    /// sizeof(dwunw_frame) of the caller.
    pub frame_size: u32,
    /// Frames of dwunw_capture, or such as the caller made of addresses: with DWUNW_NO_MODULE the module is looked for by pc.
    pub frames: *const dwunw_frame,
    /// How many frames.
    pub frame_count: u32,
    /// sizeof(dwunw_symbol) of the caller.
    pub symbol_size: u32,
    /// Where the names go, in the order of the frames.
    pub symbols: *mut dwunw_symbol,
    /// How many names there is room for.
    pub max_symbols: u32,
    /// 0.
    pub reserved: u32,
    /// A buffer for texts.
    pub text: *mut c_char,
    /// Its size in bytes.
    pub text_size: usize,
}

// SAFETY: integers and pointers, the size first.
unsafe impl Sized32 for dwunw_resolve_request {}

/// How far the naming came.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_resolve_result {
    /// sizeof(dwunw_resolve_result), set by the caller.
    pub struct_size: u32,
    /// Symbols that were written.
    pub written: u32,
    /// Symbols that there are; more than written where the array was full.
    pub needed: u32,
    /// Frames that have at least a function's name.
    pub named: u32,
    /// Bytes of text that there are; with a buffer of this size no text is missing.
    pub text_needed: u64,
}

// SAFETY: integers alone, the size first.
unsafe impl Sized32 for dwunw_resolve_result {}

/// Names many frames at once: by the module's .symx, where it has none or does not know the address by the symbols of its ELF file.
///
/// Gives DWUNW_STATUS_OK also where frames have no name, which their symbols say; DWUNW_STATUS_TEXT_FULL or DWUNW_STATUS_SYMBOLS_FULL
/// where room was short, with what there was room for. Takes no lock; allocates once for each ELF file, when its symbols
/// are first asked for, so it does not belong into a signal handler.
///
/// # Safety
/// The pointers are null or what their types say; arrays have the lengths that the request gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwunw_symbol_resolve_batch(
    context: *const dwunw_context,
    request: *const dwunw_resolve_request,
    result: *mut dwunw_resolve_result,
) -> dwunw_status {
    // SAFETY: the caller's contract.
    if let Err(status) = unsafe { sized::size_of_struct(result.cast_const()) } {
        return status;
    }
    let mut outcome = dwunw_resolve_result { struct_size: 0, written: 0, needed: 0, named: 0, text_needed: 0 };
    // SAFETY: the caller's contract.
    let status = unsafe { resolve(context, request, &mut outcome) };
    // SAFETY: likewise.
    match unsafe { sized::write(result, outcome) } {
        Ok(()) => status.unwrap_or_else(|status| status),
        Err(status) => status,
    }
}

/// # Safety
/// That of [`dwunw_symbol_resolve_batch`].
unsafe fn resolve(
    context: *const dwunw_context,
    request: *const dwunw_resolve_request,
    outcome: &mut dwunw_resolve_result,
) -> Result<S, S> {
    // SAFETY: the caller's contract, here and below.
    let context = unsafe { context.as_ref() }.ok_or(S::BadArgument)?;
    // SAFETY: likewise.
    let request = unsafe { sized::read(request) }?;
    sized::stride_of::<dwunw_frame>(request.frame_size)?;
    sized::stride_of::<dwunw_symbol>(request.symbol_size)?;
    let frames_fit = request.frame_count == 0 || (!request.frames.is_null() && request.frames.is_aligned());
    let symbols_fit = request.max_symbols == 0 || (!request.symbols.is_null() && request.symbols.is_aligned());
    let text_fits = request.text_size == 0 || !request.text.is_null();
    if !frames_fit || !symbols_fit || !text_fits || isize::try_from(request.text_size).is_err() {
        return Err(S::BadArgument);
    }
    let modules = context.published.read(request.symbols as usize);
    let mut out = Out {
        to: request.symbols,
        stride: request.symbol_size as usize,
        room: request.max_symbols,
        // SAFETY: likewise.
        text: unsafe { TextBuffer::new(request.text, request.text_size) },
        outcome,
    };
    for at in 0..request.frame_count {
        let frame = request.frames.wrapping_byte_add(request.frame_size as usize * at as usize);
        // SAFETY: an element of the caller's array.
        out.frame(at, &unsafe { frame.read() }, &modules);
    }
    let is_full = out.outcome.needed > out.outcome.written;
    out.outcome.text_needed = out.text.needed as u64;
    Ok(match (is_full, out.text.overflowed) {
        (true, _) => S::SymbolsFull,
        (false, true) => S::TextFull,
        (false, false) => S::Ok,
    })
}

/// Where answers go.
struct Out<'o, 'n> {
    to: *mut dwunw_symbol,
    stride: usize,
    room: u32,
    text: TextBuffer<'n>,
    outcome: &'o mut dwunw_resolve_result,
}

impl<'n> Out<'_, 'n> {
    fn frame(&mut self, at: u32, frame: &dwunw_frame, modules: &'n Snapshot) {
        let is_exact = frame.flags & DWUNW_FRAME_EXACT != 0;
        let pc = frame.pc.wrapping_sub(u64::from(!is_exact));
        let mut symbol = dwunw_symbol {
            struct_size: size_of::<dwunw_symbol>() as u32,
            frame: at,
            status: S::AddressOutsideModules as i32,
            module: DWUNW_NO_MODULE,
            svma: 0,
            function_svma: 0,
            function: core::ptr::null(),
            symbol: core::ptr::null(),
            file: core::ptr::null(),
            line: 0,
            column: 0,
            flags: 0,
            source: dwunw_symbol_source::None as u16,
            reserved: 0,
        };
        let module = match frame.module {
            DWUNW_NO_MODULE => modules.module_at(pc).ok_or(S::AddressOutsideModules),
            number => modules.module(number).ok_or(S::NoSuchModule),
        };
        let status = match module {
            Ok(module) => {
                (symbol.module, symbol.svma) = (module.number, pc.wrapping_sub(module.bias));
                self.named(&mut symbol, module)
            }
            Err(status) => Err(status),
        };
        match status {
            Ok(()) => self.outcome.named += 1,
            Err(status) => {
                symbol.status = status as i32;
                self.push(symbol);
            }
        }
    }

    /// Writes the names of the address in `symbol`, or says why there is none.
    fn named(&mut self, symbol: &mut dwunw_symbol, module: &'n Module) -> Result<(), S> {
        symbol.status = S::Ok as i32;
        let mut missing = S::NoSymbols;
        if let Some(table) = module.symbol_table() {
            missing = S::NoSymbolAtAddress;
            let rva = symbol.svma.checked_sub(table.image_base().0).map(Rva);
            if let Some(hit) = rva.and_then(|rva| table.lookup(rva)) {
                let function = hit.function();
                let has_name = function.source != SymbolSource::FunctionStarts && !function.name.is_empty();
                if has_name {
                    symbol.source = dwunw_symbol_source::Symx as u16;
                    symbol.function_svma = Svma(table.image_base().0.wrapping_add(function.start.0)).0;
                    let approximate = if function.flags.approximate { DWUNW_SYMBOL_APPROXIMATE } else { 0 };
                    for frame in hit.frames() {
                        let mut one = *symbol;
                        one.function = self.text.put_name(frame.function, TextUse::Function);
                        one.symbol = self.text.put_name(frame.symbol, TextUse::Symbol);
                        one.file = self.text.put(frame.file.as_bytes(), TextUse::File);
                        one.line = frame.line.unwrap_or(0);
                        one.column = frame.column().unwrap_or(0);
                        one.flags = if frame.inlined { DWUNW_SYMBOL_INLINED } else { approximate };
                        self.push(one);
                    }
                    return Ok(());
                }
            }
        }
        let Some(elf) = module.elf().filter(|elf| !elf.symbols.is_empty()) else { return Err(missing) };
        let hit = elf.symbols.find(symbol.svma)?;
        let source = if hit.is_full { dwunw_symbol_source::ElfSymtab } else { dwunw_symbol_source::ElfDynsym };
        symbol.source = source as u16;
        symbol.function_svma = hit.start;
        symbol.flags = if hit.approximate { DWUNW_SYMBOL_APPROXIMATE } else { 0 };
        symbol.function = self.text.put(hit.name, TextUse::Function);
        symbol.symbol = symbol.function;
        self.push(*symbol);
        Ok(())
    }

    fn push(&mut self, symbol: dwunw_symbol) {
        self.outcome.needed = self.outcome.needed.saturating_add(1);
        if self.outcome.written >= self.room {
            return;
        }
        self.outcome.written += 1;
        // SAFETY: fewer than the caller has room for were written, each of the caller's size and aligned as a symbol is.
        unsafe { self.to.write(symbol) };
        self.to = self.to.wrapping_byte_add(self.stride);
    }
}
