//! One release file.

use crate::descriptors::at_code;
use crate::elf::Elf;
use crate::fields::Fields;
use crate::go;
use crate::headers::{Headers, ObjectHeaders};
use crate::macho::Macho;
use crate::pe::Pe;
use crate::symbols::{FunctionSymbol, SymbolTable};
use crate::{
    Arch, ArtifactError, DebugInfoKind, FileKind, Format, IdKind, ObjectKind, RelocationProblem, UnwindInputs, dwarf,
    sniff,
};
use std::borrow::Cow;
use symseal_module::{DebugId, Svma};

/// What `.gnu_debuglink` says: where the debug file is by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugLink<'d> {
    /// The debug file's name without a directory, as bytes.
    pub file_name: &'d [u8],
    /// CRC-32 (IEEE) of the whole debug file.
    pub crc32: u32,
}

impl<'d> DebugLink<'d> {
    /// Reads the section, which ELF and PE files have alike: a file name, NUL, padding to 4 bytes, CRC-32 of the whole debug file. (GDB
    /// manual, "Separate Debug Files")
    pub(crate) fn read(section: Fields<'d>) -> Option<Self> {
        let length = section.bytes.iter().position(|byte| *byte == 0)?;
        let crc_at = length.checked_add(1)?.checked_next_multiple_of(4)?;
        let crc32 = section.u32(crc_at)?;
        let file_name = section.bytes.get(..length).filter(|name| !name.is_empty())?;
        Some(Self { file_name, crc32 })
    }
}

/// What `.gnu_debugaltlink` or `.debug_sup` (DWARF 5, 7.3.6) says: the supplementary file that dwz made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugAltLink<'d> {
    /// Path, absolute or relative to the file, as bytes.
    pub path: &'d [u8],
    /// Build-id of the supplementary file, or in `.debug_sup` its checksum.
    pub build_id: &'d [u8],
}

/// How split DWARF is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitKind {
    /// A `.dwo` file: what one compilation split off.
    Dwo,
    /// A `.dwp` file: a package of them, with an index.
    Dwp,
}

/// A unit that says where its entries are: in a split DWARF file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitUnit {
    /// The same in the split DWARF file; a changed one is made with each compilation.
    pub id: u64,
    /// Path of the `.dwo` file, absolute or relative to `comp_dir`, as bytes.
    pub name: Vec<u8>,
    /// The compilation directory, as bytes.
    pub comp_dir: Vec<u8>,
}

/// What a unit of split DWARF is, beyond its id.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SplitContents {
    /// The source that was compiled, as the unit has it (`DW_AT_name`).
    pub name: Vec<u8>,
    /// Where the compiler was run (`DW_AT_comp_dir`), as bytes; empty where only the skeleton says it.
    pub comp_dir: Vec<u8>,
    /// The bare names of its functions.
    pub functions: std::collections::BTreeSet<Vec<u8>>,
}

/// What a PE file says about its program database. (CodeView record `RSDS`)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PdbReference<'d> {
    /// As printed, most significant byte first.
    pub guid: [u8; 16],
    /// The age at which the linker wrote both; 0xffffffff for a portable PDB.
    pub age: u32,
    /// Path of the PDB on the machine that linked, as bytes.
    pub path: &'d [u8],
    /// It is a portable PDB (.NET).
    pub is_portable: bool,
}

/// An executable, library or debug file, or one slice of a universal one, parsed as far as its headers and notes.
#[derive(Debug)]
pub struct ObjectFile<'d> {
    headers: Headers<'d>,
    id: Option<DebugId>,
    id_kind: IdKind,
}

