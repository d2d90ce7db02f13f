//! Answers that pages of other origins may read (Fetch Standard, "CORS protocol"), with nothing that their browser adds by itself: `*` lets it
//! send neither cookies nor passwords that it keeps.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

/// How long a browser may keep the answer to a preflight, in seconds.
const PREFLIGHT_CACHE: &str = "86400";

/// The answer to a preflight.
pub(crate) fn preflight(methods: &'static str, headers: HeaderValue) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let said = response.headers_mut();
    said.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    said.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_CACHE));
    said.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
    response
}

/// Lets pages of every origin read an answer, and what its headers say.
pub(crate) fn for_every_origin(headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
}
