//! Tombstones that a store has lost: mostly it is a copy that was made without `tombstones/`, so that what was taken down is given away again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::TOMBSTONES;
use super::operator::AUDIT_ID;
use crate::app::App;
use crate::store::{AuditRow, StoreError};

/// Lines of the audit log that are read at once.
const LINES: u32 = 1000;

/// Tells of what the audit log says was taken down and no tombstone does. The log is read whole, beside what the server does.
pub(crate) async fn tell_of_lost(app: Arc<App>) {
    match lost(&app).await {
        Ok(lost) => {
            for (digest, at) in lost {
                tracing::error!(
                    digest,
                    at,
                    "the audit log says that this was taken down, and no tombstone does: it is given away; was tombstones/ left out when this store was copied? (symseal store takedown sets it again)"
                );
            }
        }
        Err(error) => tracing::warn!(%error, "whether tombstones were lost cannot be told"),
    }
}

/// By digest, with the time at which it was taken down.
async fn lost(app: &App) -> Result<BTreeMap<String, String>, StoreError> {
    let (mut last, mut said) = (0, BTreeMap::new());
    loop {
        let lines = app.store.audit(last, LINES).await?;
        let Some((number, _)) = lines.last() else { break };
        last = *number;
        for (_, line) in lines {
            take(&mut said, line);
        }
    }
    said.retain(|digest, _| digest.parse().is_ok_and(|digest| !app.taken_down.has(&digest)));
    Ok(said)
}

fn take(said: &mut BTreeMap<String, String>, line: AuditRow) {
    // Clients name their requests as they like.
    let is_ours = line.request_id == AUDIT_ID && line.path.starts_with(&format!("/{TOMBSTONES}/"));
    let Some(digest) = line.digest.filter(|_| is_ours) else { return };
    match line.method.as_str() {
        "PUT" => drop(said.insert(digest, line.at.to_string())),
        _ => drop(said.remove(&digest)),
    }
}
