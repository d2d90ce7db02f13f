//! The ELF header, program headers and section headers of either class and byte order, in one form.
//! (gABI chapters 4 and 5)

use super::gabi;
use crate::error::{malformed, truncated};
use crate::fields::{Fields, range_of, within_longest_name};
use crate::sniff::describe_start;
use crate::{Arch, ArtifactError, ObjectKind};
use std::ops::Range;

/// An ELF file whose header tables lie within it.
#[derive(Debug)]
pub(crate) struct Elf<'d> {
    data: &'d [u8],
    pub(crate) is_64: bool,
    pub(crate) is_little_endian: bool,
    pub(crate) machine: u16,
    /// What the processor's supplement says of the code.
    pub(crate) flags: u32,
    pub(crate) kind: ObjectKind,
    /// Where a process begins; 0 where nobody says it.
    pub(crate) entry: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sections: Vec<Section<'d>>,
}

/// A program header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) vaddr: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
    pub(crate) align: u64,
}

/// A section header, and the bytes that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'d> {
    pub(crate) name: &'d [u8],
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
    /// Of a table of relocations: the section that they concern.
    pub(crate) info: u32,
    pub(crate) align: u64,
    pub(crate) entry_size: u64,
    /// As stored; empty for `SHT_NOBITS`.
    pub(crate) bytes: &'d [u8],
}

impl Section<'_> {
    /// Takes up bytes in the file.
    pub(crate) fn is_stored(&self) -> bool {
        self.kind != gabi::SHT_NOBITS && self.kind != gabi::SHT_NULL && self.size > 0
    }

    pub(crate) fn is_allocated(&self) -> bool {
        self.flags & gabi::SHF_ALLOC != 0
    }

    pub(crate) fn is_executable(&self) -> bool {
        self.is_allocated() && self.flags & gabi::SHF_EXECINSTR != 0
    }

    /// Stated addresses; empty where the header's would not fit 64 bits.
    pub(crate) fn range(&self) -> Range<u64> {
        self.addr..self.addr.checked_add(self.size).unwrap_or(self.addr)
    }
}

