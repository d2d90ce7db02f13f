//! The order of steps in which a manifest becomes visible, and in which it goes again.
//!
//! Check, store the bytes, record, then one file in the repository's folder: that rename is the moment. Before it
//! nothing is visible; after it a restart rebuilds everything else.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::app::App;
use crate::blobs::BlobDigest;
use crate::ingest::{CheckedBundle, RefusedBundle, check_bundle, is_bundle, is_seal, open_published, read_seal};
use crate::pool::JobLost;
use crate::repositories::{MANIFEST_LIMIT, Manifest, PutManifest, Reference, Removal, Repository, RepositoryName};
use crate::store::{SealRow, StoreError};

/// Why a manifest is not published. Nothing of it is visible.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    /// Something that it names is not here.
    #[error("the manifest names {digest} of {expected} bytes, found {found}: push it first")]
    Child {
        /// What it names.
        digest: BlobDigest,
        /// Bytes that it says.
        expected: u64,
        /// What is here.
        found: String,
    },
    /// It is a bundle, and not a sound one.
    #[error(transparent)]
    Bundle(#[from] RefusedBundle),
    /// The record could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk said no.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server ends.
    #[error(transparent)]
    Job(#[from] JobLost),
}

/// Publishes a manifest whose digest was checked.
pub(crate) async fn publish(
    app: &Arc<App>,
    name: &RepositoryName,
    put: PutManifest,
    bytes: Bytes,
) -> Result<(), PublishError> {
    let repository = app.repositories.get_or_create(name);
    let _changes = repository.lock_changes().await;
    let digest = put.digest.clone();
    let _pin = app.blobs.pin(&digest);
    let subject = put.manifest.subject.clone();
    let (shared_app, shared_repository) = (Arc::clone(app), Arc::clone(&repository));
    let (put, bundle, seal) =
        app.pool.run(move || check_and_store(&shared_app, &shared_repository, put, &bytes)).await??;
    // With a withdrawal of the same bundle in another repository between these, its debug ids would be lost.
    let _bundle_changes = if bundle.is_some() { Some(app.debug_files.changes.lock().await) } else { None };
    if let Some(bundle) = &bundle {
        app.store.put_bundle(&bundle.row).await?;
    }
    if let (Some(subject), Some(seal)) = (subject, seal) {
        app.store.put_seal(&subject.to_string(), &seal).await?;
    }
    let shared = Arc::clone(&repository);
    app.pool.run(move || shared.publish(put)).await??;
    if let Some(bundle) = bundle {
        show(app, &digest, bundle);
    }
    Ok(())
}

type Stored = (PutManifest, Option<CheckedBundle>, Option<SealRow>);

fn check_and_store(
    app: &App,
    repository: &Repository,
    put: PutManifest,
    bytes: &Bytes,
) -> Result<Stored, PublishError> {
    if let Some(missing) = repository.missing_child(&put.manifest, &app.blobs)? {
        let found = missing.found.map_or_else(|| "nothing".to_owned(), |bytes| format!("{bytes} bytes"));
        return Err(PublishError::Child { digest: missing.digest, expected: missing.expected, found });
    }
    let mut bundle = None;
    if is_bundle(&put.manifest) {
        let mut checked = check_bundle(&put.digest, bytes, repository, &app.blobs)?;
        // A seal may have come first: its subject need not be here.
        checked.row.seal = seal_of(&app.blobs, repository, &put.digest);
        bundle = Some(checked);
    }
    let seal = if is_seal(&put.manifest) { read_seal(bytes, &app.blobs) } else { None };
    app.blobs.write(bytes, &put.digest)?;
    Ok((put, bundle, seal))
}

/// The seal among a bundle's referrers; of several, the one with the smallest digest.
fn seal_of(blobs: &crate::blobs::BlobDirectory, repository: &Repository, bundle: &BlobDigest) -> Option<SealRow> {
    repository
        .referrers(bundle)
        .iter()
        .filter(|(_, manifest)| is_seal(manifest))
        .find_map(|(digest, _)| read_seal(&blobs.read(digest, MANIFEST_LIMIT as u64).ok()?, blobs))
}

fn show(app: &App, digest: &BlobDigest, bundle: CheckedBundle) {
    let (name, version) = (bundle.row.name, bundle.row.version);
    let build_ids = bundle.files.len();
    for conflict in app.debug_files.insert(bundle.files) {
        tracing::warn!(
            debug_id = %conflict.id,
            kind = ?conflict.kind,
            answers = %conflict.answers,
            passed_over = %conflict.passed_over,
            "two bundles have different files for one debug id: both are kept, the one with more debug information answers"
        );
    }
    app.metrics.bundle_published();
    tracing::info!(%digest, name, version, files = build_ids, "bundle published");
}

/// Takes a tag, or a manifest with its tags, out of a repository. What it named is left to the collector.
pub(crate) async fn withdraw(
    app: &Arc<App>,
    name: &RepositoryName,
    reference: &Reference,
) -> Result<Removal, PublishError> {
    let Some(repository) = app.repositories.get(name) else { return Ok(Removal::Missing) };
    let changes = repository.lock_changes().await;
    let removed_bundle = match reference {
        Reference::Digest(_) => {
            repository.manifest(reference).filter(|(_, manifest)| is_bundle(manifest)).map(|(digest, _)| digest)
        }
        Reference::Tag(_) => None,
    };
    let (shared, blobs, wanted) = (Arc::clone(&repository), Arc::clone(&app.blobs), reference.clone());
    let removed = app.pool.run(move || shared.remove(&wanted, &blobs)).await??;
    drop(changes);
    if let (Some(bundle), Removal::Removed) = (removed_bundle, removed) {
        let _bundle_changes = app.debug_files.changes.lock().await;
        let kept = Reference::Digest(bundle.clone());
        if !app.repositories.list().iter().any(|(_, other)| other.manifest(&kept).is_some()) {
            app.debug_files.remove(&bundle);
            app.store.remove_bundle(&bundle.to_string()).await?;
        }
    }
    Ok(removed)
}

/// At the start: makes every published bundle visible to debuggers, and the record what the folders say.
pub(crate) async fn restore(app: &Arc<App>) -> Result<(), PublishError> {
    let shared = Arc::clone(app);
    let bundles = app.pool.run(move || published_bundles(&shared)).await?;
    let recorded = app.store.bundles().await?;
    for stale in recorded.iter().filter(|digest| !bundles.iter().any(|(known, _)| known.to_string() == **digest)) {
        app.store.remove_bundle(stale).await?;
    }
    for (digest, bundle) in bundles {
        if !recorded.contains(&digest.to_string()) {
            app.store.put_bundle(&bundle.row).await?;
        } else if let Some(seal) = &bundle.row.seal {
            app.store.put_seal(&bundle.row.sha256, seal).await?;
        }
        app.debug_files.insert(bundle.files);
    }
    Ok(())
}

fn published_bundles(app: &App) -> Vec<(BlobDigest, CheckedBundle)> {
    let mut bundles: Vec<(BlobDigest, CheckedBundle)> = Vec::new();
    for (name, repository) in app.repositories.list() {
        let is_new = |(digest, manifest): &(BlobDigest, Arc<Manifest>)| {
            is_bundle(manifest) && !bundles.iter().any(|(known, _)| known == digest)
        };
        let found: Vec<_> = repository.manifests().into_iter().filter(is_new).collect();
        for (digest, _) in found {
            let opened = app
                .blobs
                .read(&digest, MANIFEST_LIMIT as u64)
                .map_err(RefusedBundle::from)
                .and_then(|bytes| open_published(&digest, &bytes, &app.blobs));
            match opened {
                Ok(mut bundle) => {
                    bundle.row.seal = seal_of(&app.blobs, &repository, &digest);
                    bundles.push((digest, bundle));
                }
                Err(error) => tracing::error!(repository = %name, %digest, %error, "a published bundle is damaged"),
            }
        }
    }
    bundles
}
