//! Names and paths are bytes in a file and text everywhere else.

use std::borrow::Cow;
use std::fmt::Write;

/// `bytes` as text. Bytes that are not UTF-8 become `\xNN` with two lower-case hex digits, control characters below
/// 0x20 and 0x7f likewise; everything else, the backslash included, stands for itself.
pub fn escaped(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !bytes.iter().any(|byte| byte.is_ascii_control())
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len().saturating_mul(2));
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_ascii_control() {
                push_byte(&mut out, char as u8);
            } else {
                out.push(char);
            }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(&mut out, *byte));
    }
    Cow::Owned(out)
}

fn push_byte(out: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_escaped_and_text_stays() {
        assert_eq!(escaped(b"src/a.c"), "src/a.c");
        assert_eq!(escaped("größe\\x".as_bytes()), "größe\\x");
        assert_eq!(escaped(b"a\xffb\n\x7f"), "a\\xffb\\x0a\\x7f");
    }
}
