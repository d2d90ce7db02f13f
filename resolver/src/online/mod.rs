//! Servers over HTTP: debuginfod and symbol servers, with a cache on the disk that processes share, and a lock file by which a run can be repeated.

mod absent;
mod attempt;
mod budget;
mod cache;
mod download;
mod environment;
mod lock;
mod oversize;
mod paths;
mod remembered;
mod server;
mod silence;

use std::fmt;
use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;

use symseal_artifact::{ArchiveKind, Limits, Member, Source, archive_kind, read_archive};
use symseal_module::MissReason;

use self::cache::Cache;
use self::download::{Arrived, Came, Downloads};
use self::lock::Pinned;
use self::remembered::Remembered;
use self::server::Server;
use crate::{CheckFile, FetchedFile, NotFetched, SymbolServers, WantedFile};

pub use self::environment::FromEnvironment;
pub use self::lock::{Lock, LockError, LockMode};

/// Bytes that the cache may fill by default.
pub const CACHE_BYTES: u64 = 10 << 30;

/// Which servers, and how long they are waited for. Its `Debug` shows nothing that is secret.
#[derive(Clone)]
pub struct OnlineConfig {
    /// debuginfod servers, in the order in which they are asked: `http(s)://HOST[:PORT][/PATH]`.
    pub debuginfod: Vec<String>,
    /// Symbol servers for Windows and macOS.
    pub symbol_servers: Vec<String>,
    /// Headers for debuginfod servers, as `NAME: VALUE`.
    pub headers: Vec<String>,
    /// Where files are kept.
    pub cache: PathBuf,
    /// Bytes that they may fill; what was not used the longest goes. No file that is longer is taken, and all that are on their way hold no more together.
    pub cache_bytes: u64,
    /// A cache of libdebuginfod that is read as well.
    pub elfutils_cache: Option<PathBuf>,
    /// The most bytes of one file.
    pub file_bytes: u64,
    /// The longest time that one file may take to come from one server; `None`: as long as it gets on.
    pub file_time: Option<Duration>,
    /// How long a connection may take to come about.
    pub connect: Duration,
    /// How long a server may keep silent, within an answer and before it.
    pub silence: Duration,
    /// What it has to send at least.
    pub floor: Floor,
}

impl fmt::Debug for OnlineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { debuginfod, symbol_servers, headers, cache, cache_bytes, elfutils_cache, .. } = self;
        let shown = |urls: &[String]| urls.iter().map(|url| crate::without_secrets(url)).collect::<Vec<_>>();
        f.debug_struct("OnlineConfig")
            .field("debuginfod", &shown(debuginfod))
            .field("symbol_servers", &shown(symbol_servers))
            .field("headers", &headers.len())
            .field("cache", cache)
            .field("cache_bytes", cache_bytes)
            .field("elfutils_cache", elfutils_cache)
            .field("file_bytes", &self.file_bytes)
            .field("file_time", &self.file_time)
            .field("connect", &self.connect)
            .field("silence", &self.silence)
            .field("floor", &self.floor)
            .finish()
    }
}

/// The fewest bytes that a server may send in a time: one that trickles would keep a debugger for ever.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    /// Bytes of content.
    pub bytes: u64,
    /// Counted anew after each such time.
    pub time: Duration,
}

impl Default for Floor {
    /// 100 KiB in 90 s, as libdebuginfod asks for it.
    fn default() -> Self {
        Self { bytes: 100 << 10, time: Duration::from_secs(90) }
    }
}

