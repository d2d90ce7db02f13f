//! Bytes of sections, decompressed within bounds.

use super::gabi;
use super::{Elf, Section};
use crate::{ArtifactError, MAX_SECTION_BYTES, escaped};
use object::read::{CompressedData, CompressionFormat};
use std::borrow::Cow;

/// deflate makes at most 1032 bytes out of one; zstd may make more, but debug sections stay far below this.
const MAX_RATIO: u64 = 1100;

/// The section's bytes. Understands `SHF_COMPRESSED` with zlib and zstd, and the older `.zdebug_*`.
pub(crate) fn contents<'d>(elf: &Elf<'d>, section: &Section<'d>) -> Result<Cow<'d, [u8]>, ArtifactError> {
    let compressed = if section.flags & gabi::SHF_COMPRESSED != 0 {
        compression_header(elf, section)?
    } else if section.name.starts_with(b".zdebug_") {
        old_header(section)?
    } else {
        return Ok(Cow::Borrowed(section.bytes));
    };
    let stored = compressed.data.len() as u64;
    let allowed = stored.saturating_mul(MAX_RATIO).min(MAX_SECTION_BYTES);
    if compressed.uncompressed_size > allowed {
        return Err(ArtifactError::TooLarge {
            section: escaped(section.name).into_owned(),
            claimed: compressed.uncompressed_size,
            stored,
            allowed,
        });
    }
    compressed.decompress().map_err(|error| malformed(section, "compressed bytes of the claimed size", error))
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

/// `ZLIB` and the size, 8 bytes most significant first, as binutils wrote them before 2014.
fn old_header<'d>(section: &Section<'d>) -> Result<CompressedData<'d>, ArtifactError> {
    let parts = || {
        let size = section.bytes.strip_prefix(b"ZLIB")?.first_chunk::<8>()?;
        Some((u64::from_be_bytes(*size), section.bytes.get(12..)?))
    };
    let (uncompressed_size, data) =
        parts().ok_or_else(|| malformed(section, "ZLIB and a size", format!("{} bytes", section.bytes.len())))?;
    Ok(CompressedData { format: CompressionFormat::Zlib, data, uncompressed_size })
}

fn malformed(section: &Section<'_>, expected: &str, found: impl ToString) -> ArtifactError {
    ArtifactError::Malformed {
        object: format!("section {}", escaped(section.name)),
        expected: expected.to_owned(),
        found: found.to_string(),
    }
}
