//! One file from one server: whether it is asked for, how often, and what its answer teaches about the server.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use tokio::runtime::Runtime;

use super::attempt::{Ended, within_one_origin};
use super::budget::{Budget, Held};
use super::cache::{Cache, Part};
use super::oversize::Oversize;
use super::server::{Server, shown};
use super::silence::{SilentHosts, host_of};
use super::{Floor, OnlineConfig, OnlineError};
use crate::{CheckFile, FetchedFile, WantedFile};

/// How often a file is asked for that breaks off, each time from where it ended.
const TRIES: u32 = 4;
/// How often who waits for other downloads shows that it is there.
const SHOWN_EACH: Duration = Duration::from_millis(50);

/// What became of a request.
#[derive(Debug)]
pub(super) enum Came {
    /// The file, as it seems.
    File(Arrived),
    /// Somebody else had fetched it meanwhile.
    Kept(FetchedFile),
    /// The server says that it has none.
    Absent,
    /// It is larger than what is taken, and will be.
    TooLarge(String),
    /// It cannot be told.
    Failed(String),
}

/// What was sent, at which nobody has looked yet.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) bytes: Vec<u8>,
    /// Where it came from, without what is secret in that.
    pub(super) from: String,
    /// The same bytes on the disk, for which others may wait.
    pub(super) part: Part,
    /// What they hold of the disk.
    pub(super) held: Held,
}

/// The client.
#[derive(Debug)]
pub(super) struct Downloads {
    pub(super) client: Client,
    /// Requests to this machine, to which no proxy leads.
    pub(super) direct: Client,
    runtime: Runtime,
    /// The most bytes of one file, and what they are bounded by, for people.
    pub(super) most: (u64, &'static str),
    budget: Arc<Budget>,
    oversize: Oversize,
    pub(super) file_time: Option<Duration>,
    pub(super) connect: Duration,
    pub(super) silence: Duration,
    pub(super) floor: Floor,
    pub(super) silent: SilentHosts,
}

impl Downloads {
    pub(super) fn new(config: &OnlineConfig) -> Result<Self, OnlineError> {
        // Another part of the program may have said so already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let setup =
            |error: &dyn std::fmt::Display| OnlineError::Setup(format!("no HTTP client could be made: {error}"));
        let builder = || {
            Client::builder()
                .user_agent(concat!("symseal/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(config.connect)
                .read_timeout(config.silence)
                .redirect(Policy::custom(within_one_origin))
                // The address may hold a token.
                .referer(false)
        };
        let client = builder().build().map_err(|error| setup(&error))?;
        let direct = builder().no_proxy().build().map_err(|error| setup(&error))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| setup(&error))?;
        Ok(Self {
            client,
            direct,
            runtime,
            most: match config.cache_bytes < config.file_bytes {
                true => (config.cache_bytes, "all that the cache may fill: set SYMSEAL_CACHE_BYTES"),
                false => (config.file_bytes, "the most of one file: DEBUGINFOD_MAXSIZE, up to 4 GiB"),
            },
            budget: Budget::new(config.cache_bytes),
            oversize: Oversize::default(),
            file_time: config.file_time,
            connect: config.connect,
            silence: config.silence,
            floor: config.floor,
            silent: SilentHosts::default(),
        })
    }

    /// Fetches a path of a server. Blocks.
    pub(super) fn get(
        &self,
        server: &Server,
        path: &str,
        cache: &Cache,
        (wanted, check): (&WantedFile<'_>, CheckFile<'_>),
    ) -> Came {
        let Some(url) = server.url(path) else {
            return Came::Failed(format!("{}: {path} is no path below it", server.name()));
        };
        if cache.is_absent(&url) {
            return Came::Absent;
        }
        if let Some(came) = self.unasked(&url) {
            return came;
        }
        // Whoever has it may have to reach the server first, and each step of its way shows in the part.
        let (mut part, idle) = match cache.part(&url, self.connect.saturating_add(self.silence)) {
            Ok(part) => part,
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                self.silent.note(&url);
                return Came::Failed(waited_in_vain(&url));
            }
            Err(error) => return Came::Failed(format!("the cache cannot be written to: {error}")),
        };
        // Whoever held it before, in this process or another, may have had the answer.
        if let Some(found) = cache.find(wanted, check) {
            let _ = part.finish();
            return Came::Kept(found);
        }
        if cache.is_absent(&url) {
            let _ = part.finish();
            return Came::Absent;
        }
        // Another process waited as long as this one would, or nearly so.
        if idle.saturating_add(self.silence / 10) >= self.silence {
            self.silent.note(&url);
            leave(part, cache);
            return Came::Failed(waited_in_vain(&url));
        }
        let mut held = self.waiting(&part, self.budget.hold());
        let (mut last, mut tries, mut taken) = (String::new(), 0, Duration::ZERO);
        while tries < TRIES {
            // Meanwhile others may have learned what there is to expect of this server.
            if let Some(came) = self.unasked(&url) {
                leave(part, cache);
                return came;
            }
            let (began, left) = (Instant::now(), self.file_time.map(|most| most.saturating_sub(taken)));
            let ended = self.runtime.block_on(self.attempt_within(left, server, &url, (&mut part, &mut held)));
            taken += began.elapsed();
            match ended {
                Ok(from) => {
                    self.answered(&url);
                    return match part.bytes() {
                        Ok(bytes) => Came::File(Arrived { bytes, from, part, held }),
                        Err(error) => Came::Failed(format!("the cache cannot be read: {error}")),
                    };
                }
                Err(Ended::Absent) => {
                    self.answered(&url);
                    cache.note_absent(&url);
                    let _ = part.finish();
                    return Came::Absent;
                }
                Err(Ended::Broken(why)) => (last, tries) = (why, tries + 1),
                Err(Ended::Silent(url, why)) => {
                    self.silent.note(&url);
                    leave(part, cache);
                    return Came::Failed(why);
                }
                Err(Ended::Failed(why)) => {
                    leave(part, cache);
                    return Came::Failed(why);
                }
                Err(Ended::Declared(why)) => {
                    // An honest word costs nothing, and says nothing of the server's other files.
                    self.oversize.keep(&url);
                    let _ = part.finish();
                    return Came::TooLarge(why);
                }
                Err(Ended::TooLarge(why)) => {
                    self.oversize.note(&url);
                    let _ = part.finish();
                    return Came::TooLarge(why);
                }
                // Alone it has all the room that there is.
                Err(Ended::NoRoom) => self.waiting(&part, held.be_alone()),
            }
        }
        leave(part, cache);
        Came::Failed(format!("{last} ({TRIES} times)"))
    }

