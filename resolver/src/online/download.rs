//! One file from one server: bounded in bytes and time, and taken up where an earlier try broke off.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LOCATION, RANGE};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::runtime::Runtime;

use super::budget::{Budget, Held};
use super::cache::{Cache, Part};
use super::oversize::Oversize;
use super::server::{Server, shown};
use super::silence::{SLOW, SilentHosts, host_of};
use super::{Floor, OnlineConfig, OnlineError};
use crate::{CheckFile, FetchedFile, WantedFile};

/// Redirections that are followed.
const REDIRECTIONS: usize = 5;
/// How often a file is asked for that breaks off, each time from where it ended.
const TRIES: u32 = 4;
/// How often it is looked whether other downloads left room.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// What became of a request.
#[derive(Debug)]
pub(super) enum Came {
    /// The file, where it came from, the part that it was, for which others may wait, and what this holds of the disk.
    File { bytes: Vec<u8>, from: String, part: Part, held: Held },
    /// Somebody else had fetched it meanwhile.
    Kept(FetchedFile),
    /// The server says that it has none.
    Absent,
    /// It is larger than what is taken, and will be.
    TooLarge(String),
    /// It cannot be told.
    Failed(String),
}

/// The client.
#[derive(Debug)]
pub(super) struct Downloads {
    client: Client,
    /// Requests to this machine, to which no proxy leads.
    direct: Client,
    runtime: Runtime,
    /// The most bytes of one file, and what they are bounded by, for people.
    most: (u64, &'static str),
    budget: Arc<Budget>,
    oversize: Oversize,
    file_time: Option<Duration>,
    connect: Duration,
    silence: Duration,
    floor: Floor,
    silent: SilentHosts,
}

/// Why a try ended without the file.
enum Ended {
    /// The server has none.
    Absent,
    /// It broke off; another try may go on from there.
    Broken(String),
    /// No further try helps.
    Failed(String),
    /// It is larger than what is taken, as its server said before any of it came.
    Declared(String),
    /// It is larger than what is taken, which was found by taking it.
    TooLarge(String),
    /// It may be smaller than that, and is larger than what other downloads leave.
    NoRoom(String),
    /// The same of one that does not say how long it is.
    NoEnd(String),
    /// The host of this URL cannot be reached, keeps silent, or took its time to fail: no further try helps, nor does asking for another file there.
    Silent(Box<Url>, String),
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
        if self.silent.contain(&url) {
            return Came::Failed(left_alone(&url));
        }
        if self.oversize.contains(&url) {
            return Came::TooLarge(format!("{}: it is larger than {}", shown(&url), self.bound()));
        }
        if self.oversize.is_all_of(&url) {
            return Came::TooLarge(format!(
                "{} is asked no more, as its last answers were larger than {}",
                host_of(&url),
                self.bound()
            ));
        }
        // Whoever has it may have to reach the server first, and each step of its way shows in the part.
        let (mut part, idle) = match cache.part(&url, self.connect.saturating_add(self.silence)) {
            Ok(part) => part,
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                self.silent.note(&url);
                return Came::Failed(waited_in_vain(&url));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Came::Failed(format!(
                    "{}: another process has what came of it, and does not get on",
                    shown(&url)
                ));
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
        if self.silent.contain(&url) {
            leave(part, cache);
            return Came::Failed(left_alone(&url));
        }
        let (mut last, began, mut held) = (String::new(), Instant::now(), self.budget.hold());
        for _ in 0..TRIES {
            let left = self.file_time.map(|most| most.saturating_sub(began.elapsed()));
            match self.runtime.block_on(self.attempt_within(left, server, &url, (&mut part, &mut held))) {
                Ok(from) => {
                    self.oversize.forgive(&url);
                    return match part.bytes() {
                        Ok(bytes) => Came::File { bytes, from, part, held },
                        Err(error) => Came::Failed(format!("the cache cannot be read: {error}")),
                    };
                }
                Err(Ended::Absent) => {
                    self.oversize.forgive(&url);
                    cache.note_absent(&url);
                    let _ = part.finish();
                    return Came::Absent;
                }
                Err(Ended::Broken(why)) => last = why,
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
                Err(Ended::NoEnd(why)) => {
                    self.oversize.count(&url);
                    let _ = part.finish();
                    return Came::Failed(why);
                }
                Err(Ended::NoRoom(why)) => {
                    let _ = part.finish();
                    return Came::Failed(why);
                }
            }
        }
        leave(part, cache);
        Came::Failed(format!("{last} ({TRIES} times)"))
    }

    /// A try that ends when this time is over, where it is bounded.
    async fn attempt_within(
        &self,
        left: Option<Duration>,
        server: &Server,
        url: &Url,
        into: (&mut Part, &mut Held),
    ) -> Result<String, Ended> {
        let Some(left) = left else { return self.attempt(server, url, into).await };
        let in_time = tokio::time::timeout(left, self.attempt(server, url, into)).await;
        in_time.unwrap_or_else(|_| {
            let most = self.file_time.unwrap_or_default().as_secs_f64();
            Err(Ended::Failed(format!("{}: not all of it came within {most} s (DEBUGINFOD_MAXTIME)", shown(url))))
        })
    }