/// No client could be made, or an address is none.
#[derive(Debug, thiserror::Error)]
pub enum OnlineError {
    /// What is no URL of a server.
    #[error("{url}: expected http://HOST or https://HOST, perhaps with a port and a path: {problem}")]
    Url {
        /// As it was given, without what is secret.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// What is no header.
    #[error("{place}: expected NAME: VALUE in each line: {problem}")]
    Header {
        /// The file.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// The folder of the cache.
    #[error("the cache {}: {source}", place.display())]
    Cache {
        /// Where it is.
        place: PathBuf,
        /// Why it cannot be used.
        source: std::io::Error,
    },
    /// The HTTP client or the runtime.
    #[error("{0}")]
    Setup(String),
}

/// The servers. Shared between threads; each asks for itself, and waits: not for the threads of a runtime.
#[derive(Debug)]
pub struct OnlineServers {
    debuginfod: Vec<Server>,
    symbol_servers: Vec<Server>,
    downloads: Downloads,
    cache: Cache,
    lock: Option<Mutex<Lock>>,
    file_bytes: u64,
    /// What servers gave that was not the right file, by URL, with what it was: it is not fetched again while another server that failed is asked
    /// again.
    wrong: Remembered<(MissReason, String)>,
}

impl OnlineServers {
    /// Makes a client; nothing is sent yet.
    ///
    /// # Errors
    /// [`OnlineError`].
    pub fn new(config: OnlineConfig) -> Result<Self, OnlineError> {
        let headers = environment::headers(&config.headers, "headers")?;
        let downloads = Downloads::new(&config)?;
        let servers = |urls: &[String], headers: &HeaderMap| {
            urls.iter().map(|url| Server::parse(url, headers.clone())).collect::<Result<Vec<_>, _>>()
        };
        let debuginfod = servers(&config.debuginfod, &headers)?;
        let symbol_servers = servers(&config.symbol_servers, &HeaderMap::new())?;
        let cache = Cache::open(&config.cache, config.cache_bytes, config.elfutils_cache.clone());
        let cache = cache.map_err(|source| OnlineError::Cache { place: config.cache.clone(), source })?;
        let wrong = Remembered::default();
        Ok(Self { debuginfod, symbol_servers, downloads, cache, lock: None, file_bytes: config.file_bytes, wrong })
    }

    /// Whether there is anybody to ask.
    pub fn is_empty(&self) -> bool {
        self.debuginfod.is_empty() && self.symbol_servers.is_empty()
    }

    /// Takes only what `lock` pins, and notes what it does not.
    pub fn with_lock(mut self, lock: Lock) -> Self {
        self.lock = Some(Mutex::new(lock));
        self
    }

    /// The lock with what was noted in this run.
    pub fn lock(&self) -> Option<Lock> {
        self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn fetch_unpinned(&self, wanted: &WantedFile<'_>, check: CheckFile<'_>) -> Result<FetchedFile, NotFetched> {
        let mut refused = None;
        if let Some(found) = self.cache.find_or(wanted, check, &mut refused) {
            return Ok(found);
        }
        let (servers, asked) = match wanted.id {
            symseal_module::DebugId::BuildId(_) => (&self.debuginfod, "a debuginfod server: set DEBUGINFOD_URLS"),
            _ => (&self.symbol_servers, "a symbol server: set _NT_SYMBOL_PATH"),
        };
        if servers.is_empty() {
            return Err(NotFetched::unasked(MissReason::Unsupported, format!("no server to ask: expected {asked}")));
        }
        let paths = paths::of(wanted);
        let (mut told, mut gravest, mut passing) = (Vec::from_iter(refused), MissReason::ServerMiss, false);
        for server in servers {
            for path in &paths {
                let url = server.url(path).map(String::from).unwrap_or_default();
                if let Some((reason, why)) = self.wrong.get(&url) {
                    told.push(why);
                    gravest = graver(gravest, reason);
                    continue;
                }
                match self.downloads.get(server, path, &self.cache, (wanted, check)) {
                    Came::Kept(found) => return Ok(found),
                    Came::File(arrived) => match self.take(arrived, wanted, check) {
                        Ok(file) => return Ok(file),
                        Err((reason, why)) => {
                            self.wrong.note(url, (reason, why.clone()));
                            told.push(why);
                            gravest = graver(gravest, reason);
                        }
                    },
                    Came::Absent => told.push(format!("{} has none", server.name())),
                    // Another time it will be no smaller.
                    Came::TooLarge(why) => {
                        told.push(why);
                        gravest = graver(gravest, MissReason::ServerError);
                    }
                    Came::Failed(why) => {
                        told.push(why);
                        gravest = graver(gravest, MissReason::ServerError);
                        passing = true;
                    }
                }
            }
        }
        told.dedup();
        Err(NotFetched { reason: gravest, why: told.join("; "), passing, asked: true })
    }

    /// Looks at what arrived, and keeps it if it is the right file.
    fn take(
        &self,
        arrived: Arrived,
        wanted: &WantedFile<'_>,
        check: CheckFile<'_>,
    ) -> Result<FetchedFile, (MissReason, String)> {
        let Arrived { bytes, from, mut part, mut held } = arrived;
        let is_packed = archive_kind(&bytes) == Some(ArchiveKind::Cab);
        let unpacked = if is_packed { of_cabinet(&bytes, self.file_bytes) } else { Ok(bytes) };
        let bytes = match unpacked.and_then(|bytes| check(&bytes).map(|()| bytes)) {
            Ok(bytes) => bytes,
            Err((reason, why)) => {
                let _ = part.finish();
                return Err((reason, format!("{from}: {why}")));
            }
        };
        // Neither a full disk nor a file that is too large unpacked keeps anybody from the name.
        let is_there = !is_packed || (held.grow_to(bytes.len() as u64) && part.replace(&bytes).is_ok());
        let _ = if is_there { self.cache.keep(wanted, part, &bytes, &from) } else { part.finish() };
        drop(held);
        let _ = self.cache.make_room(Some(wanted));
        Ok(FetchedFile { bytes, from })
    }
}

impl SymbolServers for OnlineServers {
    fn fetch(&self, wanted: &WantedFile<'_>, check: CheckFile<'_>) -> Result<FetchedFile, NotFetched> {
        if paths::of(wanted).is_empty() {
            // No server says that it has none: nothing may be remembered of it, and nothing that was pinned counts.
            let why = "symbol servers are asked by the module's file name, which is not known";
            return Err(NotFetched::unasked(MissReason::Unsupported, why));
        }
        let Some(lock) = &self.lock else { return self.fetch_unpinned(wanted, check) };
        let of_lock = || lock.lock().unwrap_or_else(PoisonError::into_inner);
        let pinned = of_lock().pinned(wanted);
        match pinned {
            Pinned::None(MissReason::ServerMiss) => {
                Err(NotFetched::lasting(MissReason::ServerMiss, "the lock file says that no server had it"))
            }
            Pinned::None(reason) => {
                Err(NotFetched::lasting(reason, "the lock file says that this was so, and that no file came"))
            }
            Pinned::Unknown => Err(NotFetched::unasked(MissReason::NotAllowed, "the lock file does not name it")),
            Pinned::File(digest) => {
                let check = |bytes: &[u8]| {
                    check(bytes)?;
                    let found = symseal_bundle::Digest::of(bytes);
                    if found == digest {
                        return Ok(());
                    }
                    Err((MissReason::DigestMismatch, format!("the lock file pins {digest}, found {found}")))
                };
                self.fetch_unpinned(wanted, &check)
            }
            Pinned::Free => {
                let fetched = self.fetch_unpinned(wanted, check);
                match &fetched {
                    Ok(file) => of_lock().note(wanted, symseal_bundle::Digest::of(&file.bytes), &file.from),
                    // Nobody was asked.
                    Err(NotFetched { asked: false, .. }) => {}
                    Err(NotFetched { reason, .. }) => of_lock().note_none(wanted, *reason),
                }
                fetched
            }
        }
    }
}

/// A file that is the wrong one says more than a server that failed, and that more than one that has nothing.
fn graver(one: MissReason, other: MissReason) -> MissReason {
    let rank = |reason| match reason {
        MissReason::ServerMiss => 0,
        MissReason::ServerError => 1,
        MissReason::DigestMismatch => 3,
        _ => 2,
    };
    if rank(other) > rank(one) { other } else { one }
}

/// What is in a cabinet, as symbol stores keep files.
fn of_cabinet(bytes: &[u8], limit: u64) -> Result<Vec<u8>, (MissReason, String)> {
    let limits = Limits { members: 16, member_bytes: limit, total_bytes: limit, ..Limits::default() };
    let mut first = None;
    let mut take = |_: &Member<'_>, content: &mut dyn Read| -> Result<(), Box<dyn std::error::Error>> {
        if first.is_none() {
            let mut member = Vec::new();
            content.read_to_end(&mut member)?;
            first = Some(member);
        }
        Ok(())
    };
    let read = read_archive("cabinet", Source::Seekable(&mut Cursor::new(bytes)), &limits, &mut take);
    read.map_err(|error| (MissReason::Malformed, error.to_string()))?;
    first.ok_or_else(|| (MissReason::Malformed, "the cabinet is empty".to_owned()))
}
