//! What an operator takes down, and lifts.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::TOMBSTONES;
use crate::clock::now;
use crate::notes::{Note, OperatorNotes, parse};
use crate::store::{self, AuditRow, Store};
use crate::{Config, ServerError};

/// What the lines of the audit log have in the place of a request's id.
pub(crate) const AUDIT_ID: &str = "takedown";

/// What became of a takedown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenDownNow {
    /// Whether its bytes are in the store, as far as that can be told.
    pub is_here: bool,
    /// The digest of the bundle's source files, which are an artifact of their own, and are not taken down.
    pub sources: Option<String>,
}

/// The tombstones of a store, for an operator.
#[derive(Debug)]
pub struct Tombstones {
    notes: OperatorNotes,
    store: Arc<dyn Store>,
}

impl Tombstones {
    /// The tombstones of a data directory, or of the object store that it is a cache of. Servers may run beside: those that follow a sequence of
    /// changes, or have a directory, take over what is done here within two seconds, one with an object store alone within thirty.
    ///
    /// # Errors
    /// [`ServerError`]: the database or the object store cannot be used.
    pub fn open(config: &Config) -> BoxFuture<'_, Result<Self, ServerError>> {
        Box::pin(async {
            let notes = OperatorNotes::open(TOMBSTONES, config).await?;
            Ok(Self { notes, store: store::open(&config.data, config.database.as_ref()).await? })
        })
    }

    /// Takes a bundle, or another manifest or blob, down.
    ///
    /// # Errors
    /// [`ServerError`]: no digest, or a place that cannot be written.
    pub fn take_down<'a>(&'a self, digest: &'a str, note: Note) -> BoxFuture<'a, Result<TakenDownNow, ServerError>> {
        Box::pin(async move {
            let parsed = parse(digest)?;
            // Before servers that run beside forget the bundle.
            let sources = self.sources_of(digest).await;
            self.notes.run(move |notes| notes.put(&parsed, &note)).await?;
            self.audit("PUT", digest).await;
            Ok(TakenDownNow { is_here: self.may_be_here(digest).await, sources })
        })
    }

    /// Undoes it, as far as bytes are here; `None` where it was not taken down, else whether they are.
    ///
    /// # Errors
    /// [`ServerError`]: no digest, or a place that cannot be written.
    pub fn lift<'a>(&'a self, digest: &'a str) -> BoxFuture<'a, Result<Option<bool>, ServerError>> {
        Box::pin(async move {
            let parsed = parse(digest)?;
            if !self.notes.run(move |notes| notes.remove(&parsed)).await? {
                return Ok(None);
            }
            self.audit("DELETE", digest).await;
            Ok(Some(self.may_be_here(digest).await))
        })
    }

    /// Every tombstone, by digest.
    ///
    /// # Errors
    /// [`ServerError`]: a place that cannot be read.
    pub fn list(&self) -> BoxFuture<'_, Result<BTreeMap<String, Note>, ServerError>> {
        Box::pin(self.notes.all())
    }

    /// The sources that a bundle names, unless they are taken down.
    async fn sources_of(&self, bundle: &str) -> Option<String> {
        let bundle = self.store.bundle(bundle).await;
        let bundle =
            bundle.inspect_err(|error| tracing::warn!(%error, "whether it names sources cannot be told")).ok()??;
        let index: serde_json::Value = serde_json::from_str(&bundle.index_json).ok()?;
        let sources = index.get("sources")?.as_str()?.to_owned();
        let tombstones = self.notes.all().await.unwrap_or_default();
        (!tombstones.contains_key(&sources)).then_some(sources)
    }

    /// What cannot be told now is no reason to say that a tombstone that is set was not.
    async fn may_be_here(&self, digest: &str) -> bool {
        self.notes.has_blob(digest).await.unwrap_or_else(|error| {
            tracing::warn!(digest, %error, "whether its bytes are here cannot be told");
            true
        })
    }

    async fn audit(&self, method: &str, digest: &str) {
        let entry = AuditRow {
            at: now(),
            request_id: AUDIT_ID.to_owned(),
            token: None,
            address: None,
            method: method.to_owned(),
            path: format!("/{TOMBSTONES}/{digest}"),
            digest: Some(digest.to_owned()),
            status: 200,
        };
        if let Err(error) = self.store.put_audit(&entry).await {
            tracing::error!(%error, ?entry, "a takedown is not in the audit log");
        }
    }
}
