//! Patterns of `/metadata`: those of `fnmatch` with `FNM_PATHNAME` (POSIX.1, "Pattern Matching Notation"): `*` and `?` match anything but a
//! slash, `[…]` one of a set, a backslash takes the character behind it as it is.

/// Whether a name matches a pattern. The time is at most the product of their lengths.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut within) = (0, 0);
    // Where to go on when nothing matches: behind the last star, one character further in the name.
    let mut again: Option<(usize, usize)> = None;
    loop {
        let step = match (pattern.get(at), name.get(within)) {
            (None, None) => return true,
            (Some('*'), _) => {
                again = Some((at + 1, within));
                at += 1;
                continue;
            }
            (Some(_), Some(character)) => one(pattern.get(at..).unwrap_or_default(), *character),
            _ => None,
        };
        if let Some(length) = step {
            (at, within) = (at + length, within + 1);
            continue;
        }
        match again {
            Some((behind, skipped)) if name.get(skipped).is_some_and(|character| *character != '/') => {
                again = Some((behind, skipped + 1));
                (at, within) = (behind, skipped + 1);
            }
            _ => return false,
        }
    }
}

/// The length of the pattern's first part if it matches the character.
fn one(pattern: &[char], character: char) -> Option<usize> {
    match pattern {
        ['?', ..] => (character != '/').then_some(1),
        ['\\', escaped, ..] => (*escaped == character).then_some(2),
        ['[', rest @ ..] => match set(rest, character) {
            Some((length, found)) => (found && character != '/').then_some(length + 1),
            None => (character == '[').then_some(1),
        },
        [plain, ..] => (*plain == character).then_some(1),
        [] => None,
    }
}

/// Reads a set behind its `[`: its length, and whether the character is in it. None when it does not end, or holds a slash: then
/// `[` is a character like others.
fn set(mut rest: &[char], character: char) -> Option<(usize, bool)> {
    let whole = rest.len();
    let negated = matches!(rest, ['!' | '^', ..]);
    if negated {
        rest = rest.get(1..)?;
    }
    let (mut found, mut first) = (false, true);
    loop {
        let (low, behind) = match rest {
            [']', behind @ ..] if !first => return Some((whole - behind.len(), found != negated)),
            ['\\', escaped, behind @ ..] => (*escaped, behind),
            [plain, behind @ ..] => (*plain, behind),
            [] => return None,
        };
        let (high, behind) = match behind {
            ['-', '\\', high, behind @ ..] if *high != ']' => (*high, behind),
            ['-', high, behind @ ..] if *high != ']' => (*high, behind),
            _ => (low, behind),
        };
        if low == '/' || high == '/' {
            return None;
        }
        found |= (low..=high).contains(&character);
        (rest, first) = (behind, false);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use proptest::prelude::*;

    use super::*;

    /// What the C library says.
    #[allow(unsafe_code)]
    fn fnmatch(pattern: &str, name: &str) -> bool {
        let (pattern, name) = (CString::new(pattern).unwrap(), CString::new(name).unwrap());
        // SAFETY: both are strings that end with NUL and live until the call returns.
        unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), libc::FNM_PATHNAME) == 0 }
    }

    #[test]
    fn patterns_match_as_in_the_c_library() {
        for (pattern, name, expected) in [
            ("ls", "ls", true),
            ("*", "libc.so.6", true),
            ("lib*.so*", "libc.so.6", true),
            ("/usr/bin/*hi*", "/usr/bin/archive", true),
            ("/usr/*", "/usr/bin/ls", false),
            ("*", "a/b", false),
            ("l?", "ls", true),
            ("a?b", "a/b", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]x", "]x", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "", true),
            ("", "a", false),
            ("**a", "bba", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
            assert_eq!(fnmatch(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!matches(&"*a".repeat(2000), &"a".repeat(1999)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn any_pattern_matches_as_in_the_c_library(pattern in "[ab*?/!\\]-]{0,8}", name in "[ab/!-]{0,8}") {
            // Sets have a test of their own: what one that is malformed or holds a slash means, POSIX leaves open.
            prop_assert_eq!(matches(&pattern, &name), fnmatch(&pattern, &name));
        }

        #[test]
        fn any_set_matches_as_in_the_c_library(inner in "!?[ab][ab]{0,3}(-[abc])?", rest in "[ab*?]{0,4}", name in "[abc]{0,5}") {
            let pattern = format!("[{inner}]{rest}");
            prop_assert_eq!(matches(&pattern, &name), fnmatch(&pattern, &name));
        }

        #[test]
        fn no_pattern_breaks_the_reader(pattern in ".{0,30}", name in ".{0,30}") {
            let _ = matches(&pattern, &name);
        }
    }
}
