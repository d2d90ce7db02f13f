//! What every object format answers, each in its own folder.

use crate::descriptors::Descriptors;
use crate::elf::{Elf, RelocationProblem};
use crate::macho::Macho;
use crate::pe::Pe;
use crate::symbols::{Symbol, SymbolTable};
use crate::{
    Arch, ArtifactError, DebugAltLink, DebugLink, Format, IdKind, ObjectKind, PdbReference, SectionSlice, UnwindInputs,
};
use std::borrow::Cow;
use std::ops::Range;
use symseal_module::{DebugId, Svma};

/// Headers of one object file, or of one slice of a universal one.
#[derive(Debug)]
pub(crate) enum Headers<'d> {
    Elf(Elf<'d>),
    Pe(Pe<'d>),
    Macho(Macho<'d>),
}

impl<'d> Headers<'d> {
    /// The questions, whatever the format.
    pub(crate) fn ask(&self) -> &(dyn ObjectHeaders<'d> + '_) {
        match self {
            Self::Elf(elf) => elf,
            Self::Pe(pe) => pe,
            Self::Macho(macho) => macho,
        }
    }
}

/// What identity, symbols, debug information and unwind rules are read through. Addresses are stated ones (svma).
///
/// Answers that only some formats have are "none" by default.
pub(crate) trait ObjectHeaders<'d>: Sync {
    fn format(&self) -> Format;
    fn arch(&self) -> Arch;
    fn kind(&self) -> ObjectKind;
    fn is_64(&self) -> bool;
    fn is_little_endian(&self) -> bool;
    /// The processor's own flags.
    fn elf_flags(&self) -> u32 {
        0
    }
    /// An ELF file without any section header.
    fn lacks_section_headers(&self) -> bool {
        false
    }
    /// Bit 0 of addresses of code in debug information may tell the instruction set, and is no part of the address.
    fn has_marked_addresses(&self) -> bool {
        false
    }
    /// Bytes of the file; of a slice, its own.
    fn file_bytes(&self) -> u64;
    /// What relative addresses are counted from.
    fn image_base(&self) -> u64;
    /// The module's id and what it rests on.
    fn identity(&self) -> (Option<DebugId>, IdKind);
    /// Holds code that a process could run, or data that one could load where there is no code.
    fn is_executable(&self) -> bool;
    /// Holds bytes of code, whatever the kind of file.
    fn has_code(&self) -> bool;
    /// Holds data that a process could load, and says of no code that it were elsewhere, as debug files do.
    fn is_data_alone(&self) -> bool;
    /// Its code is methods in the instructions of .NET's runtime, and none of a processor.
    fn is_il_alone(&self) -> bool {
        false
    }
    /// Is what a kernel loads, or its debug file, in the form of a linker's input.
    fn is_kernel_module(&self) -> bool {
        false
    }
    /// Holds debug information.
    fn is_debuginfo(&self) -> bool;
    fn has_symtab(&self) -> bool;
    /// The DWARF section of that suffix (`info`, `line_str`, `info.dwo`), decompressed; none where it is missing or empty.
    fn debug_section(&self, suffix: &str) -> Option<Result<Cow<'d, [u8]>, ArtifactError>>;
    /// Why the debug sections of a relocatable object cannot be used, if so.
    fn relocation_problem(&self) -> Option<RelocationProblem> {
        None
    }
    /// Whether [`Self::debug_section`] would give something, without decompressing.
    fn has_debug_section(&self, suffix: &str) -> bool;
    /// Bytes of all debug sections in memory, decompressed, as far as their headers say.
    fn debug_bytes(&self) -> u64;
    /// The first section of that name with bytes in the file: its address and its bytes as stored.
    fn section(&self, name: &[u8]) -> Option<(Svma, &'d [u8])>;
    /// The sections of code by name, with their stated addresses, of formats whose debug files repeat their headers.
    fn code_sections(&self) -> Vec<(&'d [u8], Range<u64>)> {
        Vec::new()
    }
    /// What is loaded into a process: stated addresses, and the bytes that the file has for them.
    fn loaded(&self) -> Vec<(u64, &'d [u8])> {
        Vec::new()
    }
    /// Words that the loader writes, where the file does not hold their value in place: address and value.
    fn relocated_words(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
    /// Executable sections, sorted, not overlapping.
    fn text_sections(&self) -> Vec<Range<u64>>;
    /// Every symbol of the table that may name code. Damaged tables give fewer.
    fn symbols(&self, table: SymbolTable) -> Box<dyn Iterator<Item = Symbol<'_>> + '_>;
    /// What leads from the symbols of functions to their code, where that is not one address and the file has it.
    fn descriptors(&self) -> Option<Descriptors<'d>> {
        None
    }
    /// Bytes of the symbol tables and of their names: what work on them is allowed for.
    fn symbol_bytes(&self) -> u64;
    /// Addresses at which functions start, sorted, where the format lists them apart from symbols.
    fn function_starts(&self) -> Vec<u64> {
        Vec::new()
    }
    fn unwind_inputs(&self) -> UnwindInputs<'d>;
    fn debug_link(&self) -> Option<DebugLink<'d>> {
        None
    }
    fn debug_alt_link(&self) -> Option<DebugAltLink<'d>> {
        None
    }
    /// What a DWARF 5 supplementary file is known by.
    fn supplementary_checksum(&self) -> Option<&'d [u8]> {
        None
    }
    /// gdb would run a script that stands in the file.
    fn has_inline_debugger_scripts(&self) -> bool;
    /// The Windows code id.
    fn code_id(&self) -> Option<String> {
        None
    }
    /// Paths of the machine that built or linked the file, apart from those in debug information.
    fn build_paths(&self) -> Vec<Cow<'d, [u8]>> {
        Vec::new()
    }
    /// Where the loader looks for libraries, one directory each.
    fn run_paths(&self) -> Vec<&'d [u8]> {
        Vec::new()
    }
    fn pdb_reference(&self) -> Option<PdbReference<'d>> {
        None
    }
    /// The linker made the same bytes from the same input, and a hash of them the time stamp.
    fn is_reproducible(&self) -> bool {
        false
    }
    /// A portable PDB stands in the file itself, compressed.
    fn has_embedded_portable_pdb(&self) -> bool {
        false
    }
    fn go_build_id(&self) -> Option<&'d [u8]> {
        None
    }
    /// The compressed ELF file with symbols alone (`.gnu_debugdata`).
    fn mini_debug_info(&self) -> Option<&'d [u8]> {
        None
    }
    /// Whether a Go program of this format, or this file, need not have a section of its function table: it is searched for then.
    fn may_hide_go_table(&self) -> bool {
        false
    }
    /// Go's function table (`.gopclntab`), where it has a section of its own.
    fn go_function_table(&self) -> Option<SectionSlice<'d>> {
        None
    }
    /// The code is encrypted, as in apps from Apple's store.
    fn is_encrypted(&self) -> bool {
        false
    }
    /// Object files that a Mach-O file's debug map names.
    fn object_map_count(&self) -> u64 {
        0
    }
}
