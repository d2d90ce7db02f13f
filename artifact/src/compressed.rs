//! Compressed debug sections, decompressed within bounds.

use crate::error::malformed;
use crate::{ArtifactError, MAX_SECTION_BYTES, escaped};
use object::read::{CompressedData, CompressionFormat};
use std::borrow::Cow;

/// deflate makes at most 1032 bytes out of one; zstd may make more, but debug sections stay far below this.
const MAX_RATIO: u64 = 1100;

/// The header of `.zdebug_*` and `__zdebug_*` sections: `ZLIB` and the size, 8 bytes most significant first, as binutils
/// wrote them before 2014 and Go's linker for Mach-O does.
pub(crate) fn zdebug_header<'d>(name: &[u8], bytes: &'d [u8]) -> Result<CompressedData<'d>, ArtifactError> {
    let parts = || {
        let size = bytes.strip_prefix(b"ZLIB")?.first_chunk::<8>()?;
        Some((u64::from_be_bytes(*size), bytes.get(12..)?))
    };
    let (uncompressed_size, data) =
        parts().ok_or_else(|| malformed(&object_of(name), "ZLIB and a size", format!("{} bytes", bytes.len())))?;
    Ok(CompressedData { format: CompressionFormat::Zlib, data, uncompressed_size })
}

/// The bytes of the section of that name.
pub(crate) fn decompress<'d>(name: &[u8], compressed: &CompressedData<'d>) -> Result<Cow<'d, [u8]>, ArtifactError> {
    let stored = compressed.data.len() as u64;
    let allowed = stored.saturating_mul(MAX_RATIO).min(MAX_SECTION_BYTES);
    if compressed.uncompressed_size > allowed {
        return Err(ArtifactError::TooLarge {
            section: escaped(name).into_owned(),
            claimed: compressed.uncompressed_size,
            stored,
            allowed,
        });
    }
    compressed.decompress().map_err(|error| malformed(&object_of(name), "compressed bytes of the claimed size", error))
}

/// Bytes that [`decompress`] gives at most: the size that is claimed, or what compression can give.
pub(crate) fn most_bytes(compressed: &CompressedData<'_>) -> u64 {
    compressed.uncompressed_size.min((compressed.data.len() as u64).saturating_mul(MAX_RATIO))
}

fn object_of(name: &[u8]) -> String {
    format!("section {}", escaped(name))
}
