//! The configuration file: TOML, with single settings taken from the environment.
//!
//! `SYMSEAL_SERVER_` and the setting's path in capitals, its parts joined by two underscores, stands for a setting:
//! `SYMSEAL_SERVER_ACCESS__MODE=tokens`, `SYMSEAL_SERVER_TLS__KEY=/run/secrets/key.pem`. A value is TOML where it can be
//! read as such (`true`, `10`, `["public"]`), else text. What the command line says goes before both.

use std::io::Read as _;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use symseal_bundle::open_plain_file;
use symseal_resolver::without_secrets;
use toml::{Table, Value};

use super::{
    AccessConfig, BLOB_CACHE_BYTES, BLOB_SILENCE, BlobsConfig, Config, ConfigError, LimitsConfig, QuotaConfig,
    RetentionConfig, STOP_WITHIN, TlsConfig, parse_address, parse_duration,
};
use crate::access::OidcIssuer;
use crate::objects::ParseBlobsUrlError;
use crate::repositories::Prefix;
use crate::store::{DatabaseUrl, ParseDatabaseUrlError};

/// What every variable begins with.
const PREFIX: &str = "SYMSEAL_SERVER_";

/// A configuration as it is written down: what is not said is `None`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// The data directory.
    pub data: Option<PathBuf>,
    /// The database's URL, which may hold a password: judged by [`Self::config`].
    database: Option<DatabaseSetting>,
    /// The address to listen on.
    #[serde(deserialize_with = "address")]
    pub listen: Option<SocketAddr>,
    /// See [`Config::public_url`].
    pub public_url: Option<String>,
    /// The object store's URL.
    blobs: Option<String>,
    s3: S3Section,
    access: AccessSection,
    tls: Option<TlsConfig>,
    #[serde(deserialize_with = "duration")]
    stop_within: Option<Duration>,
    limits: LimitsConfig,
    quotas: Vec<QuotaConfig>,
    retention: Vec<RetentionConfig>,
    /// The transparency log.
    pub log: LogSection,
    gc: GcSection,
    /// Whose seals count.
    pub seals: SealsSection,
    /// Where answers come from beside the bundles that were pushed here.
    pub origins: OriginsSection,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct S3Section {
    endpoint: Option<String>,
    region: Option<String>,
    ca: Option<PathBuf>,
    cache_mib: Option<u64>,
    #[serde(deserialize_with = "duration")]
    silence: Option<Duration>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AccessSection {
    mode: Option<Mode>,
    #[serde(deserialize_with = "prefixes")]
    anonymous_read: Vec<Prefix>,
    cors: Option<bool>,
    oidc: Vec<OidcIssuer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Open,
    Tokens,
}

/// Not shown, as it may hold a password; whether it is a URL of a database is found out by [`ConfigFile::config`], so that
/// no error repeats it.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
struct DatabaseSetting(String);

impl std::fmt::Debug for DatabaseSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatabaseSetting(…)")
    }
}

/// The transparency log, as it is written down.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    /// Whether it is made where there is none.
    pub enabled: Option<bool>,
    /// Its key.
    pub key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GcSection {
    #[serde(deserialize_with = "duration")]
    interval: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    grace: Option<Duration>,
}

/// Whose seals count, as it is written down: see [`SealRules`](crate::SealRules).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SealsSection {
    /// The trust directory.
    pub trust: Option<PathBuf>,
    /// Repositories whose bundles are shown with a seal alone.
    pub require_seal: Vec<String>,
}

/// Other places, as they are written down: see [`Origins`](crate::Origins).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OriginsSection {
    /// Base URLs of debuginfod servers.
    pub upstreams: Vec<String>,
    /// Base URLs of symbol servers.
    pub symbol_upstreams: Vec<String>,
    /// Directories of sources.
    pub source_roots: Vec<PathBuf>,
    /// Directories that are served where they lie.
    pub index: Vec<PathBuf>,
    /// How long after a look at them the next one begins.
    #[serde(deserialize_with = "duration")]
    pub index_interval: Option<Duration>,
    /// How long another server may say nothing before it is asked whether it lives.
    #[serde(deserialize_with = "duration")]
    pub upstream_silence: Option<Duration>,
    /// MiB that the cache may fill. Without room for anything, no member of an archive could be given.
    pub cache_mib: Option<NonZeroU64>,
}

