//! From a configuration to a listening socket, and from there to an orderly end.

use std::convert::Infallible;
use std::fs::{File, TryLockError};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::future::BoxFuture;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service as _;

use crate::access::{Access, take_path_token};
use crate::alerts::{Alerts, record_again};
use crate::app::App;
use crate::blobs::{BlobDirectory, Uploads, sweep_unfinished};
use crate::collector::{Collector, NO_GRACE, Schedule};
use crate::debug_files::{INDEX_FILE, SAVE_AFTER};
use crate::encoded::Encoded;
use crate::file_cache::FileCache;
use crate::http::{BreakConnection, Breakable, MapSender, Memory, Peer, listen, unbound_while_few};
use crate::limits::Limits;
use crate::log::Log;
use crate::made_tables::Tableless;
use crate::metrics::Metrics;
use crate::notes::{Notes, PINS};
use crate::objects::{Objects, Reach};
use crate::origins::{no_tree, no_upstream};
use crate::pool::Pool;
use crate::publish::PublishError;
use crate::quotas::Quotas;
use crate::releases::Releases;
use crate::repositories::Repositories;
use crate::retention::{Retention, retain_again};
use crate::routes::routes;
use crate::seals::{LOOK_AGAIN, Seals};
use crate::shared::{Facts, Follower, Parts, follow, prune};
use crate::sources::SourceTables;
use crate::store::Store;
use crate::takedown::{TOMBSTONES, TakenDown, watch};
use crate::tls::{self, Tls};
use crate::traces::Traces;
use crate::trees::{Trees, scan_again};
use crate::upstream::Upstreams;
use crate::wanted::WantedIds;
use crate::{BlobsConfig, Config, LOG_FOLDER, LogConfig, Origins, SealRules, ServerError, ingest, restore, store};

/// The folder of what can be had again, in the data directory.
const CACHE_FOLDER: &str = "cache";

/// Written to an object store at each start.
pub(crate) const MARK: &str = "symseal.txt";

/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// After an accept that failed (mostly: no file descriptors left) the next one waits this long.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// And is told of no sooner after the one before.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// How often the data directory's lock is tried.
const LOCK_TRIES: usize = 20;

/// And how long after one try the next one is made.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A server that holds its data directory and listens, but does not answer before [`Server::run`].
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    collector: Arc<Collector>,
    schedule: Option<Schedule>,
    index_file: PathBuf,
    tls: Option<Arc<Tls>>,
    stop_within: Duration,
    /// Held while the server lives; the system releases it when the process ends, however it ends.
    lock: File,
}

