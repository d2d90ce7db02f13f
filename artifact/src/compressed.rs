//! Compressed debug sections, decompressed within bounds.

use crate::error::malformed;
use crate::{ArtifactError, MAX_SECTION_BYTES, escaped};
use flate2::{Decompress, FlushDecompress, Status};
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
    let damaged = |error: String| malformed(&object_of(name), "compressed bytes of the claimed size", error);
    if compressed.format == CompressionFormat::Zlib {
        return inflate(compressed.data, compressed.uncompressed_size).map(Cow::Owned).map_err(damaged);
    }
    compressed.decompress().map_err(|error| damaged(error.to_string()))
}

/// One call of zlib gives less than 4 GiB, so that there are as many as it takes.
fn inflate(mut data: &[u8], size: u64) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let reserved = usize::try_from(size).ok().and_then(|size| out.try_reserve_exact(size).ok());
    reserved.ok_or_else(|| format!("no memory for {size} bytes"))?;
    let mut inflater = Decompress::new(true);
    loop {
        let (read, written) = (inflater.total_in(), out.len());
        let status =
            inflater.decompress_vec(data, &mut out, FlushDecompress::Finish).map_err(|error| error.to_string())?;
        let read = usize::try_from(inflater.total_in() - read).unwrap_or(usize::MAX);
        data = data.get(read..).unwrap_or_default();
        if status == Status::StreamEnd || (read == 0 && out.len() == written) {
            break;
        }
    }
    if out.len() as u64 == size { Ok(out) } else { Err(format!("{} of {size} bytes", out.len())) }
}

/// Bytes that [`decompress`] gives at most: the size that is claimed, or what compression can give.
pub(crate) fn most_bytes(compressed: &CompressedData<'_>) -> u64 {
    compressed.uncompressed_size.min((compressed.data.len() as u64).saturating_mul(MAX_RATIO))
}

/// Bytes of a `.debug_*` or `.zdebug_*` section (`__debug_*`, `__zdebug_*`) in memory, as far as its header says; 0 for another.
pub(crate) fn debug_size(name: &[u8], bytes: &[u8]) -> u64 {
    let starts = |prefixes: [&[u8]; 2]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let stored = bytes.len() as u64;
    if starts([b".zdebug_", b"__zdebug_"]) {
        zdebug_header(name, bytes).map_or(stored, |header| most_bytes(&header))
    } else if starts([b".debug_", b"__debug_"]) {
        stored
    } else {
        0
    }
}

fn object_of(name: &[u8]) -> String {
    format!("section {}", escaped(name))
}
