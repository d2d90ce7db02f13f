//! What [`ObjectHeaders`] asks, answered for Mach-O.

use super::fixups;
use super::headers::Macho;
use super::segments::Section;
use crate::go;
use crate::headers::ObjectHeaders;
use crate::proportion::is_in_proportion;
use crate::scripts;
use crate::symbols::{Symbol, SymbolTable};
use crate::{Arch, ArtifactError, Format, IdKind, ObjectKind, PltSection, SectionSlice, UnwindInputs, compressed};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::ops::Range;
use symseal_module::{DebugId, Svma};

impl<'d> ObjectHeaders<'d> for Macho<'d> {
    fn format(&self) -> Format {
        Format::Macho
    }

    fn arch(&self) -> Arch {
        Macho::arch(self)
    }

    fn kind(&self) -> ObjectKind {
        Macho::kind(self)
    }

    fn is_64(&self) -> bool {
        self.is_64
    }

    fn is_little_endian(&self) -> bool {
        self.is_little_endian
    }

    fn file_bytes(&self) -> u64 {
        self.data.len() as u64
    }

    fn image_base(&self) -> u64 {
        Macho::image_base(self)
    }

    /// `LC_UUID`; without it, as many bytes of a hash of the code, or of the data where there is no code.
    fn identity(&self) -> (Option<DebugId>, IdKind) {
        match self.uuid {
            Some(uuid) => (Some(DebugId::MachoUuid(uuid)), IdKind::MachoUuid),
            None => (text_hash(self), IdKind::TextHash),
        }
    }

    fn is_executable(&self) -> bool {
        matches!(Macho::kind(self), ObjectKind::Executable | ObjectKind::Shared)
            && (self.has_code() || self.is_data_alone())
    }

    /// Encrypted code is code.
    fn has_code(&self) -> bool {
        self.is_encrypted() || self.sections.iter().any(|section| section.is_code() && !section.bytes.is_empty())
    }

    /// Not so in a dSYM: what its sections of data were is in the binary.
    fn is_data_alone(&self) -> bool {
        let has_code = self.is_encrypted() || self.sections.iter().any(|section| section.is_code() && section.size > 0);
        matches!(Macho::kind(self), ObjectKind::Executable | ObjectKind::Shared)
            && !has_code
            && self.sections.iter().any(is_data)
    }

    fn is_debuginfo(&self) -> bool {
        self.sections.iter().any(|section| {
            section.segment == b"__DWARF"
                && !section.bytes.is_empty()
                && (section.name.starts_with(b"__debug_") || section.name.starts_with(b"__zdebug_"))
        })
    }

    fn has_symtab(&self) -> bool {
        self.has_own_symbols()
    }

    fn debug_section(&self, suffix: &str) -> Option<Result<Cow<'d, [u8]>, ArtifactError>> {
        self.dwarf_section(suffix).map(Macho::dwarf_bytes)
    }

    fn has_debug_section(&self, suffix: &str) -> bool {
        self.dwarf_section(suffix).is_some()
    }

    fn debug_bytes(&self) -> u64 {
        let debug = self.sections.iter().filter(|section| section.segment == b"__DWARF");
        debug.map(|section| compressed::debug_size(section.name, section.bytes)).fold(0, u64::saturating_add)
    }

    fn section(&self, name: &[u8]) -> Option<(Svma, &'d [u8])> {
        self.section_named(name).map(|section| (Svma(section.addr), section.bytes))
    }

    fn loaded(&self) -> Vec<(u64, &'d [u8])> {
        // What a dSYM or an encrypted file lacks has no bytes.
        let sections =
            self.sections.iter().filter(|section| section.segment != b"__DWARF" && !section.bytes.is_empty());
        sections.map(|section| (section.addr, section.bytes)).collect()
    }

    fn relocated_words(&self) -> Vec<(u64, u64)> {
        fixups::relocated_words(self)
    }

    fn text_sections(&self) -> Vec<Range<u64>> {
        self.text_ranges()
    }

    fn symbols(&self, table: SymbolTable) -> Box<dyn Iterator<Item = Symbol<'_>> + '_> {
        match table {
            SymbolTable::Symtab => Box::new(self.symtab()),
            SymbolTable::Exports => Box::new(self.exported()),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn symbol_bytes(&self) -> u64 {
        self.symbol_table_bytes()
    }

    fn function_starts(&self) -> Vec<u64> {
        self.starts()
    }

    fn unwind_inputs(&self) -> UnwindInputs<'d> {
        let mut text = self.text_ranges();
        text.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        let frames = self.section_named(b"__eh_frame");
        let unwind_info = self.section_named(b"__unwind_info").filter(|section| !section.bytes.is_empty());
        // Bytes of a stub where the form tells no other: a jump through memory, or what computes an address and a jump.
        let stub_bytes = if Macho::arch(self) == Arch::X86_64 { 6 } else { 12 };
        let stubs = [&b"__stubs"[..], b"__auth_stubs"].into_iter().filter_map(|name| {
            let section = self.section_named(name)?;
            let range = section.addr..section.addr.checked_add(section.bytes.len() as u64)?;
            let name = String::from_utf8_lossy(name).into_owned();
            Some(PltSection { range, entry_size: stub_bytes, name }).filter(|plt| !plt.range.is_empty())
        });
        UnwindInputs {
            text,
            eh_frame: frames.map(|section| SectionSlice { svma: section.addr, bytes: section.bytes.into() }),
            debug_frame: self.dwarf_section("frame").and_then(|section| {
                let bytes = Macho::dwarf_bytes(section).ok()?;
                Some(SectionSlice { svma: section.addr, bytes })
            }),
            unwind_info: unwind_info.map(|section| SectionSlice { svma: section.addr, bytes: section.bytes.into() }),
            functions: self.function_addresses(),
            plt: stubs.collect(),
            text_base: self.sections.iter().find(|section| section.name == b"__text").map(|section| section.addr),
            ..UnwindInputs::none(Macho::arch(self), Svma(Macho::image_base(self)))
        }
    }

    /// In whatever segment, and whatever kind of file: bytes that are not read as the file's own cannot be judged.
    fn has_inline_debugger_scripts(&self) -> bool {
        let is_named = |name: &[u8]| matches!(name, b"__debug_gdb_scri" | b"__zdebug_gdb_scr");
        let mut named = self.sections.iter().filter(|section| is_named(section.name) && section.size > 0);
        named.clone().any(|section| section.bytes.is_empty())
            || scripts::hold_inline_text(
                named.by_ref().map(|section| {
                    (compressed::debug_size(section.name, section.bytes), || Macho::dwarf_bytes(section))
                }),
            )
    }

    fn go_build_id(&self) -> Option<&'d [u8]> {
        go::before_code(self.section_named(b"__text")?.bytes)
    }

    fn go_function_table(&self) -> Option<SectionSlice<'d>> {
        let section = self.section_named(b"__gopclntab")?;
        Some(SectionSlice { svma: section.addr, bytes: section.bytes.into() })
    }

    fn build_paths(&self) -> Vec<Cow<'d, [u8]>> {
        self.stab_paths()
    }

    fn run_paths(&self) -> Vec<&'d [u8]> {
        self.run_paths.clone()
    }

    fn object_map_count(&self) -> u64 {
        if self.has_debug_section("info") { 0 } else { self.object_files() }
    }

    fn is_encrypted(&self) -> bool {
        !self.encrypted.is_empty()
    }
}