    async fn attempt(&self, server: &Server, url: &Url, (part, held): (&mut Part, &mut Held)) -> Result<String, Ended> {
        let mut at = part.length().map_err(disk)?;
        let mut range = HeaderMap::new();
        if let Some(etag) = part.etag().filter(|_| at > 0).and_then(|etag| HeaderValue::from_str(&etag).ok()) {
            range.extend([(RANGE, header_of(&format!("bytes={at}-"))), (IF_RANGE, etag)]);
        } else if at > 0 {
            part.begin_anew().map_err(disk)?;
            at = 0;
        }
        let mut asked = Instant::now();
        let mut answer = self.ask(url, server.headers(), &range).await?;
        for _ in 0..REDIRECTIONS {
            // Somewhere else, where nobody is to learn what was meant for this server.
            let Some(elsewhere) = redirected(&answer) else { break };
            if self.silent.contain(&elsewhere) {
                return Err(Ended::Failed(format!(
                    "{}: it sends its clients on: {}",
                    shown(url),
                    left_alone(&elsewhere)
                )));
            }
            part.touch().map_err(disk)?;
            asked = Instant::now();
            answer = self.ask(&elsewhere, &HeaderMap::new(), &range).await?;
        }
        match answer.status() {
            StatusCode::OK => {
                if at > 0 {
                    part.begin_anew().map_err(disk)?;
                }
                part.set_etag(answer.headers().get(ETAG)).map_err(disk)?;
            }
            StatusCode::PARTIAL_CONTENT if at > 0 && begins_at(&answer, at) => {}
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT => {
                part.begin_anew().map_err(disk)?;
                let ended = Ended::Broken(format!("{}: another part came than was asked for", shown(url)));
                return Err(ended.after(asked.elapsed(), answer.url()));
            }
            StatusCode::NOT_FOUND => return Err(Ended::Absent),
            status => {
                let ended = Ended::Failed(format!("{}: expected 200 or 404, found {status}", shown(url)));
                return Err(ended.after(asked.elapsed(), answer.url()));
            }
        }
        let from = answer.url().clone();
        part.touch().map_err(disk)?;
        self.receive(&mut answer, &from, (part, held)).await?;
        // What came is looked at now, which takes its time.
        part.touch().map_err(disk)?;
        Ok(shown(&from))
    }

