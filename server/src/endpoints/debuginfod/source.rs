//! `/buildid/<id>/source/<path>`: a source file, out of the sources artifacts of bundles that have the id, or, where a file here has it, below
//! a directory that the operator named.

use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use axum::http::{HeaderValue, header};
use axum::response::Response;

use super::{Answering, FILE, SHA256, SIZE, too_large};
use crate::app::App;
use crate::blobs::{Algorithm, BlobDigest, NotGiven, OpenBlob, hash_file};
use crate::debug_files::{FileKind, Key, Scope};
use crate::endpoints::BY_ID;
use crate::file_stamp::FileStamp;
use crate::http::{FileAnswer, Source, break_connection, file_response};
use crate::sources::FoundSource;

/// How long a file of a directory may be kept, in seconds: it can change there.
const SHORT_CACHE: &str = "public, max-age=60";

enum Found {
    Packed(FoundSource),
    Below(OpenBlob, FileStamp),
}

/// GET or HEAD; `path` is absolute.
pub(super) async fn answer(asked: &Answering<'_>, id: &Key, path: &str) -> Option<Response> {
    let Answering { app, scope, method, request, .. } = *asked;
    let bundles = app.debug_files.bundles_of(scope, id);
    if bundles.is_empty()
        && !(app.source_roots.get().is_some_and(|roots| !roots.is_empty()) && has_file(app, scope, id))
    {
        return None;
    }
    let (shared, asking, wanted) = (Arc::clone(app), scope.clone(), path.to_owned());
    let find = move || -> io::Result<Option<Found>> {
        for bundle in &bundles {
            match in_bundle(&shared, &asking, bundle, &wanted) {
                // What it lies in was taken down: another bundle may have the file elsewhere.
                Err(error) if NotGiven::is_why(&error) => {}
                // What was pushed is no table, or not of the pack that it names, and will be none at another time: whoever pushes that has no say in what others have.
                Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                    tracing::warn!(%bundle, path = wanted, %error, "the sources of a bundle cannot be used");
                }
                Err(error) => return Err(error),
                Ok(None) => {}
                Ok(Some(found)) => return Ok(Some(Found::Packed(found))),
            }
        }
        for (blob, stamp) in shared.source_roots.get().into_iter().flatten().filter_map(|root| root.find(&wanted)) {
            if !is_taken_down(&shared, &blob)? {
                return Ok(Some(Found::Below(blob, stamp)));
            }
        }
        Ok(None)
    };
    // Tables are read in the pool for slow work: large ones take seconds.
    let answer = match app.making.run(find).await {
        Ok(Ok(Some(Found::Packed(found)))) => {
            let mut headers = headers(path, found.place.length, BY_ID);
            headers.extend(HeaderValue::try_from(found.sha256.hex()).ok().map(|value| (SHA256, value)));
            let etag = format!("\"{}\"", found.sha256);
            FileAnswer { source: found.pack.into(), window: Some(found.place), etag, headers }
        }
        Ok(Ok(Some(Found::Below(blob, stamp)))) => {
            // A file that was put in its place within the same tick of the clock is another one all the same.
            let inode = blob.file.metadata().map_or(0, |found| found.ino());
            let etag = format!("\"{stamp}-{inode}\"");
            let headers = headers(path, blob.size, SHORT_CACHE);
            FileAnswer { headers, source: Source::Foreign(Arc::new(blob), stamp), window: None, etag }
        }
        Ok(Ok(None)) => return None,
        Ok(Err(error)) => return Some(break_connection(&format!("{path}: {error}"))),
        Err(error) => return Some(break_connection(&error.to_string())),
    };
    let size = answer.window.map_or(answer.source.size(), |window| window.length);
    if let Some(refused) = too_large(request, size) {
        return Some(refused);
    }
    Some(file_response(&app.pool, method, request, answer))
}

/// Whether a file that came without a bundle has the id: one that was uploaded, or lies in a tree, which is for those who may read everything.
fn has_file(app: &App, scope: &Scope, id: &Key) -> bool {
    let trees = app.trees.get().filter(|_| scope.is_everything());
    [FileKind::Debuginfo, FileKind::Executable].into_iter().any(|kind| {
        app.debug_files.find_in(scope, id, kind).is_some()
            || trees.is_some_and(|trees| !trees.find(id, kind).is_empty())
    })
}

/// The file out of the sources of a bundle, unless it is taken down.
fn in_bundle(app: &App, asking: &Scope, bundle: &BlobDigest, path: &str) -> io::Result<Option<FoundSource>> {
    let Some(sources) = app.releases.get(&app.blobs, bundle)?.sources else { return Ok(None) };
    let found = app.source_tables.find(&app.repositories, &app.blobs, asking, &sources, path)?;
    Ok(found.filter(|found| !app.taken_down.has(&found.sha256.into())))
}

/// Whether the bytes of a file that lies in a directory are taken down. It is read for that where anything is.
fn is_taken_down(app: &App, blob: &OpenBlob) -> io::Result<bool> {
    if app.taken_down.all().is_empty() {
        return Ok(false);
    }
    let mut file = blob.file.try_clone()?;
    let (hasher, _) = hash_file(&mut file, Algorithm::Sha256)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(app.taken_down.has(&hasher.finish()))
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
