//! `symseal serve`: OCI registry and debuginfod from one blob directory.

mod descriptors;
mod origins;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use symseal_sealer::{LogKey, TileLog};
use symseal_server::tokens::Prefix;
use symseal_server::{
    AccessConfig, Config, ConfigError, ConfigFile, LOG_FOLDER, LogConfig, LogSection, Schedule, SealRules,
    SealsSection, Server, parse_address, parse_duration,
};

use self::origins::OriginArgs;
use crate::data_owner::act_for_owner;
use crate::exit::Answer;
use crate::keyring::{self, LOG_KEY};
use crate::output::outln;
use crate::places;

/// Serve bundles to OCI clients, and their files to debuggers and profilers.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal serve --data ./data --listen 127.0.0.1:8790
  symseal serve --data ./data --log --log-key /safe/log.key.pem
  symseal serve --data ./data --trust ./trust --require-seal prod team/app
  symseal serve --data ./data --listen 0.0.0.0:443 --access tokens --anonymous-read public \\
                --tls-certificate chain.pem --tls-key key.pem
  symseal serve --config /etc/symseal/server.toml --check-config
  DEBUGINFOD_URLS=http://127.0.0.1:8790 gdb -iex 'set auto-load no' ./app

The first line on standard output names the address. Ctrl-C or SIGTERM ends the server after the requests under way.
Every setting can stand in the file that --config names, and in the environment: SYMSEAL_SERVER_ACCESS__MODE=tokens is
mode in [access]. Options go before the environment, the environment before the file. docs/operating.md lists them.
On loopback everybody may do everything but write to the log; on another address say who may (--access).")]
pub struct Args {
    /// The server's configuration (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read the configuration and what it names (certificate and key, trust directory, directories that are served), say what is wrong with it,
    /// and end. Nothing is made, and no other machine is asked.
    #[arg(long)]
    check_config: bool,
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
    /// How the server's log is written to standard error; what is in it: SYMSEAL_LOG=warn, info (a line for each request) or
    /// debug.
    #[arg(long, value_name = "text|json", value_parser = ["text", "json"], default_value = "text")]
    log_format: String,
    /// Keep a transparency log too: it is made in DATA/log where there is none. A log that is there is served anyhow.
    #[arg(long)]
    log: bool,
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

/// Where the server listens by default.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8790);

/// How often blobs that nothing names are collected by default.
const GC_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// How long a blob stays by default that nothing names.
const GC_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

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

pub fn run(args: &Args) -> Result<Answer> {
    let file = file(args)?;
    let data = places::server_data(args.data.as_ref().or(file.data.as_ref()))?;
    let config = file.config(data.clone(), args.listen.or(file.listen).unwrap_or(LISTEN))?;
    let origins = args.origins.origins(&file.origins);
    let seals = args.seals.rules(&file.seals)?;
    let interval = args.gc_interval.or(file.gc_interval()).unwrap_or(GC_INTERVAL);
    let grace = args.gc_grace.or(file.gc_grace()).unwrap_or(GC_GRACE);
    let schedule = (!interval.is_zero()).then_some(Schedule { interval, grace });
    if args.check_config {
        symseal_server::check(&config, &origins, seals.as_ref())?;
        for warning in symseal_server::warnings(&config, schedule) {
            eprintln!("warning: {warning}");
        }
        outln!("{}", said(&config));
        return Ok(Answer::Yes);
    }
    act_for_owner(&data, false)?;
    start_logging(&args.log_format);
    descriptors::allow_many();
    let log = log(args, &file.log, &data)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime could be started")?;
    runtime.block_on(async {
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let mut server = Server::bind_with_log(config, log).await?;
        if let Some(schedule) = schedule {
            server = server.collecting(schedule);
        }
        if let Some(rules) = seals {
            server = server.judging(rules).await?;
        }
        server = server.with_origins(&origins)?;
        outln!("serving {} on {scheme}://{}", data.display(), server.local_addr());
        server.run(shutdown()).await?;
        Ok(Answer::Yes)
    })
}

/// The configuration's file and environment.
pub(crate) fn load_config(path: Option<&Path>) -> Result<ConfigFile> {
    // Names and values that are no text are nobody's settings.
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(ConfigFile::load(path, environment)?)
}

/// The configuration's file and environment, with the options that stand for settings of it.
fn file(args: &Args) -> Result<ConfigFile> {
    let mut file = load_config(args.config.as_deref())?;
    if let Some(access) = &args.access {
        file.set_tokens(access == "tokens");
    }
    if let Some(database) = &args.database {
        file.set_database(database.clone());
    }
    if let Some(blobs) = &args.blobs {
        file.set_blobs(blobs.clone());
    }
    if !args.anonymous_read.is_empty() {
        file.set_anonymous_read(args.anonymous_read.clone());
    }
    if let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) {
        file.set_tls(certificate.clone(), key.clone());
    }
    Ok(file)
}

