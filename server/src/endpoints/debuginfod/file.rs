//! `/buildid/<id>/debuginfo` and `/executable`: a whole file.

use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::Response;

use super::{SHA256, file_headers, too_large};
use crate::app::App;
use crate::debug_files::{FileKind, Key, Scope};
use crate::endpoints::{first_there, whole_file};

/// GET or HEAD. None where no bundle here has it.
pub(super) async fn answer(
    app: &App,
    scope: &Scope,
    method: &Method,
    request: &HeaderMap,
    id: &Key,
    kind: FileKind,
) -> Option<Response> {
    let best = app.debug_files.find_in(scope, id, kind)?;
    if let Some(refused) = too_large(request, best.size) {
        return Some(refused);
    }
    let others = |at_most| app.debug_files.find_several(scope, id, kind, at_most);
    let (candidate, source) = match first_there(app, best, others).await {
        Ok(found) => found,
        Err(broken) => return Some(broken),
    };
    if let Some(refused) = too_large(request, candidate.size) {
        return Some(refused);
    }
    let mut headers = file_headers(&candidate, candidate.size);
    headers.extend(HeaderValue::try_from(candidate.digest.hex()).ok().map(|value| (SHA256, value)));
    Some(whole_file(app, (method, request), (&candidate.digest, source), headers).await)
}
