//! The one rule for bytes that may not be UTF-8 (paths, thread names) in JSON text.
//!
//! * A backslash is written as two.
//! * A byte that is part of no valid UTF-8 sequence is written `\x` and two lower-case hex digits.
//! * Everything else stands as it is.
//!
//! So every byte string has exactly one text, every such text leads back to its bytes, and an
//! ordinary path is its own text.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// The text of `bytes`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                text.push('\\');
            }
            text.push(character);
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The bytes of a text that [`escape`] made; `None` for a text that it does not make.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        if let Some(after) = escaped.strip_prefix('\\') {
            bytes.push(b'\\');
            rest = after;
            continue;
        }
        let digits = escaped.strip_prefix('x')?;
        let (digits, after) = digits.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    bytes.extend_from_slice(rest.as_bytes());
    // `\x41` has bytes, but is not how they are written.
    (escape(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], text: &str) {
        assert_eq!(escape(bytes), text);
        assert_eq!(unescape(text).as_deref(), Some(bytes));
    }

    #[test]
    fn every_byte_string_has_one_text_that_leads_back() {
        check(b"/usr/lib/libc.so.6", "/usr/lib/libc.so.6");
        check("/tmp/\u{fc}\u{4e16}".as_bytes(), "/tmp/\u{fc}\u{4e16}");
        check(b"/tmp/a\\b", "/tmp/a\\\\b");
        check(b"/tmp/\xff\xfe", "/tmp/\\xff\\xfe");
        check(b"\\xff", "\\\\xff");
        check(b"cut \xe4\xb8", "cut \\xe4\\xb8");
        check(b"", "");
    }

    #[test]
    fn texts_that_the_rule_does_not_make_have_no_bytes() {
        for text in ["\\", "\\x", "\\xf", "\\xFF", "\\x+f", "\\x41", "\\n", "a\\x\u{fc}"] {
            assert_eq!(unescape(text), None, "{text:?}");
        }
    }
}
