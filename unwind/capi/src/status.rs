//! What a call came to, why a walk ended, how a frame was found: numbers and texts.
#![allow(unsafe_code, reason = "functions with C names")]

use core::ffi::{CStr, c_char};

use symseal_dwunw_elf::ElfError;
use symseal_module::{StopReason, UnwindMethod};

/// What a call came to. Numbers never change their meaning; a later version may add some.
///
/// dwunw_capture gives those from 32 to 47 for a walk that ended before the end of the stack: the frames so far are there, and
/// dwunw_capture_result.stop has the reason more finely.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum dwunw_status {
    /// Done; for a walk: the stack is complete.
    Ok = 0,
    /// A null pointer, a contradiction or a number out of range.
    BadArgument = 1,
    /// A structure's struct_size is smaller than this version's structure.
    StructTooSmall = 2,
    /// No memory.
    OutOfMemory = 3,
    /// A processor that this version does not unwind.
    UnsupportedArch = 4,
    /// A version of the register layout that this version does not know.
    UnsupportedVersion = 5,
    /// There is no such file.
    FileNotFound = 6,
    /// The file cannot be opened, is no regular file, is empty or cannot be mapped.
    FileUnreadable = 7,
    /// Not an ELF file, or one whose headers contradict themselves, or ask for more addresses than there are.
    BadElf = 8,
    /// A .uwt or .symx table that cannot be read, or that does not hold together.
    BadTable = 9,
    /// The files that were given for one module have different debug ids.
    IdMismatch = 10,
    /// As many modules as the context takes.
    CacheFull = 11,
    /// Another module begins at the address.
    AddressInUse = 12,
    /// No module has the number.
    NoSuchModule = 13,
    /// The scratch memory is not initialised, or too small for the frames asked for.
    BadScratch = 14,
    /// Another call uses the scratch memory at this moment.
    ScratchBusy = 15,
    /// There is no such process or thread.
    NoSuchProcess = 16,
    /// The system does not let this process read or stop the target.
    NotPermitted = 17,
    /// The target could not be stopped, or its registers not be read.
    TargetUnreadable = 18,

    /// The next word lies beyond the stack bytes, or the target's memory cannot be read there; or the target was read 64 times for each frame that
    /// there is room for and 1,024 times at least, as no stack needs that was not made for it.
    StackUnreadable = 32,
    /// An address lies in no module, and nothing else led on; or the frame pointer leads to one in no module.
    AddressOutsideModules = 33,
    /// Nothing is known about how to unwind at an address, and nothing else led on.
    NoUnwindData = 34,
    /// There is a rule, of a kind that is not carried out.
    UnsupportedRule = 35,
    /// The stack contradicts its rules: the caller's frame would not lie above, or lies askew.
    BadStack = 36,
    /// As many frames as there is room for.
    Truncated = 37,
    /// Several return addresses were equally likely.
    Ambiguous = 38,
    /// A rule needs a register whose value is not known.
    RegisterUnknown = 39,

    /// The module has neither a symbol table nor an ELF file with symbols.
    NoSymbols = 48,
    /// No symbol covers the address.
    NoSymbolAtAddress = 49,
    /// The text buffer is full: some names are missing.
    TextFull = 50,
    /// The array of symbols is full: some are missing.
    SymbolsFull = 51,
}

use dwunw_status as S;

impl dwunw_status {
    const fn text(number: i32) -> &'static CStr {
        match number {
            0 => c"done",
            1 => c"a null pointer, a contradiction or a number out of range",
            2 => c"struct_size is smaller than the structure of this version",
            3 => c"no memory",
            4 => c"a processor that this version does not unwind",
            5 => c"a version of the register layout that this version does not know",
            6 => c"there is no such file",
            7 => c"the file cannot be read",
            8 => c"not an ELF file, or a damaged one",
            9 => c"the table cannot be read or does not hold together",
            10 => c"the files given for one module have different debug ids",
            11 => c"as many modules as the context takes",
            12 => c"another module begins at the address",
            13 => c"no module has the number",
            14 => c"the scratch memory is not initialised or too small",
            15 => c"another call uses the scratch memory",
            16 => c"there is no such process or thread",
            17 => c"the system does not let this process read or stop the target",
            18 => c"the target could not be stopped or its registers not be read",
            32 => c"the stack goes on beyond the bytes that can be read",
            33 => c"an address lies in no module",
            34 => c"no unwind data covers an address",
            35 => c"an unwind rule of a kind that is not carried out",
            36 => c"the stack contradicts its unwind rules",
            37 => c"as many frames as there is room for",
            38 => c"several return addresses were equally likely",
            39 => c"an unwind rule needs a register whose value is not known",
            48 => c"the module has no symbols",
            49 => c"no symbol covers the address",
            50 => c"the text buffer is full",
            51 => c"the array of symbols is full",
            _ => c"unknown status",
        }
    }

    /// What is wrong with an ELF file.
    pub(crate) fn of_elf(error: ElfError) -> Self {
        match error {
            ElfError::Malformed => S::BadElf,
            ElfError::UnsupportedArch => S::UnsupportedArch,
            ElfError::OutOfMemory => S::OutOfMemory,
        }
    }

    /// What a walk that ended so is called.
    pub(crate) fn of_stop(stop: StopReason) -> Self {
        match stop {
            StopReason::EndOfStack | StopReason::RootFramePointer => S::Ok,
            StopReason::TruncatedStack => S::StackUnreadable,
            StopReason::NoModule => S::AddressOutsideModules,
            StopReason::NoRule | StopReason::NoTable | StopReason::LeafCalled => S::NoUnwindData,
            StopReason::UnsupportedRule => S::UnsupportedRule,
            StopReason::StackNotRising | StopReason::Misaligned => S::BadStack,
            StopReason::MaxFrames => S::Truncated,
            StopReason::Ambiguous => S::Ambiguous,
            StopReason::RegisterUnknown => S::RegisterUnknown,
        }
    }
}

