//! Texts from outside before people's eyes.

use std::borrow::Cow;

use symseal_seal::is_invisible;

/// A text from outside for a terminal, a page or a line of a log: control characters, which may be escape sequences or ends of lines, are written
/// out (`\u{a}`), and so are those that nobody sees, those that turn the direction of what stands beside them among them.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden = |character: char| character.is_control() || is_invisible(character);
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_written_out_and_what_is_seen_stays() {
        assert_eq!(visible("app\u{202e}gubed.so\n"), "app\\u{202e}gubed.so\\u{a}");
        assert!(matches!(visible("größe \\u{a} 名"), Cow::Borrowed(_)));
    }
}
