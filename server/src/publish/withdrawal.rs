//! The order of steps in which a manifest goes: the file in its repository's folder, what debuggers see of a bundle, then the record, which a start makes
//! again from the folder.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::PublishError;
use super::judging::{holders, reconsider};
use super::record::record_seal;
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::ingest::is_seal;
use crate::repositories::{Reference, Removal, RepositoryName};

/// Between two tries to record a deletion that the database did not take.
const RECORD_AGAIN: Duration = Duration::from_secs(5);

/// What came of a deletion.
pub(crate) struct Withdrawn {
    pub(crate) removal: Removal,
    /// The manifest that was meant, or that the tag named; `None` where there was none.
    pub(crate) digest: Option<BlobDigest>,
}

/// Takes a tag, or a manifest with its tags, out of a repository. What it named is left to the collector.
///
/// # Errors
/// [`PublishError::Store`]: the database is away, and nothing was changed: what follows the folder, a bundle's record and the line of the audit log, would be lost.
pub(crate) async fn withdraw(
    app: &Arc<App>,
    name: &RepositoryName,
    reference: &Reference,
) -> Result<Withdrawn, PublishError> {
    app.store.ping().await?;
    withdraw_in_any_case(app, name, reference).await
}

/// [`withdraw`] without asking first whether the database takes it: of what must not stay.
pub(super) async fn withdraw_in_any_case(
    app: &Arc<App>,
    name: &RepositoryName,
    reference: &Reference,
) -> Result<Withdrawn, PublishError> {
    // Another server may have changed what is to go.
    app.catch_up().await?;
    let Some(repository) = app.repositories.get(name) else {
        return Ok(Withdrawn { removal: Removal::Missing, digest: None });
    };
    let changes = repository.lock_changes().await;
    let meant = repository.manifest(reference);
    let digest = meant.as_ref().map(|(digest, _)| digest.clone());
    // The bundle whose standing changes.
    let concerned = match reference {
        Reference::Digest(_) => meant.and_then(|(digest, manifest)| {
            let subject = manifest.subject.clone().filter(|_| is_seal(&manifest));
            app.debug_files.bundle(&digest).map(|_| digest).or(subject)
        }),
        Reference::Tag(_) => None,
    };
    let (shared, blobs, pins, wanted) =
        (Arc::clone(&repository), Arc::clone(&app.blobs), Arc::clone(&app.pins), reference.clone());
    let is_pinned = move |digest: &BlobDigest| Ok(pins.get(digest)?.is_some());
    let removal = app.pool.run(move || shared.remove_unless(is_pinned, &wanted, &blobs)).await??;
    drop(changes);
    if let (Some(concerned), Removal::Removed) = (concerned, removal) {
        let _bundle_changes = app.debug_files.changes.lock().await;
        let (shared, bundle) = (Arc::clone(app), concerned.clone());
        app.pool.run(move || reconsider(&shared, &bundle)).await?;
        if let Err(error) = record_withdrawal(app, &concerned).await {
            // What is deleted is deleted: who hears of a failure would try again, and find nothing.
            tracing::error!(digest = %concerned, %error, "a deletion is not recorded yet, and is tried again");
            tokio::spawn(record_withdrawal_later(Arc::downgrade(app), concerned));
        }
    }
    Ok(Withdrawn { removal, digest })
}

/// Records what is left of a bundle: nothing, or its seals. Call it with the lock of changes.
async fn record_withdrawal(app: &Arc<App>, bundle: &BlobDigest) -> Result<(), PublishError> {
    let (shared, wanted) = (Arc::clone(app), bundle.clone());
    let is_gone = app.pool.run(move || holders(&shared, &wanted).is_empty()).await?;
    match is_gone {
        true => Ok(app.store.remove_bundle(&bundle.to_string()).await?),
        false => record_seal(app, bundle).await,
    }
}

/// For a database that went away after it was asked, until it is back or the server ends; then a start does it.
async fn record_withdrawal_later(app: Weak<App>, bundle: BlobDigest) {
    loop {
        tokio::time::sleep(RECORD_AGAIN).await;
        let Some(app) = app.upgrade() else { return };
        // Nobody waits for the time that a database takes to be away.
        let recorded = match app.store.ping().await {
            Ok(()) => {
                let _bundle_changes = app.debug_files.changes.lock().await;
                record_withdrawal(&app, &bundle).await
            }
            Err(error) => Err(error.into()),
        };
        match recorded {
            Ok(()) => return,
            Err(error) => tracing::warn!(digest = %bundle, %error, "a deletion is not recorded yet"),
        }
    }
}
