//! `/healthz` and `/readyz`: what those ask who start servers and send them requests.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;

use super::{plain, told_of_database, told_of_storage};
use crate::app::App;

/// Bytes that must find room.
const PAGE: usize = 4096;

/// How long each of what a server stands on may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process answers. It says nothing about what it stands on: a server should not be killed because a disk is full.
pub(crate) async fn healthz() -> Response {
    plain(StatusCode::OK, "ok")
}

/// Requests can be served: the database and the object store answer, something can be written beside the blobs, it is known what was taken down, and
/// the server is not about to stop. Whoever asks is told which of these is the matter, and not where it is.
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Response {
    if app.stopping.load(std::sync::atomic::Ordering::Relaxed) {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "the server is about to stop");
    }
    let (database, objects, data) = tokio::join!(
        within("the database has not answered", database(&app)),
        within("the object store has not answered", objects(&app)),
        within("nothing was written to the data directory", data(&app)),
    );
    let mut problems: Vec<String> = [database, objects, data].into_iter().filter_map(Result::err).collect();
    if app.taken_down.is_blind() {
        problems.push("what was taken down cannot be read: what was taken down of late may be given away".to_owned());
    }
    match problems.is_empty() {
        true => plain(StatusCode::OK, "ready"),
        false => plain(StatusCode::SERVICE_UNAVAILABLE, &problems.join("\n")),
    }
}

async fn within(late: &str, check: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let checked = tokio::time::timeout(PATIENCE, check).await;
    checked.unwrap_or_else(|_| Err(format!("{late} within {} s", PATIENCE.as_secs())))
}

async fn database(app: &App) -> Result<(), String> {
    app.store.ping().await.map_err(|error| told_of_database(&error).to_owned())
}

async fn objects(app: &App) -> Result<(), String> {
    let Some(objects) = app.blobs.objects() else { return Ok(()) };
    let objects = Arc::clone(objects);
    let look = move || objects.ping().and_then(|()| objects.takes_writes());
    let answers = app.pool.run(look).await.map_err(|error| error.to_string())?;
    answers.map_err(|error| format!("the object store: {}", told_of_storage(&error)))
}

async fn data(app: &App) -> Result<(), String> {
    let blobs = Arc::clone(&app.blobs);
    // A full file system still makes empty files.
    let write = move || crate::blobs::Spool::new(&blobs)?.append(&[Bytes::from_static(&[0; PAGE])]);
    let writable = app.pool.run(write).await.map_err(|error| error.to_string())?;
    writable.map_err(|error| format!("nothing can be written to the data directory: {}", told_of_storage(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_answer_is_named() {
        assert_eq!(within("it has not answered", std::future::ready(Ok(()))).await, Ok(()));
        let late = within("it has not answered", std::future::pending()).await;
        assert_eq!(late, Err("it has not answered within 2 s".to_owned()));
    }
}
