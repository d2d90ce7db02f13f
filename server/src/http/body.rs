//! A file, or a part of one, as an answer: ranges, conditions and a body that is read as the client takes it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream;

use super::conditional::Validators;
use super::range::{ByteRange, Ranged, parse_range};
use crate::blobs::{BlobDigest, BlobDirectory, MappedBlob, OpenBlob};
use crate::file_stamp::FileStamp;
use crate::pool::Pool;

/// Bytes read at once: large enough that a hop to the pool costs little, small enough for many slow clients.
const READ_BLOCK: u64 = 256 << 10;

/// Bytes of a map that are looked at, and sent, at once: a client that is slow holds nothing, so more than of a file.
const MAP_BLOCK: u64 = 4 << 20;

/// Where the bytes of an answer are.
pub(crate) enum Source {
    /// In a file that is read as the client takes it.
    File(Arc<OpenBlob>),
    /// In a file of somebody else's, who may write to it meanwhile: it is sent while it is in this state.
    Foreign(Arc<OpenBlob>, FileStamp),
    /// In a map.
    Map(Arc<MappedBlob>),
}

impl Source {
    /// Of a blob of the store. Blocks.
    pub(crate) fn of(blobs: &BlobDirectory, digest: &BlobDigest) -> io::Result<Self> {
        match blobs.map_for_requests(digest)? {
            Some(mapped) => Ok(Self::Map(mapped)),
            None => blobs.open_blob(digest).map(Self::from),
        }
    }

    /// Bytes in the file.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::File(blob) | Self::Foreign(blob, _) => blob.size,
            Self::Map(blob) => blob.size(),
        }
    }

    /// When the bytes were stored, or written.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        match self {
            Self::File(blob) | Self::Foreign(blob, _) => blob.modified,
            Self::Map(blob) => blob.modified,
        }
    }
}

impl From<OpenBlob> for Source {
    fn from(blob: OpenBlob) -> Self {
        Self::File(Arc::new(blob))
    }
}

/// A file that answers a request.
pub(crate) struct FileAnswer {
    /// The file.
    pub(crate) source: Source,
    /// The part of the file that is the representation; `None`: all of it.
    pub(crate) window: Option<ByteRange>,
    /// The strong entity tag, with its quotes.
    pub(crate) etag: String,
    /// Headers of a 200, 206 and 304 alike.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Answers GET or HEAD with a file: 200, 206, 304, 412 or 416.
pub(crate) fn file_response(pool: &Pool, method: &Method, request: &HeaderMap, answer: FileAnswer) -> Response {
    let window = answer.window.unwrap_or(ByteRange { start: 0, length: answer.source.size() });
    let modified = answer.source.modified();
    let validators = Validators { etag: &answer.etag, modified };
    let mut response = Response::new(Body::empty());
    let fails = validators.fails(request);
    let headers = response.headers_mut();
    match fails {
        // What a file's headers say, how long it may be kept above all, does not hold for a refusal.
        true => headers.extend([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]),
        false => headers.extend(answer.headers),
    }
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(etag) = HeaderValue::from_str(&answer.etag) {
        headers.insert(header::ETAG, etag);
    }
    if let Some(modified) = modified
        && let Ok(modified) = HeaderValue::from_str(&httpdate::fmt_http_date(modified))
    {
        headers.insert(header::LAST_MODIFIED, modified);
    }
    if fails {
        *response.status_mut() = StatusCode::PRECONDITION_FAILED;
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        return response;
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
        *response.body_mut() = match answer.source {
            Source::File(blob) => file_body(pool.clone(), blob, part, None),
            Source::Foreign(blob, stamp) => file_body(pool.clone(), blob, part, Some(stamp)),
            Source::Map(blob) => map_body(pool.clone(), blob, part),
        };
    }
    response
}

fn insert(response: &mut Response, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(name, value);
    }
}

