//! What an operator should look at: different bytes for one debug id.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::clock::now;
use crate::debug_files::{Contested, FileKind, SecondOwner};
use crate::repositories::RepositoryName;

/// Alerts that are kept; the oldest go first.
const KEPT: usize = 1000;

/// The alerts since the start. They are in the log too.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    kept: Mutex<VecDeque<Value>>,
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
    pub(crate) fn list(&self) -> Vec<Value> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }

    /// The counts in the Prometheus text form.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::from("# TYPE symseal_alerts_total counter\n");
        for (kind, count) in [("second-owner", &self.second_owners), ("different-bytes", &self.contested)] {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "symseal_alerts_total{{kind=\"{kind}\"}} {}", count.load(Ordering::Relaxed));
        }
        text
    }

    fn keep(&self, mut alert: Value) {
        if let Some(object) = alert.as_object_mut() {
            object.insert("time".to_owned(), json!(now().to_string()));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(alert);
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
