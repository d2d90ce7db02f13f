//! An upstream that is a server over HTTP: one of ours, which tells which bundles have an id, or another debuginfod or symbol server, which
//! gives bytes and nothing to prove them by.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT_ENCODING, CONTENT_TYPE, RANGE, USER_AGENT};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use symseal_bundle::{Digest, ParseDigestError};
use symseal_registry::{Reference, Tls, redirects};
use symseal_resolver::without_secrets;

use super::clients::Place;
use super::fetches::Fetches;
use super::hear::Unheard;
use super::home::Trouble;
use super::ongoing::Ongoing;
use super::registry::UpstreamStanding;
use super::{Gate, lock};
use crate::Patience;
use crate::causes::with_causes;
use crate::debug_files::Key;
use crate::http::percent_decode;
use crate::upstream::{Admission, Breaker, Unanswered, answered};

/// Redirections that are followed.
const REDIRECTIONS: usize = 4;
/// Bytes of an answer about bundles.
const ANSWER_LIMIT: usize = 256 << 10;
/// Bundles of one answer that are looked at: as many as our server tells of. Where there are others it cannot be told that none is sealed.
const BUNDLES_LIMIT: usize = 64;
/// Repositories of one bundle that are asked for its seals, those that the server knows to have some first. Likewise.
const REPOSITORIES_LIMIT: usize = 32;
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
    /// Where its registry is, if it is a server of ours.
    registry: Result<Registry, String>,
    learning: Arc<Ongoing<Key>>,
    state: Mutex<State>,
    pub(super) fetches: Fetches,
}

/// The registry of a server of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Registry {
    /// Host and port.
    host: String,
    tls: Tls,
    /// What the URL's path begins with, `/t/TOKEN`, says who we are there too.
    token: Option<String>,
}