impl<'d> ObjectFile<'d> {
    /// Reads headers and notes of an ELF, PE or thin Mach-O file. Every header table and every section must lie within
    /// `data`.
    pub fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        let headers = match sniff(data) {
            FileKind::Pe => Headers::Pe(Pe::parse(data)?),
            FileKind::Macho => Headers::Macho(Macho::parse(data)?),
            // The error of an unknown format is the ELF reader's.
            _ => Headers::Elf(Elf::parse(data)?),
        };
        Ok(Self::of(headers))
    }

    pub(crate) fn of(headers: Headers<'d>) -> Self {
        let (id, id_kind) = headers.ask().identity();
        Self { headers, id, id_kind }
    }

    pub(crate) fn headers(&self) -> &(dyn ObjectHeaders<'d> + '_) {
        self.headers.ask()
    }

    /// The object format.
    pub fn format(&self) -> Format {
        self.headers().format()
    }

    /// What ties debug files to this module; none for a file with neither a note nor code.
    pub fn debug_id(&self) -> Option<&DebugId> {
        self.id.as_ref()
    }

    /// What the debug id rests on; [`IdKind::TextHash`] also where there is none.
    pub fn id_kind(&self) -> IdKind {
        self.id_kind
    }

    /// The processor.
    pub fn arch(&self) -> Arch {
        self.headers().arch()
    }

    /// What the file is to the loader.
    pub fn kind(&self) -> ObjectKind {
        self.headers().kind()
    }

    /// Whether addresses have 64 bits.
    pub fn is_64(&self) -> bool {
        self.headers().is_64()
    }

    /// Whether numbers are stored least significant byte first.
    pub fn is_little_endian(&self) -> bool {
        self.headers().is_little_endian()
    }

    /// The flags of an ELF header (`e_flags`), which each processor defines for itself; 0 of other files.
    pub fn elf_flags(&self) -> u32 {
        self.headers().elf_flags()
    }

    /// Whether an ELF file has no section headers: it runs as well, and debuggers find neither its unwind tables nor its dynamic symbols.
    pub fn lacks_section_headers(&self) -> bool {
        self.headers().lacks_section_headers()
    }

    /// The lowest loaded address, rounded down to a page of 4 KiB: what relative addresses are counted from.
    pub fn image_base(&self) -> Svma {
        Svma(self.headers().image_base())
    }

    /// Whether `.debug_info` or `.debug_line` has content, possibly compressed.
    pub fn has_debug_info(&self) -> bool {
        self.headers().has_debug_section("info") || self.headers().has_debug_section("line")
    }

    /// Why the debug information that the file has is not read, where it is a relocatable object.
    pub fn relocation_problem(&self) -> Option<RelocationProblem> {
        self.headers().relocation_problem()
    }

    /// Whether `.debug_line` has content, possibly compressed.
    pub fn has_line_tables(&self) -> bool {
        self.headers().has_debug_section("line")
    }

    /// Bytes of all debug sections in memory, decompressed, as far as their headers say.
    pub fn debug_bytes(&self) -> u64 {
        self.headers().debug_bytes()
    }

    /// Whether there is a full symbol table.
    pub fn has_symtab(&self) -> bool {
        self.headers().has_symtab()
    }

    /// Whether neither debug information nor a full symbol table is left.
    pub fn is_stripped(&self) -> bool {
        !self.has_debug_info() && !self.has_symtab()
    }

    /// Whether the file holds code that a process could run, or where it has no code the data; a debug file does not.
    pub fn is_executable(&self) -> bool {
        self.headers().is_executable()
    }

    /// Whether the file, relocatable ones included, holds bytes of code.
    pub fn has_code(&self) -> bool {
        self.headers().has_code()
    }

    /// Whether the file, relocatable ELF files included, holds data that is loaded, and has no code: a library of tables or
    /// resources, a kernel module of some.
    pub fn is_data_alone(&self) -> bool {
        self.headers().is_data_alone()
    }

    /// Whether the code of a PE file is methods in the instructions of .NET's runtime (IL) alone, as its CLI header says. Such a file has no
    /// code of a processor, whatever its sections are marked as.
    pub fn is_il_alone(&self) -> bool {
        self.headers().is_il_alone()
    }

    /// Whether the file has debug information in STABS, the form before DWARF, which is not read.
    pub fn has_stabs(&self) -> bool {
        self.headers().section(b".stab").is_some()
    }

    /// Whether a relocatable ELF file is a module of Linux, or the debug file of one, and no input of a linker.
    pub fn is_kernel_module(&self) -> bool {
        self.headers().is_kernel_module()
    }

    /// Whether the file holds debug information: for ELF debuginfod's notion, any `.debug_*` section with content.
    pub fn is_debuginfo(&self) -> bool {
        self.headers().is_debuginfo()
    }

    /// The code id of a PE file, as symbol servers write it: the time stamp in eight upper-case hex digits, the size of
    /// the image in lower-case ones.
    pub fn code_id(&self) -> Option<String> {
        self.headers().code_id()
    }

    /// The program database that a PE file names, if it does.
    pub fn pdb_reference(&self) -> Option<PdbReference<'d>> {
        self.headers().pdb_reference()
    }

    /// Whether a PE file says that its time stamp, and so its code id, is a hash of the content.
    pub fn is_reproducible(&self) -> bool {
        self.headers().is_reproducible()
    }

    /// Whether a PE file holds its portable PDB itself, compressed. It is not read.
    pub fn has_embedded_portable_pdb(&self) -> bool {
        self.headers().has_embedded_portable_pdb()
    }

    /// Go's own build id, a text.
    pub fn go_build_id(&self) -> Option<&'d [u8]> {
        self.headers().go_build_id()
    }

    /// Whether there is a compressed symbol table in `.gnu_debugdata`.
    pub fn has_mini_debug_info(&self) -> bool {
        self.headers().mini_debug_info().is_some()
    }

    /// How many object files a Mach-O file's debug map names: its debug information is in them until `dsymutil` has
    /// gathered it.
    pub fn object_map_count(&self) -> u64 {
        self.headers().object_map_count()
    }

    /// Whether the code is encrypted, as in apps from Apple's store: nothing is said about its instructions.
    pub fn has_encrypted_code(&self) -> bool {
        self.headers().is_encrypted()
    }

    /// How much the file tells a debugger. Full and line tables are told apart by whether most abbreviation tables
    /// describe types; sixteen that do not are passed over.
    pub fn debug_info_kind(&self) -> DebugInfoKind {
        if self.headers().has_debug_section("info") && dwarf::describes_types(self.headers()) {
            DebugInfoKind::Full
        } else if self.has_debug_info() {
            DebugInfoKind::LineTables
        } else if self.has_symtab() {
            DebugInfoKind::Symbols
        } else {
            DebugInfoKind::None
        }
    }

    /// Whether dwz has packed the file's debug information: it has partial units, which no compiler makes, or names the file that
    /// has them.
    pub fn is_packed_by_dwz(&self) -> bool {
        self.debug_alt_link().is_some() || dwarf::has_partial_units(self.headers())
    }

    /// The debug file that this file names, if it does.
    pub fn debug_link(&self) -> Option<DebugLink<'d>> {
        self.headers().debug_link()
    }

    /// The supplementary debug file that this file names, if it does.
    pub fn debug_alt_link(&self) -> Option<DebugAltLink<'d>> {
        self.headers().debug_alt_link()
    }

    /// Whether the file itself is split DWARF. An object file that keeps its `.dwo` sections is one too.
    pub fn split_kind(&self) -> Option<SplitKind> {
        dwarf::split_kind(self.headers())
    }

    /// What the units of this file that are only skeletons ask for, in their order.
    pub fn split_units(&self) -> Vec<SplitUnit> {
        dwarf::split_units(self.headers())
    }

    /// The ids of the units in a split DWARF file, in their order: the file holds what skeletons of these ids ask for,
    /// and nothing that others do, whatever its name.
    pub fn split_ids(&self) -> Vec<u64> {
        if self.split_kind().is_none() {
            return Vec::new();
        }
        dwarf::split_ids(self.headers())
    }

    /// What the units of a split DWARF file are, by their ids. Nothing of units that cannot be read.
    pub fn split_contents(&self) -> std::collections::BTreeMap<u64, SplitContents> {
        dwarf::split_contents(self.headers())
    }

    /// Where a unit of one of the `split` DWARF files contradicts the code that this file's skeleton of the same id has: by the id, and the place of the
    /// file among them. None for those that have no skeleton here, or cannot be read. Files with one id may be of two builds of a source.
    pub fn split_misfits(&self, split: &[&Self]) -> std::collections::BTreeMap<(u64, usize), dwarf::SplitMisfits> {
        let split: Vec<&dyn ObjectHeaders<'d>> = split.iter().map(|file| file.headers()).collect();
        dwarf::split_misfits(self.headers(), &split)
    }

    /// The functions that the file's symbol table names, in no particular order; where it was stripped of that one, those of its
    /// dynamic symbols or exports.
    pub fn function_symbols(&self) -> Vec<FunctionSymbol<'_>> {
        let descriptors = self.headers().descriptors();
        let of = |table| {
            let functions = self.headers().symbols(table).filter(|symbol| symbol.type_rank < 2);
            let functions = functions.filter_map(|symbol| at_code(symbol, descriptors.as_ref()));
            functions.map(|symbol| FunctionSymbol {
                svma: Svma(symbol.svma),
                size: symbol.size,
                name: Cow::Borrowed(symbol.name),
            })
        };
        let tables = [SymbolTable::Symtab, SymbolTable::Dynsym, SymbolTable::Exports];
        tables
            .into_iter()
            .map(|table| of(table).collect::<Vec<_>>())
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }

    /// Where what a PE or Mach-O file offers to others by a name begins, data among it. Nothing of an ELF file, whose libraries offer what was linked into them as well.
    pub fn exported(&self) -> std::collections::BTreeSet<Svma> {
        self.headers().symbols(SymbolTable::Exports).map(|symbol| Svma(symbol.svma)).collect()
    }

    /// The directories in which the compilers were run, as the DWARF in this file names them (`DW_AT_comp_dir`), escaped as
    /// paths in symbol tables are.
    pub fn compile_directories(&self) -> std::collections::BTreeSet<String> {
        dwarf::compile_directories(self.headers())
    }

    /// Paths of the machine that linked the file, apart from those in DWARF: in a PE file that of its program database (where it has a
    /// directory), in a Mach-O file those of object files and sources in the debug map (`N_OSO`, `N_SO`). Escaped as paths in symbol
    /// tables are.
    pub fn build_paths(&self) -> std::collections::BTreeSet<String> {
        self.headers().build_paths().iter().map(|path| crate::escaped(path).into_owned()).collect()
    }

    /// What the file tells of its build: files and directories of line tables, run paths, compilers and their options, macros, whole source files, Go's build settings. What is of
    /// these kinds and is not read is named.
    pub fn build_texts(&self) -> crate::BuildTexts {
        let headers = self.headers();
        let pieces: Vec<&[u8]> = headers.loaded().into_iter().map(|(_, bytes)| bytes).collect();
        let whole = ["info", "str", "line", "line_str", "macro", "macinfo"];
        let sections = whole.iter().chain(&["info.dwo", "str.dwo", "line.dwo", "macro.dwo"]);
        let bytes = sections.filter_map(|name| self.debug_section(name)).map(|section| section.len() as u64);
        let loaded = pieces.iter().map(|piece| piece.len() as u64);
        let mut gathering = crate::told::Gathering::of(bytes.chain(loaded).fold(0, u64::saturating_add));
        dwarf::build_texts(headers, &mut gathering);
        headers.run_paths().into_iter().for_each(|path| gathering.run_path(path));
        for line in self.section(".GCC.command.line").map_or(&b""[..], |(_, bytes)| bytes).split(|byte| *byte == 0) {
            gathering.command_line(line);
        }
        crate::go::build_info(pieces.into_iter(), &mut gathering);
        if self.has_embedded_portable_pdb() {
            gathering.not_read("the portable program database in an assembly");
        }
        gathering.texts
    }

    /// Whether a debugger would run a script whose text stands in the file (`.debug_gdb_scripts`, kinds 4 and 6), or that an entry
    /// names as no script is named. Entries that name a file as a script is named are none.
    pub fn has_inline_debugger_scripts(&self) -> bool {
        self.headers().has_inline_debugger_scripts()
    }

    /// The first section of that name: its stated address and its bytes as stored, not decompressed. None for a section
    /// without bytes in the file.
    pub fn section(&self, name: &str) -> Option<(Svma, &'d [u8])> {
        self.headers().section(name.as_bytes())
    }

    /// A section of debug information by what follows `.debug_` or `__debug_` in its name, decompressed. None where there is none, or
    /// where it cannot be decompressed.
    pub fn debug_section(&self, suffix: &str) -> Option<std::borrow::Cow<'d, [u8]>> {
        self.headers().debug_section(suffix)?.ok()
    }

    /// The sections of code of an ELF file, by name, with their stated addresses; a debug file repeats those of its binary.
    pub fn code_sections(&self) -> Vec<(&'d [u8], std::ops::Range<u64>)> {
        self.headers().code_sections()
    }

    /// The `length` bytes that a process has at this stated address, as far as the file holds them in one piece: out of a section,
    /// or of a segment where the file has no section headers.
    pub fn loaded_bytes(&self, svma: Svma, length: u64) -> Option<&'d [u8]> {
        self.headers().loaded().into_iter().find_map(|(start, bytes)| {
            let from = usize::try_from(svma.0.checked_sub(start)?).ok()?;
            bytes.get(from..from.checked_add(usize::try_from(length).ok()?)?)
        })
    }

    /// Whether a process has these bytes one after the other, at whatever address.
    pub fn loads(&self, bytes: &[u8]) -> bool {
        self.headers().loaded().into_iter().any(|(_, loaded)| memchr::memmem::find(loaded, bytes).is_some())
    }

    /// What an unwind table is compiled from. A section that cannot be decompressed is missing.
    pub fn unwind_inputs(&self) -> UnwindInputs<'d> {
        let inputs = self.headers().unwind_inputs();
        let pclntab = inputs.pclntab.or_else(|| go::function_table(self.headers()));
        UnwindInputs { loaded: self.headers().loaded(), pclntab, ..inputs }
    }
}
