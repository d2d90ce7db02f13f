//! Sections that name another file.

use super::gabi::SHF_COMPRESSED;
use super::headers::Elf;
use crate::cursor::{Cursor, Damaged, Result};
use crate::object_file::{DebugAltLink, DebugLink};

/// `.gnu_debuglink`, where the debug file is by name.
pub(crate) fn debug_link<'d>(elf: &Elf<'d>) -> Option<DebugLink<'d>> {
    // Debuggers read the bytes as they are: compressed they name nothing.
    let section = elf.section(b".gnu_debuglink").filter(|section| section.flags & SHF_COMPRESSED == 0)?;
    DebugLink::read(elf.fields(section.bytes))
}

/// The supplementary file, by either name.
pub(crate) fn debug_alt_link<'d>(elf: &Elf<'d>) -> Option<DebugAltLink<'d>> {
    gnu_alt_link(elf).or_else(|| Some(debug_sup(elf)?).filter(|sup| !sup.is_supplementary).map(|sup| sup.link))
}

/// The checksum by which a DWARF 5 supplementary file is known.
pub(crate) fn supplementary_checksum<'d>(elf: &Elf<'d>) -> Option<&'d [u8]> {
    debug_sup(elf).filter(|sup| sup.is_supplementary).map(|sup| sup.link.build_id)
}

/// `.gnu_debugaltlink`: a path, NUL, the build-id of the supplementary file.
fn gnu_alt_link<'d>(elf: &Elf<'d>) -> Option<DebugAltLink<'d>> {
    let bytes = elf.section(b".gnu_debugaltlink")?.bytes;
    let length = bytes.iter().position(|byte| *byte == 0)?;
    let build_id = bytes.get(length.checked_add(1)?..).filter(|id| !id.is_empty())?;
    Some(DebugAltLink { path: bytes.get(..length)?, build_id })
}

struct DebugSup<'d> {
    is_supplementary: bool,
    link: DebugAltLink<'d>,
}

/// `.debug_sup`: version, whether this is the supplementary file, its path, NUL, its checksum's length and bytes.
/// (DWARF 5, 7.3.6)
fn debug_sup<'d>(elf: &Elf<'d>) -> Option<DebugSup<'d>> {
    let bytes = elf.section(b".debug_sup")?.bytes;
    let mut cursor = Cursor::new(bytes, elf.is_little_endian);
    let parts = |cursor: &mut Cursor<'d>| -> Result<_> {
        let version = cursor.unsigned(2)?;
        let is_supplementary = cursor.u8()? != 0;
        let path = cursor.text()?;
        let length = usize::try_from(cursor.uleb()?).map_err(|_| Damaged)?;
        Ok((version, is_supplementary, path, cursor.bytes(length)?))
    };
    let (version, is_supplementary, path, build_id) = parts(&mut cursor).ok()?;
    let known = version == 5 && !build_id.is_empty();
    known.then_some(DebugSup { is_supplementary, link: DebugAltLink { path, build_id } })
}
