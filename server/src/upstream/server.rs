//! One upstream: its requests, and what their answers mean.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::{Client, StatusCode, header};
use symseal_registry::redirects;
use symseal_resolver::without_secrets;

use super::breaker::{Admission, Breaker};
use super::check::{Expected, Refusal};
use super::hops::TOO_MANY;
use super::pace::paced;
use super::packed::is_cabinet;
use super::silence::{Unanswered, answered};
use super::{Hops, Wanted};
use crate::causes::with_causes;
use crate::http::is_page;
use crate::origins::Patience;

/// Bytes that are looked at before an answer is taken.
const START: usize = 64 << 10;
/// Redirections that are followed.
const REDIRECTIONS: usize = 3;
/// Time for a probe.
const PROBE: Duration = Duration::from_secs(10);
/// Headers that are passed on begin so.
const RELAYED: &str = "x-debuginfod-";
/// Those that this server finds out by itself.
const OWN: [&str; 2] = [SIZE, SHA256];
/// The file's SHA-256, of symseal and of elfutils since 0.193.
const SHA256: &str = "x-debuginfod-sha256";
/// The file's bytes, of elfutils and symseal; the former say it of some answers alone.
const SIZE: &str = "x-debuginfod-size";
/// Bytes of a header that is passed on.
const HEADER_LIMIT: usize = 4096;

/// A client for all upstreams.
pub(super) fn client(patience: Patience) -> Result<Client, String> {
    crate::http::client()
        // Bytes as they come: a coding that was not asked for is refused.
        .no_gzip()
        .no_zstd()
        .no_brotli()
        .no_deflate()
        .connect_timeout(patience.connect)
        .read_timeout(patience.head.max(patience.stall))
        // Who sends a file of no kind that can be told, a source file, shall not have others read in our network.
        .redirect(redirects(REDIRECTIONS))
        .build()
        .map_err(|error| format!("no HTTP client could be made: {error}"))
}

/// An upstream server.
#[derive(Debug)]
pub(super) struct UpstreamServer {
    /// Without a slash at its end.
    base: String,
    /// As logs show it, which no password and no token may reach.
    name: String,
    breaker: Breaker,
    patience: Patience,
}

/// An upstream's answer.
pub(super) enum Answer {
    /// The file's first bytes, and what follows.
    File(Box<Incoming>),
    /// It has no such file.
    Absent,
    /// It was asked through too many servers.
    TooManyHops,
    /// Anything else.
    Failed(String),
}

/// A file on its way in.
pub(super) struct Incoming {
    /// Whether it lies in a cabinet, of which all that follows is said.
    pub(super) is_packed: bool,
    /// Bytes of the whole, where it says so.
    pub(super) length: Option<u64>,
    /// SHA-256 of the file in hex, where it says so.
    pub(super) sha256: Option<String>,
    /// Headers to pass on.
    pub(super) headers: Vec<(String, String)>,
    /// The first bytes.
    pub(super) start: Bytes,
    /// The others.
    pub(super) rest: BoxStream<'static, Result<Bytes, String>>,
}