impl Server {
    /// Creates or opens the data directory and its database, rebuilds the memory index and listens.
    ///
    /// # Errors
    /// [`ServerError`] names the file or address.
    pub fn bind(config: Config) -> BoxFuture<'static, Result<Self, ServerError>> {
        Self::bind_with_log(config, None)
    }

    /// [`Self::bind`] for a server that keeps a transparency log, which must be there. While another process
    /// holds the log's lease, the log is read and takes no entries.
    ///
    /// # Errors
    /// [`ServerError`] names the file or address.
    pub fn bind_with_log(config: Config, log: Option<LogConfig>) -> BoxFuture<'static, Result<Self, ServerError>> {
        Box::pin(Self::bound(config, log))
    }

    async fn bound(config: Config, log: Option<LogConfig>) -> Result<Self, ServerError> {
        // The address first: where it is taken, nothing is left behind.
        let failed = |source| ServerError::Listen { address: config.listen, source };
        let listener = listen(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let lock = lock_data(&config.data)?;
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let app = open(&config, log).await?;
        let collector = Arc::new(Collector::of(&app));
        let index_file = config.data.join(INDEX_FILE);
        let stop_within = config.stop_within;
        Ok(Self { listener, address, app, collector, schedule: None, index_file, tls, stop_within, lock })
    }

    /// Collects what nothing names by this schedule while the server runs; without one it is left where it is.
    #[must_use]
    pub fn collecting(self, schedule: Schedule) -> Self {
        if let Some(problem) = self.collector.problem() {
            tracing::warn!("what nothing names is NOT collected: {problem}");
        }
        if schedule.grace.is_zero() {
            tracing::warn!("{NO_GRACE}");
        }
        Self { schedule: Some(schedule), ..self }
    }

    /// Judges seals by a trust directory, and shows only sealed bundles where the rules say so.
    ///
    /// # Errors
    /// [`ServerError::Trust`] or [`ServerError::RequireSeal`].
    pub fn judging(self, rules: SealRules) -> BoxFuture<'static, Result<Self, ServerError>> {
        Box::pin(self.judged_by(rules))
    }

    async fn judged_by(self, rules: SealRules) -> Result<Self, ServerError> {
        let required = rules.required()?;
        let app = Arc::clone(&self.app);
        let lost = |error| ServerError::Data { path: rules.trust.clone(), source: io::Error::other(error) };
        let (shared, directory) = (Arc::clone(&app), rules.trust.clone());
        self.app.pool.run(move || shared.seals.trust(directory)).await.map_err(lost)??;
        restore::judge_all(&app, Some(required))
            .await
            .map_err(|error| ServerError::Data { path: rules.trust.clone(), source: io::Error::other(error) })?;
        Ok(self)
    }

    /// Answers from these places too.
    ///
    /// # Errors
    /// [`ServerError::Origin`] names the URL or directory.
    pub fn with_origins(self, origins: &Origins) -> Result<Self, ServerError> {
        let app = &self.app;
        app.cache.bound(origins.cache_bytes);
        if !origins.trees.is_empty() {
            let data = self.index_file.parent().unwrap_or(Path::new(""));
            let (cache, taken_down) = (Arc::clone(&app.cache), Arc::clone(&app.taken_down));
            let trees = Trees::open(&origins.trees, data, cache, taken_down, origins.tree_interval).map_err(no_tree)?;
            let _ = app.trees.set(Arc::new(trees));
        }
        // A server is told once, before it runs; a second time changes nothing.
        let _ = app.source_roots.set(origins.open_source_roots()?);
        for (urls, slot) in [(&origins.upstreams, &app.upstreams), (&origins.symbol_upstreams, &app.symbol_upstreams)] {
            if urls.is_empty() {
                continue;
            }
            let pools = (app.pool.clone(), app.making.clone());
            let (cache, taken_down) = (Arc::clone(&app.cache), Arc::clone(&app.taken_down));
            let upstreams = Upstreams::new(urls, origins.patience, (cache, taken_down), pools)
                .map_err(|problem| no_upstream(urls, problem))?;
            let _ = slot.set(Arc::new(upstreams));
        }
        Ok(self)
    }

    /// Collects at other times too.
    pub fn collector(&self) -> Arc<Collector> {
        Arc::clone(&self.collector)
    }

    /// Applies the rules of retention at other times too.
    pub fn retention(&self) -> Retention {
        Retention { app: Arc::clone(&self.app) }
    }

    /// The address that is listened on, with the port that was picked.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `shutdown` completes, then lets those under way finish for a bounded time.
    ///
    /// # Errors
    /// None at present: a failed accept is logged and tried again.
    pub fn run<'a>(self, shutdown: impl Future<Output = ()> + Send + 'a) -> BoxFuture<'a, Result<(), ServerError>> {
        self.run_until(Box::pin(shutdown))
    }

    fn run_until(self, shutdown: BoxFuture<'_, ()>) -> BoxFuture<'_, Result<(), ServerError>> {
        Box::pin(self.running(shutdown))
    }

    async fn running(self, mut shutdown: BoxFuture<'_, ()>) -> Result<(), ServerError> {
        let Self { listener, app, collector, schedule, index_file, tls, stop_within, lock, .. } = self;
        let collecting = schedule.map(|schedule| {
            let collector = Arc::clone(&collector);
            tokio::spawn(async move { collector.run_by(schedule).await })
        });
        let judging = tokio::spawn(judge_again(Arc::clone(&app)));
        let saving = tokio::spawn(save_again(Arc::clone(&app), index_file.clone()));
        let watching = tokio::spawn(watch(Arc::clone(&app)));
        let recording = tokio::spawn(record_again(Arc::clone(&app)));
        let retaining = (!app.retention.is_empty()).then(|| tokio::spawn(retain_again(Arc::clone(&app))));
        let following = app.follower.is_some().then(|| tokio::spawn(follow(Arc::clone(&app))));
        let pruning = app.follower.is_some().then(|| tokio::spawn(prune(Arc::clone(&app))));
        let renewing = tls.clone().map(|tls| tokio::spawn(renew(tls, app.pool.clone())));
        let scanning = app.trees.get().map(|trees| tokio::spawn(scan_again(Arc::clone(trees))));
        let router = routes(Arc::clone(&app));
        let graceful = GracefulShutdown::new();
        let mut not_accepted = NotAccepted::default();
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let watcher = graceful.watcher();
                        unbound_while_few(&stream, graceful.count());
                        accept(stream, Peer(peer.ip()), tls.as_deref(), router.clone(), watcher);
                    }
                    Err(error) => {
                        not_accepted.tell(&error);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        app.stopping.store(true, Ordering::Relaxed);
        drop(listener);
        if let Some(renewing) = renewing {
            renewing.abort();
        }
        if let Some(scanning) = scanning {
            scanning.abort();
        }
        if let Some(retaining) = retaining {
            retaining.abort();
        }
        watching.abort();
        judging.abort();
        saving.abort();
        for task in [following, pruning].into_iter().flatten() {
            task.abort();
        }
        if tokio::time::timeout(stop_within, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests that were still under way are cut off");
        }
        // The directory may be another server's from here on, so no round may go on in it.
        collector.stop();
        if let Some(collecting) = collecting {
            let _ = collecting.await;
        }
        recording.abort();
        if let Err(error) = app.alerts.record(app.store.as_ref()).await {
            tracing::warn!(%error, "alerts are lost but for this log");
        }
        save(&app, index_file).await;
        drop(lock);
        Ok(())
    }
}

