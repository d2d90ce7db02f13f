//! What the database records of a bundle: that it is here, and its seal.
//!
//! Whoever changes a repository records what follows from it. Of several servers on one bucket that one may be killed before it comes to that, or the database
//! would not take the change when it was told of it: so each server that hears of a change compares the record with what the repositories say.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::judging::holders;
use super::{PublishError, seal_of};
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::ingest::{CheckedBundle, is_bundle, is_seal, open_published};
use crate::repositories::{MANIFEST_LIMIT, Manifest, Reference, RepositoryName};
use crate::store::{SealRow, StoreError};

pub(super) async fn record_seal(app: &Arc<App>, bundle: &BlobDigest) -> Result<(), PublishError> {
    let (shared, wanted) = (Arc::clone(app), bundle.clone());
    let row = app.pool.run(move || seal_of(&shared, &holders(&shared, &wanted), None, &wanted)).await??;
    Ok(app.store.put_seal(&bundle.to_string(), row.as_ref()).await?)
}

/// Records what is in a repository again, where it is a bundle, or a seal of one.
pub(crate) async fn record(app: &Arc<App>, digest: &BlobDigest, manifest: &Manifest) -> Result<(), PublishError> {
    let Some(bundle) = concerned(digest, manifest) else { return Ok(()) };
    if is_bundle(manifest) {
        put_bundle(app, &bundle).await?;
    }
    record_seal(app, &bundle).await
}

async fn put_bundle(app: &Arc<App>, digest: &BlobDigest) -> Result<(), PublishError> {
    let (shared, wanted) = (Arc::clone(app), digest.clone());
    let open = move || {
        let bytes = shared.blobs.read(&wanted, MANIFEST_LIMIT as u64)?;
        open_published(&wanted, &bytes, &shared.blobs)
    };
    let CheckedBundle { row, .. } = app.pool.run(open).await??;
    Ok(app.store.put_bundle(&row).await?)
}

/// The bundle whose record may change with a manifest that comes or goes.
pub(crate) fn concerned(digest: &BlobDigest, manifest: &Manifest) -> Option<BlobDigest> {
    if is_bundle(manifest) {
        return Some(digest.clone());
    }
    manifest.subject.clone().filter(|_| is_seal(manifest))
}

/// Every bundle that a repository has or the database records: of any of them it may say something else.
///
/// # Errors
/// The database does not answer.
pub(crate) async fn here_or_recorded(app: &Arc<App>) -> Result<BTreeSet<BlobDigest>, StoreError> {
    let recorded = app.store.bundles().await?.into_iter();
    let mut all: BTreeSet<BlobDigest> = recorded.filter_map(|(digest, _)| digest.parse().ok()).collect();
    for (_, repository) in app.repositories.list() {
        let bundles = repository.manifests().into_iter().filter(|(_, manifest)| is_bundle(manifest));
        all.extend(bundles.map(|(digest, _)| digest));
    }
    Ok(all)
}

/// Makes the record of a bundle what the repositories say, where it says something else. Of several servers that find it so the first one writes; one whose
/// repositories were behind is put right when it, or another, has followed.
pub(crate) async fn mend(app: &Arc<App>, bundle: &BlobDigest) -> Result<(), PublishError> {
    let _bundle_changes = app.debug_files.changes.lock().await;
    let (shared, wanted) = (Arc::clone(app), bundle.clone());
    let here = app.pool.run(move || seal_of_one_here(&shared, &wanted)).await??;
    let text = bundle.to_string();
    let recorded = app.store.recorded_seal(&text).await?;
    match (here, recorded) {
        (None, None) => return Ok(()),
        (None, Some(_)) => app.store.remove_bundle(&text).await?,
        (Some(seal), Some(recorded)) if seal.as_ref().map(|seal| &seal.seal_digest) == recorded.as_ref() => {
            return Ok(());
        }
        (Some(seal), recorded) => {
            if recorded.is_none() {
                put_bundle(app, bundle).await?;
            }
            app.store.put_seal(&text, seal.as_ref()).await?;
        }
    }
    tracing::info!(digest = text, "the record of a bundle did not say what the repositories say, and does now");
    Ok(())
}

/// The seal, or none, of a bundle that a repository has; `None` where none has it, or it is no bundle. Blocks.
fn seal_of_one_here(app: &App, bundle: &BlobDigest) -> io::Result<Option<Option<SealRow>>> {
    let repositories = holders(app, bundle);
    let known = |name: &RepositoryName| app.repositories.get(name)?.manifest(&Reference::Digest(bundle.clone()));
    if !repositories.iter().find_map(known).is_some_and(|(_, manifest)| is_bundle(&manifest)) {
        return Ok(None);
    }
    seal_of(app, &repositories, None, bundle).map(Some)
}