/// Why a walk over a stack ended: the numbers of docs/formats/reasons.md, which JSON and SQL have by name.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum dwunw_stop {
    /// The rule says that there is no caller.
    EndOfStack = 0,
    /// A zero frame pointer or return address ended the chain.
    RootFramePointer = 1,
    /// The next word lies beyond the stack bytes.
    TruncatedStack = 2,
    /// The address lies in no module.
    NoModule = 3,
    /// The module's rules do not cover the address.
    NoRule = 4,
    /// The module has no unwind rules.
    NoTable = 5,
    /// The rule is of a kind that is not carried out.
    UnsupportedRule = 6,
    /// The caller's frame would not lie above the callee's.
    StackNotRising = 7,
    /// The frame address is not aligned to a word.
    Misaligned = 8,
    /// There is no room for more frames.
    MaxFrames = 9,
    /// Several return addresses were equally likely.
    Ambiguous = 10,
    /// The rule needs a register whose value is not known.
    RegisterUnknown = 11,
    /// The rule is that of a leaf, and the function called.
    LeafCalled = 12,
}

/// How a frame was found from its callee: the numbers of docs/formats/reasons.md.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum dwunw_method {
    /// The registers of the capture: the innermost frame.
    Context = 0,
    /// A rule of .eh_frame.
    CfiEhFrame = 1,
    /// A rule of .debug_frame.
    CfiDebugFrame = 2,
    /// Registers that a signal frame saved.
    SignalContext = 3,
    /// The rule of a linkage table entry.
    Plt = 4,
    /// The frame pointer, where no rule covered the address.
    FramePointer = 5,
    /// A leaf without a rule.
    Leaf = 6,
    /// A call through a null pointer.
    NullCall = 7,
    /// A guess.
    Scan = 8,
    /// A rule that a JIT compiler supplied.
    JitRule = 9,
    /// What the function's own instructions do to its frame.
    Prologue = 10,
    /// The exception directory of a Windows module.
    Pdata = 11,
    /// Compact unwind information of a Mach-O module.
    CompactUnwind = 12,
    /// Where the goroutine stopped for which a thread runs on its own stack.
    GoroutineSwitch = 13,
    /// The index table of an ARM module.
    Exidx = 14,
    /// The table of functions of a Go program.
    GoPclntab = 15,
    /// Where a task goes on that waits for an asynchronous function of the stack; on no stack.
    AsyncParent = 16,
    /// ORC tables of a kernel.
    Orc = 17,
}

const _: () = assert!(
    UnwindMethod::ALL.len() == dwunw_method::Orc as usize + 1
        && UnwindMethod::Orc as usize == dwunw_method::Orc as usize,
    "every method of the engine has its name in C"
);

/// Texts of the closed sets are shorter.
const CODE_BYTES: usize = 32;

/// A code of the closed sets as C reads it.
const fn terminated(text: &str) -> [u8; CODE_BYTES] {
    assert!(text.len() < CODE_BYTES);
    let mut out = [0; CODE_BYTES];
    let (head, _) = out.split_at_mut(text.len());
    head.copy_from_slice(text.as_bytes());
    out
}

macro_rules! texts {
    ($name:ident, $set:ident) => {
        static $name: [[u8; CODE_BYTES]; $set::ALL.len()] = {
            let mut out = [[0; CODE_BYTES]; $set::ALL.len()];
            let mut rest: (&mut [[u8; CODE_BYTES]], &[$set]) = (&mut out, $set::ALL);
            while let ([text, texts @ ..], [code, codes @ ..]) = rest {
                *text = terminated(code.code());
                rest = (texts, codes);
            }
            out
        };
    };
}

texts!(STOPS, StopReason);
texts!(METHODS, UnwindMethod);

fn code_text(texts: &'static [[u8; CODE_BYTES]], number: u32) -> *const c_char {
    let text = usize::try_from(number).ok().and_then(|number| texts.get(number));
    text.map_or(c"unknown".as_ptr(), |text| text.as_ptr().cast())
}

/// A sentence for a status, in English; never null, and valid for ever. Any number may be given.
#[unsafe(no_mangle)]
pub extern "C" fn dwunw_strerror(status: i32) -> *const c_char {
    dwunw_status::text(status).as_ptr()
}

/// The stable text of a dwunw_stop, such as "truncated-stack"; never null.
#[unsafe(no_mangle)]
pub extern "C" fn dwunw_stop_name(stop: u32) -> *const c_char {
    code_text(&STOPS, stop)
}

/// The stable text of a dwunw_method, such as "cfi-eh-frame"; never null.
#[unsafe(no_mangle)]
pub extern "C" fn dwunw_method_name(method: u32) -> *const c_char {
    code_text(&METHODS, method)
}

/// The version of this library: "MAJOR.MINOR.PATCH".
#[unsafe(no_mangle)]
pub extern "C" fn dwunw_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
