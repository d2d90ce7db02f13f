//! One release file.

use crate::elf::{self, Elf};
use crate::{Arch, ArtifactError, DebugInfoKind, IdKind, ObjectKind, UnwindInputs, dwarf};
use symseal_module::{DebugId, Svma};

/// What `.gnu_debuglink` says: where the debug file is by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugLink<'d> {
    /// The debug file's name without a directory, as bytes.
    pub file_name: &'d [u8],
    /// CRC-32 (IEEE) of the whole debug file.
    pub crc32: u32,
}

/// What `.gnu_debugaltlink` says: the supplementary file that dwz made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugAltLink<'d> {
    /// Path, absolute or relative to the file, as bytes.
    pub path: &'d [u8],
    /// Build-id of the supplementary file.
    pub build_id: &'d [u8],
}

/// An executable, library or debug file, parsed as far as its headers and notes.
#[derive(Debug)]
pub struct ObjectFile<'d> {
    elf: Elf<'d>,
    id: Option<DebugId>,
    id_kind: IdKind,
}

impl<'d> ObjectFile<'d> {
    /// Reads headers and notes. Every header table and every section must lie within `data`.
    pub fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        let elf = Elf::parse(data)?;
        let (id, id_kind) = match elf::identity(&elf) {
            Some((id, kind)) => (Some(id), kind),
            None => (elf::text_hash(&elf), IdKind::TextHash),
        };
        Ok(Self { elf, id, id_kind })
    }

    pub(crate) fn elf(&self) -> &Elf<'d> {
        &self.elf
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
        self.elf.arch()
    }

    /// What the file is to the loader.
    pub fn kind(&self) -> ObjectKind {
        self.elf.kind
    }

    /// Whether addresses have 64 bits.
    pub fn is_64(&self) -> bool {
        self.elf.is_64
    }

    /// Whether numbers are stored least significant byte first.
    pub fn is_little_endian(&self) -> bool {
        self.elf.is_little_endian
    }

    /// The lowest loaded address, rounded down to a page of 4 KiB: what relative addresses are counted from.
    pub fn image_base(&self) -> Svma {
        Svma(self.elf.image_base())
    }

    /// Whether `.debug_info` or `.debug_line` has content, possibly compressed.
    pub fn has_debug_info(&self) -> bool {
        self.has_debug_section(&[b"info", b"line"])
    }

    /// Whether `.debug_line` has content, possibly compressed.
    pub fn has_line_tables(&self) -> bool {
        self.has_debug_section(&[b"line"])
    }

    /// Whether there is a full symbol table.
    pub fn has_symtab(&self) -> bool {
        self.elf.sections.iter().any(|section| section.kind == elf::gabi::SHT_SYMTAB && section.is_stored())
    }

    /// Whether neither debug information nor a full symbol table is left.
    pub fn is_stripped(&self) -> bool {
        !self.has_debug_info() && !self.has_symtab()
    }

    /// Whether the file holds code that a process could run: an allocated, stored section (debuginfod's notion of an
    /// executable; in debug files those are `SHT_NOBITS`). Without section headers: an executable segment with bytes.
    pub fn is_executable(&self) -> bool {
        use crate::elf::gabi::{PF_X, PT_LOAD, SHT_NOTE};
        if !matches!(self.elf.kind, ObjectKind::Executable | ObjectKind::Shared) {
            return false;
        }
        if self.elf.sections.is_empty() {
            let mut segments = self.elf.segments.iter();
            return segments.any(|segment| {
                segment.kind == PT_LOAD && segment.flags & PF_X != 0 && self.elf.segment_bytes(segment).is_some()
            });
        }
        let mut sections = self.elf.sections.iter();
        sections.any(|section| section.is_executable() && section.is_stored() && section.kind != SHT_NOTE)
    }

    /// Whether any `.debug_*` section has content: debuginfod's notion of a debug file.
    pub fn is_debuginfo(&self) -> bool {
        let mut sections = self.elf.sections.iter();
        sections.any(|section| {
            section.is_stored() && (section.name.starts_with(b".debug_") || section.name.starts_with(b".zdebug_"))
                // Scripts for a debugger are in stripped files too, as they are loaded.
                && !section.is_allocated()
        })
    }

    /// How much the file tells a debugger. Full and line tables are told apart by whether most abbreviation tables
    /// describe types.
    pub fn debug_info_kind(&self) -> DebugInfoKind {
        if self.has_debug_section(&[b"info"]) && dwarf::describes_types(&self.elf) {
            DebugInfoKind::Full
        } else if self.has_debug_info() {
            DebugInfoKind::LineTables
        } else if self.has_symtab() {
            DebugInfoKind::Symbols
        } else {
            DebugInfoKind::None
        }
    }

    /// The debug file that this file names, if it does.
    pub fn debug_link(&self) -> Option<DebugLink<'d>> {
        elf::debug_link(&self.elf)
    }

    /// The supplementary debug file that this file names, if it does.
    pub fn debug_alt_link(&self) -> Option<DebugAltLink<'d>> {
        elf::debug_alt_link(&self.elf)
    }

    /// Whether a debugger would run a script whose text stands in the file (`.debug_gdb_scripts`, kinds 4 and 6).
    /// Entries that only name a file are none.
    pub fn has_inline_debugger_scripts(&self) -> bool {
        elf::has_inline_scripts(&self.elf)
    }

    /// The first section of that name: its stated address and its bytes as stored, not decompressed. None for a section
    /// without bytes in the file.
    pub fn section(&self, name: &str) -> Option<(Svma, &'d [u8])> {
        let section = self.elf.section(name.as_bytes()).filter(|section| section.is_stored())?;
        Some((Svma(section.addr), section.bytes))
    }

    /// What an unwind table is compiled from. A section that cannot be decompressed is missing.
    pub fn unwind_inputs(&self) -> UnwindInputs<'d> {
        elf::unwind_inputs(&self.elf)
    }

    fn has_debug_section(&self, suffixes: &[&[u8]]) -> bool {
        self.elf.sections.iter().filter(|section| section.is_stored()).any(|section| {
            let name = section.name.strip_prefix(b".debug_").or_else(|| section.name.strip_prefix(b".zdebug_"));
            name.is_some_and(|name| suffixes.contains(&name))
        })
    }
}
