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

/// Has the byte `at` of `bytes` come from memory, while the processor goes on with what does not need it: of a large table most of what is read is in no
/// cache. Stable Rust has prefetching in unsafe code alone; a load that nobody waits for does as much.
#[inline(always)]
pub(crate) fn touch(bytes: &[u8], at: usize) {
    core::hint::black_box(bytes.get(at).copied());
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// Of bytes that do not descend, none above 64: where the first one above `rank` lies, in bits; 64 where there is none.
#[inline(always)]
fn first_above(bytes: u64, rank: u32) -> u32 {
    // The top bit is set in every byte above the rank, and nothing is carried into the next byte.
    ((bytes + u64::from(127 - rank) * ONES) & TOPS).trailing_zeros() & !7
}

/// The place of the one in `word` that has `rank` others below it; 64 where there are not so many.
#[inline(always)]
pub(crate) fn select(word: u64, rank: u64) -> u32 {
    let rank = rank.min(u64::BITS.into()) as u32;
    let mut sums = word - (word >> 1 & 0x5555_5555_5555_5555);
    sums = (sums & 0x3333_3333_3333_3333) + (sums >> 2 & 0x3333_3333_3333_3333);
    sums = (sums + (sums >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    // In each byte, how many ones there are in it and below.
    let sums = sums.wrapping_mul(ONES);
    let byte = first_above(sums, rank);
    if byte >= u64::BITS {
        return u64::BITS;
    }
    let rank = rank - (sums << 8 >> byte & 0xff) as u32;
    // The same among the bits of that byte, each of which becomes a byte.
    let spread = ((word >> byte & 0xff) * ONES) & 0x8040_2010_0804_0201;
    let spread = ((spread + (TOPS - ONES)) >> 7 & ONES).wrapping_mul(ONES);
    byte + first_above(spread, rank) / 8
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
    fn ones_are_found_by_their_number() {
        let words = (0..400u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & n.wrapping_mul(0xd1b5_4a32_d192_ed03));
        for word in words.chain([0, 1, 1 << 63, u64::MAX, u64::MAX >> 1, 0xff, 0xff << 56]) {
            let mut ones = (0..64).filter(|bit| word >> bit & 1 == 1);
            for rank in 0..70 {
                assert_eq!(select(word, rank), ones.next().unwrap_or(64), "{word:#x} {rank}");
            }
            assert_eq!(select(word, u64::MAX), 64);
        }
    }

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
