//! The debuginfod API: `/buildid/<id>/debuginfo`, `/executable`, `/section/<name>`, `/source/<path>`.
//!
//! Clients keep any error for ten minutes as "there is nothing", so an error is only said when it is true: a file that
//! is known and cannot be read at this moment breaks the connection instead, which clients try again.

mod file;
mod section;
mod target;

pub(crate) use target::{FileTarget, Target};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;

use crate::app::App;
use crate::debug_files::{Candidate, Scope};
use crate::endpoints::{self, plain, refused_method};

/// The size of the file or section, whatever is sent of it.
const SIZE: HeaderName = HeaderName::from_static("x-debuginfod-size");
/// The module's file name.
const FILE: HeaderName = HeaderName::from_static("x-debuginfod-file");
/// The file's sha256, hex; clients since 0.193 keep it beside the file.
const SHA256: HeaderName = HeaderName::from_static("x-debuginfod-sha256");
/// The client's bound on the size.
const MAXSIZE: HeaderName = HeaderName::from_static("x-debuginfod-maxsize");

/// Answers a request under `/buildid/` out of the repositories that `scope` covers; `path` is what follows, as it came.
pub(crate) async fn answer(app: &App, scope: &Scope, method: &Method, path: &str, request: &HeaderMap) -> Response {
    if let Some(refused) = refused_method(method) {
        return refused;
    }
    match Target::parse(path) {
        Some(Target { id, file: FileTarget::Whole(kind) }) => {
            file::answer(app, scope, method, request, &id, kind).await
        }
        Some(Target { id, file: FileTarget::Section(name) }) => {
            section::answer(app, scope, method, request, &id, &name).await
        }
        // Sources are an artifact of their own, which this version does not serve.
        Some(Target { file: FileTarget::Source, .. }) | None => not_found(),
    }
}

/// 404 as debuginfod says it.
fn not_found() -> Response {
    endpoints::not_found("not found")
}

/// 406 when the client's bound is below `size`.
fn too_large(request: &HeaderMap, size: u64) -> Option<Response> {
    let limit: u64 = request.get(MAXSIZE)?.to_str().ok()?.trim().parse().ok()?;
    (limit > 0 && size > limit).then(|| plain(StatusCode::NOT_ACCEPTABLE, &format!("File too large, max size={limit}")))
}

/// What debuginfod says of a hit, beside what every file's answer has.
fn file_headers(candidate: &Candidate, size: u64) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![(SIZE, HeaderValue::from(size))];
    headers.extend(HeaderValue::try_from(&candidate.name).ok().map(|name| (FILE, name)));
    headers
}
