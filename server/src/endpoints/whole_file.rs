//! A whole blob as an answer of the endpoints that debuggers ask.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::BY_ID;
use crate::app::App;
use crate::blobs::{BlobDigest, OpenBlob};
use crate::http::{FileAnswer, Source, accepted_coding, break_connection, file_response, names_tag};

/// The digest of the whole file (RFC 9530).
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// GET or HEAD of a blob that is known. One that cannot be read at this moment breaks the connection: debuggers keep an error as
/// "there is nothing", and try a broken connection again.
///
/// A client that takes compressed bytes gets them where they are made already and are worth it.
pub(crate) async fn whole_file(
    app: &App,
    method: &Method,
    request: &HeaderMap,
    digest: &BlobDigest,
    more: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Response {
    let source = match app.blobs.mapped(digest) {
        Some(mapped) => Source::Map(mapped),
        None => {
            if let Err(error) = app.blobs.bring(digest).await {
                return break_connection(&format!("{digest}: {error}"));
            }
            let (blobs, wanted) = (app.blobs.clone(), digest.clone());
            match app.pool.run(move || Source::of(&blobs, &wanted)).await {
                Ok(Ok(source)) => source,
                Ok(Err(error)) => return break_connection(&format!("{digest}: {error}")),
                Err(error) => return break_connection(&error.to_string()),
            }
        }
    };
    let mut headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static(BY_ID)),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ];
    headers.extend(more);
    let etag = format!("\"{digest}\"");
    // Who has the bytes as they are, or a part of them, goes on with these: a compressed form may have been made since.
    if let Some(coding) = accepted_coding(request).filter(|_| !names_tag(request, &etag)) {
        let pools = (&app.pool, &app.making);
        if let Some(form) = app.encoded.find(pools, &app.blobs, (digest, source.size()), coding).await {
            headers.push((header::CONTENT_ENCODING, HeaderValue::from_static(coding.name())));
            let (etag, window) = (format!("\"{digest}-{}\"", coding.name()), Some(form.window()));
            // The time of the file: its form may be made again at any time, and on every server.
            let blob = OpenBlob { modified: source.modified(), ..form.blob };
            return file_response(
                &app.pool,
                method,
                request,
                FileAnswer { source: blob.into(), window, etag, headers },
            );
        }
    }
    let repr_digest = format!("sha-256=:{}:", STANDARD.encode(digest.bytes()));
    headers.extend(HeaderValue::try_from(repr_digest).ok().map(|value| (REPR_DIGEST, value)));
    file_response(&app.pool, method, request, FileAnswer { source, window: None, etag, headers })
}
