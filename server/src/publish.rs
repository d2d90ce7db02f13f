//! The order of steps in which a manifest becomes visible; [`withdrawal`] has those in which it goes again, and
//! [`mod@record`] what the database says of it.
//!
//! Check, store the bytes, record, then one file in the repository's folder: that rename is the moment. Before it
//! nothing is visible; after it a restart rebuilds everything else. What debuggers see of a bundle follows in one step:
//! where its repository asks for a seal, with the seal.

mod judging;
mod record;
mod withdrawal;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use symseal_module::DebugId;

use crate::access::{Caller, CallerError};
use crate::app::App;
use crate::blobs::{BlobDigest, unless_lost};
use crate::debug_files::{Claim, NewBundle, SecondOwner, Standing};
use crate::ids::TooLarge;
use crate::ingest::{
    CheckedBundle, RefusedBundle, RefusedLoose, check_bundle, check_loose, is_bundle, is_loose, is_seal,
    open_published, read_seal,
};
use crate::pool::JobLost;
use crate::quotas::OverQuota;
use crate::repositories::{MANIFEST_LIMIT, Manifest, PutManifest, Reference, Repository, RepositoryName, Tag};
use crate::seals::seal_layers;
use crate::shared::Promise;
use crate::store::{BundleRow, SealRow, StoreError};
use crate::takedown::IsTakenDown;

use judging::{holders, judge_in, reconsider, standing_in, tell_of_verdict};
pub(crate) use judging::{judge, judge_now, reconsider_all};
use record::record_seal;
pub(crate) use record::{concerned, here_or_recorded, mend, record};
pub(crate) use withdrawal::{Withdrawn, withdraw};

