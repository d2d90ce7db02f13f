//! A server that fell behind, so that the sequence of changes no longer tells it everything, reads the object store whole.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;

use super::follow::{learn, run};
use crate::app::App;
use crate::blobs::is_lasting;
use crate::repositories::{FOLDER, FactKey, RepositoryName};
use crate::store::ChangeRow;
use crate::{publish, takedown, traces};

/// Takes over what the object store says: tombstones, traces, and every repository; the keys of traces that could not be read.
///
/// # Errors
/// The object store or the database does not answer. It is tried again.
pub(super) async fn reread(app: &Arc<App>) -> io::Result<Vec<String>> {
    takedown::refresh(app).await?;
    let shared = Arc::clone(app);
    let keys = move || {
        let Some(facts) = shared.repositories.facts() else { return Ok((Vec::new(), Vec::new())) };
        Ok((facts.keys(traces::FOLDER)?, facts.keys(FOLDER)?))
    };
    let (traces, facts) = run(app, keys).await?;
    let mut unread = Vec::new();
    for key in traces {
        let change = ChangeRow { key, is_removed: false };
        match learn(app, &change, &HashSet::new()).await {
            Err(error) if !is_lasting(&error) => return Err(error),
            Err(error) => {
                tracing::error!(key = change.key, %error, "the fact of a trace cannot be read: it is tried again");
                unread.push(change.key);
            }
            Ok(_) => {}
        }
    }
    let mut names: BTreeSet<RepositoryName> = app.repositories.named().into_iter().map(|(name, _)| name).collect();
    names.extend(facts.iter().filter_map(|key| Some(FactKey::parse(key)?.0)));
    let taken_down: Vec<_> = app.taken_down.all().keys().cloned().collect();
    for name in &names {
        let repository = app.repositories.get_or_create(name);
        let _changes = repository.lock_changes().await;
        let (shared, blobs, name, taken_down) =
            (Arc::clone(&repository), Arc::clone(&app.blobs), name.clone(), taken_down.clone());
        run(app, move || shared.show_again(&name, &blobs, &taken_down)).await?;
    }
    for name in &names {
        for (digest, manifest) in app.repositories.get_or_create(name).manifests() {
            // A seal changes what its subject is worth, which is looked at below.
            if app.debug_files.bundle(&digest).is_none()
                && manifest.subject.is_none()
                && let Err(error) = publish::learn(app, &digest, &manifest).await
            {
                if !is_lasting(&error) {
                    return Err(error);
                }
                tracing::error!(repository = %name, %digest, %error, "what another server published is not taken over");
            }
        }
    }
    publish::reconsider_all(app).await?;
    Ok(unread)
}
