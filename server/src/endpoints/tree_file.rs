//! A file of a tree that is served in place, as an answer.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::Response;

use super::debuginfod::{self, too_large};
use crate::app::App;
use crate::debug_files::{FileKind, Key, Scope};
use crate::file_cache::CachedFile;
use crate::http::{ByteRange, FileAnswer, Source, break_connection, file_response};
use crate::trees::{Place, TreeError, Trees};

/// GET or HEAD of a whole file. None where no tree has it, or not for this caller. One that cannot be read at this moment breaks the connection, as
/// debuggers keep an error as "there is nothing".
pub(crate) async fn tree_file(
    app: &App,
    scope: &Scope,
    (method, request): (&Method, &HeaderMap),
    key: &Key,
    kind: FileKind,
    is_wanted: impl Fn(&Place) -> bool,
) -> Option<Response> {
    let trees = trees(app, scope)?;
    let mut unreadable = None;
    for place in trees.find(key, kind).into_iter().filter(is_wanted) {
        if let Some(refused) = too_large(request, place.size) {
            return Some(refused);
        }
        match source(app, trees, &place).await {
            Ok((source, window)) => {
                return Some(answer(app, (method, request), source, window, &place, place.sha256()));
            }
            Err(TreeError::Gone(name)) => tracing::info!(name, "a file of a tree is not there any more"),
            // Another one may have the same bytes.
            Err(error @ TreeError::Unreadable { .. }) => unreadable = Some(error),
        }
    }
    unreadable.map(|error| break_connection(&error.to_string()))
}

/// A copy of the file that can be mapped. `None` as [`tree_file`].
pub(crate) async fn tree_copy(
    app: &App,
    scope: &Scope,
    key: &Key,
    kind: FileKind,
) -> Option<Result<(CachedFile, Place), Response>> {
    let trees = trees(app, scope)?;
    let mut unreadable = None;
    for place in trees.find(key, kind) {
        match trees.cached((&app.pool, &app.making), &place).await {
            Ok(copy) => return Some(Ok((copy, place))),
            Err(TreeError::Gone(name)) => tracing::info!(name, "a file of a tree is not there any more"),
            Err(error @ TreeError::Unreadable { .. }) => unreadable = Some(error),
        }
    }
    let unreadable = unreadable?;
    Some(Err(break_connection(&unreadable.to_string())))
}

/// A part of such a copy.
pub(crate) fn tree_part(
    app: &App,
    asked: (&Method, &HeaderMap),
    (copy, place): (CachedFile, &Place),
    part: ByteRange,
) -> Response {
    if let Some(refused) = too_large(asked.1, part.length) {
        return refused;
    }
    let tag = format!("{}-{}-{}", place.sha256(), part.start, part.length);
    answer(app, asked, copy.blob.into(), part, place, tag)
}

/// Trees belong to no repository: they are for those who may read all of them.
fn trees<'a>(app: &'a App, scope: &Scope) -> Option<&'a Trees> {
    app.trees.get().filter(|_| scope.is_everything()).map(|trees| &**trees)
}

async fn source(app: &App, trees: &Trees, place: &Place) -> Result<(Source, ByteRange), TreeError> {
    if place.is_plain() {
        let (blob, stamp) = trees.opened(&app.pool, place).await?;
        return Ok((Source::Foreign(blob, stamp), ByteRange { start: 0, length: place.size }));
    }
    let copy = trees.cached((&app.pool, &app.making), place).await?;
    let window = copy.window();
    Ok((copy.blob.into(), window))
}

fn answer(
    app: &App,
    (method, request): (&Method, &HeaderMap),
    source: Source,
    part: ByteRange,
    place: &Place,
    tag: String,
) -> Response {
    let mut headers: Vec<(HeaderName, HeaderValue)> = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static(super::BY_ID)),
        (debuginfod::SIZE, HeaderValue::from(part.length)),
    ];
    headers.extend(HeaderValue::try_from(place.shown()).ok().map(|name| (debuginfod::FILE, name)));
    let archive = place.archive().and_then(|path| HeaderValue::try_from(path).ok());
    headers.extend(archive.map(|path| (debuginfod::ARCHIVE, path)));
    if part.length == place.size {
        headers.extend(HeaderValue::try_from(place.sha256()).ok().map(|value| (debuginfod::SHA256, value)));
        let signature = place.signature.as_deref().and_then(|signature| HeaderValue::try_from(signature).ok());
        headers.extend(signature.map(|value| (debuginfod::IMASIGNATURE, value)));
    }
    let etag = format!("\"sha256:{tag}\"");
    file_response(&app.pool, method, request, FileAnswer { source, window: Some(part), etag, headers })
}
