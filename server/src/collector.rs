//! Collection of blobs that nothing names, while the server answers or while it is stopped.
//!
//! Two steps. First, in each repository: a blob that no manifest of it names, and that no client was told of for the
//! grace period, is no longer offered. Then the bytes of what no repository, manifest or trace names go, if they are
//! older than the grace period and no request relies on them ([`Pin`](crate::blobs::Pin)). Manifests are deleted by name
//! and not collected, but for those that came with one that was deleted, as part of an index or as referrer. A crash between any two steps leaves bytes that the next round takes.
//!
//! Servers that share an object store collect as `shared` says.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use symseal_seal::UtcSeconds;

use crate::app::App;
use crate::blobs::{Algorithm, BlobDigest, BlobDirectory, Uploads, Watch};
use crate::ingest::{is_bundle, is_loose};
use crate::made_whole::tell;
use crate::metrics::Metrics;
use crate::opened::Loaded;
use crate::pool::Pool;
use crate::repositories::Repositories;
use crate::shared::collect;
use crate::takedown::TakenDown;
use crate::traces::Traces;
use crate::{Config, ServerError};
use futures_util::future::BoxFuture;

/// Blobs that a repository ceases to offer in one turn; other changes of its manifests wait so long.
const LINKS_IN_ONE_TURN: usize = 256;

/// The first round of a server comes this soon, so that one that is restarted often collects too.
const FIRST_ROUND: Duration = Duration::from_secs(60);

/// Why an object store of one server is not collected.
pub(crate) const UNSHARED: &str = "blobs in an object store are collected where its servers share a PostgreSQL (database): with a SQLite of its own no server knows what another one has told a client";

/// What is wrong with no grace at all.
pub(crate) const NO_GRACE: &str = "gc.grace is 0s: what a client has sent can be taken from it before the manifest comes that names it; expected more time than the slowest push takes, such as 24h";

/// When a server collects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// From the end of one round to the next.
    pub interval: Duration,
    /// How long a blob stays that nothing names: the longest that a client may take from asking for or sending its
    /// first blob to sending the manifest.
    pub grace: Duration,
}

/// What a round took away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Manifests of indexes, and referrers of subjects, that were deleted.
    pub manifests: u64,
    /// Blobs that a repository no longer offers, counted in each.
    pub unlinked: u64,
    /// Files of blobs that are gone.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Upload sessions that were abandoned.
    pub sessions: u64,
}

/// Collects, one round at a time.
#[derive(Debug)]
pub struct Collector {
    pool: Pool,
    blobs: Arc<BlobDirectory>,
    uploads: Arc<Uploads>,
    repositories: Arc<Repositories>,
    traces: Arc<Traces>,
    taken_down: Arc<TakenDown>,
    metrics: Arc<Metrics>,
    /// Of a server that shares an object store with others.
    shared: Option<Arc<App>>,
    turn: tokio::sync::Mutex<()>,
    stopped: AtomicBool,
    stop: tokio::sync::Notify,
}

impl Collector {
    pub(crate) fn new(
        pool: Pool,
        blobs: Arc<BlobDirectory>,
        uploads: Arc<Uploads>,
        repositories: Arc<Repositories>,
        traces: Arc<Traces>,
        taken_down: Arc<TakenDown>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (shared, turn, stopped, stop) = Default::default();
        Self { pool, blobs, uploads, repositories, traces, taken_down, metrics, shared, turn, stopped, stop }
    }

    /// Of a server.
    pub(crate) fn of(app: &Arc<App>) -> Self {
        let shared = app.follower.is_some().then(|| Arc::clone(app));
        let new = Self::new(
            app.pool.clone(),
            Arc::clone(&app.blobs),
            Arc::clone(&app.uploads),
            Arc::clone(&app.repositories),
            Arc::clone(&app.traces),
            Arc::clone(&app.taken_down),
            Arc::clone(&app.metrics),
        );
        Self { shared, ..new }
    }