/// Connections that are not accepted, which come in floods: where there are no descriptors left, each try fails.
#[derive(Debug, Default)]
pub(crate) struct NotAccepted {
    told: Option<Instant>,
    untold: u64,
}

impl NotAccepted {
    /// Tells of one, unless another was told of just now; whether it did.
    pub(crate) fn tell(&mut self, error: &io::Error) -> bool {
        if self.told.is_some_and(|told| told.elapsed() < TELL_AGAIN) {
            self.untold = self.untold.saturating_add(1);
            return false;
        }
        tracing::warn!(%error, since = self.untold, "a connection was not accepted");
        *self = Self { told: Some(Instant::now()), untold: 0 };
        true
    }
}

/// Saves the index of ids where it has changed.
async fn save_again(app: Arc<App>, index_file: PathBuf) {
    loop {
        tokio::time::sleep(SAVE_AFTER).await;
        save(&app, index_file.clone()).await;
    }
}

/// What is not saved is made again at the next start.
pub(crate) async fn save(app: &Arc<App>, index_file: PathBuf) {
    let (shared, path) = (Arc::clone(app), index_file.clone());
    match app.pool.run(move || shared.debug_files.save(&path)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(path = %index_file.display(), %error, "the index of ids was not saved"),
        Err(error) => tracing::warn!(path = %index_file.display(), %error, "the index of ids was not saved"),
    }
}

/// Judges all seals again when the trust directory changes or time passes.
async fn judge_again(app: Arc<App>) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let shared = Arc::clone(&app);
        if let Ok(true) = app.pool.run(move || shared.seals.look_again()).await
            && let Err(error) = restore::judge_all(&app, None).await
        {
            tracing::error!(%error, "seals could not be judged again");
        }
    }
}

