//! What [`ObjectHeaders`] asks, answered for ELF.

use super::gabi::{self, PF_X, PT_LOAD, SHT_NOTE};
use super::{Elf, Section, descriptors, dynamic, links, loaded, notes, relocate, section, symbols, unwind};
use crate::cursor::Cursor;
use crate::descriptors::Descriptors;
use crate::headers::ObjectHeaders;
use crate::scripts;
use crate::symbols::{Symbol, SymbolTable};
use crate::{
    Arch, ArtifactError, DebugAltLink, DebugLink, Format, IdKind, MAX_SECTION_BYTES, ObjectKind, RelocationProblem,
    SectionSlice, UnwindInputs,
};
use std::borrow::Cow;
use std::ops::Range;
use symseal_module::{DebugId, Svma};

impl<'d> ObjectHeaders<'d> for Elf<'d> {
    fn code_sections(&self) -> Vec<(&'d [u8], Range<u64>)> {
        let code = self.sections.iter().filter(|section| section.is_executable());
        code.map(|section| (section.name, section.range())).collect()
    }

    fn format(&self) -> Format {
        Format::Elf
    }

    fn arch(&self) -> Arch {
        Elf::arch(self)
    }

    fn kind(&self) -> ObjectKind {
        self.kind
    }

    fn is_64(&self) -> bool {
        self.is_64
    }

    fn is_little_endian(&self) -> bool {
        self.is_little_endian
    }

    fn elf_flags(&self) -> u32 {
        self.flags
    }

    fn lacks_section_headers(&self) -> bool {
        self.sections.is_empty()
    }

    /// In microMIPS and MIPS16 those of line tables have the bit, and of some compilers those of entries too; in Thumb code neither has.
    fn has_marked_addresses(&self) -> bool {
        self.machine == gabi::EM_MIPS && symbols::tells_instruction_set(self)
    }

    fn file_bytes(&self) -> u64 {
        Elf::file_bytes(self)
    }

    fn image_base(&self) -> u64 {
        Elf::image_base(self)
    }

    fn identity(&self) -> (Option<DebugId>, IdKind) {
        match notes::identity(self) {
            Some((id, kind)) => (Some(id), kind),
            None => (notes::text_hash(self), IdKind::TextHash),
        }
    }

    /// An allocated, stored section of code, or of data where there is none (debuginfod's notion of an executable; in debug
    /// files those are `SHT_NOBITS`).
    /// Without section headers: an executable segment with bytes.
    fn is_executable(&self) -> bool {
        if !matches!(self.kind, ObjectKind::Executable | ObjectKind::Shared) {
            return false;
        }
        if self.sections.is_empty() {
            let mut segments = self.segments.iter();
            return segments.any(|segment| {
                segment.kind == PT_LOAD && segment.flags & PF_X != 0 && self.segment_bytes(segment).is_some()
            });
        }
        self.has_code() || self.is_data_alone()
    }

    fn has_code(&self) -> bool {
        let mut sections = self.sections.iter();
        sections.any(|section| section.is_executable() && section.is_stored() && section.kind != SHT_NOTE)
    }

    fn is_data_alone(&self) -> bool {
        loaded::is_data_alone(self)
    }

    fn is_kernel_module(&self) -> bool {
        loaded::is_kernel_module(self)
    }

    /// Any `.debug_*` section has content: debuginfod's notion of a debug file.
    fn is_debuginfo(&self) -> bool {
        let mut sections = self.sections.iter();
        sections.any(|section| {
            section.is_stored() && (section.name.starts_with(b".debug_") || section.name.starts_with(b".zdebug_"))
                // Scripts for a debugger are in stripped files too, as they are loaded.
                && !section.is_allocated()
        })
    }

    fn has_symtab(&self) -> bool {
        self.sections.iter().any(|section| section.kind == gabi::SHT_SYMTAB && section.is_stored())
    }

    fn debug_section(&self, suffix: &str) -> Option<Result<Cow<'d, [u8]>, ArtifactError>> {
        let (number, section) = debug_section(self, suffix)?;
        if self.kind == ObjectKind::Relocatable
            && matches!(suffix, "info" | "types" | "info.dwo" | "types.dwo")
            && debug_sections(self, suffix).nth(1).is_some()
        {
            return Some(joined_units(self, suffix));
        }
        let contents = section::contents(self, section);
        if !relocate::concerns(self, number) {
            return Some(contents);
        }
        Some(contents.map(|mut bytes| {
            relocate::apply(self, number, bytes.to_mut());
            bytes
        }))
    }

    fn relocation_problem(&self) -> Option<RelocationProblem> {
        relocate::problem(self)
    }

    fn has_debug_section(&self, suffix: &str) -> bool {
        debug_section(self, suffix).is_some()
    }

    fn debug_bytes(&self) -> u64 {
        let names: [&[u8]; 2] = [b".debug_", b".zdebug_"];
        let debug = self.sections.iter().filter(|section| names.iter().any(|name| section.name.starts_with(name)));
        debug.map(|section| section::size_in_memory(self, section)).fold(0, u64::saturating_add)
    }

    fn section(&self, name: &[u8]) -> Option<(Svma, &'d [u8])> {
        let section = Elf::section(self, name).filter(|section| section.is_stored())?;
        Some((Svma(section.addr), section.bytes))
    }

    fn loaded(&self) -> Vec<(u64, &'d [u8])> {
        loaded::loaded(self)
    }

    fn relocated_words(&self) -> Vec<(u64, u64)> {
        loaded::relocated_words(self)
    }

    fn text_sections(&self) -> Vec<Range<u64>> {
        unwind::text_sections(self)
    }

    fn symbols(&self, table: SymbolTable) -> Box<dyn Iterator<Item = Symbol<'_>> + '_> {
        Box::new(symbols::symbols(self, table))
    }

    fn descriptors(&self) -> Option<Descriptors<'d>> {
        descriptors::descriptors(self)
    }

    fn symbol_bytes(&self) -> u64 {
        symbols::symbol_bytes(self)
    }

    fn unwind_inputs(&self) -> UnwindInputs<'d> {
        unwind::unwind_inputs(self)
    }

    fn debug_link(&self) -> Option<DebugLink<'d>> {
        links::debug_link(self)
    }

    fn debug_alt_link(&self) -> Option<DebugAltLink<'d>> {
        links::debug_alt_link(self)
    }

    fn supplementary_checksum(&self) -> Option<&'d [u8]> {
        links::supplementary_checksum(self)
    }

    fn has_inline_debugger_scripts(&self) -> bool {
        let stored = self.sections.iter().filter(|section| section.is_stored());
        let named = stored.filter(|section| scripts::is_script_section(section.name));
        scripts::hold_inline_text(
            named.map(|section| (section::size_in_memory(self, section), || section::contents(self, section))),
        )
    }

    fn run_paths(&self) -> Vec<&'d [u8]> {
        dynamic::run_paths(self)
    }

    fn go_build_id(&self) -> Option<&'d [u8]> {
        notes::go_build_id(self)
    }

    fn mini_debug_info(&self) -> Option<&'d [u8]> {
        Elf::section(self, b".gnu_debugdata").filter(|section| section.is_stored()).map(|section| section.bytes)
    }

    fn may_hide_go_table(&self) -> bool {
        // `strip --strip-sections`
        self.sections.is_empty()
    }

    fn go_function_table(&self) -> Option<SectionSlice<'d>> {
        // `.data.rel.ro.` is the prefix in position-independent executables.
        let names: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];
        let section = names.iter().find_map(|name| Elf::section(self, name)).filter(|section| section.is_stored())?;
        Some(SectionSlice { svma: section.addr, bytes: section.bytes.into() })
    }
}

