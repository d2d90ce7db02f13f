//! The settings of a server: options before the environment, and that before the file.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args as ClapArgs;
use symseal_server::tokens::Prefix;
use symseal_server::{
    Config, ConfigError, ConfigFile, LogSection, Origins, Schedule, SealRules, SealsSection, parse_address,
    parse_duration,
};

use super::origins::OriginArgs;
use crate::keyring::LOG_KEY;
use crate::places;

/// Where the server listens by default.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8790);

/// How often blobs that nothing names are collected by default.
const GC_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// How long a blob stays by default that nothing names.
pub(crate) const GC_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// The options that stand for settings of the file.
#[derive(ClapArgs)]
pub(crate) struct Settings {
    /// The server's configuration (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the server keeps blobs and its database.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Record in this PostgreSQL (postgres://USER@HOST/DATABASE) instead of SQLite in the data directory. Where others see the
    /// arguments of processes, put a password into SYMSEAL_SERVER_DATABASE, PGPASSWORD or ~/.pgpass.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Keep blobs in this bucket of an S3-compatible object store (s3://BUCKET/PREFIX); the data directory is then a cache.
    /// Endpoint, region and credentials come from AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
    /// their kin, or from [s3] in the file. With a PostgreSQL too, any number of servers share both.
    #[arg(long, value_name = "URL")]
    blobs: Option<String>,
    /// Address (or a host's name) and port; port 0 takes a free one; default: 127.0.0.1:8790.
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Ask callers for tokens (symseal token create), or let whoever reaches the server read, push and delete; default: open
    /// on loopback.
    #[arg(long, value_name = "open|tokens", value_parser = ["open", "tokens"])]
    access: Option<String>,
    /// With tokens: let strangers read this repository and those below it, and the symbols in them; *: all. Repeat for more.
    #[arg(long, value_name = "PREFIX")]
    anonymous_read: Vec<Prefix>,
    /// Encrypt connections with this chain of certificates (PEM). It is read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// And its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// The log's key (Ed25519, PKCS#8 PEM), made with --log where there is none; the log's last checkpoint is remembered
    /// beside it, so keep it on another disk than the data; default: log.key.pem in the data directory.
    #[arg(long)]
    log_key: Option<PathBuf>,
    /// How often blobs that nothing names are collected while the server runs (s, m, h or d); 0s: never; default: 1h.
    #[arg(long, value_parser = parse_duration)]
    gc_interval: Option<Duration>,
    /// How long a blob stays that nothing names; default: 24h. It must be longer than a client's slowest push: from the first
    /// blob that it sends or asks for to the manifest.
    #[arg(long, value_parser = parse_duration)]
    gc_grace: Option<Duration>,
    #[command(flatten)]
    seals: SealArgs,
    #[command(flatten)]
    origins: OriginArgs,
}

/// Whose seals count, and where nothing is shown without one.
#[derive(ClapArgs)]
struct SealArgs {
    /// Judge the seals of bundles by this trust directory (root.json, policy.dsse.json, trusted_root.json). Changes of its
    /// files hold within half a minute.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
    /// Show bundles of this repository, and of those below it, from a valid seal on; all: of every repository. Repeat for more.
    #[arg(long, value_name = "PREFIX|all", num_args = 1..)]
    require_seal: Vec<String>,
}

impl SealArgs {
    /// The rules, if there is a trust directory to judge by. Seals that nobody judges cannot be required.
    fn rules(&self, file: &SealsSection) -> Result<Option<SealRules>, ConfigError> {
        let require = if self.require_seal.is_empty() { &file.require_seal } else { &self.require_seal };
        match self.trust.clone().or_else(|| file.trust.clone()) {
            Some(trust) => Ok(Some(SealRules { trust, require: require.clone() })),
            None if require.is_empty() => Ok(None),
            None => Err(ConfigError::Setting {
                setting: "seals.require_seal",
                problem: "expected a trust directory with it (seals.trust, --trust), by which seals are judged"
                    .to_owned(),
            }),
        }
    }
}

/// A server as all of them make it.
pub(crate) struct Chosen {
    pub(crate) config: Config,
    pub(crate) origins: Origins,
    pub(crate) seals: Option<SealRules>,
    /// When what nothing names is collected.
    pub(crate) schedule: Option<Schedule>,
    pub(crate) log: LogSection,
    /// The log's key.
    pub(crate) log_key: PathBuf,
}

impl Settings {
    /// Whether a server is meant: it has a place, or a file that names one.
    pub(crate) fn names_a_server(&self) -> bool {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        self.config.is_some()
            || self.data.is_some()
            || self.database.is_some()
            || self.blobs.is_some()
            || ["SYMSEAL_SERVER_DATA", "SYMSEAL_SERVER_DATABASE", "SYMSEAL_SERVER_BLOBS"].into_iter().any(is_set)
    }

    /// Whether there is an option at all.
    pub(crate) fn is_any(&self) -> bool {
        self.names_a_server()
            || self.listen.is_some()
            || self.access.is_some()
            || !self.anonymous_read.is_empty()
            || self.tls_certificate.is_some()
            || self.log_key.is_some()
            || self.gc_interval.is_some()
            || self.gc_grace.is_some()
            || self.seals.trust.is_some()
            || !self.seals.require_seal.is_empty()
            || self.origins.is_any()
    }

    /// What they come to, with the file and the environment.
    pub(crate) fn chosen(&self) -> Result<Chosen> {
        let file = self.file()?;
        let data = places::server_data(self.data.as_ref().or(file.data.as_ref()))?;
        let config = file.config(data.clone(), self.listen.or(file.listen).unwrap_or(LISTEN))?;
        let mut origins = self.origins.origins(&file.origins);
        let seals = self.seals.rules(&file.seals)?;
        let interval = self.gc_interval.or(file.gc_interval()).unwrap_or(GC_INTERVAL);
        let grace = self.gc_grace.or(file.gc_grace()).unwrap_or(GC_GRACE);
        let schedule = (!interval.is_zero()).then_some(Schedule { interval, grace });
        let log_key = self.log_key.clone().or_else(|| file.log.key.clone()).unwrap_or_else(|| data.join(LOG_KEY));
        let tls_key = config.tls.as_ref().map(|tls| tls.key.clone());
        origins.withheld = tls_key.into_iter().chain([log_key.clone()]).chain(self.config.clone()).collect();
        Ok(Chosen { config, origins, seals, schedule, log: file.log, log_key })
    }

    /// The configuration's file and environment, with the options that stand for settings of it.
    fn file(&self) -> Result<ConfigFile> {
        let mut file = load_config(self.config.as_deref())?;
        if let Some(access) = &self.access {
            file.set_tokens(access == "tokens");
        }
        if let Some(database) = &self.database {
            file.set_database(database.clone());
        }
        if let Some(blobs) = &self.blobs {
            file.set_blobs(blobs.clone());
        }
        if !self.anonymous_read.is_empty() {
            file.set_anonymous_read(self.anonymous_read.clone());
        }
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            file.set_tls(certificate.clone(), key.clone());
        }
        Ok(file)
    }
}

/// The configuration's file and environment.
pub(crate) fn load_config(path: Option<&Path>) -> Result<ConfigFile> {
    // Names and values that are no text are nobody's settings.
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(ConfigFile::load(path, environment)?)
}
