//! The Mach-O header and the load commands of either word size and byte order, in one form. (`mach-o/loader.h`)

use super::exports::Export;
use super::loader::{
    LC_DYLD_CHAINED_FIXUPS, LC_DYLD_EXPORTS_TRIE, LC_DYLD_INFO, LC_DYLD_INFO_ONLY, LC_ENCRYPTION_INFO,
    LC_ENCRYPTION_INFO_64, LC_FUNCTION_STARTS, LC_RPATH, LC_SEGMENT, LC_SEGMENT_64, LC_SYMTAB, LC_UUID, MH_BUNDLE,
    MH_CORE, MH_DSYM, MH_DYLIB, MH_DYLINKER, MH_EXECUTE, MH_FVMLIB, MH_KEXT_BUNDLE, MH_MAGIC, MH_MAGIC_64, MH_OBJECT,
    MH_PRELOAD,
};
use super::processor;
use super::segments::{Section, Segment};
use crate::error::malformed;
use crate::fields::{Fields, range_of};
use crate::sniff::describe_start;
use crate::{Arch, ArtifactError, ObjectKind};
use std::ops::Range;
use std::sync::OnceLock;

/// A Mach-O file of one architecture, or one slice of a universal one, whose tables lie within it.
#[derive(Debug)]
pub(crate) struct Macho<'d> {
    /// Offsets in load commands count from its start.
    pub(super) data: &'d [u8],
    pub(super) is_64: bool,
    pub(super) is_little_endian: bool,
    pub(super) cpu: u32,
    pub(super) cpu_subtype: u32,
    pub(super) file_type: u32,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) segments: Vec<Segment<'d>>,
    pub(super) sections: Vec<Section<'d>>,
    /// `nlist` entries and the texts that they name.
    pub(super) symbols: &'d [u8],
    pub(super) symbol_names: &'d [u8],
    /// The exports trie; empty where there is none.
    pub(super) export_trie: &'d [u8],
    /// `LC_RPATH`.
    pub(crate) run_paths: Vec<&'d [u8]>,
    /// `LC_FUNCTION_STARTS`; empty where there is none.
    pub(super) function_starts: &'d [u8],
    /// Where the chains of pointers start that the loader sets; empty where there are none.
    pub(super) chained_fixups: &'d [u8],
    /// File offsets of bytes that only the loader of the store's device decrypts.
    pub(super) encrypted: Range<u64>,
    /// The trie's names are put together on first use.
    pub(super) exports: OnceLock<Vec<Export>>,
}

