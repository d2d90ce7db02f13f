//! A file of another server as an answer.
//!
//! Clients of elfutils keep every error status for ten minutes as "there is nothing". So where it cannot be told whether there is such a
//! file, they get a connection that ends before an answer, which they try again; others get 502.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;

use super::{BY_ID, debuginfod, not_found, plain, told_of_storage};
use crate::app::App;
use crate::file_cache::CachedFile;
use crate::http::{FileAnswer, break_connection, file_response};
use crate::upstream::{Flight, Hops, Outcome, TOO_MANY_HOPS, Upstreams, Wanted};

/// What clients of elfutils are called.
const ELFUTILS: &str = "elfutils/";

/// GET or HEAD of what no bundle here has.
pub(crate) async fn upstream_file(
    app: &App,
    upstreams: &Arc<Upstreams>,
    (method, request): (&Method, &HeaderMap),
    wanted: Wanted,
    hops: &Hops,
) -> Response {
    match upstreams.find(wanted, hops).await {
        Outcome::Cached(found) => cached(app, method, request, found),
        Outcome::Flying(flight) => streamed(app, method, request, &flight),
        Outcome::Absent => not_found("not found"),
        Outcome::TooManyHops => not_found(TOO_MANY_HOPS),
        Outcome::Unavailable(why) => unavailable(request, &why),
    }
}

/// What is said where nothing can be said.
pub(crate) fn unavailable(request: &HeaderMap, why: &str) -> Response {
    if is_of_elfutils(request) {
        return break_connection(why);
    }
    tracing::info!(why, "whether there is a file cannot be told");
    let mut response =
        plain(StatusCode::BAD_GATEWAY, "whether there is such a file cannot be told at this moment: try again later");
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What is said where a file could not be made for an `error` of this server's. Where its disk is full that is told to those who take a status for what it is.
pub(crate) fn unmade(request: &HeaderMap, what: &str, error: &io::Error) -> Response {
    let is_full =
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge);
    if !is_full || is_of_elfutils(request) {
        return unavailable(request, &format!("{what}: {error}"));
    }
    let mut response = plain(StatusCode::INSUFFICIENT_STORAGE, told_of_storage(error));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn is_of_elfutils(request: &HeaderMap) -> bool {
    let agent = request.get(header::USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    agent.starts_with(ELFUTILS.as_bytes())
}

fn cached(app: &App, method: &Method, request: &HeaderMap, found: CachedFile) -> Response {
    if let Some(refused) = debuginfod::too_large(request, found.size) {
        return refused;
    }
    let mut headers = headers(&found.note.headers, Some(found.size));
    headers.extend(HeaderValue::try_from(&found.note.sha256).ok().map(|value| (debuginfod::SHA256, value)));
    let (etag, window) = (format!("\"sha256:{}\"", found.note.sha256), Some(found.window()));
    file_response(&app.pool, method, request, FileAnswer { source: found.blob.into(), window, etag, headers })
}

/// The whole, also where a part was asked for, which a server may: the file is not there yet.
fn streamed(app: &App, method: &Method, request: &HeaderMap, flight: &Arc<Flight>) -> Response {
    if let Some(refused) = flight.length().and_then(|length| debuginfod::too_large(request, length)) {
        return refused;
    }
    let mut response = Response::new(Body::empty());
    response.headers_mut().extend(headers(flight.headers(), flight.length()));
    if let Some(length) = flight.length() {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    if *method != Method::HEAD {
        *response.body_mut() = flight.body(&app.pool);
    }
    response
}

fn headers(relayed: &[(String, String)], size: Option<u64>) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = relayed
        .iter()
        .filter_map(|(name, value)| Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?)))
        .collect();
    headers.push((header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")));
    headers.push((header::CACHE_CONTROL, HeaderValue::from_static(BY_ID)));
    headers.extend(size.map(|size| (debuginfod::SIZE, HeaderValue::from(size))));
    headers
}
