//! `/buildid/<id>/section/<name>`: a section's stored bytes, compressed where the file has them compressed.

use std::io;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::Response;

use super::{file_headers, not_found, too_large};
use crate::app::App;
use crate::blobs::OpenBlob;
use crate::debug_files::{FileKind, Key, Scope};
use crate::endpoints::IMMUTABLE;
use crate::http::{ByteRange, FileAnswer, break_connection, file_response};

/// GET or HEAD. The file with debug information is searched first, then the one with code.
pub(super) async fn answer(
    app: &App,
    scope: &Scope,
    method: &Method,
    request: &HeaderMap,
    id: &Key,
    name: &str,
) -> Response {
    for kind in [FileKind::Debuginfo, FileKind::Executable] {
        let Some(candidate) = app.debug_files.find_in(scope, id, kind) else { continue };
        let (blobs, sections) = (app.blobs.clone(), app.sections.clone());
        let (digest, wanted) = (candidate.digest.clone(), name.to_owned());
        let find = move || -> io::Result<Option<(OpenBlob, ByteRange)>> {
            let Some(place) = sections.find(&blobs, &digest, &wanted)? else { return Ok(None) };
            Ok(Some((blobs.open_blob(&digest)?, place)))
        };
        match app.pool.run(find).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some((blob, place)))) => {
                if let Some(refused) = too_large(request, place.length) {
                    return refused;
                }
                let mut headers = vec![
                    (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
                    (header::CACHE_CONTROL, HeaderValue::from_static(IMMUTABLE)),
                ];
                headers.extend(file_headers(&candidate, place.length));
                let etag = format!("\"{}-{}-{}\"", candidate.digest, place.start, place.length);
                return file_response(
                    &app.pool,
                    method,
                    request,
                    FileAnswer { blob, window: Some(place), etag, headers },
                );
            }
            Ok(Err(error)) => return break_connection(&format!("{}: {error}", candidate.digest)),
            Err(error) => return break_connection(&error.to_string()),
        }
    }
    not_found()
}
