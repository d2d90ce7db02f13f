//! `/buildid/<id>/debuginfo` and `/executable`: a whole file.

use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::Response;

use super::{SHA256, file_headers, not_found, too_large};
use crate::app::App;
use crate::debug_files::{FileKind, Key, Scope};
use crate::endpoints::whole_file;

/// GET or HEAD.
pub(super) async fn answer(
    app: &App,
    scope: &Scope,
    method: &Method,
    request: &HeaderMap,
    id: &Key,
    kind: FileKind,
) -> Response {
    let Some(candidate) = app.debug_files.find_in(scope, id, kind) else { return not_found() };
    if let Some(refused) = too_large(request, candidate.size) {
        return refused;
    }
    let mut headers = file_headers(&candidate, candidate.size);
    headers.extend(HeaderValue::try_from(candidate.digest.hex()).ok().map(|value| (SHA256, value)));
    whole_file(app, method, request, &candidate.digest, headers).await
}
