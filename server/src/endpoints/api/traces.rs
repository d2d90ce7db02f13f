//! `/api/v1/traces/<id>`: the events of a trace come in, are recorded, and go out as they came.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::json;
use symseal_trace::Decompressed;
use uuid::Uuid;

use super::ApiError;
use super::body::{Bound, spool};
use crate::access::{Caller, Grant};
use crate::app::App;
use crate::blobs::{BlobDigest, BlobDirectory, Pin, Spool};
use crate::http::{FileAnswer, file_response};
use crate::ingest::{RefusedTrace, read_trace};
use crate::quotas::Room;
use crate::shared::made_good;
use crate::store::TraceRows;

/// The largest trace that is taken, in bytes.
const TRACE_BOUND: Bound =
    Bound { bytes: 512 << 20, code: "trace-too-large", message: "send the trace compressed, or split it" };

/// Bytes compared at once.
const COMPARE_BLOCK: usize = 1 << 20;

/// PUT: JSON Lines of events, plain, gzip or zstd. Sending the same again, in whichever form, changes nothing; events may be added at the
/// end, and what was sent before never changes.
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, ApiError> {
    if !caller.may_write_traces() {
        return Err(ApiError::forbidden(&Grant::WriteTraces));
    }
    let id = parse_id(&id)?;
    let spool = spool(&app, &caller, body, &TRACE_BOUND, &mut Room::new(&app, None)).await?;
    let task = tokio::spawn(async move { record(&app, &caller, id, spool).await });
    task.await.map_err(|_| ApiError::from(crate::pool::JobLost))?
}

/// GET or HEAD: the events as they were sent.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    method: Method,
    request: HeaderMap,
) -> Result<Response, ApiError> {
    let id = parse_id(&id)?;
    // What a caller may not read is not there.
    let digest = app.traces.get(id).filter(|_| caller.may_read_traces()).ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "trace-unknown", format!("{id}: no such trace was sent to this server"))
    })?;
    app.blobs.bring(&digest).await?;
    let (blobs, wanted) = (app.blobs.clone(), digest.clone());
    let blob = app.pool.run(move || blobs.open_blob(&wanted)).await??;
    let headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"))];
    let answer = FileAnswer { source: blob.into(), window: None, etag: format!("\"{digest}\""), headers };
    Ok(file_response(&app.pool, &method, &request, answer))
}

fn parse_id(text: &str) -> Result<Uuid, ApiError> {
    Uuid::try_parse(text).map_err(|_| {
        let message = format!("{text:?} is no trace id: expected a UUID");
        ApiError::new(StatusCode::BAD_REQUEST, "trace-id-invalid", message)
    })
}

async fn record(app: &Arc<App>, caller: &Caller, id: Uuid, spool: Spool) -> Result<Response, ApiError> {
    let _changes = app.traces.changes.lock().await;
    app.access.check_again(caller).await?;
    let blob = spool.digest();
    let size = spool.size();
    let promise = app.promise(None, [&blob]).await?;
    let known = app.traces.get(id);
    let (blobs, old) = (app.blobs.clone(), known.clone());
    let (digest, _pin, rows) = app.pool.run(move || check(&blobs, id, spool, old.as_ref())).await??;
    let answer = json!({
        "trace_id": id,
        "digest": digest.to_string(),
        "frames": rows.frames.len(),
        "replays": rows.replays.len(),
    });
    let stored = [(digest.clone(), size)];
    let status = if known.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    let is_new = known.as_ref() != Some(&digest);
    if is_new {
        app.store.put_trace(&rows).await?;
    }
    // The other servers may not have been told of one that is known.
    if is_new || app.follower.is_some() {
        let traces = Arc::clone(&app.traces);
        app.pool.run(move || traces.set(id, digest)).await??;
    }
    made_good(app, None, promise, &stored).await?;
    Ok((status, Json(answer)).into_response())
}

/// Reads the rows and stores the bytes, whose events must go on where those of `known` end. Of the same events in another form what is here stays.
fn check(
    blobs: &BlobDirectory,
    id: Uuid,
    spool: Spool,
    known: Option<&BlobDigest>,
) -> Result<(BlobDigest, Option<Pin>, TraceRows), ApiError> {
    let mut rows = read_trace(File::open(spool.path())?, id, String::new())?;
    let follows = match known {
        Some(known) if *known != spool.digest() => {
            Some((known, follows(File::open(spool.path())?, blobs.open_blob(known)?.file)?))
        }
        _ => None,
    };
    let (digest, pin) = match follows {
        Some((known, Follows::No)) => {
            let message = format!(
                "the trace {id} is here with other events ({known}): what was sent is never changed, only continued; give another trace its own id"
            );
            return Err(ApiError::new(StatusCode::CONFLICT, "trace-differs", message));
        }
        Some((known, Follows::Same)) => (known.clone(), None),
        Some((_, Follows::More)) | None => {
            let (digest, pin) = spool.commit(blobs)?;
            (digest, Some(pin))
        }
    };
    rows.trace.blob_sha256 = digest.to_string();
    Ok((digest, pin, rows))
}

/// How events stand to those that are here.
enum Follows {
    /// They are these.
    Same,
    /// They begin with these.
    More,
    /// They are others, or fewer.
    No,
}

/// Compares what comes out of two streams, however each is compressed. No more is decompressed of either than the other has.
fn follows(new: File, known: File) -> io::Result<Follows> {
    let (mut new, mut known) = (Decompressed::new(new)?, Decompressed::new(known)?);
    let (mut expected, mut found) = (vec![0; COMPARE_BLOCK], vec![0; COMPARE_BLOCK]);
    loop {
        let read = known.read(&mut expected)?;
        if read == 0 {
            return Ok(if new.read(&mut found)? == 0 { Follows::Same } else { Follows::More });
        }
        let (Some(expected), Some(found)) = (expected.get(..read), found.get_mut(..read)) else {
            return Ok(Follows::No);
        };
        match new.read_exact(found) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Follows::No),
            other => other?,
        }
        if expected != found {
            return Ok(Follows::No);
        }
    }
}

impl From<RefusedTrace> for ApiError {
    fn from(error: RefusedTrace) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "trace-invalid", error)
    }
}
