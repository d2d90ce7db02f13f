//! What a start finds: every published bundle is seen by debuggers again, and the record says what the folders say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt as _;

use crate::app::App;
use crate::blobs::{BlobDigest, is_lasting};
use crate::debug_files::{Bundle, NewBundle, Standing};
use crate::ingest::{CheckedBundle, RefusedBundle, RefusedLoose, check_loose, is_bundle, is_loose, open_published};
use crate::publish::{PublishError, judge, judge_now, seal_of};
use crate::repositories::{MANIFEST_LIMIT, Prefix, RepositoryName};
use crate::side_by_side::{REQUESTS_AT_ONCE, side_by_side, waiting_side_by_side};
use crate::store::{BundleRow, SealRow};

/// Makes every published bundle visible to debuggers, and the record what the folders say.
pub(crate) async fn restore(app: &Arc<App>, index_file: PathBuf) -> Result<(), PublishError> {
    let shared = Arc::clone(app);
    let load = move || {
        let published = published(&shared);
        let standing = |digest: &BlobDigest| {
            let (_, repositories) = published.get(digest)?.clone();
            Some(Standing::unjudged(repositories))
        };
        shared.debug_files.load(&index_file, standing);
        published
    };
    let published = app.pool.run(load).await?;
    let recorded: BTreeMap<String, Option<String>> = app.store.bundles().await?.into_iter().collect();
    let is_bundle_here = |digest: &BlobDigest| published.get(digest).is_some_and(|(is_loose, _)| !is_loose);
    for recorded in recorded.keys() {
        let digest = recorded.parse::<BlobDigest>().ok();
        if digest.as_ref().is_some_and(is_bundle_here) {
            continue;
        }
        match (&app.follower, digest) {
            // Another server may be about to publish it: it is looked at once this one follows.
            (Some(follower), Some(digest)) => follower.may_be_recorded_wrongly([digest]),
            _ => app.store.remove_bundle(recorded).await?,
        }
    }
    let mut new = Vec::new();
    let look = |(digest, (is_loose, repositories))| {
        let is_recorded = recorded.contains_key(&BlobDigest::to_string(&digest));
        look_at(app, digest, is_loose, repositories, is_recorded)
    };
    // Where bundles are in an object store, each takes several of its answers.
    let mut looking = futures_util::stream::iter(published).map(look).buffered(REQUESTS_AT_ONCE);
    while let Some(found) = looking.next().await {
        let Some(Found { digest, row, seal, files }) = found? else { continue };
        new.extend(files);
        let Some(seal) = seal else { continue };
        let text = digest.to_string();
        if let Some(row) = row {
            app.store.put_bundle(&row).await?;
        }
        if recorded.get(&text).cloned().flatten() != seal.as_ref().map(|seal| seal.seal_digest.clone()) {
            app.store.put_seal(&text, seal.as_ref()).await?;
        }
    }
    drop(looking);
    let shared = Arc::clone(app);
    app.pool.run(move || shared.debug_files.insert(new)).await??;
    Ok(())
}

/// What a start finds of a bundle or a loose file.
struct Found {
    digest: BlobDigest,
    /// What the record lacks.
    row: Option<Box<BundleRow>>,
    /// The seal that is recorded of a bundle, or none; `None` for a loose file.
    seal: Option<Option<SealRow>>,
    /// What the index lacks.
    files: Option<(NewBundle, Standing)>,
}

