//! What the seals of a bundle are worth, in each repository that has it by itself: what one holds is no other one's to tell, to show a bundle by, or to lose.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use crate::app::App;
use crate::blobs::BlobDigest;
use crate::debug_files::{Bundle, Standing};
use crate::ids::BundleEntry;
use crate::repositories::{Reference, RepositoryName};
use crate::seals::{Verdict, seals_in};

/// The repositories that have a manifest.
pub(super) fn holders(app: &App, digest: &BlobDigest) -> BTreeSet<RepositoryName> {
    let wanted = Reference::Digest(digest.clone());
    let all = app.repositories.list().into_iter();
    all.filter(|(_, repository)| repository.manifest(&wanted).is_some()).map(|(name, _)| name).collect()
}

/// What the seals of a bundle in a repository are worth, with those that come there now. Blocks.
///
/// # Errors
/// One of them cannot be read now.
pub(super) fn judge_in(
    app: &App,
    name: &RepositoryName,
    entry: &BundleEntry,
    bundle: &BlobDigest,
    arriving: &[Vec<u8>],
) -> io::Result<Verdict> {
    let mut seals = match app.repositories.get(name) {
        Some(repository) => seals_in(&repository, bundle, &app.blobs)?,
        None => Vec::new(),
    };
    seals.extend(arriving.iter().cloned());
    Ok(app.seals.judge(entry, &seals))
}

/// Where a bundle stands that is in these repositories. Blocks.
///
/// # Errors
/// A seal cannot be read now.
pub(super) fn standing_in(
    app: &App,
    entry: &BundleEntry,
    bundle: &BlobDigest,
    repositories: BTreeSet<RepositoryName>,
) -> io::Result<Standing> {
    let judge = |name: RepositoryName| judge_in(app, &name, entry, bundle, &[]).map(|verdict| (name, verdict));
    repositories.into_iter().map(judge).collect()
}

/// Judges every bundle anew and says where it is, or that it is gone.
pub(crate) async fn reconsider_all(app: &Arc<App>) -> io::Result<()> {
    let _bundle_changes = app.debug_files.changes.lock().await;
    let shared = Arc::clone(app);
    let all = move || {
        for (digest, known) in shared.debug_files.bundles() {
            let standing = judge(&shared, &digest, &known, holders(&shared, &digest));
            shared.debug_files.set([(digest, standing)]);
        }
    };
    app.pool.run(all).await.map_err(io::Error::other)
}

/// Judges a bundle anew and says where it is, or that it is gone. Call it with the lock of changes. Blocks.
pub(super) fn reconsider(app: &App, bundle: &BlobDigest) {
    let Some(known) = app.debug_files.bundle(bundle) else { return };
    let standing = judge(app, bundle, &known, holders(app, bundle));
    app.debug_files.set([(bundle.clone(), standing)]);
}

/// What the seals of a known bundle are worth now, in each of the repositories that have it. Where they cannot be read now they are worth what they were. Blocks.
pub(crate) fn judge(
    app: &App,
    bundle: &BlobDigest,
    known: &Bundle,
    repositories: BTreeSet<RepositoryName>,
) -> Standing {
    let judge = |name: RepositoryName| {
        let verdict = judge_again(app, bundle, known, &name).unwrap_or_else(|error| {
            tracing::warn!(digest = %bundle, repository = %name, %error, "the seals of a bundle cannot be judged again");
            known.standing.in_repository(&name).cloned().unwrap_or_default()
        });
        (name, verdict)
    };
    repositories.into_iter().map(judge).collect()
}

/// [`judge`], for those who need the verdicts.
///
/// # Errors
/// A seal cannot be read now.
pub(crate) fn judge_now(
    app: &App,
    bundle: &BlobDigest,
    known: &Bundle,
    repositories: BTreeSet<RepositoryName>,
) -> io::Result<Standing> {
    let judge = |name: RepositoryName| judge_again(app, bundle, known, &name).map(|verdict| (name, verdict));
    repositories.into_iter().map(judge).collect()
}

fn judge_again(app: &App, bundle: &BlobDigest, known: &Bundle, name: &RepositoryName) -> io::Result<Verdict> {
    let verdict = judge_in(app, name, &known.entry, bundle, &[])?;
    if known.standing.in_repository(name) != Some(&verdict) {
        tell_of_verdict(bundle, name, &verdict);
    }
    Ok(verdict)
}

pub(super) fn tell_of_verdict(digest: &BlobDigest, name: &RepositoryName, verdict: &Verdict) {
    match verdict {
        Verdict::Sealed(by) => {
            tracing::info!(%digest, repository = %name, signers = by.signers.join(","), log = by.log, "bundle sealed");
        }
        Verdict::Refused(why) => {
            tracing::warn!(%digest, repository = %name, check = why.check, expected = why.expected, found = why.found, "no seal of the bundle holds");
        }
        Verdict::Unjudged | Verdict::Unsealed => {}
    }
}
