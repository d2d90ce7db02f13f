//! `/buildid/<id>/debuginfo` and `/executable`: a whole file.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{SHA256, hit_headers, not_found, too_large};
use crate::app::App;
use crate::debug_files::FileKind;
use crate::http::{FileAnswer, break_connection, file_response};

/// The digest of the whole file (RFC 9530).
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// GET or HEAD.
pub(super) async fn answer(app: &App, method: &Method, request: &HeaderMap, id: &[u8], kind: FileKind) -> Response {
    let Some(candidate) = app.debug_files.find(id, kind) else { return not_found() };
    if let Some(refused) = too_large(request, candidate.size) {
        return refused;
    }
    let (blobs, digest) = (app.blobs.clone(), candidate.digest.clone());
    let blob = match app.pool.run(move || blobs.open_blob(&digest)).await {
        Ok(Ok(blob)) => blob,
        Ok(Err(error)) => return break_connection(&format!("{}: {error}", candidate.digest)),
        Err(error) => return break_connection(&error.to_string()),
    };
    let mut headers = hit_headers(&candidate, blob.size);
    let repr_digest = format!("sha-256=:{}:", STANDARD.encode(candidate.digest.bytes()));
    for (name, text) in [(SHA256, candidate.digest.hex()), (REPR_DIGEST, &repr_digest)] {
        headers.extend(HeaderValue::try_from(text).ok().map(|value| (name, value)));
    }
    let etag = format!("\"{}\"", candidate.digest);
    file_response(&app.pool, method, request, FileAnswer { blob, window: None, etag, headers })
}