/// What a sound configuration comes to.
fn said(config: &Config) -> String {
    let access = match &config.access {
        AccessConfig::Open => "everybody who reaches it may do everything".to_owned(),
        AccessConfig::Tokens { anonymous_read } if anonymous_read.is_empty() => "tokens are asked for".to_owned(),
        AccessConfig::Tokens { anonymous_read } => {
            let prefixes: Vec<String> = anonymous_read.iter().map(ToString::to_string).collect();
            format!("tokens are asked for, but to read {}", prefixes.join(", "))
        }
    };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let database = config.database.as_ref().map_or_else(String::new, |database| format!(" with {database}"));
    let blobs = config.blobs.as_ref().map_or_else(String::new, |blobs| format!(" as a cache of {}", blobs.url));
    format!("sound: {}{blobs}{database} on {scheme}://{}; {access}", config.data.display(), config.listen)
}

pub(crate) fn start_logging(format: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SYMSEAL_LOG").unwrap_or_else(|_| "warn".into());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if format == "json" {
        log.json().flatten_event(true).init();
    } else {
        log.init();
    }
}

/// The log in the data directory: with `--log` it is made where there is none, with a key of its own.
fn log(args: &Args, file: &LogSection, data: &Path) -> Result<Option<LogConfig>> {
    let dir = data.join(LOG_FOLDER);
    let key_file = args.log_key.clone().or_else(|| file.key.clone()).unwrap_or_else(|| data.join(LOG_KEY));
    if !TileLog::exists(&dir) {
        if !(args.log || file.enabled == Some(true)) {
            return Ok(None);
        }
        let key = if key_file.exists() {
            LogKey::load_pem(&key_file)?
        } else {
            let parent = key_file.parent().unwrap_or(data);
            std::fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
            LogKey::generate_file(&key_file)?
        };
        // Made here, and opened again by the server.
        drop(keyring::open_or_create_log_with(&dir, key, &key_file)?);
    }
    let last_seen = keyring::last_checkpoint(&key_file);
    if is_below(&last_seen, data) {
        eprintln!(
            "warning: the log's key and its last checkpoint, {}, lie in the data directory: a backup of it that is put back would not be noticed, and the log would sign a second history; keep them elsewhere (--log-key)",
            last_seen.display()
        );
    }
    let key =
        LogKey::load_pem(&key_file).with_context(|| format!("log {}: its key is needed (--log-key)", dir.display()))?;
    Ok(Some(LogConfig { key, last_seen }))
}

/// Whether a file lies in a directory, by whatever name it was called.
fn is_below(file: &Path, directory: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    real(folder).zip(real(directory)).is_some_and(|(folder, directory)| folder.starts_with(directory))
}

/// Ends when the process is asked to. Who asks once more does not wait for what is under way: what was acknowledged is on the disk.
pub(crate) async fn shutdown() {
    asked_to_stop().await;
    tokio::spawn(async {
        asked_to_stop().await;
        eprintln!("stopped at once: requests that were under way are cut off");
        std::process::exit(1);
    });
}

async fn asked_to_stop() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        let Ok(mut terminated) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
            let _ = interrupted.await;
            return;
        };
        tokio::select! {
            _ = interrupted => {}
            _ = terminated.recv() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = interrupted.await;
}
