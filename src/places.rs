//! Where things lie when the user does not say.

use std::path::PathBuf;

use anyhow::{Context, Result};
use symseal_sealer::LogLocation;

/// The user's data directory for symseal: `$XDG_DATA_HOME/symseal`, else `~/.local/share/symseal`.
pub(crate) fn data_dir() -> Result<PathBuf> {
    user_dir("XDG_DATA_HOME", ".local/share")
}

/// The user's configuration directory for symseal: `$XDG_CONFIG_HOME/symseal`, else `~/.config/symseal`.
pub(crate) fn config_dir() -> Result<PathBuf> {
    user_dir("XDG_CONFIG_HOME", ".config")
}

/// The user's cache directory for symseal: `$XDG_CACHE_HOME/symseal`, else `~/.cache/symseal`.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    user_dir("XDG_CACHE_HOME", ".cache")
}

/// A server's data directory: what `--data` says, else `server` in the data directory.
pub(crate) fn server_data(asked: Option<&PathBuf>) -> Result<PathBuf> {
    asked.cloned().map_or_else(|| Ok(data_dir()?.join("server")), Ok)
}

/// The local bundle store, an OCI layout: what `--store` says, else `store` in the data directory.
pub(crate) fn store_dir(asked: Option<&PathBuf>) -> Result<PathBuf> {
    asked.cloned().map_or_else(|| Ok(data_dir()?.join("store")), Ok)
}

/// The trust directory: what `--trust` says, else `trust` in the configuration directory.
pub(crate) fn trust_dir(asked: Option<&PathBuf>) -> Result<PathBuf> {
    asked.cloned().map_or_else(|| Ok(config_dir()?.join("trust")), Ok)
}

/// The log: what `--log` says, else the embedded one in the data directory.
pub(crate) fn log(asked: Option<&str>) -> Result<LogLocation> {
    match asked {
        None => Ok(LogLocation::Directory(data_dir()?.join("log"))),
        Some(text) => text.parse().with_context(|| format!("--log {text}")),
    }
}

/// The embedded log's directory, where only that will do.
pub(crate) fn log_dir(asked: Option<&str>) -> Result<PathBuf> {
    match log(asked)? {
        LogLocation::Directory(dir) => Ok(dir),
        LogLocation::Rekor { url, .. } => {
            anyhow::bail!("--log {url}: expected the directory of an embedded log here, found the URL of another")
        }
    }
}

fn user_dir(variable: &str, under_home: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute()) {
        return Ok(dir.join("symseal"));
    }
    let home = std::env::home_dir().filter(|home| home.is_absolute()).with_context(|| {
        format!("there is no home directory to keep data in: set {variable}, or name the directory on the command line")
    })?;
    Ok(home.join(under_home).join("symseal"))
}
