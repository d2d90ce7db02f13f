//! Names that come from inputs, as parts of titles.

use crate::digest::Digest;

use super::rules::{
    fold, is_debugger_script, is_debugger_start_up, is_plain, is_reserved, is_short_name, script_ending,
};
use super::{SEAL, SYMBOL_INDEX};

/// Escaped names of more bytes than this are cut.
const LONGEST: usize = 200;

/// What is kept of a name that is cut, in bytes.
const KEPT: usize = 100;

/// What no escaped byte begins with.
const MARK: &str = "%~";

/// The part of a title for a name that an input gave: a file name, the name of a PDB, a part of a dSYM's path. It passes
/// [`check_title`](super::check_title), has at most 255 bytes, and two different names never give one part. The rule
/// (`docs/formats/bundle.md`, "Names from inputs"):
///
/// * Each byte of a character that no title may hold, of `/` and of `%`, and each byte that is not UTF-8, is written as
///   `%` and two upper-case hex digits.
/// * Where the name as a whole is none that a title may have, one character more is written so: the last one, where it is a
///   dot or a blank; the first one of a Windows device, a debugger's start-up file or a title of every bundle; the hyphen of `-gdb.`; the tilde of a
///   Windows short name; the dot before the ending of a script of gdb (`.py`, `.scm`, `.gdb`).
/// * Of a text of more than 200 bytes its first 100 (or a few less, so that no character is cut) are kept, and `%~` and
///   the name's SHA-256 in lower-case hex follow. An empty name is `%~`.
pub fn component(name: impl AsRef<[u8]>) -> String {
    let name = name.as_ref();
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character != '%' && is_plain(character) {
                text.push(character);
            } else {
                push_escaped(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        push_escaped(&mut text, chunk.invalid());
    }
    if text.is_empty() {
        return MARK.to_owned();
    }
    if text.len() > LONGEST {
        let mut end = text.floor_char_boundary(KEPT);
        // Not within `%HH` either.
        if let Some(at) = text.get(..end).and_then(|kept| kept.rfind('%')).filter(|at| end - at < 3) {
            end = at;
        }
        text.truncate(end);
        text.push_str(MARK);
        text.push_str(&Digest::of(name).hex());
    }
    if text.ends_with(['.', ' ']) {
        let last = text.len() - 1;
        escape_at(&mut text, last);
    }
    if is_reserved(&text) || is_debugger_start_up(&text) || is_of_every_bundle(&text) {
        escape_at(&mut text, 0);
    }
    if is_debugger_script(&text)
        && let Some(hyphen) = text.rfind('.').and_then(|dot| dot.checked_sub("-gdb".len()))
    {
        escape_at(&mut text, hyphen);
    }
    if let Some(dot) = script_ending(&text) {
        escape_at(&mut text, dot);
    }
    if is_short_name(&text)
        && let Some(tilde) = text.rfind('~')
    {
        escape_at(&mut text, tilde);
    }
    text
}

/// Whether a part is `symbol_index.json` or `symbol_index.sigstore.json`, so that no directory is called as they are.
fn is_of_every_bundle(part: &str) -> bool {
    [SYMBOL_INDEX, SEAL].contains(&fold(part).as_str())
}

fn push_escaped(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push('%');
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or_default().to_ascii_uppercase());
        }
    }
}

