//! The hash of a key. The seed keeps whoever chooses ids from choosing which ones meet in a bucket.

/// Odd numbers without a pattern: the fractions of the golden ratio and of the square root of two.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c909];

/// 64 bits of a key: every eight bytes, least significant first and filled up with zeros, are xored in and multiplied, and
/// the halves of the product xored.
pub(super) fn hash(seed: u64, key: &[u8]) -> u64 {
    let [first, last] = FACTORS;
    let mut state = seed ^ (key.len() as u64).wrapping_mul(last);
    for chunk in key.chunks(8) {
        let mut bytes = [0; 8];
        for (slot, byte) in bytes.iter_mut().zip(chunk) {
            *slot = *byte;
        }
        state = folded(state ^ u64::from_le_bytes(bytes), first).wrapping_add(seed);
    }
    folded(state, last)
}

fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}
