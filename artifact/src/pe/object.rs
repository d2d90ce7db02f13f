//! What [`ObjectHeaders`] asks, answered for PE.

use super::{Pe, exports, hybrid, managed, pdata, section::Section, symbols};
use crate::fields::Fields;
use crate::go;
use crate::headers::ObjectHeaders;
use crate::proportion::is_in_proportion;
use crate::scripts;
use crate::symbols::{Symbol, SymbolTable};
use crate::{
    Arch, ArtifactError, DebugLink, Format, IdKind, ObjectKind, PdbReference, SectionSlice, UnwindInputs, compressed,
};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::ops::Range;
use symseal_module::{DebugId, Svma};

impl<'d> ObjectHeaders<'d> for Pe<'d> {
    fn format(&self) -> Format {
        Format::Pe
    }

    fn arch(&self) -> Arch {
        Pe::arch(self)
    }

    fn kind(&self) -> ObjectKind {
        if self.is_dll { ObjectKind::Shared } else { ObjectKind::Executable }
    }

    fn is_64(&self) -> bool {
        self.is_64
    }

    fn is_little_endian(&self) -> bool {
        true
    }

    fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn image_base(&self) -> u64 {
        self.image_base
    }

    /// GUID and age of the PDB that the file names; without one, a hash of the code, or of the data where there is no code.
    fn identity(&self) -> (Option<DebugId>, IdKind) {
        match &self.debug.pdb {
            Some(pdb) => {
                let kind = if pdb.is_portable { IdKind::PortablePdb } else { IdKind::PdbGuidAge };
                (Some(DebugId::Pdb { guid: pdb.guid, age: pdb.age }), kind)
            }
            None => (text_hash(self), IdKind::TextHash),
        }
    }

    fn is_executable(&self) -> bool {
        self.has_code() || self.is_data_alone()
    }

    fn has_code(&self) -> bool {
        self.sections.iter().any(|section| section.is_executable && !section.bytes.is_empty())
    }

    /// Libraries of resources, of tables, of forwarders alone. In debug files the sections of code have no bytes, but a size.
    fn is_data_alone(&self) -> bool {
        let has_code = self.sections.iter().any(|section| section.is_executable && section.size > 0);
        !has_code && self.sections.iter().any(is_data)
    }

    fn is_il_alone(&self) -> bool {
        managed::is_il_alone(self)
    }

    fn is_debuginfo(&self) -> bool {
        self.sections.iter().any(|section| {
            !section.bytes.is_empty() && (section.name.starts_with(b".debug_") || section.name.starts_with(b".zdebug_"))
        })
    }

    fn has_symtab(&self) -> bool {
        !self.symbols.is_empty()
    }

    fn debug_section(&self, suffix: &str) -> Option<Result<Cow<'d, [u8]>, ArtifactError>> {
        debug_section(self, suffix).map(contents)
    }

    fn has_debug_section(&self, suffix: &str) -> bool {
        debug_section(self, suffix).is_some()
    }

    fn debug_bytes(&self) -> u64 {
        let sections = self.sections.iter();
        sections.map(|section| compressed::debug_size(section.name, section.bytes)).fold(0, u64::saturating_add)
    }

    fn section(&self, name: &[u8]) -> Option<(Svma, &'d [u8])> {
        let section = named(self, name)?;
        Some((Svma(section.range(self.image_base).start), section.bytes))
    }

    fn loaded(&self) -> Vec<(u64, &'d [u8])> {
        let sections = self.sections.iter().filter(|section| !section.bytes.is_empty());
        sections.map(|section| (section.range(self.image_base).start, section.bytes)).collect()
    }

    /// Methods in the runtime's own instructions have no addresses until the runtime compiles them.
    fn text_sections(&self) -> Vec<Range<u64>> {
        if managed::is_il_alone(self) {
            return Vec::new();
        }
        if let Some(functions) = managed::compiled_functions(self) {
            return functions;
        }
        let code = self.sections.iter().filter(|section| section.is_executable);
        let code = code.map(|section| section.range(self.image_base)).filter(|range| !range.is_empty()).collect();
        managed::without_methods(self, code)
    }

    fn symbols(&self, table: SymbolTable) -> Box<dyn Iterator<Item = Symbol<'_>> + '_> {
        match table {
            SymbolTable::Symtab => Box::new(symbols::symbols(self)),
            SymbolTable::Exports => Box::new(exports::symbols(self)),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn symbol_bytes(&self) -> u64 {
        self.symbols.bytes().saturating_add(exports::bytes(self))
    }

    fn function_starts(&self) -> Vec<u64> {
        pdata::function_starts(self)
    }

    fn unwind_inputs(&self) -> UnwindInputs<'d> {
        let slice = |name: &[u8]| {
            let section = named(self, name)?;
            Some(SectionSlice { svma: section.range(self.image_base).start, bytes: section.bytes.into() })
        };
        let base_of = |name: &[u8]| named(self, name).map(|section| section.range(self.image_base).start);
        let mut text = self.text_sections();
        text.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        UnwindInputs {
            text,
            eh_frame: slice(b".eh_frame"),
            debug_frame: debug_section(self, "frame").and_then(|section| {
                let svma = section.range(self.image_base).start;
                Some(SectionSlice { svma, bytes: contents(section).ok()? })
            }),
            // By the header: the section may be joined with others.
            pdata: self.exceptions.and_then(|directory| {
                let svma = self.image_base.checked_add(u64::from(directory.rva))?;
                Some(SectionSlice { svma, bytes: self.directory_bytes(directory)?.into() })
            }),
            foreign: hybrid::code_of_another_processor(self),
            is_system_v: self.is_for_another_system(),
            text_base: base_of(b".text"),
            data_base: base_of(b".data"),
            ..UnwindInputs::none(self.arch(), Svma(self.image_base))
        }
    }

    /// MinGW's tools write it as they do into ELF files.
    fn debug_link(&self) -> Option<DebugLink<'d>> {
        let bytes = named(self, b".gnu_debuglink")?.bytes;
        DebugLink::read(Fields { bytes, is_little_endian: true })
    }

    fn has_inline_debugger_scripts(&self) -> bool {
        let stored = self.sections.iter().filter(|section| !section.bytes.is_empty());
        let named = stored.filter(|section| scripts::is_script_section(section.name));
        scripts::hold_inline_text(
            named.map(|section| (compressed::debug_size(section.name, section.bytes), || contents(section))),
        )
    }

    fn code_id(&self) -> Option<String> {
        Some(Pe::code_id(self))
    }

    fn pdb_reference(&self) -> Option<PdbReference<'d>> {
        self.debug.pdb
    }

    fn build_paths(&self) -> Vec<Cow<'d, [u8]>> {
        let named = self.debug.pdb.map(|pdb| pdb.path);
        let path = named.filter(|path| path.iter().any(|byte| matches!(byte, b'/' | b'\\')));
        path.into_iter().map(Cow::Borrowed).collect()
    }

    fn is_reproducible(&self) -> bool {
        self.debug.is_reproducible
    }

    fn has_embedded_portable_pdb(&self) -> bool {
        self.debug.has_embedded_portable_pdb
    }

    fn go_build_id(&self) -> Option<&'d [u8]> {
        go::before_code(named(self, b".text")?.bytes)
    }

    fn may_hide_go_table(&self) -> bool {
        // Go's linker puts it among read-only data.
        true
    }

    fn go_function_table(&self) -> Option<SectionSlice<'d>> {
        let section = named(self, b".gopclntab")?;
        Some(SectionSlice { svma: section.range(self.image_base).start, bytes: section.bytes.into() })
    }
}

