//! The debuginfod API: `/buildid/<id>/debuginfo`, `/executable`, `/section/<name>`, `/source/<path>`, and `/metadata`.
//!
//! Clients keep any error for ten minutes as "there is nothing", so an error is only said when it is true: a file that
//! is known and cannot be read at this moment breaks the connection instead, which clients try again.

mod file;
mod glob;
pub(crate) mod metadata;
mod section;
mod source;
mod target;
mod upstream;

pub(crate) use target::{FileTarget, Target};

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;

use crate::app::App;
use crate::debug_files::{Candidate, Scope};
use crate::endpoints::{self, plain, refused_method, tree_file};
use crate::upstream::{Hops, Upstreams};

/// The size of the file or section, whatever is sent of it.
pub(crate) const SIZE: HeaderName = HeaderName::from_static("x-debuginfod-size");
/// The module's file name, a path that is served in place (in an archive: the path there), or a source's path.
pub(crate) const FILE: HeaderName = HeaderName::from_static("x-debuginfod-file");
/// The path of the archive that a file served in place lies in.
pub(crate) const ARCHIVE: HeaderName = HeaderName::from_static("x-debuginfod-archive");
/// The file's sha256, hex; clients since 0.193 keep it beside the file.
pub(crate) const SHA256: HeaderName = HeaderName::from_static("x-debuginfod-sha256");
/// The signature that the file's package has for the file, hex: elfutils' client compares it with the bytes where it is told to (`ima:enforcing` in
/// `DEBUGINFOD_URLS`, since 0.192).
pub(crate) const IMASIGNATURE: HeaderName = HeaderName::from_static("x-debuginfod-imasignature");
/// The client's bound on the size.
const MAXSIZE: HeaderName = HeaderName::from_static("x-debuginfod-maxsize");

/// A request under `/buildid/`.
struct Answering<'r> {
    app: &'r Arc<App>,
    scope: &'r Scope,
    method: &'r Method,
    request: &'r HeaderMap,
    hops: &'r Hops,
}

impl<'r> Answering<'r> {
    /// Other servers, where there are some, every repository is meant and the caller is known.
    fn upstreams(&self) -> Option<&'r Arc<Upstreams>> {
        self.app.upstreams.get().filter(|_| self.scope.reaches_upstreams())
    }
}

/// Answers a request under `/buildid/` out of the repositories that `scope` covers, then, where that is all of them, of other servers;
/// `path` is what follows, as it came.
pub(crate) async fn answer(
    app: &Arc<App>,
    scope: &Scope,
    method: &Method,
    path: &str,
    request: &HeaderMap,
    hops: &Hops,
) -> Response {
    if let Some(refused) = refused_method(method) {
        return refused;
    }
    let asked = Answering { app, scope, method, request, hops };
    match Target::parse(path) {
        Some(Target { id, file: FileTarget::Whole(kind) }) => {
            let mut answer = file::answer(app, scope, method, request, &id, kind).await;
            if answer.is_none() {
                answer = tree_file(app, scope, (method, request), &id, kind, |_| true).await;
            }
            let answer = match answer {
                Some(answer) => answer,
                None => upstream::file(&asked, &id, kind).await,
            };
            app.asked_for(&id, None, answer.status());
            answer
        }
        Some(Target { id, file: FileTarget::Section(name) }) => match section::answer(&asked, &id, &name).await {
            Some(answer) => answer,
            None => upstream::section(&asked, &id, &name).await,
        },
        Some(Target { id, file: FileTarget::Source(path) }) => match source::answer(&asked, &id, &path).await {
            Some(answer) => answer,
            None => upstream::source(&asked, &id, &path).await,
        },
        None => not_found(),
    }
}

/// 404 as debuginfod says it.
fn not_found() -> Response {
    endpoints::not_found("not found")
}

/// 406 when the client's bound is below `size`.
pub(crate) fn too_large(request: &HeaderMap, size: u64) -> Option<Response> {
    let limit: u64 = request.get(MAXSIZE)?.to_str().ok()?.trim().parse().ok()?;
    (limit > 0 && size > limit).then(|| plain(StatusCode::NOT_ACCEPTABLE, &format!("File too large, max size={limit}")))
}

/// What debuginfod says of a hit, beside what every file's answer has.
fn file_headers(candidate: &Candidate, size: u64) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![(SIZE, HeaderValue::from(size))];
    headers.extend(HeaderValue::try_from(&candidate.name).ok().map(|name| (FILE, name)));
    headers
}
