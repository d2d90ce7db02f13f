//! `/api/v1/traces/<id>`: the events of a trace come in, are recorded, and go out as they came.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use serde_json::json;
use uuid::Uuid;

use super::ApiError;
use crate::app::App;
use crate::blobs::{BlobDigest, BlobDirectory, Pin, Spool};
use crate::http::{FileAnswer, file_response};
use crate::ingest::{RefusedTrace, read_trace};
use crate::store::TraceRows;

/// The largest body that is taken, in bytes.
const BODY_LIMIT: u64 = 512 << 20;

/// Bytes gathered before they are written and hashed.
const WRITE_BLOCK: usize = 256 << 10;

/// Bytes compared at once.
const COMPARE_BLOCK: usize = 1 << 20;

/// PUT: JSON Lines of events, plain, gzip or zstd. Sending the same again changes nothing; events may be added at the
/// end, and what was sent before never changes.
pub(crate) async fn put(State(app): State<Arc<App>>, Path(id): Path<String>, body: Body) -> Result<Response, ApiError> {
    let id = parse_id(&id)?;
    let spool = receive(&app, body).await?;
    let task = tokio::spawn(async move { record(&app, id, spool).await });
    task.await.map_err(|_| ApiError::from(crate::pool::JobLost))?
}

/// GET or HEAD: the events as they were sent.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    method: Method,
    request: HeaderMap,
) -> Result<Response, ApiError> {
    let id = parse_id(&id)?;
    let digest = app.traces.get(id).ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "trace-unknown", format!("{id}: no such trace was sent to this server"))
    })?;
    let (blobs, wanted) = (app.blobs.clone(), digest.clone());
    let blob = app.pool.run(move || blobs.open_blob(&wanted)).await??;
    let headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"))];
    let answer = FileAnswer { blob, window: None, etag: format!("\"{digest}\""), headers };
    Ok(file_response(&app.pool, &method, &request, answer))
}

fn parse_id(text: &str) -> Result<Uuid, ApiError> {
    Uuid::try_parse(text).map_err(|_| {
        let message = format!("{text:?} is no trace id: expected a UUID");
        ApiError::new(StatusCode::BAD_REQUEST, "trace-id-invalid", message)
    })
}

async fn receive(app: &App, body: Body) -> Result<Spool, ApiError> {
    let blobs = app.blobs.clone();
    let mut spool = app.pool.run(move || Spool::new(&blobs)).await??;
    let mut body = body.into_data_stream();
    let (mut gathered, mut gathered_bytes) = (Vec::new(), 0);
    loop {
        let chunk = body.next().await.transpose().map_err(|error| {
            ApiError::new(StatusCode::BAD_REQUEST, "body-broken", format!("the body broke off: {error}"))
        })?;
        let ended = chunk.is_none();
        gathered_bytes += chunk.as_ref().map_or(0, bytes::Bytes::len);
        gathered.extend(chunk);
        if gathered_bytes >= WRITE_BLOCK || ended {
            let block = std::mem::take(&mut gathered);
            gathered_bytes = 0;
            spool = app.pool.run(move || spool.append(&block).map(|()| spool)).await??;
        }
        if spool.size() > BODY_LIMIT {
            let message = format!("the trace is larger than {BODY_LIMIT} bytes: send it compressed, or split it");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "trace-too-large", message));
        }
        if ended {
            return Ok(spool);
        }
    }
}

async fn record(app: &Arc<App>, id: Uuid, spool: Spool) -> Result<Response, ApiError> {
    let _changes = app.traces.changes.lock().await;
    let known = app.traces.get(id);
    let (blobs, old) = (app.blobs.clone(), known.clone());
    let (digest, _pin, rows) = app.pool.run(move || check(&blobs, id, spool, old.as_ref())).await??;
    let answer = json!({
        "trace_id": id,
        "digest": digest.to_string(),
        "frames": rows.frames.len(),
        "replays": rows.replays.len(),
    });
    let status = if known.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    if known.as_ref() != Some(&digest) {
        app.store.put_trace(&rows).await?;
        let traces = Arc::clone(&app.traces);
        app.pool.run(move || traces.set(id, digest)).await??;
    }
    Ok((status, Json(answer)).into_response())
}

/// Reads the rows and stores the bytes, which must go on where `known` ends.
fn check(
    blobs: &BlobDirectory,
    id: Uuid,
    spool: Spool,
    known: Option<&BlobDigest>,
) -> Result<(BlobDigest, Pin, TraceRows), ApiError> {
    if let Some(known) = known
        && !starts_with(File::open(spool.path())?, blobs.open_blob(known)?.file)?
    {
        let message = format!(
            "the trace {id} is here with other events ({known}): what was sent is never changed, only continued; give another trace its own id"
        );
        return Err(ApiError::new(StatusCode::CONFLICT, "trace-differs", message));
    }
    let mut rows = read_trace(File::open(spool.path())?, id, String::new())?;
    let (digest, pin) = spool.commit(blobs)?;
    rows.trace.blob_sha256 = digest.to_string();
    Ok((digest, pin, rows))
}

fn starts_with(mut whole: File, mut start: File) -> io::Result<bool> {
    let (mut expected, mut found) = (vec![0; COMPARE_BLOCK], vec![0; COMPARE_BLOCK]);
    loop {
        let read = start.read(&mut expected)?;
        let (Some(expected), Some(found)) = (expected.get(..read), found.get_mut(..read)) else { return Ok(false) };
        if read == 0 {
            return Ok(true);
        }
        match whole.read_exact(found) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            other => other?,
        }
        if expected != found {
            return Ok(false);
        }
    }
}

impl From<RefusedTrace> for ApiError {
    fn from(error: RefusedTrace) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "trace-invalid", error)
    }
}