#[derive(Default)]
struct State {
    kind: Kind,
    problem: Option<String>,
    absences: HashMap<Key, Instant>,
    /// Bundles that it told of.
    bundles: HashSet<Digest>,
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
    /// Whether there are others.
    #[serde(default)]
    more: bool,
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
        let is_nameless = base.username().is_empty() && base.password().is_none();
        let is_plain = base.query().is_none() && base.fragment().is_none() && is_nameless;
        if !matches!(base.scheme(), "http" | "https") || !is_plain || base.host_str().is_none() {
            return Err(
                "expected http://HOST[:PORT][/PATH], https://… or oci://HOST[:PORT]/REPOSITORY[:TAG]".to_owned()
            );
        }
        if !base.path().ends_with('/') {
            let path = format!("{}/", base.path());
            base.set_path(&path);
        }
        let http = crate::http::client()
            .user_agent(AGENT)
            .no_gzip()
            .no_zstd()
            .no_brotli()
            .no_deflate()
            .connect_timeout(patience.connect)
            .read_timeout(patience.head.max(patience.stall))
            .redirect(redirects(REDIRECTIONS))
            .build()
            .map_err(|error| format!("no HTTP client could be made: {error}"))?;
        let (breaker, registry) = (Breaker::new(patience.pause), Registry::beside(&base));
        let (learning, state) = (Arc::default(), Mutex::default());
        let fetches = Fetches::default();
        Ok(Arc::new(Self { base, http, breaker, patience, registry, learning, state, fetches }))
    }

    /// What to call it: without what is secret in it.
    pub(super) fn name(&self) -> String {
        without_secrets(self.base.as_str().trim_end_matches('/'))
    }

    /// Whether a repository, `host[:port]/repository`, is of this server.
    pub(super) fn has_repository(&self, name: &str) -> bool {
        let is_its = |registry: &Registry| {
            name.strip_prefix(&registry.host).is_some_and(|repository| repository.starts_with('/'))
        };
        self.registry.as_ref().is_ok_and(is_its)
    }

    /// For the status page.
    pub(super) fn standing(&self) -> UpstreamStanding {
        let state = self.lock();
        let kind = match state.kind {
            Kind::Unknown => "not known yet",
            Kind::Ours => "symseal server",
            Kind::Plain(_) => "bytes only",
        };
        let problem = self.fetches.beside(state.problem.clone());
        UpstreamStanding { url: self.name(), kind, problem, bundles: state.bundles.len() }
    }

    /// Finds out which bundles have a key, takes them into the catalogue, and waits for that as long as a request can.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub(super) async fn learn(self: &Arc<Self>, gate: &Arc<Gate>, key: &Key) -> Result<(), String> {
        {
            let state = self.lock();
            let is_plain = matches!(state.kind, Kind::Plain(until) if until > Instant::now());
            if is_plain || state.absences.get(key).is_some_and(|until| *until > Instant::now()) {
                return Ok(());
            }
        }
        let Some(question) = question(key) else { return Ok(()) };
        let (this, gate, about) = (Arc::clone(self), Arc::clone(gate), key.clone());
        let work = async move { this.learn_now(&gate, (&about, &question)).await };
        self.learning.run((key.clone(), self.patience.head), || self.name(), work).await
    }

    async fn learn_now(self: &Arc<Self>, gate: &Arc<Gate>, (key, question): (&Key, &str)) -> Result<(), String> {
        let told = match self.bundles(question).await {
            Ok(told) => told,
            Err(trouble) => {
                let why = format!("{}: {}", self.name(), trouble.text());
                let mut state = self.lock();
                state.problem = Some(why.clone());
                // Of a server that never told of bundles nothing is lost.
                return if matches!(state.kind, Kind::Plain(_)) { Ok(()) } else { Err(why) };
            }
        };
        let Some(Answer { bundles, more }) = self.note_answer(key, told) else { return Ok(()) };
        let is_cut = more || bundles.len() > BUNDLES_LIMIT;
        let others = || format!("{}: more bundles have it than are looked at ({BUNDLES_LIMIT})", self.name());
        let mut problem = is_cut.then(others);
        for told in bundles.into_iter().take(BUNDLES_LIMIT) {
            match self.take(gate, &told).await {
                Ok(digest) => self.note_bundle(digest),
                Err(unheard) => {
                    let named: String = told.sha256.chars().take(80).collect();
                    let why = format!("{}: bundle {named}: {}", self.name(), unheard.text());
                    tracing::warn!(why, "a bundle that was told of cannot be had");
                    if matches!(unheard, Unheard::Now(Trouble::Down(_))) {
                        problem = Some(why.clone());
                    }
                    self.lock().problem = Some(why);
                }
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// Remembers what an answer says of the server; the bundles that it told of, if it tells of bundles.
    fn note_answer(&self, key: &Key, told: Option<Answer>) -> Option<Answer> {
        let mut state = self.lock();
        state.problem = None;
        let Some(told) = told else {
            state.kind = Kind::Plain(Instant::now() + PLAIN_FOR);
            return None;
        };
        state.kind = Kind::Ours;
        if told.bundles.is_empty() && !told.more {
            if state.absences.len() >= ABSENCES {
                state.absences.clear();
            }
            state.absences.insert(key.clone(), Instant::now() + ABSENCE);
        }
        Some(told)
    }

    fn note_bundle(&self, digest: Digest) {
        let mut state = self.lock();
        if state.bundles.len() < ABSENCES {
            state.bundles.insert(digest);
        }
    }

    /// Hears of a bundle in one repository after the other until its seals hold: somebody may have copied it without them.
    async fn take(&self, gate: &Arc<Gate>, told: &Told) -> Result<Digest, Unheard> {
        let digest: Digest =
            told.sha256.parse().map_err(|error: ParseDigestError| Trouble::Wrong(error.to_string()))?;
        let mut unheard = Some(Unheard::Now(Trouble::Absent("it is in no repository".to_owned())));
        for (at, repository) in told.repositories.iter().take(REPOSITORIES_LIMIT).enumerate() {
            match self.take_from(gate, &digest, repository).await {
                Ok(()) => unheard = None,
                Err(why) if at == 0 => unheard = Some(why),
                Err(why) => unheard = unheard.map(|_| why),
            }
            if gate.is_sealed(&digest).await {
                return Ok(digest);
            }
        }
        let (all, looked_at) = (told.repositories.len(), REPOSITORIES_LIMIT);
        if all > looked_at {
            let why =
                format!("no seal of it holds in {looked_at} repositories, and {} others have it", all - looked_at);
            return Err(Trouble::Down(why).into());
        }
        unheard.map_or(Ok(digest), Err)
    }

    async fn take_from(&self, gate: &Gate, digest: &Digest, repository: &str) -> Result<(), Unheard> {
        let wrong = |error: &dyn std::fmt::Display| Trouble::Wrong(error.to_string());
        let registry = self.registry.as_ref().map_err(|why| Trouble::Down(why.clone()))?;
        let reference = Reference::parse(&format!("{}/{repository}@{digest}", registry.host));
        let reference = reference.map_err(|error| wrong(&error))?;
        let place = Place { reference, tls: registry.tls, token: registry.token.clone() };
        let client = gate.clients.of(&gate.pool, &place).await?;
        let heard = gate.hear((place.name(), client), digest).await;
        if matches!(heard, Err(Unheard::Now(Trouble::Down(_)))) {
            gate.clients.forget(&place);
        }
        heard
    }

    /// The bundles that have what is asked for; `None` where the server has no such API.
    async fn bundles(self: &Arc<Self>, question: &str) -> Result<Option<Answer>, Trouble> {
        let response = self.ask(("api/v1/bundles", Some(question)), None).await?;
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_json = kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json");
        if status == StatusCode::OK && !is_json && response.url().origin() != self.base.origin() {
            // A login has a page for every path, and is no server that tells of no bundles.
            return Err(Trouble::Down(format!("it leads to {}", response.url().origin().ascii_serialization())));
        }
        let body = tokio::time::timeout(self.patience.head, gather(response, ANSWER_LIMIT)).await;
        let body = body.map_err(|_| Trouble::Down("its answer did not come in time".to_owned()))??;
        match understood(status, is_json, &body)? {
            Some(told) => Ok(Some(told)),
            // One odd answer, of a proxy perhaps, makes no other server of it.
            None if matches!(self.lock().kind, Kind::Ours) => {
                Err(Trouble::Down(format!("it told of bundles before, and now answered {status} without any")))
            }
            None => Ok(None),
        }
    }

    /// One request, unless the server is dead.
    pub(super) async fn ask(
        self: &Arc<Self>,
        (path, query): (&str, Option<&str>),
        range: Option<&str>,
    ) -> Result<Response, Trouble> {
        match self.breaker.admit(Instant::now()) {
            Admission::Ask => {}
            Admission::Dead => return Err(Trouble::Down("it is out of service".to_owned())),
            Admission::Probe => {
                tokio::spawn(Arc::clone(self).probe());
                return Err(Trouble::Down("it was out of service".to_owned()));
            }
        }
        let mut request = self.http.get(self.url(path, query)).header(ACCEPT_ENCODING, "identity");
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let (connected, why) = match answered(request.send(), self.question(), self.patience).await {
            Ok(response) => {
                self.breaker.lives();
                return Ok(response);
            }
            Err(Unanswered::Failed(error)) if error.is_redirect() || error.is_builder() => {
                // It answers, and yet not itself: a portal or a login stands before it. What it has cannot be told.
                self.breaker.lives();
                return Err(Trouble::Down(with_causes(&error.without_url())));
            }
            Err(Unanswered::Failed(error)) => (!error.is_connect(), with_causes(&error.without_url())),
            Err(Unanswered::Late(why)) => (true, why),
            Err(Unanswered::Silent(why)) => (false, why),
        };
        if self.breaker.failed(connected, Instant::now()) {
            tracing::warn!(upstream = self.name(), why, "an upstream does not answer, and is left alone for a while");
        }
        Err(Trouble::Down(why))
    }

    /// The URL of a path below the base. Whatever the path is, it leads to no other server.
    pub(super) fn url(&self, path: &str, query: Option<&str>) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path()));
        url.set_query(query);
        url
    }

    /// How long it is waited for.
    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// What every server answers at once.
    fn question(&self) -> reqwest::RequestBuilder {
        self.http.get(self.base.clone()).header(USER_AGENT, AGENT)
    }

    async fn probe(self: Arc<Self>) {
        match tokio::time::timeout(self.patience.head, self.question().send()).await {
            Ok(Ok(_)) => self.breaker.lives(),
            Ok(Err(_)) | Err(_) => drop(self.breaker.failed(false, Instant::now())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Registry {
    /// The registry of the server at this base URL.
    fn beside(base: &Url) -> Result<Self, String> {
        let path = base.path().trim_matches('/');
        let token = match path.split_once('/') {
            None if path.is_empty() => None,
            Some(("t", token)) if !token.contains('/') => {
                Some(percent_decode(token).ok_or("expected a token in UTF-8 behind /t/")?)
            }
            _ => {
                let found = "it tells of bundles, and its registry cannot be asked below a path";
                return Err(format!("{found}: expected https://HOST[:PORT] or https://HOST[:PORT]/t/TOKEN"));
            }
        };
        let host = base.host_str().unwrap_or_default();
        let is_local = host == "localhost"
            || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        // A name without a dot is a registry's host only with its port.
        let is_short = !host.contains(['.', ':']) && host != "localhost";
        let port = base.port().or_else(|| base.port_or_known_default().filter(|_| is_short));
        let tls = match base.scheme() {
            "http" if is_local => Tls::ByPlace,
            "http" => Tls::Never,
            _ => Tls::Always,
        };
        Ok(Self { host: port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")), tls, token })
    }
}

/// The bundles of an answer; `None` where it is that of a server without such an API.
fn understood(status: StatusCode, is_json: bool, body: &[u8]) -> Result<Option<Answer>, Trouble> {
    let down = |more: &str| Trouble::Down(format!("it answered {status} when asked for bundles{more}"));
    match status {
        StatusCode::OK => match serde_json::from_slice::<Answer>(body) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_json => Err(Trouble::Wrong(format!(
                "its answer about bundles cannot be read: expected a list of bundles: {error}"
            ))),
            Err(_) => Ok(None),
        },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(down(": it wants a token (https://HOST/t/TOKEN; for its registry docker login serves too)"))
        }
        StatusCode::SERVICE_UNAVAILABLE if String::from_utf8_lossy(body).contains(UNRECOGNIZED) => Ok(None),
        status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => Err(down("")),
        StatusCode::TOO_MANY_REQUESTS => Err(down("")),
        _ => Ok(None),
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
    while let Some(chunk) = response.chunk().await.map_err(|error| Trouble::Down(with_causes(&error.without_url())))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > limit {
            return Err(Trouble::Wrong(format!("its answer has more than {limit} bytes")));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_must_be_one_of_a_server_and_its_token_is_not_shown() {
        for text in ["", "gopher://h/", "http://", "http://h/?a=b", "http://u:p@h/", "http://u@h/", "h:8790"] {
            assert!(HttpUpstream::parse(text, Patience::default()).is_err(), "{text}");
        }
        let name = |text: &str| HttpUpstream::parse(text, Patience::default()).unwrap().name();
        assert_eq!(name("http://127.0.0.1:1"), "http://127.0.0.1:1");
        assert_eq!(name("https://h.example/symbols/"), "https://h.example/symbols");
        assert_eq!(name("https://h.example/t/secret"), "https://h.example/t/…");
        assert_eq!(name("https://h.example/proxy/t/secret/"), "https://h.example/proxy/t/…");
        assert_eq!(name("https://h.example/T/secret/more"), "https://h.example/T/…");
        assert_eq!(name("https://me:12/secret@h.example"), "https://…@h.example");
    }

    #[test]
    fn the_registry_of_a_server_is_spoken_to_as_the_server_is() {
        let found =
            |text: &str| Registry::beside(&Url::parse(text).unwrap()).map(|found| (found.host, found.tls, found.token));
        let is = |host: &str, tls, token: Option<&str>| Ok((host.to_owned(), tls, token.map(str::to_owned)));
        assert_eq!(found("http://127.0.0.1:8790/"), is("127.0.0.1:8790", Tls::ByPlace, None));
        assert_eq!(found("http://[::1]:8790/"), is("[::1]:8790", Tls::ByPlace, None));
        assert_eq!(found("https://localhost:8443/"), is("localhost:8443", Tls::Always, None));
        assert_eq!(found("http://symbols.lan:8790/"), is("symbols.lan:8790", Tls::Never, None));
        assert_eq!(found("https://symbols/"), is("symbols:443", Tls::Always, None));
        assert_eq!(found("http://symbols/"), is("symbols:80", Tls::Never, None));
        assert_eq!(found("https://h.example/t/sec%2Bret/"), is("h.example", Tls::Always, Some("sec+ret")));
        for place in ["127.0.0.1:8790", "[::1]:8790", "symbols:443", "h.example"] {
            assert!(Reference::parse(&format!("{place}/team/app")).is_ok(), "{place}");
        }
        assert!(found("https://h.example/symbols/").unwrap_err().contains("/t/TOKEN"));
    }

    #[test]
    fn a_path_below_the_base_leads_to_no_other_server() {
        let upstream = HttpUpstream::parse("http://h.example:8790/t/secret", Patience::default()).unwrap();
        for path in ["http:10.0.0.1/a/b", "//10.0.0.1/a", "\\\\10.0.0.1\\a", "/../../a", "a?b#c", "@10.0.0.1/"] {
            let url = upstream.url(path, None);
            assert_eq!((url.host_str(), url.port(), url.query()), (Some("h.example"), Some(8790), None), "{path}");
        }
        assert_eq!(upstream.url("buildid/ab/debuginfo", None).path(), "/t/secret/buildid/ab/debuginfo");
        assert_eq!(upstream.url("a/b%2Bc", None).path(), "/t/secret/a/b%2Bc");
    }

    #[test]
    fn an_answer_about_bundles_is_understood_or_refused_whatever_it_is() {
        let good = br#"{"bundles":[{"sha256":"sha256:00","repositories":["a"]}]}"#;
        assert_eq!(understood(StatusCode::OK, true, good).unwrap().unwrap().bundles.len(), 1);
        for at in 0..good.len() {
            for byte in [0, b'"', b'[', b'}', 0xff] {
                let mut bytes = good.to_vec();
                bytes[at] = byte;
                let answer = understood(StatusCode::OK, true, &bytes);
                assert!(matches!(answer, Ok(Some(_)) | Err(Trouble::Wrong(_))), "{at} {byte}");
                assert!(understood(StatusCode::OK, true, &bytes[..at]).is_err());
            }
        }
        // A page of another kind of server, and what such servers say of a path that they do not know.
        assert!(matches!(understood(StatusCode::OK, false, b"<html>"), Ok(None)));
        assert!(matches!(understood(StatusCode::NOT_FOUND, true, b"{}"), Ok(None)));
        assert!(matches!(understood(StatusCode::SERVICE_UNAVAILABLE, false, b"unrecognized operation"), Ok(None)));
        for status in [StatusCode::BAD_GATEWAY, StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS] {
            assert!(matches!(understood(status, false, b""), Err(Trouble::Down(_))), "{status}");
        }
    }

    #[test]
    fn bundles_are_counted_once() {
        let upstream = HttpUpstream::parse("http://h.example", Patience::default()).unwrap();
        (0..3).for_each(|_| upstream.note_bundle(Digest::of(b"a")));
        assert_eq!(upstream.standing().bundles, 1);
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