/// A debug section's bytes, decompressed.
fn contents<'d>(section: &Section<'d>) -> Result<Cow<'d, [u8]>, ArtifactError> {
    if !section.name.starts_with(b".zdebug_") {
        return Ok(Cow::Borrowed(section.bytes));
    }
    compressed::decompress(section.name, &compressed::zdebug_header(section.name, section.bytes)?)
}

/// The first section of that name that has bytes.
fn named<'e, 'd>(pe: &'e Pe<'d>, name: &[u8]) -> Option<&'e Section<'d>> {
    pe.sections.iter().find(|section| section.name == name && !section.bytes.is_empty())
}

/// Bytes that a process has, apart from what debuggers read: a link to a debug file is added behind the linker's back, and MinGW's
/// build-id stays in debug files.
fn is_data(section: &Section<'_>) -> bool {
    let is_for_debuggers = |name: &[u8]| {
        name.starts_with(b".debug_")
            || name.starts_with(b".zdebug_")
            || [&b".buildid"[..], b".gnu_debuglink"].contains(&name)
    };
    !section.is_executable && !section.bytes.is_empty() && !is_for_debuggers(section.name)
}

/// `.debug_SUFFIX`, or `.zdebug_SUFFIX` as Go's linker names compressed ones.
fn debug_section<'e, 'd>(pe: &'e Pe<'d>, suffix: &str) -> Option<&'e Section<'d>> {
    let is_named = |section: &&Section<'d>| {
        let name = section.name.strip_prefix(b".debug_").or_else(|| section.name.strip_prefix(b".zdebug_"));
        !section.bytes.is_empty() && name == Some(suffix.as_bytes())
    };
    pe.sections.iter().find(is_named)
}

/// An id from the code's addresses and bytes, or from the data's where there is no code; none where the file holds neither, and where
/// sections name the same bytes so often that it is [too much for the file](crate::proportion). It has the shape of the other ids of
/// PE files: a GUID, the hash's first 16 bytes, and age 0, which no linker writes.
fn text_hash(pe: &Pe<'_>) -> Option<DebugId> {
    let is_data_alone = pe.is_data_alone();
    let is_hashed = |section: &&Section<'_>| match is_data_alone {
        true => is_data(section),
        false => section.is_executable && !section.bytes.is_empty(),
    };
    let hashed = || pe.sections.iter().filter(is_hashed);
    if hashed().next().is_none() || !is_in_proportion(pe.file_bytes, hashed().map(|section| section.bytes.len())) {
        return None;
    }
    let mut hash = Sha256::new();
    for section in hashed() {
        hash.update(section.range(pe.image_base).start.to_le_bytes());
        hash.update((section.bytes.len() as u64).to_le_bytes());
        hash.update(section.bytes);
    }
    let digest = hash.finalize();
    let guid = digest.as_slice().first_chunk::<16>().copied()?;
    Some(DebugId::Pdb { guid, age: 0 })
}
