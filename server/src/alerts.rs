//! What an operator should look at: different bytes for one debug id.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::app::App;
use crate::clock::now;
use crate::debug_files::{Contested, FileKind, SecondOwner};
use crate::metrics::family;
use crate::repositories::RepositoryName;
use crate::store::{AlertRow, Store, StoreError};

/// Alerts that are kept; the oldest go first.
const KEPT: u32 = 1000;

/// How long after a failure the database is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The alerts of all servers that share the database. They are in the log too.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    /// Those that the database does not have yet, the oldest first.
    waiting: Mutex<VecDeque<AlertRow>>,
    new: Notify,
    second_owners: AtomicU64,
    contested: AtomicU64,
}

impl Alerts {
    /// Somebody offered other bytes for an id of a sealed bundle, and was refused.
    pub(crate) fn second_owner(&self, repository: &RepositoryName, refused: &SecondOwner) {
        self.second_owners.fetch_add(1, Ordering::Relaxed);
        let SecondOwner { id, kind, offered, sealed, bundle, name } = refused;
        tracing::warn!(%repository, debug_id = %id, ?kind, %offered, %sealed, %bundle, name, "a second owner offered other bytes for a debug id of a sealed bundle, and was refused");
        self.keep(json!({
            "kind": "second-owner",
            "debug_id": id.to_string(),
            "file": file(*kind),
            "repository": repository.as_str(),
            "refused": offered.to_string(),
            "answers": sealed.to_string(),
            "bundle": bundle.to_string(),
            "name": name,
        }));
    }

    /// Two bundles have different bytes for an id, and both are kept.
    pub(crate) fn contested(&self, contested: &Contested) {
        self.contested.fetch_add(1, Ordering::Relaxed);
        let Contested { id, kind, answers, passed_over } = contested;
        tracing::warn!(
            debug_id = %id, ?kind, answers = %answers.digest, passed_over = %passed_over.digest,
            "two bundles have different files for one debug id: both are kept, the sealed one answers, then the one with more debug information"
        );
        self.keep(json!({
            "kind": "different-bytes",
            "debug_id": id.to_string(),
            "file": file(*kind),
            "answers": answers.digest.to_string(),
            "bundle": answers.bundle.to_string(),
            "passed_over": passed_over.digest.to_string(),
            "passed_over_bundle": passed_over.bundle.to_string(),
        }));
    }

    /// The alerts that are kept, the newest first.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn list(&self, store: &dyn Store) -> Result<Vec<Value>, StoreError> {
        // Before the database is asked: what is recorded meanwhile is in one of both.
        let waiting: Vec<AlertRow> = self.waiting().iter().rev().cloned().collect();
        let mut rows = store.alerts(KEPT).await?;
        rows.retain(|row| waiting.iter().all(|it| it.id != row.id));
        let rows = waiting.into_iter().chain(rows).take(KEPT as usize);
        Ok(rows.filter_map(|row| serde_json::from_str(&row.json).ok()).collect())
    }

    /// Records what waits.
    ///
    /// # Errors
    /// The database does not answer: what it does not have waits on.
    pub(crate) async fn record(&self, store: &dyn Store) -> Result<(), StoreError> {
        loop {
            let Some(row) = self.waiting().front().cloned() else { return Ok(()) };
            store.put_alert(&row, KEPT).await?;
            let mut waiting = self.waiting();
            // So many may have come meanwhile that it went.
            if waiting.front().is_some_and(|first| first.id == row.id) {
                waiting.pop_front();
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<AlertRow>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts in the Prometheus text form.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        family(&mut text, "symseal_alerts_total", "counter", "What an operator should look at, by kind.");
        for (kind, count) in [("second-owner", &self.second_owners), ("different-bytes", &self.contested)] {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "symseal_alerts_total{{kind=\"{kind}\"}} {}", count.load(Ordering::Relaxed));
        }
        text
    }

    fn keep(&self, mut alert: Value) {
        let at = now();
        if let Some(object) = alert.as_object_mut() {
            object.insert("time".to_owned(), json!(at.to_string()));
        }
        let row = AlertRow { id: Uuid::new_v4(), at, json: alert.to_string() };
        let mut waiting = self.waiting();
        if waiting.len() >= KEPT as usize {
            waiting.pop_front();
        }
        waiting.push_back(row);
        drop(waiting);
        self.new.notify_one();
    }
}

/// Records alerts as they come.
pub(crate) async fn record_again(app: Arc<App>) {
    loop {
        app.alerts.new.notified().await;
        while let Err(error) = app.alerts.record(app.store.as_ref()).await {
            tracing::warn!(%error, "alerts are not recorded yet");
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

/// What a debugger calls it.
fn file(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Debuginfo => "debuginfo",
        FileKind::Executable => "executable",
        FileKind::SymbolTable => "symbol-table",
        FileKind::SymbolFile => "symbol-file",
    }
}