    /// Why this store is not collected, where it is not.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        (self.blobs.objects().is_some() && self.shared.is_none()).then_some(UNSHARED)
    }

    /// One round. It ends early when the server stops.
    ///
    /// # Errors
    /// What the disk says; the next round goes on.
    pub fn collect(&self, grace: Duration) -> BoxFuture<'_, io::Result<Collected>> {
        Box::pin(self.round(grace))
    }

    async fn round(&self, grace: Duration) -> io::Result<Collected> {
        if let Some(problem) = self.problem() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        let _turn = self.turn.lock().await;
        if let Some(app) = &self.shared {
            let sessions = self.end_uploads().await?;
            let Some(collected) = collect(app, grace, &self.stopped).await? else {
                return Ok(Collected { sessions, ..Collected::default() });
            };
            self.metrics.collected(&collected);
            return Ok(Collected { sessions: collected.sessions + sessions, ..collected });
        }
        let mut collected = Collected::default();
        // Before the clock began nothing was told to anybody.
        let before = SystemTime::now().checked_sub(grace).unwrap_or(SystemTime::UNIX_EPOCH);
        // What was taken down may come back for as long as what nothing names would stay.
        let since = before.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let old = Arc::new(self.taken_down.before(UtcSeconds(i64::try_from(since).unwrap_or(i64::MAX))));
        for repository in self.repositories.all() {
            if repository.hides_any() {
                let _changes = repository.lock_changes().await;
                let (shared, old) = (Arc::clone(&repository), Arc::clone(&old));
                self.run(move || shared.bury(&old)).await?;
            }
            let (uploads, folder) = (Arc::clone(&self.uploads), repository.uploads_folder());
            collected.sessions += self.run(move || uploads.expire(&folder)).await?;
            let changes = repository.lock_changes().await;
            let (shared, blobs) = (Arc::clone(&repository), Arc::clone(&self.blobs));
            collected.manifests += self
                .run(move || {
                    // A bundle or loose file answers for debug ids until it is deleted by name.
                    shared.remove_orphans(before, &blobs, |manifest| is_bundle(manifest) || is_loose(manifest))
                })
                .await? as u64;
            drop(changes);
            while !self.is_stopped() {
                let _changes = repository.lock_changes().await;
                let shared = Arc::clone(&repository);
                let unlinked = self.run(move || shared.unlink_idle(before, LINKS_IN_ONE_TURN)).await?;
                collected.unlinked += unlinked as u64;
                if unlinked < LINKS_IN_ONE_TURN {
                    break;
                }
            }
            let _changes = repository.lock_changes().await;
            let shared = Arc::clone(&repository);
            self.run(move || shared.forget_deleted()).await?;
        }
        self.sweep(before, &mut collected).await?;
        self.metrics.collected(&collected);
        Ok(collected)
    }

    /// Takes the bytes that nothing names.
    async fn sweep(&self, before: SystemTime, collected: &mut Collected) -> io::Result<()> {
        if self.traces.is_incomplete() {
            tracing::warn!("a file under traces/ is unreadable, and may name any blob: no bytes are collected");
            return Ok(());
        }
        let watch = Arc::new(self.blobs.pins().watch());
        let (repositories, traces) = (Arc::clone(&self.repositories), Arc::clone(&self.traces));
        let named = self
            .run(move || {
                let mut named = HashSet::new();
                repositories
                    .all()
                    .iter()
                    .for_each(|repository| repository.each_offered(|digest| mark(&mut named, digest)));
                traces.list().iter().for_each(|(_, digest)| mark(&mut named, digest));
                Ok(named)
            })
            .await?;
        let named = Arc::new(named);
        let (mut held, mut held_bytes) = (0, 0);
        for algorithm in Algorithm::ALL {
            for shard in 0..=u8::MAX {
                if self.is_stopped() {
                    return Ok(());
                }
                let (blobs, named, watch) = (Arc::clone(&self.blobs), Arc::clone(&named), Arc::clone(&watch));
                let swept = self.run(move || sweep_shard(&blobs, algorithm, shard, &named, &watch, before)).await?;
                collected.blobs += swept.gone;
                collected.bytes += swept.gone_bytes;
                held += swept.held;
                held_bytes += swept.held_bytes;
            }
        }
        self.metrics.store_holds(held, held_bytes);
        Ok(())
    }

    /// Ends abandoned uploads, which are files of this server alone, wherever its blobs are.
    async fn end_uploads(&self) -> io::Result<u64> {
        let mut ended = 0;
        for repository in self.repositories.all() {
            let (uploads, folder) = (Arc::clone(&self.uploads), repository.uploads_folder());
            ended += self.run(move || uploads.expire(&folder)).await?;
        }
        Ok(ended)
    }

    /// Collects by schedule until [`Self::stop`]; where the store [is not collected](Self::problem) it ends abandoned uploads alone.
    pub(crate) async fn run_by(&self, schedule: Schedule) {
        let mut pause = schedule.interval.min(FIRST_ROUND);
        while !self.is_stopped() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.notified() => return,
            }
            pause = schedule.interval;
            let round = match self.problem() {
                Some(_) => self.end_uploads().await.map(|sessions| Collected { sessions, ..Collected::default() }),
                None => self.collect(schedule.grace).await,
            };
            match round {
                Ok(Collected { manifests: 0, unlinked: 0, blobs: 0, sessions: 0, .. }) => {}
                Ok(Collected { manifests, unlinked, blobs, bytes, sessions }) => {
                    tracing::info!(manifests, unlinked, blobs, bytes, sessions, "what nothing names was collected");
                }
                Err(error) => tracing::error!(%error, "the collection of unreferenced blobs broke off"),
            }
        }
    }

    /// Ends the round under way, if there is one, at its next step.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.stop.notify_one();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        self.pool.run(job).await.map_err(io::Error::other)?
    }
}

