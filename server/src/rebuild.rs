//! `symseal store rebuild`: the database's record and the index of ids, made again from the blobs.

use std::io;

use crate::config::Config;
use crate::debug_files::INDEX_FILE;
use crate::made_whole::MadeWhole;
use crate::{ServerError, opened, serve, store, store_id};
use futures_util::future::BoxFuture;

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// Bundles and loose files that debuggers find.
    pub bundles: usize,
    /// Debug ids that have a file.
    pub ids: usize,
    /// Traces.
    pub traces: usize,
    /// Rows of the database that no blob stands behind any more.
    pub stale: usize,
    /// Links of what manifests name that were missing and are there again.
    pub linked: u64,
    /// What manifests name and is not here.
    pub lost: u64,
}

/// Forgets what the database records of bundles and traces, and the index of ids, and makes both again from the blobs. Tokens and
/// the audit log stay as they are. No server may use the data directory meanwhile; others of a shared store may run.
///
/// # Errors
/// [`ServerError`]: a server uses the directory, or something cannot be read or written.
pub fn rebuild(config: &Config) -> BoxFuture<'_, Result<Rebuilt, ServerError>> {
    Box::pin(rebuild_alone(config))
}

async fn rebuild_alone(config: &Config) -> Result<Rebuilt, ServerError> {
    let _lock = opened::lock_data(&config.data)?;
    let database = store::open(&config.data, config.database.as_ref()).await?;
    let objects = config.blobs.as_ref().map(opened::objects_of).transpose()?;
    store_id::check(config, &database, objects.as_ref()).await?;
    let place = config.database.as_ref().map_or_else(|| config.data.display().to_string(), ToString::to_string);
    let failed = |error: store::StoreError| ServerError::Database { place: place.clone(), detail: error.to_string() };
    let (mut bundles, mut events) = (0_usize, 0_usize);
    for (digest, _) in database.bundles().await.map_err(failed)? {
        database.remove_bundle(&digest).await.map_err(failed)?;
        bundles += 1;
    }
    for (id, _) in database.traces().await.map_err(failed)? {
        database.remove_trace(id).await.map_err(failed)?;
        events += 1;
    }
    let index = config.data.join(INDEX_FILE);
    match std::fs::remove_file(&index) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(ServerError::Data { path: index, source });
        }
        _ => {}
    }
    drop(database);
    let (app, whole) = opened::open_whole(config, None).await?;
    serve::save(&app, index).await;
    let recorded = app.store.bundles().await.map_err(failed)?.len();
    let traces = app.store.traces().await.map_err(failed)?.len();
    let stale = bundles.saturating_sub(recorded) + events.saturating_sub(traces);
    let MadeWhole { linked, lost } = whole;
    Ok(Rebuilt { bundles: app.debug_files.bundles().len(), ids: app.debug_files.len(), traces, stale, linked, lost })
}
