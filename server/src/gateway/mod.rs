//! A gateway on loopback: debuggers ask it as they ask any server, and get what a trusted seal covers and nothing else.
//!
//! Stock gdb, lldb and WinDbg believe whoever answers. The gateway stands between: for an id it finds the sealed bundles that cover it
//! ([`catalogue`], [`learn`]), lets the trust directory decide about their seals ([`judge`]), and passes on bytes that it compared with the
//! sealed digests ([`fetch`], [`checked`]). Upstreams may be registries, servers of ours and any other debuginfod or symbol server: what
//! they are decides how the gateway learns of bundles, and nothing about whom it believes.
//!
//! To be followed from top to bottom: [`answers`] → [`learn`] → [`fetch`] → [`home`] or [`http_bytes`].

mod answers;
mod catalogue;
mod checked;
mod clients;
mod fetch;
mod fetches;
mod hear;
mod home;
mod http_bytes;
mod http_upstream;
mod imasignature;
mod judge;
mod known;
mod learn;
mod ongoing;
mod refusals;
mod registry;
mod sources;
mod status;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::future::BoxFuture;
use hyper_util::server::graceful::GracefulShutdown;
use symseal_bundle::verify::subject_digests;
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_resolver::without_secrets;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::crowd::Crowd;
use crate::file_cache::FileCache;
use crate::http::{Answering, Breakable, Unsent, listen};
use crate::pool::Pool;
use crate::{Patience, STOP_WITHIN, ServerError, opened, serve};
use catalogue::{Catalogue, Listed};
use clients::Clients;
use fetch::FileFlight;
use fetches::Fetches;
use home::Home;
use http_upstream::HttpUpstream;
use judge::Judge;
use refusals::Refusals;
use registry::RegistryUpstream;

/// Connections at once. For one more the one goes that has asked for nothing for the longest time.
const CONNECTIONS: usize = 256;
/// Bundles whose indexes are read at once; more wait.
const HEARING: usize = 2;
/// Bytes of files on their way are counted in units of this.
const ROOM_UNIT: u64 = 64 << 10;
/// As many as one file can ask for.
const MOST_ROOM: usize = u32::MAX as usize;
/// Upstreams that a gateway has at most: each miss asks them all.
const UPSTREAMS: usize = 32;
/// What begins the URL of a registry's repository.
const OCI: &str = "oci://";
/// The folder of checked files, in the state directory.
const CACHE_FOLDER: &str = "files";
/// The folder of what was seen of logs and policies.
const SEEN_FOLDER: &str = "seen";

/// What a gateway is told.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// Where it listens: a loopback address.
    pub listen: SocketAddr,
    /// `http://HOST[:PORT][/PATH]`, `https://…` or `oci://HOST[:PORT]/REPOSITORY[:TAG|@DIGEST]`.
    pub upstreams: Vec<String>,
    /// Bundles in layouts on this machine, which cover ids too.
    pub bundles: Vec<(LayoutDir, Digest)>,
    /// The trust directory.
    pub trust: PathBuf,
    /// Where checked files and what was seen of logs and policies are kept.
    pub state: PathBuf,
    /// Bytes that checked files may fill.
    pub cache_bytes: u64,
    /// How long upstreams are waited for.
    pub patience: Patience,
}

/// A gateway that listens, but does not answer before [`Gateway::run`].
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    gate: Arc<Gate>,
    /// Held while the gateway lives.
    lock: std::fs::File,
}

/// What requests share.
pub(crate) struct Gate {
    pool: Pool,
    making: Pool,
    judge: Judge,
    catalogue: Catalogue,
    clients: Clients,
    hearing: Semaphore,
    patience: Patience,
    registries: Vec<Arc<RegistryUpstream>>,
    servers: Vec<Arc<HttpUpstream>>,
    cache: Arc<FileCache>,
    /// Files of the cache whose bytes were compared since the start.
    compared: Mutex<HashSet<Digest>>,
    flights: Mutex<HashMap<Digest, Arc<FileFlight>>>,
    /// From repositories of no upstream.
    fetches: Fetches,
    /// From layouts on this machine.
    local_fetches: Fetches,
    /// Room on the disk for files on their way, in units.
    room: Semaphore,
    tables: sources::Tables,
    refusals: Refusals,
    served: AtomicU64,
    began: Instant,
}