impl UpstreamServer {
    /// The server at a base URL.
    pub(super) fn new(url: &str, patience: Patience) -> Result<Self, String> {
        let shown = || without_secrets(url);
        let parsed = reqwest::Url::parse(url)
            .map_err(|error| format!("{}: {error}: expected http://HOST[:PORT][/PATH]", shown()))?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(format!("{}: expected http://HOST[:PORT][/PATH] or https://…", shown()));
        }
        let base = url.trim_end_matches('/').to_owned();
        Ok(Self { base, name: name_of(&parsed), breaker: Breaker::new(patience.pause), patience })
    }

    /// Asks for a file, unless the server is dead; where it has none, wherever else it may be.
    pub(super) async fn ask(self: Arc<Self>, http: Client, wanted: Wanted, hops: Hops) -> Answer {
        let mut answer = self.ask_at(&http, &wanted.path, (&wanted, false), &hops).await;
        for (path, is_packed) in &wanted.elsewhere {
            if !matches!(answer, Answer::Absent) {
                break;
            }
            answer = self.ask_at(&http, path, (&wanted, *is_packed), &hops).await;
        }
        answer
    }

    async fn ask_at(
        self: &Arc<Self>,
        http: &Client,
        path: &str,
        (wanted, is_packed): (&Wanted, bool),
        hops: &Hops,
    ) -> Answer {
        let response = match self.respond(http, path, hops).await {
            Ok(response) => response,
            Err(why) => return Answer::Failed(why),
        };
        match response.status() {
            StatusCode::OK => self.receive(response, wanted, is_packed).await,
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                self.breaker.lives();
                let said = tokio::time::timeout(self.patience.stall, short_text(response)).await;
                if said.is_ok_and(|said| said == TOO_MANY.as_bytes()) { Answer::TooManyHops } else { Answer::Absent }
            }
            // It is there, and knows why it does not tell.
            status => {
                self.breaker.lives();
                Answer::Failed(format!("{} answered {status}", self.name))
            }
        }
    }

    /// The answer to a request for `path` (with its query), whatever it is, unless the server is dead.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn respond(
        self: &Arc<Self>,
        http: &Client,
        path: &str,
        hops: &Hops,
    ) -> Result<reqwest::Response, String> {
        match self.breaker.admit(Instant::now()) {
            Admission::Ask => {}
            Admission::Dead => return Err(format!("{} is out of service", self.name)),
            Admission::Probe => {
                tokio::spawn(Arc::clone(self).probe(http.clone()));
                return Err(format!("{} was out of service", self.name));
            }
        }
        let request = http
            .get(format!("{}/{path}", self.base))
            .headers(hops.headers())
            // Bytes as they are: what is checked and kept is the file.
            .header(header::ACCEPT_ENCODING, "identity");
        let (connected, why) = match answered(request.send(), self.question(http), self.patience).await {
            Ok(response) => return Ok(response),
            Err(Unanswered::Failed(error)) if error.is_redirect() => {
                // It answers, and yet not itself.
                self.breaker.lives();
                return Err(format!("{}: {}", self.name, with_causes(&error.without_url())));
            }
            Err(Unanswered::Failed(error)) => (!error.is_connect(), with_causes(&error.without_url())),
            Err(Unanswered::Late(why)) => (true, why),
            Err(Unanswered::Silent(why)) => (false, why),
        };
        Err(self.unanswered(connected, &why))
    }

    /// The whole of an answer, if it has no more than `limit` bytes; that it came shows that the server lives.
    ///
    /// # Errors
    /// Why it is not there.
    pub(super) async fn whole(&self, response: reqwest::Response, limit: usize) -> Result<Vec<u8>, String> {
        let pieces = response.bytes_stream().map(|piece| piece.map_err(|error| with_causes(&error.without_url())));
        let mut pieces = paced(pieces, self.patience.stall);
        let mut whole = Vec::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|why| self.unanswered(true, &why))?;
            if whole.len().saturating_add(piece.len()) > limit {
                return Err(format!("{} sent more than {limit} bytes", self.name));
            }
            whole.extend_from_slice(&piece);
        }
        self.breaker.lives();
        Ok(whole)
    }

    async fn receive(&self, response: reqwest::Response, wanted: &Wanted, is_packed: bool) -> Answer {
        if let Some(coding) = response.headers().get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
            return Answer::Failed(format!("{} sent {coding:?}, which was not asked for", self.name));
        }
        // Nothing in the file could show that it is none.
        if wanted.expected == Expected::Anything && is_page(response.headers()) {
            self.breaker.lives();
            return Answer::Failed(format!("{} sent a web page in the place of a file", self.name));
        }
        // Of a body that ends with its connection nothing else tells whether that was its end.
        let said = response.headers().get(SIZE).filter(|_| !is_packed);
        let said = said.and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
        let length = match (response.content_length(), said) {
            (Some(length), Some(said)) if length != said => {
                self.breaker.lives();
                return Answer::Failed(format!("{} sent {length} bytes, and says that they are {said}", self.name));
            }
            (length, said) => length.or(said),
        };
        let sha256 = response.headers().get(SHA256).and_then(|value| value.to_str().ok()).map(str::to_ascii_lowercase);
        let relayed = response.headers().iter().filter(|(name, value)| {
            name.as_str().starts_with(RELAYED) && !OWN.contains(&name.as_str()) && value.len() <= HEADER_LIMIT
        });
        let headers = relayed
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .take(16)
            .collect();
        let pieces = response.bytes_stream().map(|piece| piece.map_err(|error| with_causes(&error.without_url())));
        let mut rest = paced(pieces, self.patience.stall);
        let mut start = BytesMut::new();
        while start.len() < START {
            match rest.next().await {
                Some(Ok(bytes)) => start.extend_from_slice(&bytes),
                None => break,
                Some(Err(why)) => return Answer::Failed(self.unanswered(true, &why)),
            }
        }
        self.breaker.lives();
        let refused = match is_packed {
            true => (!is_cabinet(&start)).then(|| Refusal::OtherFile("expected a cabinet".to_owned())),
            false => wanted.expected.refuses_start(&start),
        };
        if let Some(why) = refused {
            tracing::warn!(upstream = self.name, path = wanted.path, %why, "an upstream sent something else");
            return match why {
                Refusal::OtherFile(why) => Answer::Failed(format!("{}: {why}", self.name)),
                Refusal::OtherKind(_) => Answer::Absent,
            };
        }
        Answer::File(Box::new(Incoming { is_packed, length, sha256, headers, start: start.freeze(), rest }))
    }

    /// Notes that the server gave no answer; what is said of that.
    fn unanswered(&self, connected: bool, why: &str) -> String {
        let why = format!("{}: {why}", self.name);
        if self.breaker.failed(connected, Instant::now()) {
            tracing::warn!(upstream = self.name, why, "an upstream does not answer, and is left alone for a while");
        }
        why
    }

    /// As logs show it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What every server answers at once.
    fn question(&self, http: &Client) -> reqwest::RequestBuilder {
        let agent = concat!("symseal/", env!("CARGO_PKG_VERSION"));
        http.get(format!("{}/", self.base)).header(header::USER_AGENT, agent)
    }

    /// Finds out whether the server answers again.
    async fn probe(self: Arc<Self>, http: Client) {
        let time = self.patience.head.min(PROBE);
        match tokio::time::timeout(time, self.question(&http).send()).await {
            Ok(Ok(_)) => {
                tracing::info!(upstream = self.name, "an upstream answers again");
                self.breaker.lives();
            }
            Ok(Err(_)) | Err(_) => drop(self.breaker.failed(false, Instant::now())),
        }
    }
}

