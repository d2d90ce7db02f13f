//! An upstream that is a server over HTTP: one of ours, which tells which bundles have an id, or another debuginfod or symbol server, which
//! gives bytes and nothing to prove them by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_RANGE, RANGE, USER_AGENT};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use symseal_bundle::Digest;
use symseal_registry::Reference;

use super::catalogue::Catalogue;
use super::home::{Incoming, Trouble};
use super::registry::{UpstreamStanding, hear};
use crate::Patience;
use crate::debug_files::Key;
use crate::upstream::{Admission, Breaker};

/// Redirections that are followed.
const REDIRECTIONS: usize = 4;
/// Bytes of an answer about bundles.
const ANSWER_LIMIT: usize = 256 << 10;
/// Bundles of one answer that are looked at.
const BUNDLES_LIMIT: usize = 32;
/// How long a server that has no such API is taken for another kind.
const PLAIN_FOR: Duration = Duration::from_secs(600);
/// How long "no bundle has it" is believed.
const ABSENCE: Duration = Duration::from_secs(5);
/// Absences that are remembered; beyond that the memory starts anew.
const ABSENCES: usize = 10_000;
/// What elfutils' server says of a path that it does not know, with status 503.
const UNRECOGNIZED: &str = "unrecognized";
/// How this program calls itself.
const AGENT: &str = concat!("symseal-gateway/", env!("CARGO_PKG_VERSION"));

/// The server.
pub(super) struct HttpUpstream {
    base: Url,
    http: Client,
    breaker: Breaker,
    patience: Patience,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kind: Kind,
    problem: Option<String>,
    absences: HashMap<Key, Instant>,
    bundles: usize,
}

#[derive(Default, Clone, Copy)]
enum Kind {
    #[default]
    Unknown,
    /// It tells of bundles.
    Ours,
    /// It does not; believed until then.
    Plain(Instant),
}

/// What our server answers.
#[derive(Deserialize)]
struct Answer {
    bundles: Vec<Told>,
}

#[derive(Deserialize)]
struct Told {
    sha256: String,
    repositories: Vec<String>,
}

impl HttpUpstream {
    /// The server at a base URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str, patience: Patience) -> Result<Arc<Self>, String> {
        let mut base = Url::parse(text).map_err(|error| error.to_string())?;
        let is_plain = base.query().is_none() && base.fragment().is_none() && base.password().is_none();
        if !matches!(base.scheme(), "http" | "https") || !is_plain || base.host_str().is_none() {
            return Err(
                "expected http://HOST[:PORT][/PATH], https://… or oci://HOST[:PORT]/REPOSITORY[:TAG]".to_owned()
            );
        }
        if !base.path().ends_with('/') {
            let path = format!("{}/", base.path());
            base.set_path(&path);
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .user_agent(AGENT)
            .no_gzip()
            .no_zstd()
            .no_brotli()
            .no_deflate()
            .connect_timeout(patience.connect)
            .read_timeout(patience.head.max(patience.stall))
            .redirect(reqwest::redirect::Policy::custom(|attempt| {
                let is_same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
                // What comes from elsewhere is checked as well; but an upstream must not make us ask machines that it cannot reach itself.
                let is_far =
                    attempt.url().scheme() == "https" && attempt.url().domain().is_some_and(|name| name.contains('.'));
                match attempt.previous().len() {
                    hops if hops > REDIRECTIONS => attempt.error("too many redirections"),
                    _ if is_same || is_far => attempt.follow(),
                    _ => attempt.error("it redirects to another place without https and a host name"),
                }
            }))
            .build()
            .map_err(|error| format!("no HTTP client could be made: {error}"))?;
        let breaker = Breaker::new(patience.pause);
        Ok(Arc::new(Self { base, http, breaker, patience, state: Mutex::default() }))
    }

    /// What to call it: without what is secret in it.
    pub(super) fn name(&self) -> String {
        let path = self.base.path();
        let path = path.strip_prefix("/t/").map_or(path, |_| "/t/…/");
        format!("{}{}", self.base.origin().ascii_serialization(), path.trim_end_matches('/'))
    }

    /// For the status page.
    pub(super) fn standing(&self) -> UpstreamStanding {
        let state = self.lock();
        let kind = match state.kind {
            Kind::Unknown => "not reached yet",
            Kind::Ours => "symseal server",
            Kind::Plain(_) => "bytes only",
        };
        UpstreamStanding { url: self.name(), kind, problem: state.problem.clone(), bundles: state.bundles }
    }

