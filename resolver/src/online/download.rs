//! One file from one server: bounded in bytes and time, and taken up where an earlier try broke off.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::runtime::Runtime;

use super::cache::{Cache, Part};
use super::server::{Server, shown};
use super::{Floor, OnlineConfig, OnlineError};
use crate::{CheckFile, FetchedFile, WantedFile};

/// Redirections that are followed.
const REDIRECTIONS: usize = 5;
/// How often a file is asked for that breaks off, each time from where it ended.
const TRIES: u32 = 4;
/// What became of a request.
#[derive(Debug)]
pub(super) enum Came {
    /// The file, where it came from, and the part that it was, for which others may wait.
    File { bytes: Vec<u8>, from: String, part: Part },
    /// Somebody else had fetched it meanwhile.
    Kept(FetchedFile),
    /// The server says that it has none.
    Absent,
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
    headers: HeaderMap,
    file_bytes: u64,
    silence: Duration,
    floor: Floor,
}

/// Why a try ended without the file.
enum Ended {
    /// The server has none.
    Absent,
    /// It broke off; another try may go on from there.
    Broken(String),
    /// No further try helps. `at_once`: nor does any other file of this server.
    Failed { why: String, at_once: bool },
}

impl Downloads {
    pub(super) fn new(config: &OnlineConfig, headers: HeaderMap) -> Result<Self, OnlineError> {
        // Another part of the program may have said so already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let setup =
            |error: &dyn std::fmt::Display| OnlineError::Setup(format!("no HTTP client could be made: {error}"));
        let builder = || {
            Client::builder()
                .user_agent(concat!("symseal/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(config.connect)
                .read_timeout(config.silence)
                .redirect(reqwest::redirect::Policy::limited(REDIRECTIONS))
        };
        let client = builder().build().map_err(|error| setup(&error))?;
        let direct = builder().no_proxy().build().map_err(|error| setup(&error))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| setup(&error))?;
        Ok(Self {
            client,
            direct,
            runtime,
            headers,
            file_bytes: config.file_bytes,
            silence: config.silence,
            floor: config.floor,
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
        if server.is_dead() {
            return Came::Failed(format!("{} is left alone, as it did not answer", server.name()));
        }
        let mut part = match cache.part(&url) {
            Ok(part) => part,
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
        let mut last = String::new();
        for _ in 0..TRIES {
            match self.runtime.block_on(self.attempt(&url, &mut part)) {
                Ok(from) => {
                    return match part.bytes() {
                        Ok(bytes) => Came::File { bytes, from, part },
                        Err(error) => Came::Failed(format!("the cache cannot be read: {error}")),
                    };
                }
                Err(Ended::Absent) => {
                    cache.note_absent(&url);
                    return Came::Absent;
                }
                Err(Ended::Broken(why)) => last = why,
                Err(Ended::Failed { why, at_once }) => {
                    if at_once {
                        server.is_silent();
                    }
                    return Came::Failed(why);
                }
            }
        }
        Came::Failed(format!("{last} ({TRIES} times)"))
    }

    async fn attempt(&self, url: &Url, part: &mut Part) -> Result<String, Ended> {
        let disk = |error: std::io::Error| Ended::Failed {
            why: format!("the cache cannot be written to: {error}"),
            at_once: false,
        };
        let mut at = part.length().map_err(disk)?;
        let is_here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        let client = if is_here { &self.direct } else { &self.client };
        // Bytes as they are: ranges are of these.
        let mut request = client.get(url.clone()).headers(self.headers.clone()).header(ACCEPT_ENCODING, "identity");
        if let Some(etag) = part.etag().filter(|_| at > 0).and_then(|etag| HeaderValue::from_str(&etag).ok()) {
            request = request.header(RANGE, format!("bytes={at}-")).header(IF_RANGE, etag);
        } else if at > 0 {
            part.begin_anew().map_err(disk)?;
            at = 0;
        }
        let head = tokio::time::timeout(self.silence, request.send()).await;
        let mut answer = match head {
            Err(_) => return Err(silent(url, self.silence)),
            Ok(Err(error)) if error.is_timeout() && !error.is_connect() => return Err(silent(url, self.silence)),
            Ok(Err(error)) => {
                let why = format!("{}: {}", shown(url), root_of(&error));
                return Err(Ended::Failed { why, at_once: error.is_connect() });
            }
            Ok(Ok(answer)) => answer,
        };
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
                return Err(Ended::Broken(format!("{}: another part came than was asked for", shown(url))));
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(Ended::Absent),
            status => {
                let why = format!("{}: expected 200 or 404, found {status}", shown(url));
                return Err(Ended::Failed { why, at_once: false });
            }
        }
        let from = shown(answer.url());
        self.receive(&mut answer, url, part).await?;
        Ok(from)
    }

    async fn receive(&self, answer: &mut Response, url: &Url, part: &mut Part) -> Result<(), Ended> {
        let too_large = |bytes: u64| Ended::Failed {
            why: format!("{}: {bytes} bytes and more, at most {} are taken", shown(url), self.file_bytes),
            at_once: false,
        };
        let disk = |error: std::io::Error| Ended::Failed {
            why: format!("the cache cannot be written to: {error}"),
            at_once: false,
        };
        let mut length = part.length().map_err(disk)?;
        if let Some(bytes) =
            answer.content_length().map(|rest| length.saturating_add(rest)).filter(|all| *all > self.file_bytes)
        {
            return Err(too_large(bytes));
        }
        let (mut since, mut received) = (Instant::now(), 0_u64);
        loop {
            let chunk = match answer.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(()),
                // Nothing came for a while, or the connection broke: what came is kept.
                Err(error) => return Err(Ended::Broken(format!("{}: {}", shown(url), root_of(&error)))),
            };
            let bytes = chunk.len() as u64;
            length = length.saturating_add(bytes);
            received = received.saturating_add(bytes);
            if length > self.file_bytes {
                part.begin_anew().map_err(disk)?;
                return Err(too_large(length));
            }
            part.append(&chunk).map_err(disk)?;
            if since.elapsed() > self.floor.time {
                if received < self.floor.bytes {
                    let why = format!("{}: {received} bytes in {:?} are too slow", shown(url), self.floor.time);
                    return Err(Ended::Failed { why, at_once: true });
                }
                (since, received) = (Instant::now(), 0);
            }
        }
    }
}

fn silent(url: &Url, silence: Duration) -> Ended {
    let why = format!("{}: no answer within {} s", shown(url), silence.as_secs_f64());
    Ended::Failed { why, at_once: true }
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
