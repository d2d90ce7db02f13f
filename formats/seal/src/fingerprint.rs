//! Fingerprints that can be read over a telephone: ten groups of five digits.
//!
//! Each group is 16 bits of a SHA-256 as a decimal number from 00000 to 65535, high bits first, so that
//! the ten hold its first 160 bits. Digits are the same in every language, and a group that is heard
//! wrongly is seldom one of those that can stand there.

use crate::encoding::Hash;

/// Groups in a fingerprint.
const GROUPS: usize = 10;

/// The fingerprint of a SHA-256: `12345 00042 …`.
#[must_use]
pub fn fingerprint(hash: &Hash) -> String {
    let (pairs, _) = hash.as_chunks::<2>();
    let groups: Vec<String> =
        pairs.iter().take(GROUPS).map(|pair| format!("{:05}", u16::from_be_bytes(*pair))).collect();
    groups.join(" ")
}

/// Whether `text` is the fingerprint of `hash`, however its digits are grouped (white space and dashes do
/// not count). A part of one is not enough.
#[must_use]
pub fn is_fingerprint_of(text: &str, hash: &Hash) -> bool {
    let plain = |text: &str| -> String { text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect() };
    plain(text) == plain(&fingerprint(hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::sha256;

    #[test]
    fn a_fingerprint_is_ten_groups_of_five_digits() {
        // SHA-256 of "abc" begins with ba7816bf 8f01cfea 414140de 5dae2223 b00361a3.
        let hash = sha256(b"abc");
        assert_eq!(fingerprint(&hash), "47736 05823 36609 53226 16705 16606 23982 08739 45059 24995");
        assert!(is_fingerprint_of("47736-05823-36609-53226-16705\n16606 23982 08739 45059 24995", &hash));
        for other in ["", "47736", "47736 05823 36609 53226 16705 16606 23982 08739 45059 24996"] {
            assert!(!is_fingerprint_of(other, &hash), "{other}");
        }
    }
}
