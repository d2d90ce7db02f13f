//! Pages for people.

use axum::http::{HeaderMap, HeaderValue, header};

/// Whether an answer is a page for people by what it says: what stands before a server, a portal or a login, has pages of its own for every path, and they
/// say nothing of the file that was asked for.
pub(crate) fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    [&b"text/html"[..], b"application/xhtml+xml"].iter().any(|page| kind.eq_ignore_ascii_case(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_however_its_kind_is_written() {
        for (kind, expected) in [
            ("text/html", true),
            ("Text/HTML; charset=utf-8", true),
            ("application/xhtml+xml", true),
            ("text/plain", false),
            ("application/octet-stream", false),
            ("text/html-template", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
            assert_eq!(is_page(&headers), expected, "{kind}");
        }
        assert!(!is_page(&HeaderMap::new()));
    }
}