impl Gateway {
    /// Reads the trust directory, opens the state directory and listens.
    ///
    /// # Errors
    /// [`ServerError`] names the file, URL or address.
    pub fn bind(config: GatewayConfig) -> BoxFuture<'static, Result<Self, ServerError>> {
        Box::pin(Self::bound(config))
    }

    async fn bound(config: GatewayConfig) -> Result<Self, ServerError> {
        if !config.listen.ip().is_loopback() {
            let problem = "a gateway answers everybody who reaches it, so it listens on loopback alone: expected 127.0.0.1 or ::1";
            return Err(ServerError::Origin {
                origin: format!("--listen {}", config.listen),
                problem: problem.to_owned(),
            });
        }
        let failed = |source| ServerError::Listen { address: config.listen, source };
        let listener = listen(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let lock = opened::lock_data(&config.state)?;
        let gate = Arc::new(Gate::open(&config)?);
        Ok(Self { listener, address, gate, lock })
    }

    /// The address that is listened on, with the port that was picked.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown` completes, then lets what is under way finish for a bounded time.
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
        let Self { listener, gate, lock, .. } = self;
        let router = answers::routes(Arc::clone(&gate));
        let first = Arc::clone(&gate);
        // Registries are read before anybody asks; a request that misses something waits for it.
        tokio::spawn(async move { first.read_registries().await });
        let graceful = GracefulShutdown::new();
        let mut not_accepted = serve::NotAccepted::default();
        let (stop, stops) = watch::channel(false);
        let crowd = Crowd::new(CONNECTIONS);
        let unsent = Unsent::of_the_system();
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = serve::accept_into(&listener, &crowd) => match accepted {
                    Ok((stream, peer, place)) => {
                        let stream = Breakable::new(stream, &unsent);
                        let answered = stream.answered();
                        let stream = Answering::new(stream, answered);
                        let ends = (graceful.watcher(), stops.clone());
                        let router = (router.clone(), serve::HEAD_TIMEOUT);
                        tokio::spawn(serve::serve_connection(stream, peer, router, (place, ends)));
                    }
                    Err(error) => {
                        not_accepted.tell(&error);
                        tokio::time::sleep(serve::ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        stop.send_replace(true);
        drop(listener);
        if tokio::time::timeout(STOP_WITHIN, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests that were still under way are cut off");
        }
        drop(lock);
        Ok(())
    }
}

impl Gate {
    fn open(config: &GatewayConfig) -> Result<Self, ServerError> {
        let data = |path: PathBuf| move |source: io::Error| ServerError::Data { path, source };
        let (mut registries, mut servers) = (Vec::new(), Vec::new());
        if config.upstreams.len() > UPSTREAMS {
            let problem = format!("more than {UPSTREAMS} upstreams");
            return Err(ServerError::Origin { origin: "--upstream".to_owned(), problem });
        }
        for url in &config.upstreams {
            let refused = |problem: String| ServerError::Origin {
                origin: format!("--upstream {}", without_secrets(url)),
                problem,
            };
            match url.strip_prefix(OCI) {
                Some(place) => registries.push(RegistryUpstream::parse(place).map_err(refused)?),
                None => servers.push(HttpUpstream::parse(url, config.patience).map_err(refused)?),
            }
        }
        let seen = config.state.join(SEEN_FOLDER);
        std::fs::create_dir_all(&seen).map_err(data(seen.clone()))?;
        let judge = Judge::open(&config.trust, Some(&seen))?;
        let folder = config.state.join(CACHE_FOLDER);
        let cache = FileCache::open(&folder).map_err(data(folder))?;
        cache.bound(config.cache_bytes);
        let gate = Self {
            pool: Pool::new(),
            making: Pool::for_making(),
            judge,
            catalogue: Catalogue::default(),
            clients: Clients::default(),
            hearing: Semaphore::new(HEARING),
            patience: config.patience,
            registries,
            servers,
            cache: Arc::new(cache),
            compared: Mutex::default(),
            flights: Mutex::default(),
            fetches: Fetches::default(),
            local_fetches: Fetches::default(),
            room: Semaphore::new(usize::try_from(units(config.cache_bytes / 2)).unwrap_or(usize::MAX).min(MOST_ROOM)),
            tables: sources::Tables::default(),
            refusals: Refusals::default(),
            served: AtomicU64::new(0),
            began: Instant::now(),
        };
        for (layout, digest) in &config.bundles {
            let refused = |problem: String| ServerError::Origin { origin: format!("--bundle {digest}"), problem };
            let bundle = Bundle::open(layout.clone(), Some(digest)).map_err(|error| refused(error.to_string()))?;
            let subjects = subject_digests(Some(digest), bundle.index_bytes());
            let listed = Listed::read(*digest, subjects, bundle.index_bytes());
            let listed = listed.map_err(|error| refused(error.to_string()))?;
            gate.catalogue.add(listed, &Home::Layout(layout.clone()), Some(bundle.seals()));
        }
        Ok(gate)
    }
}

/// Bytes in units of the room for files on their way.
fn units(bytes: u64) -> u64 {
    bytes.div_ceil(ROOM_UNIT)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_a_url_shows_nothing_secret() {
        for (url, expected) in [
            ("http://user:secret@h.example:1/a", "http://…@h.example:1/a"),
            ("https://h.example/t/secret?a=b", "https://h.example/t/…?…"),
            ("ftp://user:secret@h.example/", "ftp://…@h.example/"),
            ("user:secret@h", "…@h"),
            ("oci://nohost", "oci://nohost"),
            ("oci://user:secret@h.example/team/app", "oci://…@h.example/team/app"),
            ("h.example/t/secret", "h.example/t/…"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let config = GatewayConfig {
                listen: ([127, 0, 0, 1], 0).into(),
                upstreams: vec![url.to_owned()],
                bundles: Vec::new(),
                trust: folder.path().join("trust"),
                state: folder.path().join("state"),
                cache_bytes: 0,
                patience: Patience::default(),
            };
            let Err(error) = Gate::open(&config) else { panic!("{url} is taken") };
            let error = error.to_string();
            assert!(error.starts_with(&format!("--upstream {expected}: ")) && !error.contains("secret"), "{error}");
        }
    }
}