/// Escapes the one ASCII character at `at`.
fn escape_at(text: &mut String, at: usize) {
    let Some(byte) = text.as_bytes().get(at).copied().filter(u8::is_ascii) else { return };
    let mut escaped = String::with_capacity(3);
    push_escaped(&mut escaped, &[byte]);
    text.replace_range(at..=at, &escaped);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::title::{check_title, rules::MAX_PART_BYTES};

    /// The name that a component stands for; `None` where it was cut.
    fn original(component: &str) -> Option<Vec<u8>> {
        if component == MARK {
            return Some(Vec::new());
        }
        let mut name = Vec::new();
        let mut rest = component;
        while let Some((plain, escaped)) = rest.split_once('%') {
            name.extend(plain.as_bytes());
            name.push(u8::from_str_radix(escaped.get(..2)?, 16).ok()?);
            rest = &escaped[2..];
        }
        name.extend(rest.as_bytes());
        Some(name)
    }

    #[track_caller]
    fn check(name: &[u8], expected: &str) {
        assert_eq!(component(name), expected);
        assert_eq!(check_title(expected), Ok(()));
        assert_eq!(original(expected).as_deref(), Some(name));
    }

    #[test]
    fn ordinary_names_stand_as_they_are() {
        for name in ["libc.so.6", "app.pdb", "Größe.dll", "a b", "App", "..a", ".hidden", "com10.dll", "1.0~rc1.so"] {
            check(name.as_bytes(), name);
        }
    }

    #[test]
    fn every_part_of_the_rule_shows() {
        check(b"", "%~");
        check(b"100%", "100%25");
        check(b"a/b\\c:d", "a%2Fb%5Cc%3Ad");
        check(b"a\xffb", "a%FFb");
        check("x\u{202e}y".as_bytes(), "x%E2%80%AEy");
        check(b"a\0\n", "a%00%0A");
        check(b".", "%2E");
        check(b"..", ".%2E");
        check(b"a. .", "a. %2E");
        check(b"CON", "%43ON");
        check(b"nul.tar.gz", "%6Eul.tar.gz");
        check(b"symbol_index.json", "%73ymbol_index.json");
        check(b"Symbol_Index.sigstore.JSON", "%53ymbol_Index.sigstore.JSON");
        check(b"libfoo.so-gdb.py", "libfoo.so%2Dgdb%2Epy");
        check(b"module.py", "module%2Epy");
        check(b"a.SCM", "a%2ESCM");
        check(b".gdbinit", "%2Egdbinit");
        check(b".lldbinit-app.x", "%2Elldbinit-app.x");
        check(b".lldbinit-gdb.py", "%2Elldbinit%2Dgdb%2Epy");
        check(b"ABCDEF~1.DLL", "ABCDEF%7E1.DLL");
    }

    #[test]
    fn long_names_are_cut_and_keep_apart() {
        let (one, two) = ("x".repeat(3000) + "1", "x".repeat(3000) + "2");
        assert_ne!(component(&one), component(&two));
        assert_eq!(component(&one).len(), 166);
        let wide = component("\u{202e}".repeat(300));
        assert!(wide.starts_with("%E2%80%AE") && wide.len() <= MAX_PART_BYTES, "{wide}");
        // What was cut away must not leave what a debugger would run.
        assert_eq!(check_title(&component(format!("a-gdb.{}.x", "y".repeat(400)))), Ok(()));
        assert_eq!(check_title(&component(format!("CON.{}.x", "y".repeat(400)))), Ok(()));
    }

    /// Bytes that make trouble, more often than chance would.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..4),
            proptest::sample::select(vec![
                "%",
                "%~",
                "%2E",
                ".",
                " ",
                "CON",
                "com1",
                "-gdb",
                ".py",
                "~1",
                ".lldbinit",
                ".gdbinit",
                "/",
                "é",
                "x"
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            any::<char>().prop_map(|character| character.to_string().into_bytes()),
            (0usize..300).prop_map(|times| vec![b'y'; times]),
        ];
        proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn every_name_gives_a_title_that_leads_back_to_it(name in names()) {
            let text = component(&name);
            prop_assert_eq!(check_title(&text), Ok(()));
            prop_assert!(text.len() <= MAX_PART_BYTES && !text.contains('/'));
            if text.contains(MARK) && text != MARK {
                prop_assert!(text.contains(&Digest::of(&name).hex()));
            } else {
                prop_assert_eq!(original(&text), Some(name));
            }
        }

        #[test]
        fn two_names_give_two_titles(one in names(), two in names()) {
            prop_assert_eq!(one == two, component(&one) == component(&two));
        }
    }
}
