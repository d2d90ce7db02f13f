//! Fields of some bits each, packed without padding: read at any place, written one after the other.

use alloc::vec::Vec;

/// No field is wider.
pub(crate) const MAX_BITS: u8 = 32;
/// A section of packed bits ends with this many zero bytes, so that eight bytes can be loaded at any bit.
pub(crate) const TAIL: usize = 8;

/// As many bits are loaded from any bit on.
pub(crate) const LOADED_BITS: u64 = 57;

/// The [`LOADED_BITS`] from bit `at` of `bytes` on, least significant first, and maybe some more.
#[inline(always)]
pub(crate) fn load(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at / 8..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word) >> (at % 8))
}

/// The `width` bits from bit `at` of `bytes` on, least significant first.
#[inline(always)]
pub(crate) fn bits(bytes: &[u8], at: usize, width: u8) -> Option<u32> {
    let mask = (1u64 << (width & 63)) - 1;
    Some((load(bytes, at)? & mask) as u32)
}

/// Packs numbers into bits, least significant first.
#[derive(Default)]
pub(crate) struct BitWriter {
    pub(crate) bytes: Vec<u8>,
    pending: u64,
    pending_bits: u32,
}

impl BitWriter {
    /// Appends the `width` low bits of `value`, of which there are no others.
    #[inline]
    pub(crate) fn put(&mut self, value: u32, width: u8) {
        // Fewer than 32 bits are pending, so that any value still fits.
        self.pending |= u64::from(value) << self.pending_bits;
        self.pending_bits += u32::from(width);
        if self.pending_bits >= u32::BITS {
            self.bytes.extend_from_slice(&(self.pending as u32).to_le_bytes());
            self.pending >>= u32::BITS;
            self.pending_bits -= u32::BITS;
        }
    }

    /// Fills the last byte with zero bits.
    pub(crate) fn align(&mut self) {
        let bytes = self.pending_bits.div_ceil(8) as usize;
        self.bytes.extend(self.pending.to_le_bytes().into_iter().take(bytes));
        (self.pending, self.pending_bits) = (0, 0);
    }
}

/// How many bits it takes to write `value`.
pub(crate) fn width_of(value: u32) -> u8 {
    (u32::BITS - value.leading_zeros()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_width_read_as_written() {
        let mut writer = BitWriter::default();
        for width in 0..=MAX_BITS {
            writer.put(u32::MAX.checked_shr(32 - u32::from(width)).unwrap_or(0), width);
            writer.put(0, width);
        }
        writer.align();
        writer.bytes.resize(writer.bytes.len() + TAIL, 0);
        let mut at = 0;
        for width in 0..=MAX_BITS {
            let ones = u32::MAX.checked_shr(32 - u32::from(width)).unwrap_or(0);
            assert_eq!(bits(&writer.bytes, at, width), Some(ones), "{width}");
            assert_eq!(bits(&writer.bytes, at + usize::from(width), width), Some(0), "{width}");
            at += 2 * usize::from(width);
        }
        assert_eq!(width_of(0), 0);
        assert_eq!(width_of(u32::MAX), MAX_BITS);
    }
}