/// Bytes that a process has, apart from what debuggers read.
fn is_data(section: &Section<'_>) -> bool {
    !section.is_code() && section.segment != b"__DWARF" && !section.bytes.is_empty()
}

/// The first 16 bytes of the SHA-256 over the addresses and bytes of the code, or of the data where there is no code, which are the same
/// before and after stripping; none where the file has neither, or its code not in plain, or so often over itself that it is
/// [too much for the file](crate::proportion).
fn text_hash(macho: &Macho<'_>) -> Option<DebugId> {
    if macho.is_encrypted() {
        return None;
    }
    let is_data_alone = macho.is_data_alone();
    let is_hashed = |section: &&Section<'_>| match is_data_alone {
        true => is_data(section),
        false => section.is_code() && !section.bytes.is_empty(),
    };
    let hashed = || macho.sections.iter().filter(is_hashed);
    let lengths = hashed().map(|section| section.bytes.len());
    if hashed().next().is_none() || !is_in_proportion(macho.data.len() as u64, lengths) {
        return None;
    }
    let mut hash = Sha256::new();
    for section in hashed() {
        hash.update(section.addr.to_le_bytes());
        hash.update((section.bytes.len() as u64).to_le_bytes());
        hash.update(section.bytes);
    }
    let digest = hash.finalize();
    digest.first_chunk::<16>().map(|id| DebugId::MachoUuid(*id))
}