/// Reads a renewed certificate.
async fn renew(tls: Arc<Tls>, pool: Pool) {
    loop {
        tokio::time::sleep(tls::LOOK_AGAIN).await;
        let shared = Arc::clone(&tls);
        if pool.run(move || shared.look_again()).await.is_err() {
            return;
        }
    }
}

fn accept(stream: TcpStream, peer: Peer, tls: Option<&Tls>, router: Router, watcher: Watcher) {
    // Answers are written whole: waiting for more only delays small ones.
    let _ = stream.set_nodelay(true);
    let stream = Breakable::new(stream);
    let Some(tls) = tls else {
        tokio::spawn(serve_connection(MapSender::new(stream), peer, router, watcher));
        return;
    };
    let acceptor = tls.acceptor();
    tokio::spawn(async move {
        match tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => serve_connection(stream, peer, router, watcher).await,
            Ok(Err(error)) => tracing::debug!(%error, "a connection was not encrypted"),
            Err(_) => tracing::debug!("a connection was not encrypted in time"),
        }
    });
}

/// Answers what comes over one connection.
pub(crate) async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    watcher: Watcher,
) {
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        take_path_token(&mut request);
        request.extensions_mut().insert(peer);
        let mut router = router.clone();
        async move { answer_or_break(router.call(request.map(Body::new)).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    if let Err(error) = watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// An error here makes hyper close the connection without a byte.
fn answer_or_break(answer: Result<Response, Infallible>) -> Result<Response, Broken> {
    let Ok(response) = answer;
    if response.extensions().get::<BreakConnection>().is_some() { Err(Broken) } else { Ok(response) }
}

#[derive(Debug, thiserror::Error)]
#[error("the connection is closed on purpose")]
struct Broken;

pub(crate) fn lock_data(data: &Path) -> Result<File, ServerError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| ServerError::Data { path, source }
    };
    std::fs::create_dir_all(data).map_err(failed(data))?;
    let path = data.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed(&path))?;
    // A server that ends at this moment, or a program that its process is just starting, lets go of it soon.
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(source)) => return Err(ServerError::Data { path, source }),
        }
    }
    Err(ServerError::Locked { path })
}

