//! `symseal serve`: OCI registry and debuginfod from one blob directory.

mod origins;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use symseal_sealer::{LogKey, TileLog};
use symseal_server::{Config, LOG_FOLDER, LogConfig, Schedule, SealRules, Server};

use self::origins::OriginArgs;
use crate::exit::Answer;
use crate::keyring::{self, LOG_KEY};
use crate::output::outln;
use crate::places;

/// Serve bundles to OCI clients, and their files to debuginfod clients.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal serve --data ./data --listen 127.0.0.1:8790
  symseal serve --data ./data --log --log-key /safe/log.key.pem
  symseal serve --data ./data --trust ./trust --require-seal prod team/app
  DEBUGINFOD_URLS=http://127.0.0.1:8790 gdb -iex 'set auto-load no' ./app

The first line on standard output names the address. Ctrl-C or SIGTERM ends the server after the requests under way.
Writing to the log takes a token (symseal token create). Nothing else is authenticated in this version: listen on loopback,
or behind a proxy that asks for it.")]
pub struct Args {
    /// Where the server keeps blobs and its database.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Address and port; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8790")]
    listen: SocketAddr,
    /// Keep a transparency log too: it is made in DATA/log where there is none. A log that is there is served anyhow.
    #[arg(long)]
    log: bool,
    /// The log's key (Ed25519, PKCS#8 PEM), made with --log where there is none; the log's last checkpoint is remembered
    /// beside it, so keep it on another disk than the data; default: log.key.pem in the data directory.
    #[arg(long)]
    log_key: Option<PathBuf>,
    /// How often blobs that nothing names are collected while the server runs (s, m, h or d); 0s: never.
    #[arg(long, default_value = "1h", value_parser = super::store::duration)]
    gc_interval: Duration,
    /// How long a blob stays that nothing names. It must be longer than a client's slowest push: from the first blob that
    /// it sends or asks for to the manifest.
    #[arg(long, default_value = "24h", value_parser = super::store::duration)]
    gc_grace: Duration,
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
    #[arg(long, value_name = "PREFIX|all", requires = "trust", num_args = 1..)]
    require_seal: Vec<String>,
}

pub fn run(args: &Args) -> Result<Answer> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("SYMSEAL_LOG").unwrap_or_else(|_| "warn".into()))
        .with_writer(std::io::stderr)
        .init();
    let data = places::server_data(args.data.as_ref())?;
    let log = log(args, &data)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime could be started")?;
    runtime.block_on(async {
        let mut server = Server::bind_with_log(Config::new(data.clone(), args.listen), log).await?;
        if !args.gc_interval.is_zero() {
            server = server.collecting(Schedule { interval: args.gc_interval, grace: args.gc_grace });
        }
        if let Some(trust) = &args.seals.trust {
            let rules = SealRules { trust: trust.clone(), require: args.seals.require_seal.clone() };
            server = server.judging(rules).await?;
        }
        server = server.with_origins(&args.origins.origins())?;
        outln!("serving {} on http://{}", data.display(), server.local_addr());
        server.run(shutdown()).await?;
        Ok(Answer::Yes)
    })
}

/// The log in the data directory: with `--log` it is made where there is none, with a key of its own.
fn log(args: &Args, data: &Path) -> Result<Option<LogConfig>> {
    let dir = data.join(LOG_FOLDER);
    let key_file = args.log_key.clone().unwrap_or_else(|| data.join(LOG_KEY));
    if !TileLog::exists(&dir) {
        if !args.log {
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
    let key =
        LogKey::load_pem(&key_file).with_context(|| format!("log {}: its key is needed (--log-key)", dir.display()))?;
    Ok(Some(LogConfig { key, last_seen: keyring::beside(&key_file, keyring::LAST_CHECKPOINT) }))
}

/// Ends when the process is asked to.
async fn shutdown() {
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
