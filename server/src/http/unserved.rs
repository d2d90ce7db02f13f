//! Requests that are refused for the form of their head, whatever they ask for.

use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// The refusal of a request whose body is encoded otherwise than in chunks, once (RFC 9112, 6.1: 501), or whose target is of another scheme than this
/// server's (`ftp://…`; RFC 9110, 7.4: 421). Nothing is read behind it.
pub(crate) fn unserved<B>(request: &Request<B>) -> Option<Response> {
    let refuse = |status: StatusCode, why: &'static str| {
        tracing::info!(status = status.as_u16(), why, "a request was refused");
        Some((status, [(header::CONNECTION, HeaderValue::from_static("close"))], format!("{why}\n")).into_response())
    };
    if !is_plain_or_chunked(request.headers()) {
        return refuse(StatusCode::NOT_IMPLEMENTED, "expected no Transfer-Encoding but chunked, once (RFC 9112, 6.1)");
    }
    let scheme = request.uri().scheme_str();
    if scheme.is_some_and(|scheme| !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))) {
        return refuse(StatusCode::MISDIRECTED_REQUEST, "expected a target of the scheme http or https");
    }
    None
}

fn is_plain_or_chunked(headers: &HeaderMap) -> bool {
    let mut said = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (said.next(), said.next()) {
        (None, _) => true,
        (Some(one), None) => one.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(target: &str, encodings: &[&str]) -> Option<u16> {
        let mut request = Request::builder().uri(target);
        for encoding in encodings {
            request = request.header(header::TRANSFER_ENCODING, *encoding);
        }
        unserved(&request.body(()).unwrap()).map(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn bodies_in_chunks_of_something_else_and_targets_of_other_schemes_are_refused() {
        for encodings in [vec![], vec!["chunked"], vec!["Chunked "]] {
            assert_eq!(status("/healthz", &encodings), None, "{encodings:?}");
        }
        for encodings in [
            vec!["gzip, chunked"],
            vec!["chunked, chunked"],
            vec!["chunked", "chunked"],
            vec!["gzip", "chunked"],
            vec!["chunked;a=b"],
            vec!["identity"],
        ] {
            assert_eq!(status("/healthz", &encodings), Some(501), "{encodings:?}");
        }
        for target in ["http://x/healthz", "HTTPS://x/", "*", "x:80"] {
            assert_eq!(status(target, &[]), None, "{target}");
        }
        assert_eq!(status("ftp://x/healthz", &[]), Some(421));
    }
}