/// Whether paths can be put behind a URL.
fn is_base(url: &str) -> bool {
    // Slips that a browser would mend are shown to clients as they stand.
    let Ok(parsed) = reqwest::Url::parse(url) else { return false };
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return false;
    }
    let has_host = parsed.host_str().is_some_and(|host| !host.is_empty());
    matches!(parsed.scheme(), "http" | "https") && has_host && parsed.query().is_none() && parsed.fragment().is_none()
}

impl ConfigFile {
    /// Reads a file, if there is one, and what the environment says on top of it.
    ///
    /// # Errors
    /// [`ConfigError`] names the file with line and column, or the variable.
    pub fn load(
        path: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut table = Table::new();
        if let Some(path) = path {
            let path = path.to_owned();
            let mut text = String::new();
            let read = open_plain_file(&path).and_then(|mut file| file.read_to_string(&mut text));
            read.map_err(|source| ConfigError::Read { path: path.clone(), source })?;
            // Once as it stands, so that what is wrong in it is told with its line.
            let problem =
                |error: toml::de::Error| ConfigError::Form { path: path.clone(), problem: shown(&error.to_string()) };
            toml::from_str::<Self>(&text).map_err(problem)?;
            table = toml::from_str(&text).map_err(problem)?;
        }
        for (name, value) in environment {
            let Some(setting) = name.strip_prefix(PREFIX) else { continue };
            let setting = setting.to_ascii_lowercase();
            let parts: Vec<&str> = setting.split("__").collect();
            let with = |value| {
                set(&table, &parts, value).and_then(|table| {
                    table.clone().try_into::<Self>().map(|_| table).map_err(|error| without_secrets(error.message()))
                })
            };
            // A folder may be called `2026`, and a prefix `true`: what is no value of the setting is a text.
            let with_it = with(in_toml(&value)).or_else(|error| with(Value::String(value.clone())).map_err(|_| error));
            table = with_it.map_err(|problem| ConfigError::Variable { name, problem })?;
        }
        let path = path.map(Path::to_owned).unwrap_or_default();
        table
            .try_into()
            .map_err(|error: toml::de::Error| ConfigError::Form { path, problem: without_secrets(&error.to_string()) })
    }

