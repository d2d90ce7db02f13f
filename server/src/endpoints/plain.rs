//! What the endpoints that debuggers ask answer without a file: a line of text.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;

/// How long a proxy may keep "not found", in seconds: a push may come any time.
const NOT_FOUND_CACHE: &str = "public, max-age=30";

/// A line of text.
pub(crate) fn plain(status: StatusCode, line: &str) -> Response {
    let mut response = Response::new(Body::from(format!("{line}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// 404.
pub(crate) fn not_found(line: &str) -> Response {
    let mut response = plain(StatusCode::NOT_FOUND, line);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(NOT_FOUND_CACHE));
    response
}

/// 405 for every method that does more than read.
pub(crate) fn refused_method(method: &Method) -> Option<Response> {
    if *method == Method::GET || *method == Method::HEAD {
        return None;
    }
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are known here");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    Some(response)
}
