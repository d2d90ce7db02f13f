//! Sections that name another file.

use super::headers::Elf;
use crate::object_file::{DebugAltLink, DebugLink};

/// `.gnu_debuglink`: a file name, NUL, padding to 4 bytes, CRC-32 of the whole debug file.
pub(crate) fn debug_link<'d>(elf: &Elf<'d>) -> Option<DebugLink<'d>> {
    let bytes = elf.section(b".gnu_debuglink")?.bytes;
    let length = bytes.iter().position(|byte| *byte == 0)?;
    let crc_at = length.checked_add(1)?.checked_next_multiple_of(4)?;
    let crc32 = elf.fields(bytes).u32(crc_at)?;
    let file_name = bytes.get(..length).filter(|name| !name.is_empty())?;
    Some(DebugLink { file_name, crc32 })
}

/// `.gnu_debugaltlink`: a path, NUL, the build-id of the supplementary file.
pub(crate) fn debug_alt_link<'d>(elf: &Elf<'d>) -> Option<DebugAltLink<'d>> {
    let bytes = elf.section(b".gnu_debugaltlink")?.bytes;
    let length = bytes.iter().position(|byte| *byte == 0)?;
    let build_id = bytes.get(length.checked_add(1)?..).filter(|id| !id.is_empty())?;
    Some(DebugAltLink { path: bytes.get(..length)?, build_id })
}
