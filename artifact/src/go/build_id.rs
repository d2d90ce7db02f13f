//! Go's build id in formats without notes: a text before the code. (`cmd/internal/buildid`)

/// Real ones have some eighty bytes.
const LONGEST: usize = 1024;

/// The id at the start of the code section's bytes.
pub(crate) fn before_code(code: &[u8]) -> Option<&[u8]> {
    let text = code.strip_prefix(b"\xff Go build ID: \"")?;
    let end = memchr::memchr(b'"', text.get(..text.len().min(LONGEST))?)?;
    text.get(..end).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_stands_between_quotes_before_the_code() {
        assert_eq!(before_code(b"\xff Go build ID: \"a/b\"\n \xff\xcc\xcc"), Some(&b"a/b"[..]));
        assert_eq!(before_code(b"\xff Go build ID: \"a/b"), None);
        assert_eq!(before_code(b"\xff Go build ID: \"\""), None);
        assert_eq!(before_code(b"\xcc\xcc"), None);
    }
}