    /// What is known of a file, or of its server, that it need not be asked for.
    fn unasked(&self, url: &Url) -> Option<Came> {
        if self.silent.contain(url) {
            return Some(Came::Failed(left_alone(url)));
        }
        if self.oversize.contains(url) {
            return Some(Came::TooLarge(format!("{}: it is larger than {}", shown(url), self.bound())));
        }
        self.oversize.is_all_of(url).then(|| {
            let host = host_of(url);
            Came::TooLarge(format!("{host} is asked no more, as its last answers were larger than {}", self.bound()))
        })
    }

    /// The host of this URL gave an answer that counts.
    fn answered(&self, url: &Url) {
        self.oversize.forgive(url);
        self.silent.forgive(url);
    }

    /// Waits for other downloads. Nobody who waits for this one is to take it for silent.
    fn waiting<T>(&self, part: &Part, others: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            let mut others = std::pin::pin!(others);
            loop {
                match tokio::time::timeout(SHOWN_EACH, others.as_mut()).await {
                    Ok(done) => return done,
                    Err(_) => drop(part.touch()),
                }
            }
        })
    }

    /// The most that is taken of a file, for people.
    pub(super) fn bound(&self) -> String {
        format!("the {} bytes that are taken ({})", self.most.0, self.most.1)
    }
}

/// What came stays for another try, as far as the cache has room for it.
fn leave(part: Part, cache: &Cache) {
    if part.give_up() {
        let _ = cache.make_room(None);
    }
}

fn waited_in_vain(url: &Url) -> String {
    format!("{}: another process asked for it and had no answer", shown(url))
}

/// What is said of a host that is not asked.
pub(super) fn left_alone(url: &Url) -> String {
    format!(
        "{} is left alone, as it could not be reached, did not answer in time, or took its time to fail",
        host_of(url)
    )
}
