//! A whole blob as an answer of the endpoints that debuggers ask.

use std::io;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::BY_ID;
use crate::app::App;
use crate::blobs::{BlobDigest, OpenBlob, check_size};
use crate::debug_files::Candidate;
use crate::http::{FileAnswer, Source, accepted_coding, break_connection, file_response, names_tag};

/// The digest of the whole file (RFC 9530).
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The candidates of one key that are looked at for one whose blob is there.
const MOST_CANDIDATES: usize = 8;

/// The bytes of `best`, or where its blob is lost those of the first of `others` whose blob is not: what one owner lost another may have.
///
/// # Errors
/// What is known cannot be read at this moment. The answer breaks the connection: debuggers keep an error as "there is nothing", and try a
/// broken connection again.
pub(crate) async fn first_there(
    app: &App,
    best: Candidate,
    others: impl FnOnce(usize) -> Vec<Candidate>,
) -> Result<(Candidate, Source), Response> {
    let broken = |candidate: &Candidate, error: &io::Error| break_connection(&format!("{}: {error}", candidate.digest));
    let lost = match source(app, &best).await {
        Ok(source) => return Ok((best, source)),
        Err(error) if is_lost(&error) => error,
        Err(error) => return Err(broken(&best, &error)),
    };
    for other in others(MOST_CANDIDATES).into_iter().filter(|other| other.digest != best.digest) {
        match source(app, &other).await {
            Ok(source) => {
                tracing::warn!(lost = %best.digest, answers = %other.digest, "a file is missing, and another of its debug id answers");
                return Ok((other, source));
            }
            Err(error) if is_lost(&error) => {}
            Err(error) => return Err(broken(&other, &error)),
        }
    }
    Err(broken(&best, &lost))
}

async fn source(app: &App, Candidate { digest, size, .. }: &Candidate) -> io::Result<Source> {
    let source = if let Some(mapped) = app.blobs.mapped(digest) {
        Source::Map(mapped)
    } else {
        app.blobs.bring(digest).await?;
        let (blobs, wanted) = (app.blobs.clone(), digest.clone());
        app.pool.run(move || Source::of(&blobs, &wanted)).await.map_err(io::Error::other)??
    };
    check_size(digest, source.size(), *size)?;
    Ok(source)
}

/// Whether the bytes are not here, or not whole.
fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}

/// GET or HEAD of a blob.
///
/// A client that takes compressed bytes gets them where they are made already and are worth it.
pub(crate) async fn whole_file(
    app: &App,
    (method, request): (&Method, &HeaderMap),
    (digest, source): (&BlobDigest, Source),
    more: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Response {
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