    /// The configuration, for a server with this data directory and address.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] when settings contradict each other.
    pub fn config(&self, data: PathBuf, listen: SocketAddr) -> Result<Config, ConfigError> {
        // As a variable that nobody set leaves it: the working directory would be taken.
        if data.as_os_str().is_empty() {
            let problem = "expected a directory, found an empty text: leave it out for the default".into();
            return Err(ConfigError::Setting { setting: "data", problem });
        }
        if self.seals.trust.as_ref().is_some_and(|trust| trust.as_os_str().is_empty()) {
            let problem = "expected a trust directory, found an empty text: leave it out to judge no seals".into();
            return Err(ConfigError::Setting { setting: "seals.trust", problem });
        }
        let access = match self.access.mode {
            Some(Mode::Tokens) => AccessConfig::Tokens { anonymous_read: self.access.anonymous_read.clone() },
            Some(Mode::Open) | None if !self.access.anonymous_read.is_empty() => {
                return Err(ConfigError::Setting {
                    setting: "access.anonymous_read",
                    problem: "expected access.mode = \"tokens\" with it: an open server lets everybody read".into(),
                });
            }
            None if !listen.ip().is_loopback() => {
                return Err(ConfigError::Setting {
                    setting: "access.mode",
                    problem: format!(
                        "{listen} is reached from other machines: say \"tokens\" (symseal token create makes them), or \"open\" to let whoever reaches it read, push and delete"
                    ),
                });
            }
            Some(Mode::Open) | None => AccessConfig::Open,
        };
        // Where everybody who reaches the server may do everything, whoever makes a page should not read by another's browser.
        let cors = self.access.cors.unwrap_or(access != AccessConfig::Open);
        let oidc = self.access.oidc.clone();
        let problem = match access {
            AccessConfig::Open if !oidc.is_empty() => {
                Some("expected access.mode = \"tokens\" with it: an open server asks nobody who it is".to_owned())
            }
            _ => oidc.iter().find_map(OidcIssuer::problem),
        };
        if let Some(problem) = problem {
            return Err(ConfigError::Setting { setting: "access.oidc", problem });
        }
        if self.limits.requests_per_second.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return Err(ConfigError::Setting {
                setting: "limits.requests_per_second",
                problem: "expected a number above 0; leave it out for no limit".into(),
            });
        }
        if self.limits.burst == Some(0) {
            return Err(ConfigError::Setting {
                setting: "limits.burst",
                problem: "expected a number above 0; leave it out for ten seconds' worth".into(),
            });
        }
        for (setting, bytes) in [
            ("limits.upload", self.limits.upload),
            ("limits.read_per_hour", self.limits.read_per_hour),
            ("limits.write_per_hour", self.limits.write_per_hour),
            ("limits.table_memory", self.limits.table_memory),
        ] {
            if bytes == Some(0) {
                let problem = "expected a number of bytes above 0; leave it out for no limit".into();
                return Err(ConfigError::Setting { setting, problem });
            }
        }
        let public_url = self.public_url.as_ref().map(|url| url.trim_end_matches('/').to_owned());
        if public_url.as_ref().is_some_and(|url| !is_base(url)) {
            return Err(ConfigError::Setting {
                setting: "public_url",
                problem: "expected a URL such as https://symbols.example.org, without ?query and #fragment".into(),
            });
        }
        let (tls, limits, database) = (self.tls.clone(), self.limits, self.database()?);
        let blobs = self.blobs()?;
        let (quotas, retention) = (self.quotas()?, self.retention()?);
        Ok(Config {
            access,
            cors,
            oidc,
            public_url,
            tls,
            stop_within: self.stop_within.unwrap_or(STOP_WITHIN),
            limits,
            quotas,
            retention,
            database,
            blobs,
            ..Config::new(data, listen)
        })
    }

    /// How much repositories may hold.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] where a quota limits nothing.
    pub fn quotas(&self) -> Result<Vec<QuotaConfig>, ConfigError> {
        match self.quotas.iter().find(|quota| quota.bytes.is_none() && quota.bundles.is_none()) {
            Some(quota) => Err(ConfigError::Setting {
                setting: "quotas",
                problem: format!(
                    "the one of {:?} limits nothing: expected bytes, bundles or both",
                    quota.prefix.to_string()
                ),
            }),
            None => Ok(self.quotas.clone()),
        }
    }

    /// Which bundles go after a time.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] where a rule keeps nothing.
    pub fn retention(&self) -> Result<Vec<RetentionConfig>, ConfigError> {
        let is_empty = |rule: &&RetentionConfig| {
            rule.keep_last.unwrap_or(0) == 0 && rule.keep_younger.is_none_or(|time| time.is_zero())
        };
        match self.retention.iter().find(is_empty) {
            Some(rule) => Err(ConfigError::Setting {
                setting: "retention",
                problem: format!(
                    "the rule of {:?} keeps nothing: expected keep_last, keep_younger or both, above 0",
                    rule.prefix.to_string()
                ),
            }),
            None => Ok(self.retention.clone()),
        }
    }

    /// The database; `None` for SQLite in the data directory.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] where it is no URL of a database.
    pub fn database(&self) -> Result<Option<DatabaseUrl>, ConfigError> {
        let parse = |said: &DatabaseSetting| {
            let wrong =
                |error: ParseDatabaseUrlError| ConfigError::Setting { setting: "database", problem: error.to_string() };
            said.0.parse().map_err(wrong)
        };
        self.database.as_ref().map(parse).transpose()
    }

    /// The object store; `None` where blobs are in the data directory alone.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] where it is no URL of one, or where there is none to be reached.
    pub fn blobs(&self) -> Result<Option<BlobsConfig>, ConfigError> {
        let S3Section { endpoint, region, ca, cache_mib, silence } = self.s3.clone();
        let wrong = |setting, problem: String| ConfigError::Setting { setting, problem };
        let Some(url) = &self.blobs else {
            if endpoint.is_some() || region.is_some() || ca.is_some() || cache_mib.is_some() || silence.is_some() {
                return Err(wrong("s3", "expected blobs = \"s3://BUCKET/PREFIX\" with it".into()));
            }
            return Ok(None);
        };
        let url = url.parse().map_err(|error: ParseBlobsUrlError| wrong("blobs", error.to_string()))?;
        if endpoint.as_ref().is_some_and(|url| !(url.starts_with("https://") || url.starts_with("http://"))) {
            return Err(wrong("s3.endpoint", "expected a URL such as https://minio.internal:9000".into()));
        }
        let cache_bytes = cache_mib.map_or(BLOB_CACHE_BYTES, |mib| mib.saturating_mul(1 << 20));
        // As Amazon's own programs name it.
        let ca = ca.or_else(|| std::env::var_os("AWS_CA_BUNDLE").filter(|file| !file.is_empty()).map(PathBuf::from));
        let silence = silence.unwrap_or(BLOB_SILENCE);
        if silence.is_zero() {
            return Err(wrong(
                "s3.silence",
                "expected a time such as \"5s\", found none: nothing could be read".into(),
            ));
        }
        Ok(Some(BlobsConfig { url, endpoint, region, ca, silence, cache_bytes }))
    }

    /// Takes another object store than the file says.
    pub fn set_blobs(&mut self, url: String) {
        self.blobs = Some(url);
    }

    /// Takes another database than the file says.
    pub fn set_database(&mut self, url: String) {
        self.database = Some(DatabaseSetting(url));
    }

    /// Asks for tokens, or lets everybody in, in place of what the file says.
    pub fn set_tokens(&mut self, tokens: bool) {
        self.access.mode = Some(if tokens { Mode::Tokens } else { Mode::Open });
    }

    /// Lets strangers read some repositories, in place of what the file says.
    pub fn set_anonymous_read(&mut self, prefixes: Vec<Prefix>) {
        self.access.anonymous_read = prefixes;
    }

    /// Encrypts connections, in place of what the file says.
    pub fn set_tls(&mut self, certificate: PathBuf, key: PathBuf) {
        self.tls = Some(TlsConfig { certificate, key });
    }

    /// How often blobs that nothing names are collected.
    #[must_use]
    pub fn gc_interval(&self) -> Option<Duration> {
        self.gc.interval
    }

    /// How long a blob stays that nothing names.
    #[must_use]
    pub fn gc_grace(&self) -> Option<Duration> {
        self.gc.grace
    }
}

