//! What the compiler is given of a binary.

use core::ops::Range;

use symseal_module::{DebugId, Svma};

#[cfg(feature = "compile")]
use super::orc::Orc;
use crate::arch::Arch;
use crate::goroutine::GoRuntime;

/// What a table is made of. Addresses are stated ones (svma).
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// The processor of the binary.
    pub arch: Arch,
    /// The module's identity.
    pub debug_id: &'a DebugId,
    /// The module's image base.
    pub image_base: Svma,
    /// Ranges that hold code. What call frame information says of other addresses is left out and counted.
    pub text: &'a [Range<u64>],
    /// Address and bytes of `.eh_frame`.
    pub eh_frame: Option<(u64, &'a [u8])>,
    /// Address and bytes of `.eh_frame_hdr`; used to find entries where `.eh_frame` itself is damaged.
    pub eh_frame_hdr: Option<(u64, &'a [u8])>,
    /// Address (0 for a section that is not loaded) and decompressed bytes of `.debug_frame`. It fills what `.eh_frame` leaves open.
    pub debug_frame: Option<(u64, &'a [u8])>,
    /// Decompressed bytes of `.pdr`, the procedure descriptors of 32-bit MIPS. Together with the code they fill what call frame
    /// information leaves open.
    pub pdr: Option<&'a [u8]>,
    /// Address and bytes of the exception directory of a Windows module (`.pdata`).
    #[cfg(feature = "compile")]
    pub pdata: Option<(u64, &'a [u8])>,
    /// Code of another processor than `arch` in a Windows module that holds code of two (ARM64EC, ARM64X): it has no rules.
    #[cfg(feature = "compile")]
    pub foreign: &'a [Range<u64>],
    /// Whether functions keep the registers of the System V ABI although there is an exception directory: in images that .NET's ahead-of-time compilers make for other systems
    /// than Windows.
    #[cfg(feature = "compile")]
    pub is_system_v: bool,
    /// The two sections of a kernel's ORC tables. They say more than `.debug_frame` does where stacks change and processes enter.
    #[cfg(feature = "compile")]
    pub orc: Option<Orc<'a>>,
    /// Address and bytes of `__unwind_info` of a Mach-O module.
    #[cfg(feature = "compile")]
    pub unwind_info: Option<(u64, &'a [u8])>,
    /// Address and bytes of `.ARM.exidx`, the index table of 32-bit ARM.
    pub exidx: Option<(u64, &'a [u8])>,
    /// Address and bytes of `.gopclntab`, the table of functions of a Go program.
    pub pclntab: Option<(u64, &'a [u8])>,
    /// What [`go_runtime`] found in a Go program: the table keeps it.
    pub go_runtime: Option<&'a GoRuntime<Svma>>,
    /// What [`tasks`] found in a Rust program: the table keeps it.
    pub tasks: Option<&'a [u8]>,
    /// What [`coroutines`] found in a C++ program: the table keeps it.
    pub coroutines: Option<&'a [u8]>,
    /// Whether there is a `.sframe` section. This version does not read it, and says so where nothing else speaks of the module.
    pub has_sframe: bool,
    /// Addresses and bytes of everything that a process has of the file, code included; the exception directory and the index table lead there. May be
    /// empty where there is none.
    pub loaded: &'a [(u64, &'a [u8])],
    /// Where functions begin, from the symbol tables, in any order. On 32-bit MIPS, 32-bit ARM and RISC-V, code that no
    /// section speaks for is followed from there; on ARM bit 0 says that Thumb instructions are there. May be empty.
    pub functions: &'a [u64],
    /// Procedure linkage tables, from the section headers.
    pub plt: &'a [Plt<'a>],
    /// Addresses and bytes of the code by section, in which signal trampolines without call frame information are looked for, and by
    /// which padding between functions and start-up code are known, and that `.pdr` speaks of. May be empty.
    pub code: &'a [(u64, &'a [u8])],
    /// The code was made at run time, and its call frame information is what a JIT compiler gave (GDB's JIT interface, jitdump).
    pub is_jit: bool,
    /// SHA-256 of the file that all this came from.
    pub source_sha256: [u8; 32],
    /// The producer's name and version.
    pub producer: &'a str,
    /// What pointer encodings relative to other sections are resolved with.
    pub bases: Bases,
}

impl<'a> Input<'a> {
    /// Of a module of which nothing else is known.
    pub fn of(arch: Arch, debug_id: &'a DebugId) -> Self {
        Self {
            arch,
            debug_id,
            image_base: Svma(0),
            text: &[],
            eh_frame: None,
            eh_frame_hdr: None,
            debug_frame: None,
            pdr: None,
            #[cfg(feature = "compile")]
            pdata: None,
            #[cfg(feature = "compile")]
            foreign: &[],
            #[cfg(feature = "compile")]
            is_system_v: false,
            #[cfg(feature = "compile")]
            orc: None,
            #[cfg(feature = "compile")]
            unwind_info: None,
            exidx: None,
            pclntab: None,
            go_runtime: None,
            tasks: None,
            coroutines: None,
            has_sframe: false,
            loaded: &[],
            functions: &[],
            plt: &[],
            code: &[],
            is_jit: false,
            source_sha256: [0; 32],
            producer: "",
            bases: Bases::default(),
        }
    }

    /// Registers that the module's functions keep beyond those of the processor's usual convention.
    pub(super) fn convention_registers(&self) -> &'static [u8] {
        #[cfg(feature = "compile")]
        if self.pdata.is_some() && !self.is_system_v {
            return self.arch.convention_registers();
        }
        &[]
    }

    /// Whether there is an exception directory.
    pub(super) fn has_exception_directory(&self) -> bool {
        #[cfg(feature = "compile")]
        return self.pdata.is_some();
        #[cfg(not(feature = "compile"))]
        return false;
    }

    /// Whether the module's functions are described by compact unwind information.
    pub(super) fn has_compact_unwind(&self) -> bool {
        #[cfg(feature = "compile")]
        return self.unwind_info.is_some();
        #[cfg(not(feature = "compile"))]
        return false;
    }

    /// What the file has of a function: fewer bytes than the range where its section ends before.
    pub(super) fn code_of(&self, range: &Range<u64>) -> Option<&'a [u8]> {
        self.code.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(range.start.checked_sub(*start)?).ok()?;
            let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
            bytes.get(from..).map(|bytes| bytes.get(..length).unwrap_or(bytes)).filter(|bytes| !bytes.is_empty())
        })
    }
}

/// Section addresses (svma) that pointer encodings may be relative to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bases {
    /// `.text`.
    pub text: Option<u64>,
    /// `.got`.
    pub got: Option<u64>,
}

/// A section of procedure linkage table entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plt<'a> {
    /// Its addresses.
    pub range: Range<u64>,
    /// Bytes of an entry (`sh_entsize`); 0 where the header does not say.
    pub entry_size: u64,
    /// Its bytes. Empty if not at hand; then only call frame information can give its rules.
    pub bytes: &'a [u8],
}
