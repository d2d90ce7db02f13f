//! What the operator decides.

mod address;
mod bytes;
mod duration;
mod file;
mod problem;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use symseal_sealer::LogKey;

use crate::access::OidcIssuer;
use crate::objects::BlobsUrl;
use crate::repositories::Prefix;
use crate::store::DatabaseUrl;
pub use address::parse_address;
pub use bytes::parse_bytes;
pub use duration::parse_duration;
pub use file::{ConfigFile, LogSection, OriginsSection, SealsSection};
pub use problem::ConfigError;

/// Where the server keeps its data, where it listens, and what else the operator decides.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The data directory: created when it does not exist; one server at a time.
    pub data: PathBuf,
    /// The database; `None` for SQLite in the data directory.
    pub database: Option<DatabaseUrl>,
    /// The object store behind the data directory; `None` where the directory is all there is.
    pub blobs: Option<BlobsConfig>,
    /// The address to listen on; port 0 picks a free one, see [`Server::local_addr`](crate::Server::local_addr).
    pub listen: SocketAddr,
    /// Who may do what.
    pub access: AccessConfig,
    /// Whether pages of other origins, which a browser shows, may read what debuginfod clients may.
    pub cors: bool,
    /// CI systems whose identity tokens are taken, where callers show tokens.
    pub oidc: Vec<OidcIssuer>,
    /// Where clients reach the server, such as `https://symbols.example.org`, when that is not where it listens: what
    /// registry clients are told to get their session tokens from.
    pub public_url: Option<String>,
    /// Encrypts connections; without it they are plain, for loopback or behind a proxy.
    pub tls: Option<TlsConfig>,
    /// How long requests that are under way may go on after the server was asked to stop.
    pub stop_within: Duration,
    /// How much one caller may ask for.
    pub limits: LimitsConfig,
    /// How much repositories may hold.
    pub quotas: Vec<QuotaConfig>,
    /// Which bundles go after a time. The first rule that is about a bundle's repository and channel counts.
    pub retention: Vec<RetentionConfig>,
}

impl Config {
    /// A server with everything else as it is by default.
    #[must_use]
    pub fn new(data: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            data: data.into(),
            database: None,
            blobs: None,
            listen,
            access: AccessConfig::default(),
            cors: false,
            oidc: Vec::new(),
            public_url: None,
            tls: None,
            stop_within: STOP_WITHIN,
            limits: LimitsConfig::default(),
            quotas: Vec::new(),
            retention: Vec::new(),
        }
    }
}

/// The default of [`Config::stop_within`]: five minutes, in which a gigabyte goes to a client at 30 Mbit/s.
pub const STOP_WITHIN: Duration = Duration::from_secs(5 * 60);

/// An object store, of which the data directory is a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobsConfig {
    /// The bucket, and where in it.
    pub url: BlobsUrl,
    /// The URL of a store other than Amazon's; by default what `AWS_ENDPOINT_URL` says.
    pub endpoint: Option<String>,
    /// Its region; by default what `AWS_REGION` says.
    pub region: Option<String>,
    /// A PEM file with the CA that vouches for it, beside those of the system; by default what `AWS_CA_BUNDLE` names.
    pub ca: Option<PathBuf>,
    /// How long it may keep silent while somebody waits for what is read from it.
    pub silence: Duration,
    /// Bytes that cached blobs may fill.
    pub cache_bytes: u64,
}

/// The default of [`BlobsConfig::silence`].
pub const BLOB_SILENCE: Duration = Duration::from_secs(5);

/// What cached blobs fill by default, in bytes.
pub const BLOB_CACHE_BYTES: u64 = 16 << 30;

/// Who may do what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AccessConfig {
    /// Whoever reaches the server may do everything but write to its log.
    #[default]
    Open,
    /// Callers show tokens.
    Tokens {
        /// What may be read without one.
        anonymous_read: Vec<Prefix>,
    },
}

/// The server's certificate. Both files are looked at again while the server runs, so that a renewed one is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The chain in PEM, the server's own first.
    pub certificate: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
}

/// How much one caller, which is a token or else an address, may ask for. Debuggers that ask for more wait, as they would
/// take a refusal for "there is no such file"; others are told when to come again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Requests a second on the average; `None` for any number.
    pub requests_per_second: Option<f64>,
    /// Requests at once after a pause; by default what ten seconds allow.
    pub burst: Option<u32>,
    /// Bytes of one upload, be it a blob, a file or a trace; `None` for any number.
    #[serde(deserialize_with = "bytes::setting")]
    pub upload: Option<u64>,
    /// Bytes that one caller may read in an hour; they come back evenly. `None` for any number.
    #[serde(deserialize_with = "bytes::setting")]
    pub read_per_hour: Option<u64>,
    /// Bytes that one caller may send in an hour. `None` for any number.
    #[serde(deserialize_with = "bytes::setting")]
    pub write_per_hour: Option<u64>,
    /// Bytes of memory that tables which are made of symbol files may take while they are made; by default 2 GiB.
    #[serde(deserialize_with = "bytes::setting")]
    pub table_memory: Option<u64>,
}

/// How much the repositories at and below a prefix may hold together. A blob counts once in each repository that refers to it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaConfig {
    /// The repositories.
    #[serde(deserialize_with = "file::prefix")]
    pub prefix: Prefix,
    /// Bytes of their manifests and of the blobs that they refer to.
    #[serde(default, deserialize_with = "bytes::setting")]
    pub bytes: Option<u64>,
    /// Bundles.
    #[serde(default)]
    pub bundles: Option<u64>,
}

/// Which bundles of the repositories at and below a prefix stay. Releases are counted by repository, name and channel, the newest by their arrival
/// first; what neither setting keeps goes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    /// The repositories.
    #[serde(deserialize_with = "file::prefix")]
    pub prefix: Prefix,
    /// The channel that a bundle's seal names; an empty text: those without one. `None`: whatever it is.
    #[serde(default)]
    pub channel: Option<String>,
    /// So many releases stay.
    #[serde(default)]
    pub keep_last: Option<u32>,
    /// And those that came less long ago than this.
    #[serde(default, deserialize_with = "file::duration")]
    pub keep_younger: Option<Duration>,
    /// And so many at least, however old they are.
    #[serde(default)]
    pub keep_at_least: Option<u32>,
}

/// The folder of a server's transparency log, in its data directory.
pub const LOG_FOLDER: &str = "log";

/// The transparency log that a server keeps in [`LOG_FOLDER`] of its data directory.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Signs its checkpoints.
    pub key: LogKey,
    /// Where its last checkpoint is remembered, best on another disk than the log: a log that was put back
    /// from a backup is noticed by it.
    pub last_seen: PathBuf,
}
