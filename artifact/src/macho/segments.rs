//! Segments and their sections.

use super::headers::Macho;
use super::loader::{
    MH_DSYM, S_ATTR_PURE_INSTRUCTIONS, S_ATTR_SOME_INSTRUCTIONS, S_GB_ZEROFILL, S_THREAD_LOCAL_ZEROFILL, S_ZEROFILL,
    SECTION_TYPE, VM_PROT_EXECUTE,
};
use crate::code_ranges::disjoint;
use crate::error::malformed;
use crate::fields::range_of;
use crate::{ArtifactError, compressed, escaped};
use std::borrow::Cow;
use std::ops::Range;

/// Longest name of a segment or section; longer ones are cut.
const NAME_BYTES: usize = 16;

/// A segment command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'d> {
    pub(crate) name: &'d [u8],
    /// Stated address.
    pub(crate) vmaddr: u64,
    vmsize: u64,
    protection: u32,
}

/// A section header, and the bytes that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'d> {
    pub(crate) segment: &'d [u8],
    pub(crate) name: &'d [u8],
    /// Stated address.
    pub(crate) addr: u64,
    pub(crate) size: u64,
    flags: u32,
    /// In the file.
    pub(crate) offset: u64,
    /// As stored; empty where the file has none: zero-filled, encrypted, or another file's, as the code of a dSYM.
    pub(crate) bytes: &'d [u8],
}

impl Section<'_> {
    pub(crate) fn is_code(&self) -> bool {
        self.flags & (S_ATTR_PURE_INSTRUCTIONS | S_ATTR_SOME_INSTRUCTIONS) != 0
    }

    /// Stated addresses; empty where the header's would not fit 64 bits.
    fn range(&self) -> Range<u64> {
        self.addr..self.addr.checked_add(self.size).unwrap_or(self.addr)
    }
}

impl<'d> Macho<'d> {
    /// Takes in `segment_command` or `segment_command_64`, with its sections.
    pub(super) fn segment(&mut self, command: &'d [u8], is_64: bool) -> Result<(), ArtifactError> {
        let (header_size, section_size) = if is_64 { (72, 80) } else { (56, 68) };
        let parts = command.split_at_checked(header_size);
        let (header, sections) = parts
            .ok_or_else(|| malformed("segment command", &format!("at least {header_size} bytes"), command.len()))?;
        let fields = self.fields(header);
        // The header is complete, so that the defaults are never used.
        let u32_at = |narrow, wide| fields.u32(if is_64 { wide } else { narrow }).unwrap_or_default();
        let word_at = |narrow, wide| fields.word(if is_64 { wide } else { narrow }, is_64).unwrap_or_default();
        let segment = Segment {
            name: name_of(header.get(8..).unwrap_or_default()),
            vmaddr: word_at(24, 24),
            vmsize: word_at(28, 32),
            protection: u32_at(44, 60),
        };
        let (file_offset, file_size) = (word_at(32, 40), word_at(36, 48));
        let count = u32_at(48, 64);
        let name = escaped(segment.name);
        // A dSYM repeats the binary's segments, whose bytes it has not.
        let is_here = file_size > 0 && (self.file_type != MH_DSYM || segment.name == b"__DWARF");
        if is_here {
            range_of(self.data, &format!("segment {name}"), file_offset, file_size)?;
        }
        let Some(sections) = sections.get(..(count as usize).saturating_mul(section_size)) else {
            let found = format!("{} bytes for {count} sections", sections.len());
            return Err(malformed(
                &format!("segment {name}"),
                &format!("{section_size} bytes for each section"),
                found,
            ));
        };
        self.segments.push(segment);
        for header in sections.chunks_exact(section_size) {
            let section = self.section_header(header, is_64, is_here)?;
            self.sections.push(section);
        }
        Ok(())
    }

