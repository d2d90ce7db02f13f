//! A whole blob as an answer of the endpoints that debuggers ask.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::IMMUTABLE;
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::http::{FileAnswer, break_connection, file_response};

/// The digest of the whole file (RFC 9530).
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// GET or HEAD of a blob that is known. One that cannot be read at this moment breaks the connection: debuggers keep an error as
/// "there is nothing", and try a broken connection again.
pub(crate) async fn whole_file(
    app: &App,
    method: &Method,
    request: &HeaderMap,
    digest: &BlobDigest,
    more: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Response {
    let (blobs, wanted) = (app.blobs.clone(), digest.clone());
    let blob = match app.pool.run(move || blobs.open_blob(&wanted)).await {
        Ok(Ok(blob)) => blob,
        Ok(Err(error)) => return break_connection(&format!("{digest}: {error}")),
        Err(error) => return break_connection(&error.to_string()),
    };
    let mut headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static(IMMUTABLE)),
    ];
    headers.extend(more);
    let repr_digest = format!("sha-256=:{}:", STANDARD.encode(digest.bytes()));
    headers.extend(HeaderValue::try_from(repr_digest).ok().map(|value| (REPR_DIGEST, value)));
    file_response(&app.pool, method, request, FileAnswer { blob, window: None, etag: format!("\"{digest}\""), headers })
}