/// A part of a file as a body. A read that fails breaks the connection: the client must not take less for all, nor what was written to a
/// file of somebody else's, which was in the state `foreign`, for what the answer's head promised.
fn file_body(pool: Pool, blob: Arc<OpenBlob>, part: ByteRange, foreign: Option<FileStamp>) -> Body {
    let state = (pool, blob, part.start, part.length, Blocks::default());
    Body::from_stream(stream::try_unfold(state, move |(pool, blob, at, left, mut blocks)| async move {
        if left == 0 {
            return Ok(None);
        }
        let length = left.min(READ_BLOCK);
        // What is in memory is here sooner than a thread of the pool.
        let resident = blocks.next(length, |block| {
            read_resident(&blob.file, block, at)?;
            is_as_it_was(&blob.file, foreign)
        });
        let block = match resident {
            Ok(block) => block,
            Err(_) => {
                let shared = Arc::clone(&blob);
                let read = move || {
                    let block = blocks.next(length, |block| {
                        shared.file.read_exact_at(block, at)?;
                        is_as_it_was(&shared.file, foreign)
                    });
                    block.map(|block| (block, blocks))
                };
                let (block, kept) = pool.run(read).await.map_err(io::Error::other)??;
                blocks = kept;
                block
            }
        };
        Ok::<_, io::Error>(Some((block, (pool, blob, at + length, left - length, blocks))))
    }))
}

/// Asked after each block, so that the last one is not sent of a file that has changed since its first.
fn is_as_it_was(file: &File, foreign: Option<FileStamp>) -> io::Result<()> {
    match foreign {
        Some(stamp) if FileStamp::of(&file.metadata()?)? != stamp => {
            Err(io::Error::other("the file was changed while it was sent"))
        }
        _ => Ok(()),
    }
}

/// A part of a map as a body: what is in memory goes out as it is, the rest is brought there in the pool.
fn map_body(pool: Pool, blob: Arc<MappedBlob>, part: ByteRange) -> Body {
    let first = block(part.start, part.length);
    if part.length <= MAP_BLOCK && blob.is_resident(&first) {
        return Body::from(blob.bytes(first));
    }
    let state = (pool, blob, part.start, part.length);
    Body::from_stream(stream::try_unfold(state, async |(pool, blob, at, left)| {
        if left == 0 {
            return Ok(None);
        }
        let block = block(at, left);
        if !blob.is_resident(&block) {
            let (shared, wanted) = (Arc::clone(&blob), block.clone());
            pool.run(move || shared.bring(&wanted)).await.map_err(io::Error::other)??;
        }
        let sent = block.len() as u64;
        Ok::<_, io::Error>(Some((blob.bytes(block), (pool, blob, at.saturating_add(sent), left.saturating_sub(sent)))))
    }))
}

/// The next bytes of a map, which are in the address space.
fn block(at: u64, left: u64) -> Range<usize> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    at..at.saturating_add(usize::try_from(left.min(MAP_BLOCK)).unwrap_or(usize::MAX))
}

/// The memory that one answer reads a file into. It is used again as soon as the connection has done with it: else the system gives out as much of it anew, page
/// by page, for each block (`docs/performance.md`, "The server beside Debian's debuginfod").
#[derive(Default)]
struct Blocks([Bytes; 2]);

impl Blocks {
    /// The next bytes, by what fills a block or fails.
    fn next(&mut self, length: u64, read: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Bytes> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let Self([mut older, mut newer]) = std::mem::take(self);
        if !older.is_unique() && newer.is_unique() {
            std::mem::swap(&mut older, &mut newer);
        }
        let spare = older.try_into_mut().ok();
        let mut block = spare.filter(|spare| spare.len() >= length).unwrap_or_else(|| BytesMut::zeroed(length));
        let read = read(block.get_mut(..length).unwrap_or_default());
        let block = block.freeze();
        let next = block.slice(..length);
        *self = Self([newer, block]);
        read.map(|()| next)
    }
}

/// Reads what is in memory already, or fails: without waiting for a disk, and never of a file system that cannot tell.
#[cfg(target_os = "linux")]
fn read_resident(file: &File, block: &mut [u8], at: u64) -> io::Result<()> {
    use rustix::io::{ReadWriteFlags, preadv2};
    let length = block.len();
    let read = preadv2(file, &mut [io::IoSliceMut::new(block)], at, ReadWriteFlags::NOWAIT)?;
    if read == length { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

#[cfg(not(target_os = "linux"))]
fn read_resident(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