pub(crate) async fn open(config: &Config, log: Option<LogConfig>) -> Result<Arc<App>, ServerError> {
    let data = config.data.as_path();
    let pool = if config.blobs.is_some() { Pool::for_objects() } else { Pool::new() };
    let place = config.database.as_ref().map_or_else(|| data.display().to_string(), ToString::to_string);
    let database_failed = |detail: String| ServerError::Database { place: place.clone(), detail };
    let store = store::open(data, config.database.as_ref()).await?;
    let objects = config.blobs.as_ref().map(objects_of).transpose()?;
    // Before the facts are read, so that nothing that comes meanwhile is missed.
    let last = store.last_change().await.map_err(|error| database_failed(error.to_string()))?;
    let (folder, behind) = (data.to_owned(), objects.clone().zip(config.blobs.as_ref().map(|blobs| blobs.cache_bytes)));
    let recorder = Arc::clone(&store);
    let Loaded { blobs, repositories, traces, taken_down } =
        pool.run(move || load(&folder, behind, recorder))
            .await
            .map_err(|error| ServerError::Data { path: data.to_owned(), source: io::Error::other(error) })??;
    // Other servers can share both, or none.
    let is_shared = objects.is_some() && config.database.is_some();
    let parts = match objects.filter(|_| is_shared) {
        Some(objects) => Some(Arc::new(
            Parts::new(objects, store.as_ref()).await.map_err(|error| database_failed(error.to_string()))?,
        )),
        None => None,
    };
    // Encryption reads what it sends in the process, where a disk that fails under a map is a signal and no error.
    let blobs = if config.tls.is_some() { blobs.without_maps() } else { blobs };
    let access = Access::new(config, Arc::clone(&store)).await;
    let access = access.map_err(|error| database_failed(error.to_string()))?;
    let metrics = Arc::<Metrics>::default();
    let (folder, cache_folder) = (data.join(CACHE_FOLDER), data.join(CACHE_FOLDER));
    let cache = pool.run(move || FileCache::open(&folder)).await.map_err(io::Error::other).and_then(|opened| opened);
    let cache = Arc::new(cache.map_err(|source| ServerError::Data { path: cache_folder, source })?);
    let log = log.map(|log| Log::open(data.join(LOG_FOLDER), log, pool.clone(), Arc::clone(&metrics)));
    let facts = repositories.facts().cloned();
    let app = Arc::new(App {
        pool,
        naming: Pool::for_naming(),
        looking: Pool::for_looking(),
        making: Pool::for_making(),
        memory: Memory::default(),
        encoded: Encoded::new(Arc::clone(&cache)),
        cache,
        releases: Releases::default(),
        source_tables: SourceTables::default(),
        source_roots: OnceLock::new(),
        upstreams: OnceLock::new(),
        symbol_upstreams: OnceLock::new(),
        tableless: Tableless::default(),
        blobs: Arc::new(blobs),
        uploads: Arc::new(Uploads::default()),
        repositories: Arc::new(repositories),
        debug_files: Arc::default(),
        seals: Seals::default(),
        alerts: Alerts::default(),
        sections: Arc::default(),
        wanted: WantedIds::default(),
        trees: OnceLock::new(),
        traces: Arc::new(traces),
        log,
        follower: is_shared.then(|| Follower::new(last)),
        parts,
        store,
        metrics,
        access,
        limits: Limits::new(&config.limits),
        taken_down,
        takedowns: tokio::sync::Mutex::default(),
        pins: Arc::new(Notes::new(PINS, data, facts)),
        retention: config.retention.clone(),
        quotas: Arc::new(Quotas::new(&config.quotas)),
        public_url: config.public_url.clone(),
        cors: config.cors,
        is_encrypted: config.tls.is_some(),
        stopping: AtomicBool::new(false),
    });
    let digests: Vec<_> = app.taken_down.all().keys().cloned().collect();
    app.debug_files.take_down(&digests);
    restore::restore(&app, data.join(INDEX_FILE)).await.map_err(|error| match (error, &config.blobs) {
        (PublishError::Io(error), Some(blobs)) => {
            ServerError::Objects { place: blobs.url.to_string(), problem: error.to_string() }
        }
        (PublishError::Io(source), None) => ServerError::Data { path: data.to_owned(), source },
        (error, _) => database_failed(error.to_string()),
    })?;
    ingest::restore_traces(&app).await.map_err(|error| database_failed(error.to_string()))?;
    Ok(app)
}

/// What a store has, for those who look and change nothing.
pub(crate) struct Look {
    pub(crate) blobs: BlobDirectory,
    pub(crate) repositories: Repositories,
    /// Where blobs of an object store are put to be read.
    _cache: Option<tempfile::TempDir>,
}

/// Reads what a data directory, or an object store, has; beside running servers too. Blocks, in a runtime.
pub(crate) fn look(config: &Config) -> Result<Look, ServerError> {
    let failed = |source| ServerError::Data { path: config.data.clone(), source };
    let Some(behind) = &config.blobs else {
        let blobs = BlobDirectory::existing(&config.data);
        let repositories = Repositories::read(&config.data, &blobs, None).map_err(failed)?;
        taken_down(&config.data, None, (&repositories, &blobs)).map_err(failed)?;
        return Ok(Look { blobs, repositories, _cache: None });
    };
    let objects = objects_of(behind)?;
    let away = |error: io::Error| ServerError::Objects { place: objects.url().to_string(), problem: error.to_string() };
    let cache = tempfile::tempdir().map_err(failed)?;
    let blobs =
        BlobDirectory::open(cache.path()).and_then(|blobs| blobs.behind(Arc::clone(&objects), behind.cache_bytes));
    let blobs = blobs.map_err(failed)?;
    let facts = Arc::new(Facts::reader(Arc::clone(&objects)));
    let repositories = Repositories::read(cache.path(), &blobs, Some(Arc::clone(&facts))).map_err(away)?;
    taken_down(cache.path(), Some(facts), (&repositories, &blobs)).map_err(away)?;
    Ok(Look { blobs, repositories, _cache: Some(cache) })
}

