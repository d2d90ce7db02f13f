//! `/checkpoint` and `/tile/…`: what C2SP tlog-tiles publishes.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::LogApiError;
use crate::app::App;
use crate::blobs::is_shortage;
use crate::endpoints::{IMMUTABLE, told_of_storage};
use crate::log::{LogFile, ReadError, read};

/// GET or HEAD of a file of the log, at the root or below `/api/v2`.
pub(crate) async fn get(State(app): State<Arc<App>>, request: Request) -> Result<Response, LogApiError> {
    let log = app.log.as_ref().ok_or_else(no_log)?;
    let path = request.uri().path();
    let name = path.strip_prefix("/api/v2").unwrap_or(path).trim_start_matches('/');
    let (file, content_type, cache) = if name == "checkpoint" {
        (LogFile::Checkpoint, "text/plain; charset=utf-8", "no-cache")
    } else {
        let tile = name.parse().map_err(|error| LogApiError::new(StatusCode::NOT_FOUND, error))?;
        (LogFile::Tile(tile), "application/octet-stream", IMMUTABLE)
    };
    let directory = log.directory().to_owned();
    let bytes = app.pool.run(move || read(&directory, file)).await??;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static(cache)),
    ];
    Ok((headers, bytes).into_response())
}

/// 404 where there is no log.
pub(super) fn no_log() -> LogApiError {
    LogApiError::new(StatusCode::NOT_FOUND, "this server keeps no transparency log: `symseal serve --log` starts one")
}

impl From<ReadError> for LogApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Beyond { .. } => Self::new(StatusCode::NOT_FOUND, error),
            ReadError::Io(error) if is_shortage(&error) => Self::busy(told_of_storage(&error)),
            ReadError::Damaged | ReadError::Io(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }
}
