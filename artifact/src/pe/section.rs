//! The section table: names, addresses, and the bytes that the file holds.

use super::symbols::CoffTable;
use crate::error::malformed;
use crate::fields::range_of;
use crate::{ArtifactError, escaped};
use object::LittleEndian as LE;
use object::pe;
use std::ops::Range;

/// Names of sections are cut at so many bytes, as each is written into an error before there is one.
const LONGEST_NAME: usize = 1 << 10;

/// A section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'d> {
    pub(crate) name: &'d [u8],
    /// Relative address.
    pub(crate) rva: u32,
    /// Bytes in memory.
    pub(crate) size: u32,
    /// As stored, without the padding that the file's alignment asks for.
    pub(crate) bytes: &'d [u8],
    pub(crate) is_executable: bool,
}

impl Section<'_> {
    /// Stated addresses; empty where they would not fit 64 bits.
    pub(crate) fn range(&self, image_base: u64) -> Range<u64> {
        let start = image_base.saturating_add(u64::from(self.rva));
        start..start.saturating_add(u64::from(self.size))
    }
}

/// Reads the table. Sections come by address; they must not overlap, and their bytes must lie in the file.
///
/// The order in the table is what section numbers of symbols mean; linkers, and Windows' loader, want it to be that of
/// addresses.
pub(crate) fn sections<'d>(
    data: &'d [u8],
    table: &'d [u8],
    symbols: &CoffTable<'d>,
) -> Result<Vec<Section<'d>>, ArtifactError> {
    let mut sections: Vec<Section<'d>> = Vec::with_capacity(table.len() / pe::IMAGE_SIZEOF_SECTION_HEADER);
    let mut reached = 0_u64;
    for bytes in table.chunks_exact(pe::IMAGE_SIZEOF_SECTION_HEADER) {
        let Ok((header, _)) = object::pod::from_bytes::<pe::ImageSectionHeader>(bytes) else { continue };
        let mut section = section(data, header, symbols)?;
        let start = u64::from(section.rva);
        if section.size == 0 {
            // It lies nowhere, but keeps its place in the order of addresses.
            section.rva = u32::try_from(reached).unwrap_or(u32::MAX);
        } else if start < reached {
            return Err(malformed(
                &format!("section {}", escaped(section.name)),
                &format!("an address at or behind {reached:#x}, where the section before it ends"),
                format!("{start:#x}"),
            ));
        } else {
            reached = start.saturating_add(u64::from(section.size));
        }
        sections.push(section);
    }
    Ok(sections)
}

fn section<'d>(
    data: &'d [u8],
    header: &'d pe::ImageSectionHeader,
    symbols: &CoffTable<'d>,
) -> Result<Section<'d>, ArtifactError> {
    // A long name is `/` and its offset in the string table. One that leads nowhere stays as it is.
    let long = long_name_offset(header).and_then(|offset| symbols.text(offset));
    let name = long.unwrap_or(header.raw_name());
    let name = name.get(..LONGEST_NAME).unwrap_or(name);
    let (raw_at, raw_size) = (header.pointer_to_raw_data.get(LE), header.size_of_raw_data.get(LE));
    let virtual_size = header.virtual_size.get(LE);
    // Old linkers left the size in memory at 0.
    let size = if virtual_size == 0 { raw_size } else { virtual_size };
    // In debug files made by objcopy, sections without bytes have sizes but no place.
    let stored = if raw_at == 0 || raw_size == 0 {
        &[]
    } else {
        range_of(data, &format!("section {}", escaped(name)), u64::from(raw_at), u64::from(raw_size))?
    };
    let bytes = stored.get(..usize::try_from(size).unwrap_or(usize::MAX).min(stored.len())).unwrap_or(stored);
    let characteristics = header.characteristics.get(LE);
    Ok(Section {
        name,
        rva: header.virtual_address.get(LE),
        size,
        bytes,
        is_executable: characteristics.contains(pe::IMAGE_SCN_MEM_EXECUTE),
    })
}

/// Where a long name stands in the string table, by BFD's rule (`make_a_section_from_file` in coffgen.c), as gdb finds
/// sections by it: `/`, and a number as `strtol` takes it; or `//`, and one in base 64.
fn long_name_offset(header: &pe::ImageSectionHeader) -> Option<u32> {
    let rest = header.raw_name().strip_prefix(b"/")?;
    if rest.starts_with(b"/") {
        return header.name_offset().ok().flatten();
    }
    let number = rest.trim_ascii_start();
    let number = number.strip_prefix(b"+").unwrap_or(number);
    std::str::from_utf8(number).ok()?.parse().ok()
}
