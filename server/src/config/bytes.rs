//! Numbers of bytes as an operator writes them.

use serde::{Deserialize, Deserializer};

/// A whole number of bytes, or one with its unit: `KiB`, `MiB`, `GiB` or `TiB`.
///
/// # Errors
/// A text of another form, or more than 2^63 bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let refused =
        || format!("{text:?}: expected a whole number of bytes, or one with its unit, such as 512MiB or 50GiB");
    let unit_at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit_at).ok_or_else(refused)?;
    let shift = match unit {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(refused()),
    };
    let number: u64 = number.parse().map_err(|_| refused())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes <= 1 << 63).ok_or_else(refused)
}

/// A setting that is a number of bytes, as a number or as a text with its unit.
pub(super) fn setting<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number of bytes, or a text such as 512MiB or 50GiB")]
    enum Written {
        Number(u64),
        Text(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Number(bytes) => Ok(Some(bytes)),
        Written::Text(text) => parse_bytes(&text).map(Some).map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_bytes_may_have_a_unit() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("4KiB", 4096), ("512MiB", 512 << 20), ("50GiB", 50 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for wrong in
            ["", "MiB", "-1", "1.5GiB", "5 GiB", "5GB", "5mib", "99999999999999999999", "18446744073709551615TiB"]
        {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
