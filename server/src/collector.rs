//! Collection of blobs that nothing names, while the server answers or while it is stopped.
//!
//! Two steps. First, in each repository: a blob that no manifest of it names, and that no client was told of for the
//! grace period, is no longer offered. Then the bytes of what no repository, manifest or trace names go, if they are
//! older than the grace period and no request relies on them ([`Pin`](crate::blobs::Pin)). Manifests are deleted by name
//! and not collected, but for those that came with one that was deleted, as part of an index or as referrer. A crash between any two steps leaves bytes that the next round takes.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use symseal_seal::UtcSeconds;

use crate::ServerError;
use crate::blobs::{Algorithm, BlobDigest, BlobDirectory, Uploads, Watch};
use crate::ingest::{is_bundle, is_loose};
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::repositories::Repositories;
use crate::serve::Loaded;
use crate::takedown::TakenDown;
use crate::traces::Traces;
use futures_util::future::BoxFuture;

/// Blobs that a repository ceases to offer in one turn; other changes of its manifests wait so long.
const LINKS_IN_ONE_TURN: usize = 256;

/// The first round of a server comes this soon, so that one that is restarted often collects too.
const FIRST_ROUND: Duration = Duration::from_secs(60);

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
        let (turn, stopped, stop) = Default::default();
        Self { pool, blobs, uploads, repositories, traces, taken_down, metrics, turn, stopped, stop }
    }

    /// One round. It ends early when the server stops.
    ///
    /// # Errors
    /// What the disk says; the next round goes on.
    pub fn collect(&self, grace: Duration) -> BoxFuture<'_, io::Result<Collected>> {
        Box::pin(self.round(grace))
    }

    async fn round(&self, grace: Duration) -> io::Result<Collected> {
        if self.blobs.objects().is_some() {
            let problem = "blobs in an object store are not collected: another server may have told a client of one";
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        let _turn = self.turn.lock().await;
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
        for algorithm in Algorithm::ALL {
            for shard in 0..=u8::MAX {
                if self.is_stopped() {
                    return Ok(());
                }
                let (blobs, named, watch) = (Arc::clone(&self.blobs), Arc::clone(&named), Arc::clone(&watch));
                let (count, bytes) =
                    self.run(move || sweep_shard(&blobs, algorithm, shard, &named, &watch, before)).await?;
                collected.blobs += count;
                collected.bytes += bytes;
            }
        }
        Ok(())
    }

    /// Ends abandoned uploads, which are files of this server alone, wherever its blobs are.
    async fn end_uploads(&self) -> io::Result<Collected> {
        let mut ended = Collected::default();
        for repository in self.repositories.all() {
            let (uploads, folder) = (Arc::clone(&self.uploads), repository.uploads_folder());
            ended.sessions += self.run(move || uploads.expire(&folder)).await?;
        }
        self.metrics.collected(&ended);
        Ok(ended)
    }

    /// Collects by schedule until [`Self::stop`]; behind an object store it ends abandoned uploads alone.
    pub(crate) async fn run_by(&self, schedule: Schedule) {
        let mut pause = schedule.interval.min(FIRST_ROUND);
        while !self.is_stopped() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.notified() => return,
            }
            pause = schedule.interval;
            let round = match self.blobs.objects() {
                Some(_) => self.end_uploads().await,
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
    let _lock = crate::serve::lock_data(data)?;
    let (pool, folder) = (Pool::new(), data.to_owned());
    let store = crate::store::open(data, None).await?;
    let loaded = pool.run(move || crate::serve::load(&folder, None, store)).await;
    let Loaded { blobs, repositories, traces, taken_down } =
        loaded.map_err(|error| failed(io::Error::other(error)))??;
    let (blobs, repositories, traces) = (Arc::new(blobs), Arc::new(repositories), Arc::new(traces));
    let collector = Collector::new(pool, blobs, Arc::default(), repositories, traces, taken_down, Arc::default());
    collector.collect(grace).await.map_err(failed)
}

/// Half of a digest's start stands for it: two that share it only keep a blob that could go.
fn prefix(digest: &BlobDigest) -> Option<u64> {
    u64::from_str_radix(digest.hex().get(..16)?, 16).ok()
}

fn mark(named: &mut HashSet<u64>, digest: &BlobDigest) {
    named.extend(prefix(digest));
}

fn sweep_shard(
    blobs: &BlobDirectory,
    algorithm: Algorithm,
    shard: u8,
    named: &HashSet<u64>,
    watch: &Watch,
    before: SystemTime,
) -> io::Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for stored in blobs.shard(algorithm, shard)? {
        let is_named = prefix(&stored.digest).is_none_or(|prefix| named.contains(&prefix));
        if is_named || stored.modified >= before {
            continue;
        }
        // Moved away while nobody can pin, which is quick; a large file takes its time to go.
        let Some(moved) = watch.unless_pinned(&stored.digest, || blobs.take_away(&stored.digest)) else { continue };
        std::fs::remove_file(moved?)?;
        count += 1;
        bytes += stored.size;
    }
    Ok((count, bytes))
}