    /// Finds out which bundles have a key, and takes them into the catalogue.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub(super) async fn learn(self: &Arc<Self>, catalogue: &Catalogue, key: &Key) -> Result<(), String> {
        {
            let state = self.lock();
            let is_plain = matches!(state.kind, Kind::Plain(until) if until > Instant::now());
            if is_plain || state.absences.get(key).is_some_and(|until| *until > Instant::now()) {
                return Ok(());
            }
        }
        let Some(question) = question(key) else { return Ok(()) };
        let told = match self.bundles(&question).await {
            Ok(told) => told,
            Err(trouble) => {
                let why = format!("{}: {}", self.name(), trouble.text());
                let mut state = self.lock();
                state.problem = Some(why.clone());
                // Of a server that never told of bundles nothing is lost.
                return if matches!(state.kind, Kind::Plain(_)) { Ok(()) } else { Err(why) };
            }
        };
        let Some(told) = self.note_answer(key, told) else { return Ok(()) };
        let mut problem = None;
        for told in told.into_iter().take(BUNDLES_LIMIT) {
            match self.take(catalogue, &told).await {
                Ok(()) => self.lock().bundles += 1,
                Err(trouble) => {
                    let why = format!(
                        "{}: bundle {}: {}",
                        self.name(),
                        told.sha256.chars().take(80).collect::<String>(),
                        trouble.text()
                    );
                    tracing::warn!(why, "a bundle that was told of cannot be had");
                    if matches!(trouble, Trouble::Down(_)) {
                        problem = Some(why.clone());
                    }
                    self.lock().problem = Some(why);
                }
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// Remembers what an answer says of the server; the bundles that it told of, if it tells of bundles.
    fn note_answer(&self, key: &Key, told: Option<Vec<Told>>) -> Option<Vec<Told>> {
        let mut state = self.lock();
        state.problem = None;
        let Some(told) = told else {
            state.kind = Kind::Plain(Instant::now() + PLAIN_FOR);
            return None;
        };
        state.kind = Kind::Ours;
        if told.is_empty() {
            if state.absences.len() >= ABSENCES {
                state.absences.clear();
            }
            state.absences.insert(key.clone(), Instant::now() + ABSENCE);
        }
        Some(told)
    }

    async fn take(&self, catalogue: &Catalogue, told: &Told) -> Result<(), Trouble> {
        let digest: Digest = told.sha256.parse().map_err(|error| Trouble::Wrong(format!("{error}")))?;
        let repository =
            told.repositories.first().ok_or_else(|| Trouble::Absent("it is in no repository".to_owned()))?;
        let host = self.base.host_str().unwrap_or_default();
        let place = match self.base.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let reference = Reference::parse(&format!("{place}/{repository}@{digest}"));
        let reference = reference.map_err(|error| Trouble::Wrong(error.to_string()))?;
        hear(catalogue, &reference).await
    }

    /// The bundles that have what is asked for; `None` where the server has no such API.
    async fn bundles(self: &Arc<Self>, question: &str) -> Result<Option<Vec<Told>>, Trouble> {
        let response = self.ask(&format!("api/v1/bundles?{question}"), None).await?;
        let status = response.status();
        let body = tokio::time::timeout(self.patience.head, gather(response, ANSWER_LIMIT)).await;
        let body = body.map_err(|_| Trouble::Down("its answer did not come in time".to_owned()))??;
        match status {
            StatusCode::OK => Ok(serde_json::from_slice::<Answer>(&body).ok().map(|answer| answer.bundles)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Trouble::Down(format!(
                "it answered {status} when asked for bundles: it wants a token (https://HOST/t/TOKEN)"
            ))),
            StatusCode::SERVICE_UNAVAILABLE if String::from_utf8_lossy(&body).contains(UNRECOGNIZED) => Ok(None),
            status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
                Err(Trouble::Down(format!("it answered {status} when asked for bundles")))
            }
            StatusCode::TOO_MANY_REQUESTS => Err(Trouble::Down(format!("it answered {status} when asked for bundles"))),
            _ => Ok(None),
        }
    }

    /// The bytes of a file by its path below the base, from `offset` on, unchecked.
    pub(super) async fn stream(self: &Arc<Self>, path: &str, (offset, size): (u64, u64)) -> Result<Incoming, Trouble> {
        let range = (offset > 0).then(|| format!("bytes={offset}-"));
        let response = self.ask(path, range.as_deref()).await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let coding = header(CONTENT_ENCODING);
        if !coding.is_empty() && coding != "identity" {
            return Err(Trouble::Wrong(format!("it sent the coding {coding:?}, which was not asked for")));
        }
        let mut skip = match response.status() {
            StatusCode::OK => offset,
            StatusCode::PARTIAL_CONTENT if header(CONTENT_RANGE).starts_with(&format!("bytes {offset}-")) => 0,
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(Trouble::Absent("it has no such file".to_owned())),
            status => return Err(Trouble::Down(format!("it answered {status}"))),
        };
        let expected = if skip > 0 { size } else { size.saturating_sub(offset) };
        if let Some(found) = response.content_length().filter(|length| *length != expected) {
            return Err(Trouble::Wrong(format!("expected {expected} bytes, found {found} announced")));
        }
        let stall = self.patience.stall;
        let rest = response.bytes_stream();
        let rest = stream::unfold(rest.boxed(), move |mut rest| async move {
            let next = match tokio::time::timeout(stall, rest.next()).await {
                Ok(next) => next?.map_err(|error| Trouble::Down(told(&error.without_url()))),
                Err(_) => Err(Trouble::Down("nothing more came in time".to_owned())),
            };
            Some((next, rest))
        });
        let rest = rest.map(move |piece| {
            piece.map(|mut piece: Bytes| {
                let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
                skip = skip.saturating_sub(skipped as u64);
                piece.split_off(skipped)
            })
        });
        Ok(rest.boxed())
    }

    /// One request, unless the server is dead.
    async fn ask(self: &Arc<Self>, path: &str, range: Option<&str>) -> Result<Response, Trouble> {
        match self.breaker.admit(Instant::now()) {
            Admission::Ask => {}
            Admission::Dead => return Err(Trouble::Down("it is out of service".to_owned())),
            Admission::Probe => {
                tokio::spawn(Arc::clone(self).probe());
                return Err(Trouble::Down("it was out of service".to_owned()));
            }
        }
        let url = self.base.join(path).map_err(|error| Trouble::Wrong(error.to_string()))?;
        let mut request = self.http.get(url).header(ACCEPT_ENCODING, "identity");
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let (connected, why) = match tokio::time::timeout(self.patience.head, request.send()).await {
            Ok(Ok(response)) => {
                self.breaker.lives();
                return Ok(response);
            }
            Ok(Err(error)) if error.is_redirect() || error.is_builder() => {
                return Err(Trouble::Wrong(told(&error.without_url())));
            }
            Ok(Err(error)) => (!error.is_connect(), told(&error.without_url())),
            Err(late) => (true, late.to_string()),
        };
        if self.breaker.failed(connected, Instant::now()) {
            tracing::warn!(upstream = self.name(), why, "an upstream does not answer, and is left alone for a while");
        }
        Err(Trouble::Down(why))
    }

    async fn probe(self: Arc<Self>) {
        let request = self.http.get(self.base.clone()).header(USER_AGENT, AGENT);
        match tokio::time::timeout(self.patience.head, request.send()).await {
            Ok(Ok(_)) => self.breaker.lives(),
            Ok(Err(_)) | Err(_) => drop(self.breaker.failed(false, Instant::now())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How our server is asked for a key.
fn question(key: &Key) -> Option<String> {
    let encode = |text: &str| crate::http::percent_encode(text, b"");
    match key {
        Key::Id(id) => Some(format!("debug_id={}", encode(&id.to_string()))),
        Key::Image(image) => {
            let (name, code_id) = image.rsplit_once('/')?;
            Some(format!("code_file={}&code_id={}", encode(name), encode(code_id)))
        }
        Key::Breakpad { .. } => None,
    }
}

async fn gather(mut response: Response, limit: usize) -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Trouble::Down(told(&error.without_url())))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > limit {
            return Err(Trouble::Wrong(format!("its answer has more than {limit} bytes")));
        }
    }
    Ok(bytes)
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_must_be_one_of_a_server_and_its_token_is_not_shown() {
        for text in ["", "gopher://h/", "http://", "http://h/?a=b", "http://u:p@h/", "h:8790"] {
            assert!(HttpUpstream::parse(text, Patience::default()).is_err(), "{text}");
        }
        let name = |text: &str| HttpUpstream::parse(text, Patience::default()).unwrap().name();
        assert_eq!(name("http://127.0.0.1:1"), "http://127.0.0.1:1");
        assert_eq!(name("https://h.example/symbols/"), "https://h.example/symbols");
        assert_eq!(name("https://h.example/t/secret"), "https://h.example/t/…");
    }

    #[test]
    fn a_key_is_asked_for_in_the_words_of_the_api() {
        assert_eq!(question(&Key::Id("abcd".parse().unwrap())).as_deref(), Some("debug_id=abcd"));
        assert_eq!(
            question(&Key::image("a b.exe", "5F3A1B2C1f000")).as_deref(),
            Some("code_file=a%20b.exe&code_id=5f3a1b2c1f000")
        );
    }
}