/// Where a server is: without a user's password, and without the token that its path may begin with.
pub(crate) fn name_of(url: &reqwest::Url) -> String {
    let mut url = url.clone();
    let _ = (url.set_username(""), url.set_password(None));
    without_secrets(url.as_str()).trim_end_matches('/').to_owned()
}

/// A short text, or the start of one that is not [`TOO_MANY`]: what follows may have no end.
async fn short_text(response: reqwest::Response) -> Vec<u8> {
    let (mut said, mut pieces) = (Vec::new(), response.bytes_stream());
    while said.len() <= TOO_MANY.len() + 1
        && let Some(Ok(piece)) = pieces.next().await
    {
        said.extend_from_slice(piece.get(..piece.len().min(TOO_MANY.len() + 2)).unwrap_or_default());
    }
    said.trim_ascii_end().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_log_shows_what_opens_another_server() {
        for (url, expected) in [
            ("https://symbols.example.org/", "https://symbols.example.org"),
            ("http://me:hunter2@example.org:8002/debug", "http://example.org:8002/debug"),
            ("https://example.org/t/hunter2/", "https://example.org/t/…"),
            ("https://example.org/T/hunter2/x", "https://example.org/T/…"),
            ("https://me:123/hunter2@example.org/x", "https://…@example.org/x"),
            ("https://me:12345", "https://me:…"),
        ] {
            let server = UpstreamServer::new(url, Patience::default()).unwrap();
            assert_eq!(server.name, expected);
            let why = server.unanswered(false, "connection refused");
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