impl<'d> Macho<'d> {
    pub(crate) fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        let magic = data.first_chunk::<4>().copied().unwrap_or_default();
        let (is_64, is_little_endian) = match (u32::from_be_bytes(magic), u32::from_le_bytes(magic)) {
            (MH_MAGIC, _) => (false, false),
            (MH_MAGIC_64, _) => (true, false),
            (_, MH_MAGIC) => (false, true),
            (_, MH_MAGIC_64) => (true, true),
            _ => return Err(ArtifactError::UnknownFormat { found: describe_start(data) }),
        };
        let header_size = if is_64 { 32 } else { 28 };
        let header = Fields { bytes: range_of(data, "the Mach-O header", 0, header_size)?, is_little_endian };
        // The header is complete, so that a missing field cannot happen; zero is as good as another answer.
        let u32_at = |at: usize| header.u32(at).unwrap_or_default();
        let mut macho = Self {
            data,
            is_64,
            is_little_endian,
            cpu: u32_at(4),
            cpu_subtype: u32_at(8),
            file_type: u32_at(12),
            uuid: None,
            segments: Vec::new(),
            sections: Vec::new(),
            symbols: &[],
            symbol_names: &[],
            export_trie: &[],
            run_paths: Vec::new(),
            function_starts: &[],
            chained_fixups: &[],
            encrypted: 0..0,
            exports: OnceLock::new(),
        };
        let commands = range_of(data, "the load commands", header_size, u32_at(20).into())?;
        macho.load_commands(commands, u32_at(16))?;
        if !macho.encrypted.is_empty() {
            macho.hide_encrypted();
        }
        Ok(macho)
    }

    pub(super) fn fields(&self, bytes: &'d [u8]) -> Fields<'d> {
        Fields { bytes, is_little_endian: self.is_little_endian }
    }

    pub(crate) fn arch(&self) -> Arch {
        processor::arch(self.cpu, self.cpu_subtype)
    }

    pub(crate) fn kind(&self) -> ObjectKind {
        match self.file_type {
            MH_OBJECT => ObjectKind::Relocatable,
            MH_EXECUTE | MH_PRELOAD => ObjectKind::Executable,
            MH_DYLIB | MH_BUNDLE | MH_DYLINKER | MH_FVMLIB | MH_KEXT_BUNDLE => ObjectKind::Shared,
            MH_CORE => ObjectKind::Core,
            MH_DSYM => ObjectKind::DebugCompanion,
            _ => ObjectKind::Other,
        }
    }

    /// Where the Mach-O header lies in memory: the address of `__TEXT`, which dSYM files keep. 0 for object files.
    pub(crate) fn image_base(&self) -> u64 {
        self.segments.iter().find(|segment| segment.name == b"__TEXT").map_or(0, |segment| segment.vmaddr)
    }

    fn load_commands(&mut self, commands: &'d [u8], count: u32) -> Result<(), ArtifactError> {
        /// `cmd` and `cmdsize`.
        const LEAST: u64 = 8;
        let mut rest = commands;
        // Each round takes at least eight bytes, so that a false count does no harm.
        for number in 0..count {
            let fields = self.fields(rest);
            let (Some(kind), Some(size)) = (fields.u32(0), fields.u32(4)) else {
                return Err(malformed("load commands", &format!("{count} of them"), number));
            };
            let parts = rest.split_at_checked(size as usize).filter(|_| u64::from(size) >= LEAST);
            let Some((command, behind)) = parts else {
                return Err(malformed(
                    &format!("load command {number} ({kind:#x})"),
                    &format!("a size from {LEAST} to {}", rest.len()),
                    size,
                ));
            };
            self.load_command(kind, command)?;
            rest = behind;
        }
        Ok(())
    }

    fn load_command(&mut self, kind: u32, command: &'d [u8]) -> Result<(), ArtifactError> {
        let fields = self.fields(command);
        let u32_at = |at: usize| {
            fields.u32(at).ok_or_else(|| {
                let object = format!("load command {kind:#x}");
                malformed(&object, &format!("at least {} bytes", at.saturating_add(4)), command.len())
            })
        };
        match kind {
            LC_SEGMENT => self.segment(command, false)?,
            LC_SEGMENT_64 => self.segment(command, true)?,
            LC_UUID => {
                let uuid = command.get(8..).and_then(|rest| rest.first_chunk::<16>());
                let uuid = *uuid.ok_or_else(|| malformed("LC_UUID", "24 bytes", command.len()))?;
                // A linker that was told to leave the id out may leave zeros, which identify nothing.
                if self.uuid.is_none() && uuid != [0; 16] {
                    self.uuid = Some(uuid);
                }
            }
            LC_SYMTAB => {
                let (offset, count) = (u32_at(8)?, u32_at(12)?);
                let (names_offset, names_size) = (u32_at(16)?, u32_at(20)?);
                let entry = if self.is_64 { 16 } else { 12 };
                self.symbols = self.link_edit("the symbol table", offset, u64::from(count) * entry)?;
                self.symbol_names = self.link_edit("the names of symbols", names_offset, names_size.into())?;
            }
            // A dSYM file has tables of its own alone; what else it names is in the binary.
            _ if self.file_type == MH_DSYM => {}
            LC_RPATH => {
                // It ends at a zero byte, or with the command. One that is damaged says nothing of the code.
                let at = fields.u32(8).and_then(|at| usize::try_from(at).ok());
                let text = at.and_then(|at| command.get(at..)).unwrap_or_default();
                self.run_paths.extend(text.split(|byte| *byte == 0).next().filter(|text| !text.is_empty()));
            }
            LC_FUNCTION_STARTS => {
                self.function_starts = self.link_edit("the function starts", u32_at(8)?, u32_at(12)?.into())?;
            }
            LC_DYLD_EXPORTS_TRIE => {
                self.export_trie = self.link_edit("the exports trie", u32_at(8)?, u32_at(12)?.into())?;
            }
            LC_DYLD_CHAINED_FIXUPS => {
                self.chained_fixups = self.link_edit("the chained fixups", u32_at(8)?, u32_at(12)?.into())?;
            }
            LC_DYLD_INFO | LC_DYLD_INFO_ONLY => {
                let trie = self.link_edit("the exports trie", u32_at(40)?, u32_at(44)?.into())?;
                if !trie.is_empty() {
                    self.export_trie = trie;
                }
            }
            LC_ENCRYPTION_INFO | LC_ENCRYPTION_INFO_64 => {
                let (offset, size, system) = (u32_at(8)?, u32_at(12)?, u32_at(16)?);
                // System 0: the place is kept, but nothing is encrypted yet.
                if system != 0 {
                    self.encrypted = u64::from(offset)..u64::from(offset) + u64::from(size);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Nothing has an offset that means nothing.
    fn link_edit(&self, expected: &str, offset: u32, size: u64) -> Result<&'d [u8], ArtifactError> {
        if size == 0 { Ok(&[]) } else { range_of(self.data, expected, offset.into(), size) }
    }

    /// Encrypted bytes are no code and no unwind rules: sections that hold some have no bytes.
    fn hide_encrypted(&mut self) {
        let encrypted = self.encrypted.clone();
        for section in &mut self.sections {
            let end = section.offset.saturating_add(section.bytes.len() as u64);
            if section.offset < encrypted.end && end > encrypted.start {
                section.bytes = &[];
            }
        }
    }
}
