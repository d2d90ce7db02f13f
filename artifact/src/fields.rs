//! Headers: numbers at fixed places, and ranges that must lie within the file.

use crate::ArtifactError;
use crate::error::truncated;

/// Names of sections and symbols are cut at so many bytes: every entry of a table may name one long text, and where it
/// ends is looked for each time. The longest names of real programs have some ten thousand.
pub(crate) const LONGEST_NAME: usize = 128 << 10;

/// The bytes at which a name starts that may be of it, up to two beyond [`LONGEST_NAME`]: so one that is too long is longer than that without the
/// underscore before it, too.
pub(crate) fn within_longest_name(bytes: &[u8]) -> &[u8] {
    bytes.get(..LONGEST_NAME + 2).unwrap_or(bytes)
}

/// Reads numbers of the file's class and byte order.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'d> {
    pub(crate) bytes: &'d [u8],
    pub(crate) is_little_endian: bool,
}

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    pub(crate) fn u16(&self, at: usize) -> Option<u16> {
        let bytes = self.array(at)?;
        Some(if self.is_little_endian { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    pub(crate) fn u32(&self, at: usize) -> Option<u32> {
        let bytes = self.array(at)?;
        Some(if self.is_little_endian { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    pub(crate) fn u64(&self, at: usize) -> Option<u64> {
        let bytes = self.array(at)?;
        Some(if self.is_little_endian { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }

    /// A signed addend of the file's class.
    pub(crate) fn addend(&self, at: usize, is_64: bool) -> Option<i64> {
        if is_64 { self.u64(at).map(u64::cast_signed) } else { self.u32(at).map(|word| word.cast_signed().into()) }
    }

    /// An address or size of the file's class.
    pub(crate) fn word(&self, at: usize, is_64: bool) -> Option<u64> {
        if is_64 { self.u64(at) } else { self.u32(at).map(u64::from) }
    }
}

/// The `length` bytes at `offset` of the file; else an error that says what was expected there.
pub(crate) fn range_of<'d>(
    data: &'d [u8],
    expected: &str,
    offset: u64,
    length: u64,
) -> Result<&'d [u8], ArtifactError> {
    let end = offset.checked_add(length);
    let bytes = end.and_then(|end| data.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?));
    bytes.ok_or_else(|| truncated(data, expected, offset, length))
}