/// Reads what the record and the index do not know; `None` for what is damaged.
async fn look_at(
    app: &Arc<App>,
    digest: BlobDigest,
    is_loose: bool,
    repositories: BTreeSet<RepositoryName>,
    is_recorded: bool,
) -> Result<Option<Found>, PublishError> {
    if is_loose {
        let files = loose(app, digest.clone(), repositories).await?;
        return Ok(Some(Found { digest, row: None, seal: None, files }));
    }
    let (shared, wanted, among) = (Arc::clone(app), digest.clone(), repositories.clone());
    let seal = app.pool.run(move || seal_of(&shared, &among, None, &wanted)).await??;
    if is_recorded && app.debug_files.bundle(&digest).is_some() {
        return Ok(Some(Found { digest, row: None, seal: Some(seal), files: None }));
    }
    let (shared, wanted) = (Arc::clone(app), digest.clone());
    let CheckedBundle { row, new } = match app.pool.run(move || open(&shared, &wanted)).await? {
        Ok(bundle) => bundle,
        // Not damaged: it could not be looked at, and left out it would stay away until the next start.
        Err(RefusedBundle::Io(error)) if !is_lasting(&error) => return Err(error.into()),
        Err(error) => {
            tracing::error!(%digest, %error, "a published bundle is damaged");
            return Ok(None);
        }
    };
    let row = (!is_recorded).then(|| Box::new(row));
    let files = Some((new, Standing::unjudged(repositories)));
    Ok(Some(Found { digest, row, seal: Some(seal), files }))
}

/// By digest: whether it is a loose file, and the repositories that have it.
type Published = BTreeMap<BlobDigest, (bool, BTreeSet<RepositoryName>)>;

/// All bundles and loose files.
fn published(app: &App) -> Published {
    let mut found = Published::new();
    for (name, repository) in app.repositories.list() {
        for (digest, manifest) in repository.manifests() {
            if is_bundle(&manifest) || is_loose(&manifest) {
                let (_, names) = found.entry(digest).or_insert_with(|| (is_loose(&manifest), BTreeSet::new()));
                names.insert(name.clone());
            }
        }
    }
    found
}

/// A loose file that the index does not know.
async fn loose(
    app: &Arc<App>,
    digest: BlobDigest,
    repositories: BTreeSet<RepositoryName>,
) -> Result<Option<(NewBundle, Standing)>, PublishError> {
    if app.debug_files.bundle(&digest).is_some() {
        return Ok(None);
    }
    let (shared, wanted) = (Arc::clone(app), digest.clone());
    let read = move || -> Result<NewBundle, RefusedLoose> {
        let manifest = shared.blobs.read(&wanted, MANIFEST_LIMIT as u64)?;
        check_loose(&wanted, &manifest, &shared.blobs)
    };
    match app.pool.run(read).await? {
        Ok(new) => Ok(Some((new, Standing::unjudged(repositories)))),
        Err(RefusedLoose::Io(error)) if !is_lasting(&error) => Err(error.into()),
        Err(error) => {
            tracing::error!(%digest, %error, "a loose file is damaged");
            Ok(None)
        }
    }
}

fn open(app: &App, digest: &BlobDigest) -> Result<CheckedBundle, RefusedBundle> {
    let bytes = app.blobs.read(digest, MANIFEST_LIMIT as u64)?;
    open_published(digest, &bytes, &app.blobs)
}

/// Judges every bundle by what the trust directory says now, and shows what follows in one step. A start (`required`) fails where a seal cannot be
/// read: a bundle that needs one would be hidden until its seals are judged again.
pub(crate) async fn judge_all(app: &Arc<App>, required: Option<Vec<Prefix>>) -> Result<(), PublishError> {
    let _changes = app.debug_files.changes.lock().await;
    let shared = Arc::clone(app);
    let judge_them = move || -> Result<(), PublishError> {
        let bundles = shared.debug_files.bundles();
        let is_start = required.is_some();
        let judge_one = |(digest, known): &(BlobDigest, Bundle)| {
            let repositories = known.standing.repositories().cloned().collect();
            let standing = if is_start {
                judge_now(&shared, digest, known, repositories)?
            } else {
                judge(&shared, digest, known, repositories)
            };
            Ok((digest.clone(), standing))
        };
        let judged = match shared.blobs.objects() {
            Some(_) => waiting_side_by_side(&bundles, judge_one)?,
            None => side_by_side(&bundles, judge_one)?,
        };
        shared.debug_files.set(judged);
        if let Some(required) = required {
            shared.debug_files.require_seals(required);
        }
        Ok(())
    };
    app.pool.run(judge_them).await?
}