/// Collects in the data directory of a server that is stopped.
///
/// # Errors
/// [`ServerError`]: a server uses the directory, or it cannot be read or changed.
pub fn collect_stopped(data: &Path, grace: Duration) -> BoxFuture<'_, Result<Collected, ServerError>> {
    Box::pin(collect_alone(data, grace))
}

async fn collect_alone(data: &Path, grace: Duration) -> Result<Collected, ServerError> {
    let failed = |source| ServerError::Data { path: data.to_owned(), source };
    let _lock = crate::opened::lock_data(data)?;
    let (pool, folder) = (Pool::new(), data.to_owned());
    let store = crate::store::open(data, None).await?;
    let loaded = pool.run(move || crate::opened::load(&folder, None, store)).await;
    let Loaded { blobs, repositories, traces, taken_down } =
        loaded.map_err(|error| failed(io::Error::other(error)))??;
    let (blobs, repositories, traces) = (Arc::new(blobs), Arc::new(repositories), Arc::new(traces));
    // As a start does: what manifests name stays.
    for (name, repository) in repositories.named() {
        let (shared, taken_down) = (Arc::clone(&blobs), Arc::clone(&taken_down));
        let again = pool.run(move || repository.link_again(&shared, |digest| taken_down.has(digest))).await;
        tell(&name, &again.map_err(io::Error::other).flatten().map_err(failed)?);
    }
    let collector = Collector::new(pool, blobs, Arc::default(), repositories, traces, taken_down, Arc::default());
    collector.collect(grace).await.map_err(failed)
}

/// Collects once from the object store that servers share, beside them: what is condemned now goes by a later round, here or in one of them.
///
/// # Errors
/// [`ServerError`]: a server uses this data directory, the servers share no PostgreSQL, or something cannot be read or changed.
pub fn collect_beside(config: &Config, grace: Duration) -> BoxFuture<'_, Result<Collected, ServerError>> {
    Box::pin(async move {
        let failed = |source| ServerError::Data { path: config.data.clone(), source };
        let _lock = crate::opened::lock_data(&config.data)?;
        let collector = Collector::of(&crate::opened::open(config, None).await?);
        collector.collect(grace).await.map_err(failed)
    })
}

/// Half of a digest's start stands for it: two that share it only keep a blob that could go.
pub(crate) fn prefix(digest: &BlobDigest) -> Option<u64> {
    u64::from_str_radix(digest.hex().get(..16)?, 16).ok()
}

fn mark(named: &mut HashSet<u64>, digest: &BlobDigest) {
    named.extend(prefix(digest));
}

/// What became of the blobs of a folder.
#[derive(Default)]
struct Swept {
    gone: u64,
    gone_bytes: u64,
    held: u64,
    held_bytes: u64,
}

fn sweep_shard(
    blobs: &BlobDirectory,
    algorithm: Algorithm,
    shard: u8,
    named: &HashSet<u64>,
    watch: &Watch,
    before: SystemTime,
) -> io::Result<Swept> {
    let mut swept = Swept::default();
    for stored in blobs.shard(algorithm, shard)? {
        let is_named = prefix(&stored.digest).is_none_or(|prefix| named.contains(&prefix));
        let may_go = !is_named && stored.modified < before;
        // Moved away while nobody can pin, which is quick; a large file takes its time to go.
        let take = || watch.unless_pinned(&stored.digest, || blobs.take_away(&stored.digest));
        let Some(moved) = may_go.then(take).flatten() else {
            swept.held += 1;
            swept.held_bytes += stored.size;
            continue;
        };
        std::fs::remove_file(moved?)?;
        swept.gone += 1;
        swept.gone_bytes += stored.size;
    }
    Ok(swept)
}
