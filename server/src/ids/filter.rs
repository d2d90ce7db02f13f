//! The negative filter: says of most keys that are not here that they are not, out of one line of cache.
//!
//! A split block Bloom filter (Apache Parquet, "Bloom Filter"): a key has one block of eight words and sets one bit in each.

/// Bytes of a block.
pub(super) const BLOCK: usize = 32;

/// Bits for a key: about one key in a hundred that is not here passes.
const BITS_PER_KEY: usize = 10;

/// Parquet's factors, one for each word.
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// Blocks for so many keys; one at least.
pub(super) fn blocks(keys: usize) -> usize {
    keys.saturating_mul(BITS_PER_KEY).div_ceil(BLOCK * 8).max(1)
}

/// The number of a key's block.
pub(super) fn block_of(hash: u64, blocks: u32) -> usize {
    let place = (hash >> 32) * u64::from(blocks);
    (place >> 32) as usize
}

/// A key's bit in each word.
fn bits(hash: u64) -> impl Iterator<Item = u32> {
    SALTS.into_iter().map(move |salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

/// Notes a key in its block.
pub(super) fn add(block: &mut [u8], hash: u64) {
    for (word, bit) in block.chunks_exact_mut(4).zip(bits(hash)) {
        for (byte, set) in word.iter_mut().zip(bit.to_le_bytes()) {
            *byte |= set;
        }
    }
}

/// Whether a key may have been noted in its block.
pub(super) fn may_have(block: &[u8; BLOCK], hash: u64) -> bool {
    let (words, _) = block.as_chunks::<4>();
    words.iter().zip(bits(hash)).all(|(word, bit)| u32::from_le_bytes(*word) & bit != 0)
}
