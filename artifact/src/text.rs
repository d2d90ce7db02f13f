//! Names and paths are bytes in a file and text everywhere else.

use std::borrow::Cow;
use std::fmt::Write;

/// `bytes` as text. Different bytes have different texts:
///
/// * What is UTF-8 without control characters is its own text, its backslashes included, so that paths of Windows stay as they are.
/// * Otherwise bytes that are not UTF-8, and control characters below 0x20 and 0x7f, become `\xNN` with two lower-case hex
///   digits, and each backslash becomes two.
/// * So does a text that the second rule could have made: one with backslashes that all begin `\\` or such an `\xNN`.
///
/// To read a text: where all backslashes in it begin `\\` or `\xNN`, and there is one, they are undone; otherwise the text
/// stands for itself.
pub fn escaped(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && (is_plain(bytes) || (!bytes.iter().any(u8::is_ascii_control) && !looks_escaped(text)))
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len().saturating_mul(2));
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => out.push_str("\\\\"),
                char if char.is_ascii_control() => push_byte(&mut out, char as u8),
                char => out.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(&mut out, *byte));
    }
    Cow::Owned(out)
}

/// Whether there are neither control characters nor backslashes, as in nearly all names. Sixteen bytes a step, as every name of a file comes by.
fn is_plain(bytes: &[u8]) -> bool {
    let is_special = |byte: &u8| byte.is_ascii_control() | (*byte == b'\\');
    let Some(last) = bytes.last_chunk::<16>() else { return !bytes.iter().any(is_special) };
    let (chunks, _) = bytes.as_chunks::<16>();
    // Without a branch in it, so that it is done for all of them at once.
    let has_special = |chunk: &[u8; 16]| chunk.iter().fold(false, |found, byte| found | is_special(byte));
    !chunks.iter().any(has_special) && !has_special(last)
}

/// Whether a text has backslashes, and each of them begins what escaping writes.
fn looks_escaped(text: &str) -> bool {
    let Some(first) = memchr::memchr(b'\\', text.as_bytes()) else { return false };
    let mut rest = text.as_bytes().get(first..).unwrap_or_default();
    loop {
        rest = match rest {
            [] => return true,
            [b'\\', b'\\', after @ ..] => after,
            [b'\\', b'x', high, low, after @ ..] if is_escaped_byte(*high, *low) => after,
            [b'\\', ..] => return false,
            [_, after @ ..] => after,
        };
    }
}

/// Whether these are the digits of a byte that is escaped.
fn is_escaped_byte(high: u8, low: u8) -> bool {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    digit(high).zip(digit(low)).is_some_and(|(high, low)| {
        let byte = high << 4 | low;
        byte >= 0x80 || byte.is_ascii_control()
    })
}

fn push_byte(out: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn bytes_that_are_no_text_are_escaped_and_text_stays() {
        for text in ["src/a.c", "größe\\x", "C:\\src\\x86\\a.c", "\\\\server\\share", "a\\x41", "a\\xFF", "ends\\"] {
            assert_eq!(escaped(text.as_bytes()), text);
        }
        assert_eq!(escaped(b"a\xffb\n\x7f"), "a\\xffb\\x0a\\x7f");
        assert_eq!(escaped(b"C:\\src\xff"), "C:\\\\src\\xff");
        assert_eq!(escaped(b"a\\xff"), "a\\\\xff");
        assert_eq!(escaped(b"a\\\\b"), "a\\\\\\\\b");
    }

    #[test]
    fn a_control_character_is_found_wherever_it_stands() {
        for len in 1..70 {
            for at in 0..len {
                for byte in [0x00, 0x1f, 0x7f] {
                    let mut bytes = vec![b'~'; len];
                    bytes[at] = byte;
                    assert_eq!(escaped(&bytes), format!("{}\\x{byte:02x}{}", "~".repeat(at), "~".repeat(len - at - 1)));
                }
                let mut bytes = vec![b' '; len];
                bytes[at] = b'\\';
                assert_eq!(escaped(&bytes).as_bytes(), bytes, "a backslash that escapes nothing");
            }
        }
    }

    #[test]
    fn different_bytes_have_different_texts() {
        // Every text of up to six bytes over those that matter.
        let alphabet = [b'\\', b'x', b'8', b'f', 0xff];
        let mut texts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut all: Vec<Vec<u8>> = vec![Vec::new()];
        let mut last = all.clone();
        for _ in 0..6 {
            last =
                last.iter().flat_map(|text| alphabet.iter().map(move |byte| [text, &[*byte][..]].concat())).collect();
            all.extend(last.iter().cloned());
        }
        for bytes in all {
            let text = escaped(&bytes).into_owned();
            if let Some(other) = texts.insert(text.clone(), bytes.clone()) {
                panic!("{bytes:?} and {other:?} are both {text}");
            }
        }
    }
}
