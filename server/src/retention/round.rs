//! Rounds of retention: in a server that runs, or while it is stopped.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

use super::{Decision, Ground, plan};
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::clock::now;
use crate::debug_files::INDEX_FILE;
use crate::ids::BundleEntry;
use crate::ingest::{is_seal, open_published};
use crate::notes::{Notes, PINS};
use crate::publish::withdraw;
use crate::repositories::{MANIFEST_LIMIT, Reference, Removal, RepositoryName};
use crate::seals::Seals;
use crate::shared::Facts;
use crate::store::AuditRow;
use crate::{Config, ServerError, opened, serve};

/// From one round to the next: what is kept for days need not go by the minute.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The first round of a server comes this soon, so that one that is restarted often has some too.
const FIRST_ROUND: Duration = Duration::from_secs(60);

/// What the lines of the audit log have in the place of a request's id.
pub(crate) const AUDIT_ID: &str = "retention";

/// What a round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retained {
    /// Bundles that went, counted in each repository.
    pub gone: u64,
    /// Bundles that rules are about and that stay.
    pub kept: u64,
}

/// Applies the rules of a server at other times too.
#[derive(Debug, Clone)]
pub struct Retention {
    pub(crate) app: Arc<App>,
}

impl Retention {
    /// One round.
    ///
    /// # Errors
    /// The disk, the object store or the database does not answer; the next round goes on.
    pub fn round(&self) -> BoxFuture<'_, io::Result<Retained>> {
        Box::pin(retain(&self.app))
    }
}

/// Applies the rules by the hour, until the server ends.
pub(crate) async fn retain_again(app: Arc<App>) {
    let mut pause = FIRST_ROUND;
    loop {
        tokio::time::sleep(pause).await;
        pause = INTERVAL;
        match retain(&app).await {
            Ok(Retained { gone: 0, .. }) => {}
            Ok(Retained { gone, kept }) => tracing::info!(gone, kept, "bundles went by the rules of retention"),
            Err(error) => tracing::error!(%error, "a round of retention broke off"),
        }
    }
}

async fn retain(app: &Arc<App>) -> io::Result<Retained> {
    let shared = Arc::clone(app);
    let decide = move || {
        let entry = |digest: &BlobDigest| Some(shared.debug_files.bundle(digest)?.entry.as_ref().clone());
        let pins = shared.pins.all()?;
        let (repositories, blobs, seals) = (&shared.repositories, &shared.blobs, &shared.seals);
        plan(&shared.retention, &Ground { repositories, blobs, seals, pins: &pins, entry: &entry }, SystemTime::now())
    };
    let decisions = app.making.run(decide).await.map_err(io::Error::other)??;
    let mut retained = Retained::default();
    for decision in decisions {
        let is_gone = decision.goes && go(app, &decision).await?;
        if is_gone {
            retained.gone += 1;
        } else {
            retained.kept += 1;
        }
    }
    app.metrics.retained(retained.gone);
    Ok(retained)
}

/// Deletes a bundle as the API does, and its seals after it; whether it was there.
async fn go(app: &Arc<App>, decision: &Decision) -> io::Result<bool> {
    let (Ok(name), Ok(digest)) = (decision.repository.parse::<RepositoryName>(), decision.digest.parse::<BlobDigest>())
    else {
        return Ok(false);
    };
    let seals: Vec<BlobDigest> = app
        .repositories
        .get(&name)
        .map(|repository| repository.referrers(&digest))
        .into_iter()
        .flatten()
        .filter(|(_, manifest)| is_seal(manifest))
        .map(|(digest, _)| digest)
        .collect();
    // Somebody may have pinned it since, and then it stays.
    if delete(app, &name, &digest).await? != Removal::Removed {
        return Ok(false);
    }
    tracing::info!(repository = %name, %digest, reason = decision.reason, "a bundle went by the rules of retention");
    for seal in seals {
        delete(app, &name, &seal).await?;
    }
    Ok(true)
}

async fn delete(app: &Arc<App>, name: &RepositoryName, digest: &BlobDigest) -> io::Result<Removal> {
    let removed = withdraw(app, name, &Reference::Digest(digest.clone())).await.map_err(io::Error::other)?.removal;
    if removed == Removal::Removed {
        let entry = AuditRow {
            at: now(),
            request_id: AUDIT_ID.to_owned(),
            token: None,
            address: None,
            method: "DELETE".to_owned(),
            path: format!("/v2/{name}/manifests/{digest}"),
            digest: Some(digest.to_string()),
            status: 202,
        };
        if let Err(error) = app.store.put_audit(&entry).await {
            tracing::error!(%error, ?entry, "a deletion is not in the audit log");
        }
    }
    Ok(removed)
}

/// What the next round would do, also beside running servers: nothing is changed. `trust`: the directory by which the server judges seals. Blocks; call
/// it in a runtime's blocking thread.
///
/// # Errors
/// [`ServerError`]: something cannot be read.
pub fn plan_retention(config: &Config, trust: Option<&Path>) -> Result<Vec<Decision>, ServerError> {
    let failed = |source| ServerError::Data { path: config.data.clone(), source };
    let look = opened::look(config)?;
    let seals = Seals::default();
    if let Some(trust) = trust {
        seals.trust(trust.to_owned())?;
    }
    let facts =
        config.blobs.as_ref().map(opened::objects_of).transpose()?.map(|objects| Arc::new(Facts::reader(objects)));
    let pins: BTreeMap<_, _> = Notes::new(PINS, &config.data, facts).all().map_err(failed)?;
    let entry = |digest: &BlobDigest| -> Option<BundleEntry> {
        let bytes = look.blobs.read(digest, MANIFEST_LIMIT as u64).ok()?;
        Some(open_published(digest, &bytes, &look.blobs).ok()?.new.entry)
    };
    let (repositories, blobs) = (&look.repositories, &look.blobs);
    let ground = Ground { repositories, blobs, seals: &seals, pins: &pins, entry: &entry };
    plan(&config.retention, &ground, SystemTime::now()).map_err(failed)
}

/// One round in the data directory of a server that is stopped.
///
/// # Errors
/// [`ServerError`]: a server uses the directory, or it cannot be read or changed.
pub fn retain_stopped<'a>(config: &'a Config, trust: Option<&'a Path>) -> BoxFuture<'a, Result<Retained, ServerError>> {
    Box::pin(retain_alone(config, trust))
}

async fn retain_alone(config: &Config, trust: Option<&Path>) -> Result<Retained, ServerError> {
    let failed = |source| ServerError::Data { path: config.data.clone(), source };
    let _lock = opened::lock_data(&config.data)?;
    let app = opened::open(config, None).await?;
    if let Some(trust) = trust {
        app.seals.trust(trust.to_owned())?;
        crate::restore::judge_all(&app, None).await.map_err(|error| failed(io::Error::other(error)))?;
    }
    let retained = retain(&app).await.map_err(failed)?;
    serve::save(&app, config.data.join(INDEX_FILE)).await;
    Ok(retained)
}