/// The table with one setting more.
/// What is wrong in a file, with the line that it is in. Addresses and users may have passwords in them; what a line without either says is shown.
fn shown(problem: &str) -> String {
    let line = |line: &str| {
        let is_of_file = line.split_once(" | ").is_some_and(|(number, _)| number.trim().parse::<u64>().is_ok());
        let may_hold = ["://", "@", "%40", "symseal_", "database", "password"].iter().any(|sign| line.contains(sign));
        if is_of_file && !may_hold { line.to_owned() } else { without_secrets(line) }
    };
    problem.split_inclusive('\n').map(line).collect()
}

fn set(table: &Table, path: &[&str], value: Value) -> Result<Table, String> {
    let mut table = table.clone();
    match path {
        [] | [""] => return Err("expected the path of a setting".to_owned()),
        [name] => {
            table.insert((*name).to_owned(), value);
        }
        [name, rest @ ..] => {
            let inner = match table.get(*name) {
                Some(Value::Table(inner)) => inner.clone(),
                _ => Table::new(),
            };
            table.insert((*name).to_owned(), Value::Table(set(&inner, rest, value)?));
        }
    }
    Ok(table)
}

fn in_toml(text: &str) -> Value {
    let as_toml = toml::from_str::<Table>(&format!("value = {text}")).ok();
    as_toml.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

fn prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

pub(super) fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Prefix, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_address(&text).map(Some).map_err(serde::de::Error::custom)
}

pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests;