impl<'d> Elf<'d> {
    pub(crate) fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        if data.get(..4) != Some(&gabi::ELFMAG) {
            return Err(ArtifactError::UnknownFormat { found: describe_start(data) });
        }
        let [class, order] = match data.get(4..6) {
            Some([class, order]) => [*class, *order],
            _ => return Err(truncated(data, "the ELF identification", 0, 16)),
        };
        let is_64 = match class {
            gabi::ELFCLASS32 => false,
            gabi::ELFCLASS64 => true,
            other => return Err(malformed("ELF header", "class 1 (32-bit) or 2 (64-bit)", other)),
        };
        let is_little_endian = match order {
            gabi::ELFDATA2LSB => true,
            gabi::ELFDATA2MSB => false,
            other => return Err(malformed("ELF header", "byte order 1 (little) or 2 (big)", other)),
        };
        let header_size = if is_64 { 64 } else { 52 };
        let header = Fields { bytes: range_of(data, "the ELF header", 0, header_size)?, is_little_endian };
        // The header is complete, so that a missing field cannot happen; zero is as good as another answer.
        let u16_at = |narrow: usize, wide: usize| header.u16(if is_64 { wide } else { narrow }).unwrap_or_default();
        let word_at =
            |narrow: usize, wide: usize| header.word(if is_64 { wide } else { narrow }, is_64).unwrap_or_default();
        let kind = match u16_at(16, 16) {
            gabi::ET_EXEC => ObjectKind::Executable,
            gabi::ET_DYN => ObjectKind::Shared,
            gabi::ET_REL => ObjectKind::Relocatable,
            gabi::ET_CORE => ObjectKind::Core,
            _ => ObjectKind::Other,
        };
        let mut elf = Self {
            data,
            is_64,
            is_little_endian,
            machine: u16_at(18, 18),
            flags: header.u32(if is_64 { 48 } else { 36 }).unwrap_or_default(),
            kind,
            entry: word_at(24, 24),
            segments: Vec::new(),
            sections: Vec::new(),
        };
        let (phoff, shoff) = (word_at(28, 32), word_at(32, 40));
        let (phentsize, phnum) = (u16_at(42, 54), u16_at(44, 56));
        let (shentsize, shnum, shstrndx) = (u16_at(46, 58), u16_at(48, 60), u16_at(50, 62));
        let first = elf.section_headers(shoff, shentsize, shnum, shstrndx)?;
        elf.program_headers(phoff, phentsize, phnum, first)?;
        if kind == ObjectKind::Relocatable {
            super::layout::place(&mut elf.sections);
        }
        Ok(elf)
    }

    pub(crate) fn fields(&self, bytes: &'d [u8]) -> Fields<'d> {
        Fields { bytes, is_little_endian: self.is_little_endian }
    }

    pub(crate) fn arch(&self) -> Arch {
        Arch::from_elf(self.machine, self.is_64, self.is_little_endian)
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.data.len() as u64
    }

    /// The first section of that name.
    pub(crate) fn section(&self, name: &[u8]) -> Option<&Section<'d>> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The bytes of a segment that the file holds; none where its header lies (as in debug files).
    pub(crate) fn segment_bytes(&self, segment: &Segment) -> Option<&'d [u8]> {
        let end = segment.offset.checked_add(segment.file_size)?;
        self.data.get(usize::try_from(segment.offset).ok()?..usize::try_from(end).ok()?)
    }

    /// The lowest loaded address, rounded down to the segment's page; 0 where nothing is loaded. Of a kernel in the upper half of the address space, whose variables of each
    /// processor are linked at 0 and never lie there, the lowest one in that half.
    pub(crate) fn image_base(&self) -> u64 {
        const SMALLEST_PAGE: u64 = 0x1000;
        const UPPER_HALF: u64 = 1 << 63;
        let loaded =
            || self.segments.iter().filter(|segment| segment.kind == gabi::PT_LOAD).map(|segment| segment.vaddr);
        let half = loaded().max().map_or(0, |highest| highest & UPPER_HALF);
        loaded().filter(|vaddr| *vaddr >= half).min().map_or(0, |vaddr| vaddr & !(SMALLEST_PAGE - 1))
    }

    /// Returns `sh_info` of section 0, where a number of segments beyond 16 bits stands.
    fn section_headers(
        &mut self,
        offset: u64,
        entry: u16,
        count: u16,
        names: u16,
    ) -> Result<Option<u64>, ArtifactError> {
        if offset == 0 {
            return Ok(None);
        }
        let least = if self.is_64 { 64 } else { 40 };
        if entry < least {
            return Err(malformed("ELF header", &format!("section headers of at least {least} bytes"), entry));
        }
        let entry = u64::from(entry);
        let first = self.fields(range_of(self.data, "the first section header", offset, entry)?);
        let (size, link, info) = if self.is_64 {
            (first.u64(32), first.u32(40), first.u32(44))
        } else {
            (first.u32(20).map(u64::from), first.u32(24), first.u32(28))
        };
        // Numbers beyond 16 bits stand in section 0. (gABI, "Section Header", special indexes)
        let count = if count == 0 { size.unwrap_or_default() } else { u64::from(count) };
        let names = if names == gabi::SHN_XINDEX { link.unwrap_or_default() } else { u32::from(names) };
        let length = count.saturating_mul(entry);
        let table = range_of(self.data, "the section header table", offset, length)?;
        let mut raw = Vec::new();
        // `entry` is at least 40 and came from 16 bits.
        for header in table.chunks_exact(entry as usize) {
            raw.push(self.section_header(header)?);
        }
        let name_table = raw.get(names as usize).map_or(&[][..], |(_, section)| section.bytes);
        self.sections =
            raw.into_iter().map(|(name, section)| Section { name: name_at(name_table, name), ..section }).collect();
        Ok(info.map(u64::from))
    }

    /// A section without its name, and where the name stands.
    fn section_header(&self, header: &'d [u8]) -> Result<(u32, Section<'d>), ArtifactError> {
        let fields = self.fields(header);
        let is_64 = self.is_64;
        // The caller cut headers of full length, so the default is never used.
        let u32_at = |narrow, wide| fields.u32(if is_64 { wide } else { narrow }).unwrap_or_default();
        let word_at = |narrow, wide| fields.word(if is_64 { wide } else { narrow }, is_64).unwrap_or_default();
        let (name, kind, size) = (u32_at(0, 0), u32_at(4, 4), word_at(20, 32));
        let bytes = if kind == gabi::SHT_NOBITS || kind == gabi::SHT_NULL {
            &[]
        } else {
            range_of(self.data, &format!("a section of type {kind:#x}"), word_at(16, 24), size)?
        };
        let section = Section {
            name: &[],
            kind,
            flags: word_at(8, 8),
            addr: word_at(12, 16),
            size,
            link: u32_at(24, 40),
            info: u32_at(28, 44),
            align: word_at(32, 48),
            entry_size: word_at(36, 56),
            bytes,
        };
        Ok((name, section))
    }

    fn program_headers(
        &mut self,
        offset: u64,
        entry: u16,
        count: u16,
        first_section_info: Option<u64>,
    ) -> Result<(), ArtifactError> {
        let count = if count == gabi::PN_XNUM { first_section_info.unwrap_or(u64::from(count)) } else { count.into() };
        if offset == 0 || count == 0 {
            return Ok(());
        }
        let least = if self.is_64 { 56 } else { 32 };
        if entry < least {
            return Err(malformed("ELF header", &format!("program headers of at least {least} bytes"), entry));
        }
        let length = count.saturating_mul(u64::from(entry));
        let table = range_of(self.data, "the program header table", offset, length)?;
        let is_64 = self.is_64;
        self.segments = table
            .chunks_exact(usize::from(entry))
            .map(|header| {
                let fields = Fields { bytes: header, is_little_endian: self.is_little_endian };
                let u32_at = |narrow, wide| fields.u32(if is_64 { wide } else { narrow }).unwrap_or_default();
                let word_at = |narrow, wide| fields.word(if is_64 { wide } else { narrow }, is_64).unwrap_or_default();
                Segment {
                    kind: u32_at(0, 0),
                    flags: u32_at(24, 4),
                    offset: word_at(4, 8),
                    vaddr: word_at(8, 16),
                    file_size: word_at(16, 32),
                    memory_size: word_at(20, 40),
                    align: word_at(28, 48),
                }
            })
            .collect();
        Ok(())
    }
}

/// The text at `offset` of a string table, up to its NUL, or as far as a name may reach.
pub(crate) fn name_at(table: &[u8], offset: u32) -> &[u8] {
    let rest = within_longest_name(table.get(offset as usize..).unwrap_or_default());
    rest.get(..memchr::memchr(0, rest).unwrap_or(rest.len())).unwrap_or_default()
}
