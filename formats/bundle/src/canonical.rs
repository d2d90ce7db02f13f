//! RFC 8785 canonical JSON.

mod shortest;

use serde::Serialize;
use serde_json::Value;

/// The canonical JSON of `value`.
pub fn to_vec<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json_canonicalizer::to_vec(value)
}

/// Whether `bytes` are the canonical JSON of the value that they hold. Duplicate keys, blanks, other orders and
/// other spellings of numbers and strings are not.
pub fn is_canonical(bytes: &[u8]) -> bool {
    // Writing it again is most of what opening a large bundle took (docs/performance.md, "Verifying a bundle").
    if shortest::is_shortest(bytes) {
        return true;
    }
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return false };
    to_vec(&value).is_ok_and(|canonical| canonical == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_form_of_a_value_is_canonical() {
        for text in [r#"{"a":1,"b":[true,null,"é"]}"#, "[]", r#""\n""#, "0"] {
            assert!(is_canonical(text.as_bytes()), "{text}");
        }
        for text in [r#"{"b":1,"a":1}"#, r#"{"a":1,"a":1}"#, "[ ]", r#""\u000a""#, "1.0", "", "{}{}"] {
            assert!(!is_canonical(text.as_bytes()), "{text}");
        }
    }
}
