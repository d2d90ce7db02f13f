//! Why a server does not start or stops.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

impl From<crate::store::NotOpened> for ServerError {
    fn from(error: crate::store::NotOpened) -> Self {
        Self::Database { place: error.place, detail: error.detail }
    }
}

/// Why a server does not start, or stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A directory or file of the data directory cannot be made, read or written.
    #[error("{path}: {source}: the data directory must be writable for the server", path = .path.display())]
    Data {
        /// What was touched.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another server holds the data directory.
    #[error("{path}: another server uses this data directory: stop it, or give this one its own with --data", path = .path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The database cannot be opened or migrated.
    #[error("database {place}: {detail}: expected a symseal database of this version or older that answers")]
    Database {
        /// The database file, or a URL without its password.
        place: String,
        /// What the database said.
        detail: String,
    },
    /// The object store cannot be used.
    #[error(
        "{place}: {problem}: expected a bucket that this server may read and write (credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
    )]
    Objects {
        /// Its URL.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// What another server is to do was asked of this one.
    #[error("{0}")]
    Shared(&'static str),
    /// The trust directory cannot be used.
    #[error(transparent)]
    Trust(#[from] symseal_sealer::LoadTrustError),
    /// What seals are required for is no repository.
    #[error(transparent)]
    RequireSeal(#[from] crate::seals::NoRepository),
    /// A place that answers may come from cannot be used.
    #[error("{origin}: {problem}")]
    Origin {
        /// A URL or a directory.
        origin: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}: choose another address with --listen")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A text is no digest.
    #[error("{text:?}: {source}")]
    Digest {
        /// What was given.
        text: String,
        /// What was expected.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The certificate or its key cannot be used.
    #[error("{path}: {problem}", path = .path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what was expected.
        problem: String,
    },
}
