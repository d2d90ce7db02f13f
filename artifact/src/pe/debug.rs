//! The debug directory: which PDB belongs to the file.

use super::headers::{Directory, Pe};
use crate::error::malformed;
use crate::fields::range_of;
use crate::{ArtifactError, PdbReference};
use object::LittleEndian as LE;
use object::pe;

/// `IMAGE_DEBUG_TYPE_EMBEDDED_PORTABLE_PDB`: a portable PDB, deflated, in the file itself. (PE-COFF.md of .NET)
const EMBEDDED_PORTABLE_PDB: u32 = 17;
/// `IMAGE_DEBUG_TYPE_REPRO`: the time stamp is a hash of the content.
const REPRO: u32 = 16;

/// The minor version of an entry that names a portable PDB: `PM`. (PE-COFF.md of .NET)
const PORTABLE: u16 = 0x504d;

/// Portable PDBs have no age; this stands in its place on symbol servers.
const NO_AGE: u32 = u32::MAX;

/// What the debug directory says.
#[derive(Debug, Default)]
pub(crate) struct DebugDirectory<'d> {
    /// Of several entries the first one for native code, else the first one.
    pub(crate) pdb: Option<PdbReference<'d>>,
    /// The linker was told to make the same bytes from the same input.
    pub(crate) is_reproducible: bool,
    /// A portable PDB stands in the file itself, compressed.
    pub(crate) has_embedded_portable_pdb: bool,
}

impl<'d> DebugDirectory<'d> {
    pub(crate) fn parse(pe: &Pe<'d>, data: &'d [u8], directory: Directory) -> Result<Self, ArtifactError> {
        let bytes = pe.directory_bytes(directory).unwrap_or_default();
        // In a debug file made by objcopy the section is not stored.
        if bytes.is_empty() && pe.section_at(directory.rva).is_some_and(|section| section.bytes.is_empty()) {
            return Ok(Self::default());
        }
        if bytes.len() as u64 != u64::from(directory.size) {
            return Err(malformed(
                "the debug directory",
                &format!("{} bytes in a section", directory.size),
                format!("{} bytes", bytes.len()),
            ));
        }
        let mut found = Self::default();
        for entry in bytes.chunks_exact(size_of::<pe::ImageDebugDirectory>()) {
            let Ok((entry, _)) = object::pod::from_bytes::<pe::ImageDebugDirectory>(entry) else { continue };
            match entry.typ.get(LE).0 {
                REPRO => found.is_reproducible = true,
                EMBEDDED_PORTABLE_PDB => found.has_embedded_portable_pdb = true,
                kind if kind == pe::IMAGE_DEBUG_TYPE_CODEVIEW.0 => {
                    if let Some(reference) = code_view(pe, data, entry)?
                        && found.pdb.as_ref().is_none_or(|known| known.is_portable && !reference.is_portable)
                    {
                        found.pdb = Some(reference);
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

/// A CodeView record: `RSDS`, GUID, age, path.
fn code_view<'d>(
    pe: &Pe<'d>,
    data: &'d [u8],
    entry: &pe::ImageDebugDirectory,
) -> Result<Option<PdbReference<'d>>, ArtifactError> {
    let size = entry.size_of_data.get(LE);
    let (at, rva) = (entry.pointer_to_raw_data.get(LE), entry.address_of_raw_data.get(LE));
    let record = match (at, rva) {
        _ if size == 0 => return Ok(None),
        // A debug file made by objcopy names the record and does not hold it.
        (0, 0) => return Ok(None),
        (0, rva) => match pe.directory_bytes(Directory { rva, size }) {
            Some(bytes) if !bytes.is_empty() => bytes,
            _ => return Ok(None),
        },
        (at, _) => range_of(data, "the CodeView record", u64::from(at), u64::from(size))?,
    };
    match record.first_chunk::<4>() {
        Some(b"RSDS") => {}
        Some(b"NB10" | b"NB09" | b"NB11") => {
            return Err(malformed(
                "the CodeView record",
                "RSDS, which names a PDB by its GUID",
                format!(
                    "{}, of a compiler before 2002, whose PDBs have no GUID",
                    crate::escaped(record.get(..4).unwrap_or_default())
                ),
            ));
        }
        // Sections that are not stored look like this in debug files.
        Some([0, 0, 0, 0]) => return Ok(None),
        _ => {
            return Err(malformed(
                "the CodeView record",
                "RSDS",
                format!("{:?}", crate::escaped(record.get(..4).unwrap_or(record))),
            ));
        }
    }
    let parts = || {
        let guid: [u8; 16] = record.get(4..20)?.try_into().ok()?;
        let age = u32::from_le_bytes(record.get(20..24)?.try_into().ok()?);
        let path = record.get(24..)?;
        let length = memchr::memchr(0, path).unwrap_or(path.len());
        Some((guid, age, path.get(..length)?))
    };
    let (guid, age, path) =
        parts().ok_or_else(|| malformed("the CodeView record", "at least 24 bytes", format!("{size} bytes")))?;
    let is_portable = entry.minor_version.get(LE) == PORTABLE;
    let age = if is_portable { NO_AGE } else { age };
    Ok(Some(PdbReference { guid: printed(guid), age, path, is_portable }))
}

/// A GUID's bytes in the order in which it is printed: its first three fields are numbers, stored least significant byte
/// first.
pub(crate) fn printed(guid: [u8; 16]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = guid;
    let [i, j, k, l, m, n, o, p] = rest;
    [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
}
