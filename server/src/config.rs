//! What the operator decides.

use std::net::SocketAddr;
use std::path::PathBuf;

use symseal_sealer::LogKey;

/// Where the server keeps its data, where it listens, and what else the operator decides.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The data directory: created when it does not exist; one server at a time.
    pub data: PathBuf,
    /// The address to listen on; port 0 picks a free one, see [`Server::local_addr`](crate::Server::local_addr).
    pub listen: SocketAddr,
}

impl Config {
    /// A server with everything else as it is by default.
    #[must_use]
    pub fn new(data: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self { data: data.into(), listen }
    }
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
