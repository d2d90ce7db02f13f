//! What a server keeps, opened: to serve it, to look after it while no server runs, or to look at it beside one.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::access::Access;
use crate::alerts::Alerts;
use crate::app::App;
use crate::blobs::{BlobDirectory, Uploads, sweep_unfinished};
use crate::debug_files::INDEX_FILE;
use crate::encoded::Encoded;
use crate::file_cache::FileCache;
use crate::foreign::OwnNames;
use crate::http::Memory;
use crate::limits::Limits;
use crate::log::Log;
use crate::made_tables::Tableless;
use crate::made_whole::{MadeWhole, make_whole};
use crate::metrics::Metrics;
use crate::notes::{Notes, PINS};
use crate::objects::{MARK, Objects, Reach};
use crate::pool::Pool;
use crate::publish::PublishError;
use crate::quotas::Quotas;
use crate::releases::Releases;
use crate::repositories::Repositories;
use crate::seals::Seals;
use crate::shared::{Facts, Follower, Parts, tell_of_intents};
use crate::sources::SourceTables;
use crate::store::Store;
use crate::takedown::{TOMBSTONES, TakenDown};
use crate::traces::Traces;
use crate::wanted::WantedIds;
use crate::{BlobsConfig, Config, LOG_FOLDER, LogConfig, ServerError, ingest, restore, store, store_id};

/// The folder of what can be had again, in the data directory.
const CACHE_FOLDER: &str = "cache";

/// How often the data directory's lock is tried.
const LOCK_TRIES: usize = 20;

/// And how long after one try the next one is made.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Makes a data directory where there is none: its owner's alone, as it has what callers need tokens for. One that is there keeps its mode.
///
/// # Errors
/// As the system has them.
pub fn make_data(data: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if let Some(parent) = data.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(data) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && data.is_dir() => Ok(()),
        made => made,
    }
}

/// Keeps other servers away from a data directory, which is made where there is none, for as long as the file is open.
pub(crate) fn lock_data(data: &Path) -> Result<File, ServerError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| ServerError::Data { path, source }
    };
    make_data(data).map_err(failed(data))?;
    let path = data.join("lock");
    // To open a pipe for writing waits for a reader, perhaps for ever.
    if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(failed(&path)(io::Error::new(
            io::ErrorKind::InvalidInput,
            "expected a file, found something else",
        )));
    }
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

/// Tells whoever gave a data directory another database what does not come along.
async fn warn_of_left_behind(data: &Path, store: &dyn Store) {
    match store::left_behind(data, store).await {
        Ok(None) => {}
        Ok(Some(left)) => {
            let store::LeftBehind { tokens, audit_lines, alerts } = left;
            tracing::warn!(
                tokens,
                audit_lines,
                alerts,
                "the SQLite database in the data directory has what the new database has not: its tokens hold no more; make others with symseal token, and keep the file for its audit log"
            );
        }
        Err(error) => {
            tracing::warn!(%error, "the SQLite database in the data directory is not used, and could not be looked at")
        }
    }
}

/// All that requests are answered from.
pub(crate) async fn open(config: &Config, log: Option<LogConfig>) -> Result<Arc<App>, ServerError> {
    Ok(open_whole(config, log).await?.0)
}

/// [`open`], and what had to be made whole for it.
pub(crate) async fn open_whole(config: &Config, log: Option<LogConfig>) -> Result<(Arc<App>, MadeWhole), ServerError> {
    let data = config.data.as_path();
    let pool = if config.blobs.is_some() { Pool::for_objects() } else { Pool::new() };
    let place = config.database.as_ref().map_or_else(|| data.display().to_string(), ToString::to_string);
    let database_failed = |detail: String| ServerError::Database { place: place.clone(), detail };
    let store = store::open(data, config.database.as_ref()).await?;
    if config.database.is_some() {
        warn_of_left_behind(data, store.as_ref()).await;
    }
    let objects = config.blobs.as_ref().map(objects_of).transpose()?;
    store_id::check(config, &store, objects.as_ref()).await?;
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
        crowd: OnceLock::new(),
        taken_down,
        takedowns: tokio::sync::Mutex::default(),
        pins: Arc::new(Notes::new(PINS, data, facts)),
        retention: config.retention.clone(),
        quotas: Arc::new(Quotas::new(&config.quotas)),
        public_url: config.public_url.clone(),
        own_names: OwnNames::of(config),
        cors: config.cors,
        is_encrypted: config.tls.is_some(),
        stopping: AtomicBool::new(false),
    });
    let digests: Vec<_> = app.taken_down.all().keys().cloned().collect();
    app.debug_files.take_down(&digests);
    let whole = make_whole(&app).await;
    restore::restore(&app, data.join(INDEX_FILE)).await.map_err(|error| match (error, &config.blobs) {
        (PublishError::Io(error), Some(blobs)) => {
            ServerError::Objects { place: blobs.url.to_string(), problem: error.to_string() }
        }
        (PublishError::Io(source), None) => ServerError::below(data, source),
        (error, _) => database_failed(error.to_string()),
    })?;
    ingest::restore_traces(&app).await.map_err(|error| database_failed(error.to_string()))?;
    if app.follower.is_some() {
        tell_of_intents(&app).await.map_err(|error| database_failed(error.to_string()))?;
    }
    if let Some(follower) = &app.follower {
        follower.doubt(&app);
    }
    Ok((app, whole))
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
    let failed = |source| ServerError::below(data, source);
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
