//! `/buildid/<id>/source/<path>`: a source file, out of the sources artifacts of bundles that have the id, or below a directory that the
//! operator named.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use axum::http::{HeaderValue, header};
use axum::response::Response;

use super::{Answering, FILE, SHA256, SIZE, not_found, too_large};
use crate::blobs::{NotGiven, OpenBlob};
use crate::debug_files::Key;
use crate::endpoints::IMMUTABLE;
use crate::http::{FileAnswer, break_connection, file_response};
use crate::sources::FoundSource;

/// How long a file of a directory may be kept, in seconds: it can change there.
const SHORT_CACHE: &str = "public, max-age=60";

enum Found {
    Packed(FoundSource),
    Below(OpenBlob),
}

/// GET or HEAD; `path` is absolute.
pub(super) async fn answer(asked: &Answering<'_>, id: &Key, path: &str) -> Option<Response> {
    let Answering { app, scope, method, request, .. } = *asked;
    let bundles = app.debug_files.bundles_of(scope, id);
    if bundles.is_empty() {
        return None;
    }
    let (shared, asking, wanted) = (Arc::clone(app), scope.clone(), path.to_owned());
    let find = move || -> io::Result<Option<Found>> {
        for bundle in &bundles {
            let Some(sources) = shared.releases.get(&shared.blobs, bundle)?.sources else { continue };
            let (tables, repositories) = (&shared.source_tables, &shared.repositories);
            if let Some(found) = tables.find(repositories, &shared.blobs, &asking, &sources, &wanted)? {
                return Ok(Some(Found::Packed(found)));
            }
        }
        let roots = shared.source_roots.get().into_iter().flatten();
        Ok(roots.filter_map(|root| root.find(&wanted)).next().map(Found::Below))
    };
    // Tables are read in the pool for slow work: large ones take seconds.
    let answer = match app.making.run(find).await {
        Ok(Ok(Some(Found::Packed(found)))) => {
            let mut headers = headers(path, found.place.length, IMMUTABLE);
            headers.extend(HeaderValue::try_from(found.sha256.hex()).ok().map(|value| (SHA256, value)));
            let etag = format!("\"{}\"", found.sha256);
            FileAnswer { source: found.pack.into(), window: Some(found.place), etag, headers }
        }
        Ok(Ok(Some(Found::Below(blob)))) => {
            let changed =
                blob.modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok()).unwrap_or_default();
            let etag = format!("\"{}-{}\"", blob.size, changed.as_nanos());
            FileAnswer { headers: headers(path, blob.size, SHORT_CACHE), source: blob.into(), window: None, etag }
        }
        Ok(Ok(None)) => return None,
        // A pack of the sources was taken down.
        Ok(Err(error)) if NotGiven::is_why(&error) => return Some(not_found()),
        Ok(Err(error)) => return Some(break_connection(&format!("{path}: {error}"))),
        Err(error) => return Some(break_connection(&error.to_string())),
    };
    let size = answer.window.map_or(answer.source.size(), |window| window.length);
    if let Some(refused) = too_large(request, size) {
        return Some(refused);
    }
    Some(file_response(&app.pool, method, request, answer))
}

fn headers(path: &str, size: u64, cache: &'static str) -> Vec<(header::HeaderName, HeaderValue)> {
    let mut headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static(cache)),
        (SIZE, HeaderValue::from(size)),
    ];
    headers.extend(HeaderValue::try_from(path).ok().map(|path| (FILE, path)));
    headers
}
