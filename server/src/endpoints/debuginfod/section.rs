//! `/buildid/<id>/section/<name>`: a section's stored bytes, compressed where the file has them compressed.

use std::io;

use axum::http::{HeaderValue, header};
use axum::response::Response;

use super::{Answering, SIZE, file_headers, not_found, too_large};
use crate::blobs::check_size;
use crate::debug_files::{Candidate, FileKind, Key};
use crate::endpoints::{BY_ID, tree_copy, tree_part};
use crate::http::{ByteRange, FileAnswer, Source, break_connection, file_response};
use crate::sections::locate;

/// GET or HEAD. The file with debug information is searched first, then the one with code. None where no bundle here has the id; one
/// whose files lack the section answers for itself.
pub(super) async fn answer(asked: &Answering<'_>, id: &Key, name: &str) -> Option<Response> {
    let app = asked.app;
    let mut known = false;
    for kind in [FileKind::Debuginfo, FileKind::Executable] {
        let Some(candidate) = app.debug_files.find_in(asked.scope, id, kind) else { continue };
        known = true;
        if let Err(error) = app.blobs.bring(&candidate.digest).await {
            return Some(break_connection(&format!("{}: {error}", candidate.digest)));
        }
        let (blobs, sections) = (app.blobs.clone(), app.sections.clone());
        let (digest, size, wanted) = (candidate.digest.clone(), candidate.size, name.to_owned());
        let find = move || -> io::Result<Option<(Source, ByteRange)>> {
            let Some(place) = sections.find(&blobs, (&digest, size), &wanted)? else { return Ok(None) };
            let source = Source::of(&blobs, &digest)?;
            check_size(&digest, source.size(), size)?;
            Ok(Some((source, place)))
        };
        match app.pool.run(find).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some((source, place)))) => {
                let etag = format!("\"{}-{}-{}\"", candidate.digest, place.start, place.length);
                return Some(part(asked, source, place, etag, Some(&candidate)));
            }
            Ok(Err(error)) => return Some(break_connection(&format!("{}: {error}", candidate.digest))),
            Err(error) => return Some(break_connection(&error.to_string())),
        }
    }
    if known {
        return Some(not_found());
    }
    in_tree(asked, id, name).await
}

/// Out of a file of a tree.
async fn in_tree(asked: &Answering<'_>, id: &Key, name: &str) -> Option<Response> {
    let app = asked.app;
    let mut known = false;
    for kind in [FileKind::Debuginfo, FileKind::Executable] {
        let (copy, place) = match tree_copy(app, asked.scope, id, kind).await {
            Some(Ok(found)) => found,
            Some(Err(broken)) => return Some(broken),
            None => continue,
        };
        known = true;
        let wanted = name.to_owned();
        match app.pool.run(move || locate(&copy.blob.file, &wanted).map(|part| (copy, part))).await {
            Ok(Ok((copy, Some(part)))) => {
                return Some(tree_part(app, (asked.method, asked.request), (copy, &place), part));
            }
            Ok(Ok((_, None))) => {}
            Ok(Err(error)) => return Some(break_connection(&error.to_string())),
            Err(error) => return Some(break_connection(&error.to_string())),
        }
    }
    known.then(not_found)
}

/// A part of a file.
pub(super) fn part(
    asked: &Answering<'_>,
    source: Source,
    place: ByteRange,
    etag: String,
    candidate: Option<&Candidate>,
) -> Response {
    if let Some(refused) = too_large(asked.request, place.length) {
        return refused;
    }
    let mut headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static(BY_ID)),
    ];
    match candidate {
        Some(candidate) => headers.extend(file_headers(candidate, place.length)),
        None => headers.push((SIZE, HeaderValue::from(place.length))),
    }
    file_response(
        &asked.app.pool,
        asked.method,
        asked.request,
        FileAnswer { source, window: Some(place), etag, headers },
    )
}
