//! A file, or a part of one, as an answer: ranges, conditions and a body that is read as the client takes it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;

use super::conditional::Validators;
use super::range::{ByteRange, Ranged, parse_range};
use crate::blobs::OpenBlob;
use crate::pool::Pool;

/// Bytes read at once: large enough that a hop to the pool costs little, small enough for many slow clients.
const READ_BLOCK: u64 = 256 << 10;

/// A file that answers a request.
pub(crate) struct FileAnswer {
    /// The open file.
    pub(crate) blob: OpenBlob,
    /// The part of the file that is the representation; `None`: all of it.
    pub(crate) window: Option<ByteRange>,
    /// The strong entity tag, with its quotes.
    pub(crate) etag: String,
    /// Headers of a 200, 206 and 304 alike.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Answers GET or HEAD with a file: 200, 206, 304 or 416.
pub(crate) fn file_response(pool: &Pool, method: &Method, request: &HeaderMap, answer: FileAnswer) -> Response {
    let window = answer.window.unwrap_or(ByteRange { start: 0, length: answer.blob.size });
    let validators = Validators { etag: &answer.etag, modified: answer.blob.modified };
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.extend(answer.headers);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(etag) = HeaderValue::from_str(&answer.etag) {
        headers.insert(header::ETAG, etag);
    }
    if let Some(modified) = answer.blob.modified
        && let Ok(modified) = HeaderValue::from_str(&httpdate::fmt_http_date(modified))
    {
        headers.insert(header::LAST_MODIFIED, modified);
    }
    if validators.not_modified(request) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    // A range is defined for GET alone (RFC 9110, section 14.2): HEAD tells of the whole.
    let range = request
        .get(header::RANGE)
        .filter(|_| *method == Method::GET && validators.range_applies(request))
        .map(HeaderValue::as_bytes);
    let part = match parse_range(range, window.length) {
        Ranged::Whole => window,
        Ranged::Part(part) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let text = format!("bytes {}-{}/{}", part.start, part.start + part.length - 1, window.length);
            insert(&mut response, header::CONTENT_RANGE, &text);
            ByteRange { start: window.start + part.start, length: part.length }
        }
        Ranged::Unsatisfiable => {
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            insert(&mut response, header::CONTENT_RANGE, &format!("bytes */{}", window.length));
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
            return response;
        }
    };
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(part.length));
    if *method != Method::HEAD {
        *response.body_mut() = file_body(pool.clone(), answer.blob.file, part);
    }
    response
}

fn insert(response: &mut Response, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(name, value);
    }
}

/// A part of a file as a body. A read that fails breaks the connection: the client must not take less for all.
fn file_body(pool: Pool, file: File, part: ByteRange) -> Body {
    let state = (pool, Arc::new(file), part.start, part.length);
    Body::from_stream(stream::try_unfold(state, async |(pool, file, at, left)| {
        if left == 0 {
            return Ok(None);
        }
        let length = left.min(READ_BLOCK);
        let shared = Arc::clone(&file);
        let block = pool.run(move || read_block(&shared, at, length)).await.map_err(io::Error::other)??;
        Ok::<_, io::Error>(Some((block, (pool, file, at + length, left - length))))
    }))
}

fn read_block(file: &File, at: u64, length: u64) -> io::Result<Bytes> {
    let mut block = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut block, at)?;
    Ok(block.into())
}