/// `.debug_SUFFIX` and its number, or `.zdebug_SUFFIX` as old linkers named compressed ones.
fn debug_section<'e, 'd>(elf: &'e Elf<'d>, suffix: &str) -> Option<(usize, &'e Section<'d>)> {
    debug_sections(elf, suffix).next()
}

fn debug_sections<'e, 'd>(elf: &'e Elf<'d>, suffix: &str) -> impl Iterator<Item = (usize, &'e Section<'d>)> {
    elf.sections.iter().enumerate().filter(move |(_, section)| {
        let name = section.name.strip_prefix(b".debug_").or_else(|| section.name.strip_prefix(b".zdebug_"));
        section.is_stored() && name == Some(suffix.as_bytes())
    })
}

/// The units of an object file with several sections of entries, type units last.
///
/// Compilers put each type unit into a section of its own, of which linkers keep one by each name
/// (`-fdebug-types-section`). Offsets are counted in the section of the compilation unit, so that comes first; type units are found by their
/// signatures.
fn joined_units<'d>(elf: &Elf<'d>, suffix: &str) -> Result<Cow<'d, [u8]>, ArtifactError> {
    /// Compilers write one.
    const MOST_SECTIONS: usize = 64;
    let is_of_types = suffix.starts_with("types");
    let tables = relocate::Tables::of(elf);
    let mut joined: Cow<'d, [u8]> = Cow::default();
    let mut types = Vec::new();
    let (mut taken, mut left) = (0, elf.file_bytes());
    for (number, section) in debug_sections(elf, suffix) {
        let relocations = tables.for_section(number);
        // Nothing stops headers from naming the same bytes again and again.
        let read =
            relocations.iter().map(|(_, table)| table.bytes.len()).fold(section.bytes.len(), usize::saturating_add);
        left = match left.checked_sub(read as u64) {
            Some(left) => left,
            None => break,
        };
        if joined.len().saturating_add(types.len()) as u64 > MAX_SECTION_BYTES {
            break;
        }
        let mut bytes = section::contents(elf, section)?;
        let is_type_unit = is_of_types || starts_with_type_unit(elf, &bytes);
        taken += usize::from(!is_type_unit);
        if taken > MOST_SECTIONS {
            break;
        }
        if !relocations.is_empty() {
            relocate::apply_tables(elf, number, relocations.iter().map(|(_, table)| *table), bytes.to_mut());
        }
        if is_type_unit {
            types.extend_from_slice(&bytes);
            continue;
        }
        if joined.is_empty() {
            joined = bytes;
        } else {
            joined.to_mut().extend_from_slice(&bytes);
        }
    }
    if !types.is_empty() {
        joined.to_mut().extend_from_slice(&types);
    }
    Ok(joined)
}

/// The header's length, version and kind of unit. (DWARF 5, 7.5.1: `DW_UT_type`, `DW_UT_split_type`)
fn starts_with_type_unit(elf: &Elf<'_>, bytes: &[u8]) -> bool {
    let mut cursor = Cursor::new(bytes, elf.is_little_endian);
    let header = |cursor: &mut Cursor<'_>| -> crate::cursor::Result<_> {
        if cursor.unsigned(4)? == 0xffff_ffff {
            cursor.unsigned(8)?;
        }
        Ok((cursor.unsigned(2)?, cursor.u8()?))
    };
    matches!(header(&mut cursor), Ok((5, 2 | 6)))
}
