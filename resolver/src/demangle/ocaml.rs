//! OCaml: `caml`, the module with its capital letter, then the path in it. `__` stands between parts, and a character that an assembler would not
//! take is `$` and two hexadecimal digits. The number at the end tells functions of one name apart and stays.

/// The name; `None` where the symbol is none of OCaml's.
pub(super) fn demangle(symbol: &str) -> Option<String> {
    let mut rest = symbol.strip_prefix("caml").filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))?;
    // Without a path it may be anybody's function: `camlCase`.
    if !rest.contains("__") && !rest.contains('.') {
        return None;
    }
    let mut name = Vec::with_capacity(rest.len());
    while let Some(byte) = rest.bytes().next() {
        if let Some(after) = rest.strip_prefix("__") {
            name.push(b'.');
            rest = after;
            continue;
        }
        let hex = rest.strip_prefix('$').and_then(|digits| u8::from_str_radix(digits.get(..2)?, 16).ok());
        let (decoded, taken) = hex.map_or((byte, 1), |decoded| (decoded, 3));
        name.push(decoded);
        // Not in the middle of a character of several bytes, which compilers do not write.
        rest = rest.get(taken..)?;
    }
    String::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn paths_and_characters_are_written_out() {
        for (symbol, expected) in [
            ("camlStdlib__List__map_154", Some("Stdlib.List.map_154")),
            ("camlMain__fun_12", Some("Main.fun_12")),
            ("camlMain__$2b$2e_7", Some("Main.+._7")),
            ("camlMain__entry", Some("Main.entry")),
            ("camlStdlib.map_3", Some("Stdlib.map_3")),
            ("camlMain__x$zz", Some("Main.x$zz")),
            ("camlMain__\u{e4}", None),
            ("caml_alloc_small", None),
            ("camlCase", None),
            ("camel__Main", None),
            ("caml", None),
        ] {
            assert_eq!(demangle(symbol).as_deref(), expected, "{symbol}");
        }
    }
}
