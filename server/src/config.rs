//! What the operator decides.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the server keeps its data and where it listens.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data directory: created when it does not exist; one server at a time.
    pub data: PathBuf,
    /// The address to listen on; port 0 picks a free one, see [`Server::local_addr`](crate::Server::local_addr).
    pub listen: SocketAddr,
}
