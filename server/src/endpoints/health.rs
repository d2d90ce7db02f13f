//! `/healthz` and `/readyz`: what those ask who start servers and send them requests.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;

use super::plain;
use crate::app::App;

/// Bytes that must find room.
const PAGE: usize = 4096;

/// How long the database and the disk may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process answers. It says nothing about what it stands on: a server should not be killed because a disk is full.
pub(crate) async fn healthz() -> Response {
    plain(StatusCode::OK, "ok")
}

/// Requests can be served: the database and the object store answer, something can be written beside the blobs, and the server is not about to
/// stop.
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Response {
    match tokio::time::timeout(PATIENCE, check(&app)).await {
        Ok(Ok(())) => plain(StatusCode::OK, "ready"),
        Ok(Err(problem)) => plain(StatusCode::SERVICE_UNAVAILABLE, &problem),
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, &format!("not within {} s", PATIENCE.as_secs())),
    }
}

async fn check(app: &App) -> Result<(), String> {
    if app.stopping.load(std::sync::atomic::Ordering::Relaxed) {
        return Err("the server is about to stop".to_owned());
    }
    app.store.ping().await.map_err(|error| error.to_string())?;
    let blobs = Arc::clone(&app.blobs);
    if let Some(objects) = app.blobs.objects() {
        let objects = Arc::clone(objects);
        let answers = app.pool.run(move || objects.ping()).await;
        answers.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    }
    // A full file system still makes empty files.
    let write = move || crate::blobs::Spool::new(&blobs)?.append(&[Bytes::from_static(&[0; PAGE])]);
    let writable = app.pool.run(write).await;
    writable
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("nothing can be written to the data directory: {error}"))
}
