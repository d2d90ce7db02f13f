//! How bytes stand in text: base64 and hex, each in exactly one accepted spelling.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// A SHA-256 value.
pub type Hash = [u8; 32];

/// SHA-256 of `bytes`.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// Standard alphabet, padded: the one form that this crate writes.
#[must_use]
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Reads the form that [`to_base64`] writes and no other: no white space, no URL alphabet, padding
/// present, unused bits zero.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// A 32-byte value in base64.
#[must_use]
pub fn hash_from_base64(text: &str) -> Option<Hash> {
    from_base64(text)?.try_into().ok()
}

/// Lower-case hex.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS.get(usize::from(value)).copied().unwrap_or(b'0'));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Reads 64 lower-case hex digits; upper case is refused, as in OCI digests.
#[must_use]
pub fn hash_from_hex(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut hash = [0_u8; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (pair.first()?, pair.get(1)?);
        *byte = (value(*high)? << 4) | value(*low)?;
    }
    Some(hash)
}

/// A decimal number as C2SP and proto3 JSON write it: digits alone, no sign, no leading zero.
#[must_use]
pub fn decimal(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = text == "0" || !text.starts_with('0');
    if plain && canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_one_spelling() {
        assert_eq!(from_base64("AAECAw=="), Some(vec![0, 1, 2, 3]));
        for other in ["AAECAw", "AAECAw=", "AAECAx==", " AAECAw==", "AAEC\nAw==", "AAEC-_=="] {
            assert_eq!(from_base64(other), None, "{other:?}");
        }
    }

    #[test]
    fn hex_is_lower_case_and_of_the_right_length() {
        let hash = sha256(b"abc");
        let text = to_hex(&hash);
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(hash_from_hex(&text), Some(hash));
        assert_eq!(hash_from_hex(&text.to_uppercase()), None);
        assert_eq!(hash_from_hex(text.get(2..).unwrap()), None);
    }

    #[test]
    fn decimals_have_no_sign_and_no_leading_zero() {
        assert_eq!(decimal("0"), Some(0));
        assert_eq!(decimal("18446744073709551615"), Some(u64::MAX));
        for bad in ["", "00", "05", "+5", "-1", " 5", "5 ", "18446744073709551616", "0x5", "５"] {
            assert_eq!(decimal(bad), None, "{bad:?}");
        }
    }
}