    fn section_header(&self, header: &'d [u8], is_64: bool, is_here: bool) -> Result<Section<'d>, ArtifactError> {
        let fields = self.fields(header);
        let u32_at = |narrow, wide| fields.u32(if is_64 { wide } else { narrow }).unwrap_or_default();
        let word_at = |narrow, wide| fields.word(if is_64 { wide } else { narrow }, is_64).unwrap_or_default();
        let mut section = Section {
            name: name_of(header),
            segment: name_of(header.get(NAME_BYTES..).unwrap_or_default()),
            addr: word_at(32, 32),
            size: word_at(36, 40),
            flags: u32_at(56, 64),
            offset: u32_at(40, 48).into(),
            bytes: &[],
        };
        let is_filled = matches!(section.flags & SECTION_TYPE, S_ZEROFILL | S_GB_ZEROFILL | S_THREAD_LOCAL_ZEROFILL);
        // No section can lie where the header does.
        if is_here && !is_filled && section.offset > 0 {
            let expected = format!("section {},{}", escaped(section.segment), escaped(section.name));
            section.bytes = range_of(self.data, &expected, section.offset, section.size)?;
        }
        Ok(section)
    }

    /// The first section of that name with bytes, in whatever segment.
    pub(super) fn section_named(&self, name: &[u8]) -> Option<&Section<'d>> {
        self.sections.iter().find(|section| section.name == name && !section.bytes.is_empty())
    }

    /// Sections marked as code, by stated address, sorted, not overlapping; executable segments where none is marked.
    pub(crate) fn text_ranges(&self) -> Vec<Range<u64>> {
        let code = self.sections.iter().filter(|section| section.is_code());
        let mut ranges: Vec<Range<u64>> = code.map(Section::range).filter(|range| !range.is_empty()).collect();
        if ranges.is_empty() && self.sections.is_empty() {
            let code = self.segments.iter().filter(|segment| segment.protection & VM_PROT_EXECUTE != 0);
            let range = |segment: &Segment<'_>| segment.vmaddr..segment.vmaddr.saturating_add(segment.vmsize);
            ranges = code.map(range).filter(|range| !range.is_empty()).collect();
        }
        disjoint(ranges)
    }

    /// `__debug_SUFFIX` or `__zdebug_SUFFIX` in `__DWARF`, as far as a name may reach: `__debug_str_offs`.
    pub(super) fn dwarf_section(&self, suffix: &str) -> Option<&Section<'d>> {
        // Cut to 16 bytes, the sections of split DWARF, which Mach-O has not, would be taken for those of whole DWARF.
        if suffix.ends_with(".dwo") {
            return None;
        }
        let is_named = |name: &[u8], prefix: &str| {
            let full = format!("{prefix}{suffix}");
            name == full.as_bytes().get(..NAME_BYTES).unwrap_or(full.as_bytes())
        };
        self.sections.iter().find(|section| {
            section.segment == b"__DWARF"
                && !section.bytes.is_empty()
                && (is_named(section.name, "__debug_") || is_named(section.name, "__zdebug_"))
        })
    }

    /// Its bytes, decompressed.
    pub(super) fn dwarf_bytes(section: &Section<'d>) -> Result<Cow<'d, [u8]>, ArtifactError> {
        if !section.name.starts_with(b"__zdebug_") {
            return Ok(Cow::Borrowed(section.bytes));
        }
        compressed::decompress(section.name, &compressed::zdebug_header(section.name, section.bytes)?)
    }
}

/// A name of at most 16 bytes, the rest of which are NUL.
fn name_of(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.get(..NAME_BYTES).unwrap_or(bytes);
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_sections_are_decompressed_and_false_ones_refused() {
        // "abc" as zlib stores what it does not compress.
        let stored = [0x78, 1, 1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c', 0x02, 0x4d, 0x01, 0x27];
        let section = |size: u8| [&b"ZLIB\0\0\0\0\0\0\0"[..], &[size], &stored].concat();
        let bytes_of = |name: &'static [u8], bytes: &[u8]| {
            let section =
                Section { segment: b"__DWARF", name, addr: 0, size: bytes.len() as u64, flags: 0, offset: 0, bytes };
            Macho::dwarf_bytes(&section).map(Cow::into_owned)
        };
        assert_eq!(bytes_of(b"__zdebug_str", &section(3)), Ok(b"abc".to_vec()));
        assert_eq!(bytes_of(b"__debug_str", b"abc"), Ok(b"abc".to_vec()));
        for bytes in [section(4), b"ZLIB".to_vec(), b"abc".to_vec()] {
            let error = bytes_of(b"__zdebug_str", &bytes).unwrap_err().to_string();
            assert!(error.contains("section __zdebug_str"), "{error}");
        }
    }
}
