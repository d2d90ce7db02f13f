//! `--online`: the servers that commands may ask, by what a person has set for other debuggers.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use symseal_bundle::Scratch;
use symseal_resolver::online::{FromEnvironment, Lock, LockMode, OnlineConfig, OnlineError, OnlineServers};
use symseal_resolver::{NO_SERVERS, Resolver};

use crate::output::visible;
use crate::places;

/// Whether servers are asked, and what of theirs counts.
#[derive(clap::Args)]
pub(crate) struct OnlineArgs {
    /// Ask debuginfod servers (DEBUGINFOD_URLS) and symbol servers (_NT_SYMBOL_PATH) before the bundle; what they give counts only if it is of the
    /// module, and one of the files that the bundle names, where it has the module.
    #[arg(long)]
    pub(crate) online: bool,
    /// With --online: pin what servers gave in this file, and take nothing else where it names a module (symbols.lock).
    #[arg(long, value_name = "FILE", requires = "online")]
    lock: Option<PathBuf>,
    /// With --lock: fetch nothing that the file does not name.
    #[arg(long, requires = "lock")]
    locked: bool,
}

/// The servers of one run.
pub(crate) struct Online {
    servers: Arc<OnlineServers>,
    /// Where what was pinned is written.
    lock: Option<PathBuf>,
    /// What is kept for this run alone.
    _kept: Option<Scratch>,
}

impl OnlineArgs {
    /// Whether a lock file was named.
    pub(crate) fn has_lock(&self) -> bool {
        self.lock.is_some()
    }

    /// The servers; `None` where nobody may be asked.
    pub(crate) fn open(&self) -> Result<Option<Online>> {
        if !self.online {
            return Ok(None);
        }
        let FromEnvironment { config, passed_over } =
            OnlineConfig::from_environment(places::cache_dir()?.join("symbols"))?;
        passed_over.iter().for_each(|what| eprintln!("warning: {}", visible(what)));
        let (servers, kept) = open_servers(config)?;
        // Who takes nothing but what is pinned may have all of it in the cache.
        if servers.is_empty() && !self.locked {
            bail!("--online: {NO_SERVERS}");
        }
        let mode = if self.locked { LockMode::Frozen } else { LockMode::Extend };
        let servers = match &self.lock {
            Some(path) => servers.with_lock(Lock::read(path, mode).context("--lock")?),
            None => servers,
        };
        Ok(Some(Online { servers: Arc::new(servers), lock: self.lock.clone().filter(|_| !self.locked), _kept: kept }))
    }
}

/// The servers. A cache that cannot be used keeps nobody from the names: what comes is kept for this run, then.
fn open_servers(config: OnlineConfig) -> Result<(OnlineServers, Option<Scratch>)> {
    match OnlineServers::new(config.clone()) {
        Err(error @ OnlineError::Cache { .. }) => {
            let kept = Scratch::temporary().with_context(|| error.to_string())?;
            eprintln!(
                "warning: {error}: what servers give is kept for this run alone (XDG_CACHE_HOME names another place)"
            );
            let config = OnlineConfig { cache: kept.path().to_owned(), ..config };
            Ok((OnlineServers::new(config).context("--online")?, Some(kept)))
        }
        opened => Ok((opened.context("--online")?, None)),
    }
}

impl Online {
    /// A resolver that asks them.
    pub(crate) fn ask(this: Option<&Self>, resolver: Resolver) -> Resolver {
        match this {
            Some(online) => resolver.with_servers(online.servers.clone()),
            None => resolver,
        }
    }

    /// Writes what was pinned in this run.
    pub(crate) fn finish(&self) -> Result<()> {
        match (&self.lock, self.servers.lock()) {
            (Some(path), Some(lock)) => lock.write(path).context("--lock"),
            _ => Ok(()),
        }
    }
}
