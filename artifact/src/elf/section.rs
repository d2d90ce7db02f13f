//! Bytes of sections, decompressed within bounds.

use super::gabi;
use super::{Elf, Section};
use crate::{ArtifactError, compressed, escaped};
use object::read::{CompressedData, CompressionFormat};
use std::borrow::Cow;

/// The section's bytes. Understands `SHF_COMPRESSED` with zlib and zstd, and the older `.zdebug_*`.
pub(crate) fn contents<'d>(elf: &Elf<'d>, section: &Section<'d>) -> Result<Cow<'d, [u8]>, ArtifactError> {
    let compressed = if section.flags & gabi::SHF_COMPRESSED != 0 {
        compression_header(elf, section)?
    } else if section.name.starts_with(b".zdebug_") {
        compressed::zdebug_header(section.name, section.bytes)?
    } else {
        return Ok(Cow::Borrowed(section.bytes));
    };
    compressed::decompress(section.name, &compressed)
}

/// Bytes of a section after [`contents`], as far as its header says; 0 for one that is not stored. A claim of more than
/// compression can give is taken for that.
pub(crate) fn size_in_memory(elf: &Elf<'_>, section: &Section<'_>) -> u64 {
    let stored = section.bytes.len() as u64;
    let compressed = if section.flags & gabi::SHF_COMPRESSED != 0 {
        compression_header(elf, section).ok()
    } else if section.name.starts_with(b".zdebug_") {
        compressed::zdebug_header(section.name, section.bytes).ok()
    } else {
        None
    };
    compressed.map_or(stored, |compressed| compressed::most_bytes(&compressed))
}

/// `Elf32_Chdr`, `Elf64_Chdr`. (gABI, "Section Compression")
fn compression_header<'d>(elf: &Elf<'d>, section: &Section<'d>) -> Result<CompressedData<'d>, ArtifactError> {
    let fields = elf.fields(section.bytes);
    let (size_at, length) = if elf.is_64 { (8, 24) } else { (4, 12) };
    let parts = || Some((fields.u32(0)?, fields.word(size_at, elf.is_64)?, section.bytes.get(length..)?));
    let (kind, uncompressed_size, data) =
        parts().ok_or_else(|| malformed(section, "a compression header", format!("{} bytes", section.bytes.len())))?;
    let format = match kind {
        gabi::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
        gabi::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
        other => return Err(malformed(section, "compression 1 (zlib) or 2 (zstd)", other)),
    };
    Ok(CompressedData { format, data, uncompressed_size })
}

fn malformed(section: &Section<'_>, expected: &str, found: impl ToString) -> ArtifactError {
    ArtifactError::Malformed {
        object: format!("section {}", escaped(section.name)),
        expected: expected.to_owned(),
        found: found.to_string(),
    }
}