/// Ids of one bundle that alerts are given for.
const ALERTS_LIMIT: usize = 20;

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
    /// It is here with another media type.
    #[error("{digest} is there as {before}: expected that as Content-Type, found {now}")]
    Type {
        /// The manifest's digest.
        digest: BlobDigest,
        /// The media type that it was published with.
        before: String,
        /// The one that it was sent with.
        now: String,
    },
    /// It is a bundle, and not a sound one.
    #[error(transparent)]
    Bundle(#[from] RefusedBundle),
    /// It is a loose file, and not a usable one.
    #[error(transparent)]
    Loose(#[from] RefusedLoose),
    /// It would put other bytes beside those of somebody else's sealed bundle.
    #[error(
        "debug id {} has the file {} in the sealed bundle {} of {:?}, this one would offer {}: an id stands for one file, so give the module another id (link it again, or another --build-id), offer the same file, push to the repository of the sealed bundle under its name, or have that bundle deleted",
        .0.id, .0.sealed, .0.bundle, .0.name, .0.offered
    )]
    SecondOwner(Box<SecondOwner>),
    /// The same, where the caller may read no repository that has the sealed bundle: of that it learns nothing more.
    #[error(
        "debug id {id} has another file than {offered} in a sealed bundle that this caller may not read: an id stands for one file, so give the module another id (link it again, or another --build-id), offer the same file, or ask the server's operator, whose alerts tell of this"
    )]
    HiddenOwner {
        /// The debug id.
        id: DebugId,
        /// The file that was refused.
        offered: BlobDigest,
    },
    /// The caller's token holds no longer.
    #[error(transparent)]
    Caller(#[from] CallerError),
    /// It, or something that it names, was taken down.
    #[error(transparent)]
    TakenDown(#[from] Box<IsTakenDown>),
    /// It is more than its repository may hold.
    #[error(transparent)]
    Quota(#[from] OverQuota),
    /// There are more ids than the index takes.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
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

/// What a manifest is to debuggers.
enum Arrival {
    /// Something with ids.
    Files { new: NewBundle, row: Option<Box<BundleRow>> },
    /// What may make a bundle visible.
    Seal { subject: BlobDigest, seals: Vec<Vec<u8>> },
    /// Nothing.
    Other,
}

/// Publishes a manifest whose digest was checked. What is answered to the caller tells of nothing that it may not read.
pub(crate) async fn publish(
    app: &Arc<App>,
    caller: &Caller,
    name: &RepositoryName,
    put: PutManifest,
    bytes: Bytes,
) -> Result<(), PublishError> {
    // Where a tag led to what was taken down, its end waits for nobody else, and must not take the tag that is set here.
    let behind = |tag: &Tag| app.repositories.get(name)?.hidden_behind(&Reference::Tag(tag.clone()));
    let ended = put.tags.iter().filter_map(behind);
    let relied_on: Vec<BlobDigest> = put.manifest.child_digests().chain([&put.digest]).cloned().chain(ended).collect();
    let (digest, manifest) = (put.digest.clone(), put.manifest.clone());
    let promise = app.reprieve(Some(name), &relied_on).await?;
    // What it names may have come to another server.
    app.catch_up().await?;
    publish_here(app, caller, name, put, bytes).await?;
    if promise.holds() {
        return Ok(());
    }
    // It took so long that some of it may have gone before anybody saw that it is relied on.
    let _: Promise = app.promise(Some(name), &relied_on).await?;
    let repository = app.repositories.get_or_create(name);
    let (shared, blobs, wanted) = (Arc::clone(&repository), Arc::clone(&app.blobs), digest.clone());
    let look = move || -> io::Result<_> {
        blobs.keep(&wanted)?;
        shared.missing_child(&manifest, &blobs)
    };
    let missing = app.pool.run(look).await??;
    if missing.is_none() && repository.manifest(&Reference::Digest(digest.clone())).is_some() {
        return Ok(());
    }
    withdrawal::withdraw_in_any_case(app, name, &Reference::Digest(digest)).await?;
    let problem = "what the manifest names was collected while it was stored, which took too long: push it again";
    Err(io::Error::new(io::ErrorKind::HostUnreachable, problem).into())
}

async fn publish_here(
    app: &Arc<App>,
    caller: &Caller,
    name: &RepositoryName,
    put: PutManifest,
    bytes: Bytes,
) -> Result<(), PublishError> {
    let repository = app.repositories.get_or_create(name);
    let _changes = repository.lock_changes().await;
    app.taken_down.check_manifest(&put.digest, &put.manifest, &repository).map_err(Box::new)?;
    let hidden = repository.hidden_subject(&put.manifest, |digest| app.taken_down.has(digest));
    hidden.map_or(Ok(()), |subject| app.taken_down.check(&subject, Some(&repository))).map_err(Box::new)?;
    // What a digest answers with stays as it was published: bytes that do not say their type themselves could be given another one.
    let known = repository.manifest(&Reference::Digest(put.digest.clone())).map(|(_, known)| known.media_type.clone());
    if let Some(before) = known.filter(|known| *known != put.manifest.media_type) {
        return Err(PublishError::Type { digest: put.digest, before, now: put.manifest.media_type });
    }
    let more = repository.would_add(&put.digest, &put.manifest);
    let _reserved = app.quotas.reserve(&app.repositories, name, more).inspect_err(|_| app.quotas.count_refusal())?;
    let digest = put.digest.clone();
    let _pin = app.blobs.pin(&digest);
    let (shared_app, shared_repository) = (Arc::clone(app), Arc::clone(&repository));
    let (put, arrival) = app.pool.run(move || check_and_store(&shared_app, &shared_repository, put, &bytes)).await??;
    let subject = match arrival {
        Arrival::Other => {
            app.access.check_again(caller).await?;
            let shared = Arc::clone(&repository);
            app.pool.run(move || shared.publish(put)).await??;
            return Ok(());
        }
        Arrival::Files { .. } => digest,
        Arrival::Seal { ref subject, .. } => subject.clone(),
    };
    // With a withdrawal of the same bundle in another repository between these, its debug ids would be lost.
    let _bundle_changes = app.debug_files.changes.lock().await;
    let (shared, from, here) = (Arc::clone(app), caller.clone(), name.clone());
    let (arrival, standing) =
        app.pool.run(move || admit(&shared, &from, &here, &arrival).map(|standing| (arrival, standing))).await??;
    // Who sends slowly, or waits for others, may have had the right to it when that began alone.
    app.access.check_again(caller).await?;
    match &arrival {
        Arrival::Files { row: Some(row), .. } => app.store.put_bundle(row).await?,
        // Its record follows what is visible: a seal that could not be recorded is not to be seen first.
        Arrival::Seal { .. } if standing.is_some() => app.store.ping().await?,
        _ => {}
    }
    let shared = Arc::clone(&repository);
    app.pool.run(move || shared.publish(put)).await??;
    let Some(standing) = standing else { return Ok(()) };
    if matches!(arrival, Arrival::Seal { .. }) {
        record_seal(app, &subject).await?;
    }
    let shared = Arc::clone(app);
    let here = name.clone();
    app.pool.run(move || show(&shared, &subject, &here, arrival, standing)).await?
}

fn check_and_store(
    app: &App,
    repository: &Repository,
    put: PutManifest,
    bytes: &Bytes,
) -> Result<(PutManifest, Arrival), PublishError> {
    if let Some(missing) = repository.missing_child(&put.manifest, &app.blobs)? {
        let found = missing.found.map_or_else(|| "nothing".to_owned(), |bytes| format!("{bytes} bytes"));
        return Err(PublishError::Child { digest: missing.digest, expected: missing.expected, found });
    }
    let arrival = if is_bundle(&put.manifest) {
        let CheckedBundle { mut row, new } = check_bundle(&put.digest, bytes, repository, &app.blobs)?;
        // A seal may have come first: its subject need not be here.
        row.seal = seal_of(app, &BTreeSet::new(), Some(repository), &put.digest)?;
        Arrival::Files { new, row: Some(Box::new(row)) }
    } else if is_loose(&put.manifest) {
        Arrival::Files { new: check_loose(&put.digest, bytes, &app.blobs)?, row: None }
    } else if let Some(subject) = put.manifest.subject.clone().filter(|_| is_seal(&put.manifest)) {
        let layers = seal_layers(bytes);
        let read = |layer: &BlobDigest| unless_lost(app.blobs.read(layer, symseal_seal::SEAL_LIMIT as u64)).transpose();
        Arrival::Seal { subject, seals: layers.iter().filter_map(read).collect::<io::Result<_>>()? }
    } else {
        Arrival::Other
    };
    app.blobs.write(bytes, &put.digest)?;
    Ok((put, arrival))
}

/// Where what arrives will stand; `None` for a seal of what is not here. Refuses what would be a second owner's. Blocks.
fn admit(
    app: &App,
    caller: &Caller,
    name: &RepositoryName,
    arrival: &Arrival,
) -> Result<Option<Standing>, PublishError> {
    let (bundle, entry, arriving) = match arrival {
        Arrival::Files { new, .. } => (new.digest.clone(), new.entry.clone(), &[][..]),
        Arrival::Seal { subject, seals } => match app.debug_files.bundle(subject) {
            Some(known) => (subject.clone(), known.entry.as_ref().clone(), seals.as_slice()),
            None => return Ok(None),
        },
        Arrival::Other => return Ok(None),
    };
    let mut repositories = holders(app, &bundle);
    if let Arrival::Files { .. } = arrival {
        repositories.insert(name.clone());
    } else if !repositories.contains(name) {
        // Of the repositories that have the bundle it changes nothing.
        return Ok(None);
    }
    let verdict = judge_in(app, name, &entry, &bundle, arriving)?;
    let known = app.debug_files.bundle(&bundle).map(|known| known.standing).unwrap_or_default();
    let is_new_claim = known.in_repository(name).is_none_or(|before| verdict.is_sealed() && !before.is_sealed());
    if is_new_claim && app.seals.are_judged() {
        let own;
        let files = match arrival {
            Arrival::Files { new, .. } => &new.files,
            _ => {
                own = app.debug_files.files_of(&bundle);
                &own
            }
        };
        let name_of = if entry.is_loose { "" } else { entry.name.as_str() };
        // Where a seal is required nothing is seen before it, so the seal says who the owner is.
        let is_awaited = !entry.is_loose && app.debug_files.requires_seal(name);
        // Whoever sealed it for another repository is its owner here as well.
        let is_sealed = verdict.is_sealed() || known.is_sealed_somewhere() || is_awaited;
        let claim = Claim { bundle: &bundle, name: name_of, repository: name, is_sealed, files };
        if let Some(refused) = app.debug_files.second_owner(&claim) {
            app.alerts.second_owner(name, &refused);
            let owner = app.debug_files.bundle(&refused.bundle).map(|owner| owner.standing).unwrap_or_default();
            return Err(match owner.among(|name| caller.may_read(name)).is_sealed() {
                true => PublishError::SecondOwner(Box::new(refused)),
                false => PublishError::HiddenOwner { id: refused.id, offered: refused.offered },
            });
        }
    }
    repositories.remove(name);
    let elsewhere = standing_in(app, &entry, &bundle, repositories)?;
    Ok(Some(elsewhere.with(name.clone(), verdict)))
}

/// What the database records of a bundle's seals; of several, the one with the smallest digest. Blocks.
pub(crate) fn seal_of(
    app: &App,
    repositories: &BTreeSet<RepositoryName>,
    more: Option<&Repository>,
    bundle: &BlobDigest,
) -> io::Result<Option<SealRow>> {
    let found: Vec<Arc<Repository>> = repositories.iter().filter_map(|name| app.repositories.get(name)).collect();
    let all = found.iter().map(AsRef::as_ref).chain(more);
    let mut seals: Vec<BlobDigest> = all
        .flat_map(|repository| repository.referrers(bundle))
        .filter(|(_, manifest)| is_seal(manifest))
        .map(|(digest, _)| digest)
        .collect();
    seals.sort();
    for digest in &seals {
        let Some(bytes) = unless_lost(app.blobs.read(digest, MANIFEST_LIMIT as u64))? else { continue };
        if let Some(row) = read_seal(&bytes, &app.blobs)? {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

/// The moment for debuggers. Blocks.
fn show(
    app: &App,
    digest: &BlobDigest,
    name: &RepositoryName,
    arrival: Arrival,
    standing: Standing,
) -> Result<(), PublishError> {
    let was_shown = app.debug_files.is_shown(digest);
    let verdict = standing.in_repository(name).cloned().unwrap_or_default();
    let files = match arrival {
        Arrival::Files { new, row } => {
            let files = new.files.clone();
            app.debug_files.insert(vec![(new, standing.clone())])?;
            if let Some(row) = row {
                app.metrics.bundle_published();
                tracing::info!(%digest, name = row.name, version = row.version, files = files.len(), seal = verdict.code(), "bundle published");
            }
            Some(files)
        }
        Arrival::Seal { .. } | Arrival::Other => None,
    };
    app.debug_files.set([(digest.clone(), standing)]);
    tell_of_verdict(digest, name, &verdict);
    if !was_shown && app.debug_files.is_shown(digest) {
        let files = files.unwrap_or_else(|| app.debug_files.files_of(digest));
        app.debug_files.contested(&files, ALERTS_LIMIT).iter().for_each(|contested| app.alerts.contested(contested));
    }
    Ok(())
}

/// Makes what another server published visible to debuggers.
pub(crate) async fn learn(app: &Arc<App>, digest: &BlobDigest, manifest: &Manifest) -> io::Result<()> {
    let _bundle_changes = app.debug_files.changes.lock().await;
    let (shared, wanted, manifest) = (Arc::clone(app), digest.clone(), manifest.clone());
    let learn = move || -> io::Result<()> {
        let bundle = if is_bundle(&manifest) || is_loose(&manifest) {
            if shared.debug_files.bundle(&wanted).is_none() {
                let new = read_published(&shared, &wanted, is_loose(&manifest))?;
                let repositories = holders(&shared, &wanted);
                if repositories.is_empty() {
                    // Deleted meanwhile.
                    return Ok(());
                }
                // In one step with its seals.
                let standing = standing_in(&shared, &new.entry, &wanted, repositories)?;
                return shared.debug_files.insert(vec![(new, standing)]).map_err(invalid);
            }
            wanted
        } else {
            let Some(subject) = manifest.subject.clone().filter(|_| is_seal(&manifest)) else { return Ok(()) };
            subject
        };
        reconsider(&shared, &bundle);
        Ok(())
    };
    app.pool.run(learn).await.map_err(invalid)?
}

/// What another try cannot mend.
fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn read_published(app: &App, digest: &BlobDigest, is_loose: bool) -> io::Result<NewBundle> {
    let bytes = app.blobs.read(digest, MANIFEST_LIMIT as u64)?;
    if is_loose {
        check_loose(digest, &bytes, &app.blobs).map_err(|error| match error {
            RefusedLoose::Io(error) => error,
            error => invalid(error),
        })
    } else {
        let opened = open_published(digest, &bytes, &app.blobs).map_err(|error| match error {
            RefusedBundle::Io(error) => error,
            error => invalid(error),
        });
        Ok(opened?.new)
    }
}

/// Takes what another server deleted from debuggers' sight.
pub(crate) async fn unlearn(app: &Arc<App>, digest: &BlobDigest, manifest: &Manifest) -> io::Result<()> {
    let subject = manifest.subject.clone().filter(|_| is_seal(manifest));
    let Some(concerned) = app.debug_files.bundle(digest).map(|_| digest.clone()).or(subject) else { return Ok(()) };
    let _bundle_changes = app.debug_files.changes.lock().await;
    let shared = Arc::clone(app);
    app.pool.run(move || reconsider(&shared, &concerned)).await.map_err(invalid)?;
    Ok(())
}