pub(crate) fn objects_of(config: &BlobsConfig) -> Result<Arc<Objects>, ServerError> {
    let reach = Reach {
        endpoint: config.endpoint.clone(),
        region: config.region.clone(),
        ca: config.ca.clone(),
        silence: Some(config.silence),
    };
    let failed = |problem| ServerError::Objects { place: config.url.to_string(), problem };
    Objects::new(&config.url, &reach).map(Arc::new).map_err(failed)
}

/// What a store has.
pub(crate) struct Loaded {
    pub(crate) blobs: BlobDirectory,
    pub(crate) repositories: Repositories,
    pub(crate) traces: Traces,
    pub(crate) taken_down: Arc<TakenDown>,
}

/// What a data directory, or the object store that it is a cache of, has. Blocks.
pub(crate) fn load(
    data: &Path,
    behind: Option<(Arc<Objects>, u64)>,
    store: Arc<dyn Store>,
) -> Result<Loaded, ServerError> {
    let failed = |source| ServerError::Data { path: PathBuf::from(data), source };
    sweep_unfinished(data).map_err(failed)?;
    let mut blobs = BlobDirectory::open(data).map_err(failed)?;
    let Some((objects, cache_bytes)) = behind else {
        let repositories = Repositories::load(data, &blobs, None).map_err(failed)?;
        let traces = Traces::load(data, &blobs, None).map_err(failed)?;
        let taken_down = taken_down(data, None, (&repositories, &blobs)).map_err(failed)?;
        return Ok(Loaded { blobs, repositories, traces, taken_down });
    };
    let away = |error: io::Error| ServerError::Objects { place: objects.url().to_string(), problem: error.to_string() };
    // A bucket that is missing, or that may not be written to, is told of before anything relies on it.
    objects.put(MARK, format!("symseal {}\n", env!("CARGO_PKG_VERSION")).into_bytes()).map_err(away)?;
    let facts = Arc::new(Facts::new(Arc::clone(&objects), store));
    blobs = blobs.behind(Arc::clone(&objects), cache_bytes).map_err(failed)?;
    let repositories = Repositories::load(data, &blobs, Some(Arc::clone(&facts))).map_err(away)?;
    let taken_down = taken_down(data, Some(Arc::clone(&facts)), (&repositories, &blobs)).map_err(away)?;
    let traces = Traces::load(data, &blobs, Some(facts)).map_err(away)?;
    Ok(Loaded { blobs, repositories, traces, taken_down })
}

/// Reads what is taken down, and takes it out of sight.
fn taken_down(
    data: &Path,
    facts: Option<Arc<Facts>>,
    (repositories, blobs): (&Repositories, &BlobDirectory),
) -> io::Result<Arc<TakenDown>> {
    let taken_down = TakenDown::load(Notes::new(TOMBSTONES, data, facts))?;
    taken_down.hide_in(repositories, blobs)?;
    let digests: Vec<_> = taken_down.all().keys().cloned().collect();
    blobs.take_down(&digests);
    Ok(Arc::new(taken_down))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_connections_that_are_not_accepted_one_is_told_in_a_second() {
        let mut not_accepted = NotAccepted::default();
        let error = io::Error::from_raw_os_error(24);
        assert!(not_accepted.tell(&error));
        assert!((0..1000).all(|_| !not_accepted.tell(&error)));
        not_accepted.told = not_accepted.told.and_then(|told| told.checked_sub(TELL_AGAIN));
        assert_eq!(not_accepted.untold, 1000);
        assert!(not_accepted.tell(&error));
        assert_eq!(not_accepted.untold, 0);
    }
}
