//! One upstream: its requests, and what their answers mean.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::{Client, StatusCode, header};

use super::breaker::{Admission, Breaker};
use super::hops::TOO_MANY;
use super::{Hops, Wanted};
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
const OWN: [&str; 2] = ["x-debuginfod-size", SHA256];
/// The file's SHA-256, of symseal and of elfutils since 0.193.
const SHA256: &str = "x-debuginfod-sha256";
/// Bytes of a header that is passed on.
const HEADER_LIMIT: usize = 4096;

/// A client for all upstreams.
pub(super) fn client(patience: Patience) -> Result<Client, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        // Bytes as they come: a coding that was not asked for is refused.
        .no_gzip()
        .no_zstd()
        .no_brotli()
        .no_deflate()
        .connect_timeout(patience.connect)
        .read_timeout(patience.head.max(patience.stall))
        .redirect(reqwest::redirect::Policy::limited(REDIRECTIONS))
        .build()
        .map_err(|error| format!("no HTTP client could be made: {error}"))
}

/// An upstream server.
#[derive(Debug)]
pub(super) struct UpstreamServer {
    /// Without a slash at its end.
    base: String,
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
        let parsed =
            reqwest::Url::parse(url).map_err(|error| format!("{url}: {error}: expected http://HOST[:PORT][/PATH]"))?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(format!("{url}: expected http://HOST[:PORT][/PATH] or https://…"));
        }
        Ok(Self { base: url.trim_end_matches('/').to_owned(), breaker: Breaker::new(patience.pause), patience })
    }

    /// Asks, unless the server is dead.
    pub(super) async fn ask(self: Arc<Self>, http: Client, wanted: Wanted, hops: Hops) -> Answer {
        match self.breaker.admit(Instant::now()) {
            Admission::Ask => {}
            Admission::Dead => return Answer::Failed(format!("{} is out of service", self.base)),
            Admission::Probe => {
                let why = format!("{} was out of service", self.base);
                tokio::spawn(self.probe(http));
                return Answer::Failed(why);
            }
        }
        let request = http
            .get(format!("{}/{}", self.base, wanted.path))
            .headers(hops.headers())
            // Bytes as they are: what is checked and kept is the file.
            .header(header::ACCEPT_ENCODING, "identity");
        let response = match tokio::time::timeout(self.patience.head, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return self.unanswered(!error.is_connect(), &error.without_url()),
            Err(late) => return self.unanswered(true, &late),
        };
        match response.status() {
            StatusCode::OK => self.receive(response, &wanted).await,
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                self.breaker.lives();
                let body = tokio::time::timeout(self.patience.stall, response.text()).await;
                let too_many = body.is_ok_and(|body| body.is_ok_and(|body| body.trim_end() == TOO_MANY));
                if too_many { Answer::TooManyHops } else { Answer::Absent }
            }
            // It is there, and knows why it does not tell.
            status => {
                self.breaker.lives();
                Answer::Failed(format!("{} answered {status}", self.base))
            }
        }
    }

    async fn receive(&self, response: reqwest::Response, wanted: &Wanted) -> Answer {
        if let Some(coding) = response.headers().get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
            return Answer::Failed(format!("{} sent {coding:?}, which was not asked for", self.base));
        }
        let length = response.content_length();
        let sha256 = response.headers().get(SHA256).and_then(|value| value.to_str().ok()).map(str::to_ascii_lowercase);
        let relayed = response.headers().iter().filter(|(name, value)| {
            name.as_str().starts_with(RELAYED) && !OWN.contains(&name.as_str()) && value.len() <= HEADER_LIMIT
        });
        let headers = relayed
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .take(16)
            .collect();
        let stall = self.patience.stall;
        let mut rest = response.bytes_stream().boxed();
        let mut start = BytesMut::new();
        while start.len() < START {
            match tokio::time::timeout(stall, rest.next()).await {
                Ok(Some(Ok(bytes))) => start.extend_from_slice(&bytes),
                Ok(None) => break,
                Ok(Some(Err(error))) => return self.unanswered(true, &error.without_url()),
                Err(late) => return self.unanswered(true, &late),
            }
        }
        self.breaker.lives();
        if let Some(why) = wanted.expected.refuses_start(&start) {
            tracing::warn!(upstream = self.base, path = wanted.path, why, "an upstream sent something else");
            return Answer::Failed(format!("{}: {why}", self.base));
        }
        let rest = futures_util::stream::unfold(rest, move |mut rest| async move {
            let next = match tokio::time::timeout(stall, rest.next()).await {
                Ok(next) => next?.map_err(|error| error.without_url().to_string()),
                Err(_) => Err("nothing more came in time".to_owned()),
            };
            Some((next, rest))
        });
        Answer::File(Box::new(Incoming { length, sha256, headers, start: start.freeze(), rest: rest.boxed() }))
    }

    fn unanswered(&self, connected: bool, error: &dyn std::error::Error) -> Answer {
        let mut why = format!("{}: {error}", self.base);
        let mut source = error.source();
        while let Some(inner) = source {
            why.push_str(&format!(": {inner}"));
            source = inner.source();
        }
        if self.breaker.failed(connected, Instant::now()) {
            tracing::warn!(upstream = self.base, why, "an upstream does not answer, and is left alone for a while");
        }
        Answer::Failed(why)
    }

    /// Finds out whether the server answers again.
    async fn probe(self: Arc<Self>, http: Client) {
        let time = self.patience.head.min(PROBE);
        let request = http
            .get(format!("{}/", self.base))
            .header(header::USER_AGENT, concat!("symseal/", env!("CARGO_PKG_VERSION")));
        match tokio::time::timeout(time, request.send()).await {
            Ok(Ok(_)) => {
                tracing::info!(upstream = self.base, "an upstream answers again");
                self.breaker.lives();
            }
            Ok(Err(_)) | Err(_) => drop(self.breaker.failed(false, Instant::now())),
        }
    }
}
