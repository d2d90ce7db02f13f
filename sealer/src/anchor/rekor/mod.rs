//! Rekor over HTTP, both of its APIs.

mod http;
mod tiles;
mod v1;
mod v2;

use std::time::Duration;

use symseal_seal::tlog::leaf_hash;
use symseal_seal::{ArtifactPublicKey, Envelope, Hash, LogEntry, LogIdentity};

use self::http::Http;
use super::{AnchorError, RekorVersion, TransparencyLog, pinned};
use crate::log::{LogError, PublishedLog};
use crate::online;

/// How long one anchoring may take, tries again included. A Rekor v2 answers when a checkpoint covers the
/// entry, which it makes every few seconds.
pub const REKOR_LIMIT: Duration = Duration::from_secs(60);

/// A Rekor v1 or v2, or a server that speaks as one.
#[derive(Debug, Clone)]
pub struct RekorLog {
    url: String,
    version: Option<RekorVersion>,
    read_url: Option<String>,
    identities: Vec<LogIdentity>,
    token: Option<String>,
    limit: Duration,
}

/// A Rekor cannot be used as it was described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RekorLogError {
    /// No key to verify its answers by.
    #[error("log {url}: expected a log with its key in the trust directory, found none: add it there first")]
    NoIdentity {
        /// The log.
        url: String,
    },
    /// A token over a connection that others can read.
    #[error(
        "log {url}: expected https for a log that takes a token, found http to another machine: the token could be read on the way"
    )]
    TokenInTheClear {
        /// The log.
        url: String,
    },
}

impl RekorLog {
    /// A log at `url` (without a slash at the end) that answers under one of `identities`. Nothing is sent
    /// yet. Without a version it is asked as v2 first, and as v1 if it does not know that.
    ///
    /// # Errors
    /// [`RekorLogError::NoIdentity`].
    pub fn new(url: &str, version: Option<RekorVersion>, identities: Vec<LogIdentity>) -> Result<Self, RekorLogError> {
        if identities.is_empty() {
            return Err(RekorLogError::NoIdentity { url: url.to_owned() });
        }
        Ok(Self { url: url.to_owned(), version, read_url: None, identities, token: None, limit: REKOR_LIMIT })
    }

    /// Where `checkpoint` and `tile/` of a Rekor v2 are read; default `URL/api/v2`.
    #[must_use]
    pub fn read_at(mut self, url: &str) -> Self {
        self.read_url = Some(url.trim_end_matches('/').to_owned());
        self
    }

    /// Another limit on the time of one anchoring.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sends `Authorization: Bearer`, to the log alone: redirections are not followed.
    ///
    /// # Errors
    /// [`RekorLogError::TokenInTheClear`] for http to another machine.
    pub fn with_token(mut self, token: String) -> Result<Self, RekorLogError> {
        let host = symseal_seal::origin::host_of_url(&self.url).unwrap_or_default();
        let here = host == "localhost" || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback());
        if !self.url.starts_with("https://") && !here {
            return Err(RekorLogError::TokenInTheClear { url: self.url });
        }
        self.token = Some(token);
        Ok(self)
    }

    fn read_url(&self) -> String {
        self.read_url.clone().unwrap_or_else(|| format!("{}/api/v2", self.url))
    }

    async fn create(&self, envelope: &Envelope, key: &ArtifactPublicKey) -> Result<LogEntry, AnchorError> {
        let http = Http::new(self)?;
        match self.version {
            Some(RekorVersion::V1) => v1::create(self, &http, envelope, key).await,
            Some(RekorVersion::V2) => v2::create(self, &http, envelope, key).await,
            // 404: it does not know the path of v2.
            None => match v2::create(self, &http, envelope, key).await {
                Err(AnchorError::Refused { status: 404, .. }) => v1::create(self, &http, envelope, key).await,
                answer => answer,
            },
        }
    }

    /// What the log publishes.
    fn published(&self) -> Result<PublishedLog, AnchorError> {
        if self.version == Some(RekorVersion::V1) {
            return Err(self.unproved("a Rekor v1 publishes no tiles"));
        }
        PublishedLog::open_url(&self.read_url()).map_err(|error| self.unread(&error))
    }

    fn unread(&self, error: &LogError) -> AnchorError {
        self.unproved(format!(
            "{error}; it is read at {} (--log-read names another place, such as a static server of the log's tiles)",
            self.read_url()
        ))
    }

    fn unproved(&self, reason: impl Into<String>) -> AnchorError {
        AnchorError::Unproved { log: self.url.clone(), reason: reason.into() }
    }

    fn unreachable(&self, reason: impl Into<String>) -> AnchorError {
        AnchorError::Unreachable { log: self.url.clone(), reason: reason.into() }
    }

    fn answer(&self, expected: &'static str, found: impl Into<String>) -> AnchorError {
        AnchorError::Answer { log: self.url.clone(), expected, found: found.into() }
    }
}

impl TransparencyLog for RekorLog {
    fn name(&self) -> String {
        self.url.clone()
    }

    fn identities(&self) -> Vec<LogIdentity> {
        self.identities.clone()
    }

    fn anchor(&mut self, envelope: &Envelope, key: &ArtifactPublicKey) -> Result<LogEntry, AnchorError> {
        let this = &*self;
        online::within(this.limit, async || this.create(envelope, key).await, |reason| this.unreachable(reason))
    }

    fn consistency(&self, from: u64, to: u64) -> Result<Vec<Hash>, AnchorError> {
        let proof = self.published()?.consistency(from, to).map_err(|error| self.unread(&error))?;
        Ok(proof.hashes)
    }

    fn renewed(&self, entry: &LogEntry) -> Result<Option<LogEntry>, AnchorError> {
        if entry.kind.is_rekor_v1() {
            return Err(self.unproved("a Rekor v1 publishes no tiles"));
        }
        let published = self.published()?;
        let identity = pinned(&self.identities, entry);
        let identity = identity.ok_or_else(|| self.unproved("the trust directory does not pin it"))?;
        published.verify(identity).map_err(|error| self.unproved(error.to_string()))?;
        let leaf = leaf_hash(&entry.canonicalized_body);
        let hashes = published.inclusion(entry.log_index, &leaf).map_err(|error| self.unread(&error))?;
        Ok(Some(LogEntry {
            proof_size: published.size(),
            proof_root: published.checkpoint().root,
            hashes,
            checkpoint: published.checkpoint_text().to_owned(),
            ..entry.clone()
        }))
    }
}