    /// The head of an answer.
    async fn ask(&self, url: &Url, headers: &HeaderMap, range: &HeaderMap) -> Result<Response, Ended> {
        let is_here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        let client = if is_here { &self.direct } else { &self.client };
        let request = client.get(url.clone()).headers(headers.clone()).headers(range.clone());
        // Bytes as they are: ranges are of these.
        let sent = request.header(ACCEPT_ENCODING, "identity").send();
        let asked = Instant::now();
        match tokio::time::timeout(self.silence, sent).await {
            Err(_) => Err(silent(url, self.silence)),
            Ok(Err(error)) if error.is_timeout() && !error.is_connect() => Err(silent(url, self.silence)),
            Ok(Err(error)) => {
                let is_dead = error.is_connect();
                let why = match is_dead && error.is_timeout() {
                    true => format!("{}: no connection within {} s", shown(url), self.connect.as_secs_f64()),
                    false => format!("{}: {}", shown(url), root_of(&error)),
                };
                Err(match is_dead {
                    true => Ended::Silent(Box::new(url.clone()), why),
                    false => Ended::Failed(why).after(asked.elapsed(), error.url().unwrap_or(url)),
                })
            }
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    /// The most that is taken of a file, for people.
    fn bound(&self) -> String {
        format!("the {} bytes that are taken ({})", self.most.0, self.most.1)
    }

    fn no_room(&self, bytes: u64, url: &Url) -> String {
        format!(
            "{}: {bytes} bytes find no room beside the other downloads under way: together they may take the {} bytes of the cache (set SYMSEAL_CACHE_BYTES)",
            shown(url),
            self.budget.bound()
        )
    }

    /// Holds that many bytes of the disk, once other downloads leave them.
    async fn wait_for_room(&self, bytes: u64, url: &Url, (part, held): (&mut Part, &mut Held)) -> Result<(), Ended> {
        let began = Instant::now();
        while !held.grow_to(bytes) {
            if began.elapsed() > self.silence {
                return Err(Ended::NoRoom(self.no_room(bytes, url)));
            }
            // Nobody who waits for this one is to take it for silent.
            part.touch().map_err(disk)?;
            tokio::time::sleep(ROOM_PAUSE).await;
        }
        Ok(())
    }

    async fn receive(
        &self,
        answer: &mut Response,
        url: &Url,
        (part, held): (&mut Part, &mut Held),
    ) -> Result<(), Ended> {
        let too_large = |bytes: u64| format!("{}: {bytes} bytes are larger than {}", shown(url), self.bound());
        let mut length = part.length().map_err(disk)?;
        // At least so long.
        let all = answer.content_length().map_or(length, |rest| length.saturating_add(rest));
        if all > self.most.0 {
            return Err(Ended::Declared(too_large(all)));
        }
        // Who says how long it is waits for the others, and then for nobody: all of it is held.
        self.wait_for_room(all, url, (part, held)).await?;
        let (began, mut heard, mut came) = (Instant::now(), Instant::now(), 0_u64);
        let (mut since, mut received) = (Instant::now(), 0_u64);
        loop {
            let chunk = match answer.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(()),
                // What came is kept. A server that falls silent within an answer would do so in the next one.
                Err(error) if is_timeout(&error) => return Err(silent(url, self.silence)),
                Err(error) => {
                    let ended = Ended::Broken(format!("{}: {}", shown(url), root_of(&error)));
                    // Of a large file much may have come, for long, and the rest may come next time.
                    let idle = if came < self.floor.bytes { began.elapsed() } else { heard.elapsed() };
                    return Err(ended.after(idle, url));
                }
            };
            heard = Instant::now();
            let bytes = chunk.len() as u64;
            length = length.saturating_add(bytes);
            received = received.saturating_add(bytes);
            came = came.saturating_add(bytes);
            if length > self.most.0 {
                return Err(Ended::TooLarge(too_large(length)));
            }
            // Who does not say how long it is cannot wait: others may wait for what this one holds.
            if !held.grow_to(length) {
                return Err(Ended::NoEnd(self.no_room(length, url)));
            }
            part.append(&chunk).map_err(disk)?;
            if since.elapsed() > self.floor.time {
                if received < self.floor.bytes {
                    let why = format!("{}: {received} bytes in {:?} are too slow", shown(url), self.floor.time);
                    return Err(Ended::Silent(Box::new(url.clone()), why));
                }
                (since, received) = (Instant::now(), 0);
            }
        }
    }
}

impl Ended {
    /// A failure that took its time counts like silence: the next file would cost as much.
    fn after(self, waited: Duration, url: &Url) -> Self {
        match self {
            Self::Broken(why) | Self::Failed(why) if waited > SLOW => {
                Self::Silent(Box::new(url.clone()), format!("{why}, after {:.1} s", waited.as_secs_f64()))
            }
            other => other,
        }
    }
}

/// What came stays for another try, as far as the cache has room for it.
fn leave(part: Part, cache: &Cache) {
    if part.give_up() {
        let _ = cache.make_room(None);
    }
}

fn silent(url: &Url, silence: Duration) -> Ended {
    let why = format!("{}: no answer within {} s", shown(url), silence.as_secs_f64());
    Ended::Silent(Box::new(url.clone()), why)
}

fn disk(error: std::io::Error) -> Ended {
    Ended::Failed(format!("the cache cannot be written to: {error}"))
}

fn waited_in_vain(url: &Url) -> String {
    format!("{}: another process asked for it and had no answer", shown(url))
}

fn left_alone(url: &Url) -> String {
    format!(
        "{} is left alone, as it could not be reached, did not answer in time, or took its time to fail",
        host_of(url)
    )
}

fn header_of(text: &str) -> HeaderValue {
    // Digits and letters alone.
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Redirections are followed without asking as far as they stay with one server.
fn within_one_origin(attempt: Attempt<'_>) -> Action {
    if attempt.previous().len() > REDIRECTIONS {
        return attempt.error("too many redirections");
    }
    let stays = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    if stays { attempt.follow() } else { attempt.stop() }
}

/// Where an answer leads that is a redirection to another server.
fn redirected(answer: &Response) -> Option<Url> {
    let location = answer.headers().get(LOCATION).filter(|_| answer.status().is_redirection())?;
    let url = answer.url().join(location.to_str().ok()?).ok()?;
    matches!(url.scheme(), "http" | "https").then_some(url)
}

/// A time-out may lie below what reqwest says of a body.
fn is_timeout(error: &reqwest::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    std::iter::from_fn(|| {
        let this = source?;
        source = this.source();
        Some(this)
    })
    .any(|error| {
        let of_request = error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_timeout);
        let of_system = error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::TimedOut);
        of_request || of_system
    })
}

/// Whether a part begins where it was asked to.
fn begins_at(answer: &Response, at: u64) -> bool {
    let range = answer.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()) == Some(at)
}

/// What an error comes down to: its own text repeats the URL, with all that is secret in it.
fn root_of(error: &reqwest::Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// A file's bytes from its start.
pub(super) fn read_from_start(file: &mut File) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Appends bytes.
pub(super) fn append(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    file.seek(SeekFrom::End(0))?;
    file.write_all(bytes)
}
