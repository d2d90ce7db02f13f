//! Why a server does not start or stops.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

impl ServerError {
    /// What failed somewhere below a data directory. Where that was for want of a right, the first entry below it that this process may not open is
    /// named, whatever was asked for: mostly another user made it.
    pub(crate) fn below(data: &Path, source: io::Error) -> Self {
        let is_denied = source.kind() == io::ErrorKind::PermissionDenied;
        let path = is_denied.then(|| first_denied(data)).flatten().unwrap_or_else(|| data.to_owned());
        Self::Data { path, source }
    }
}

/// The first entry at or below a path that this process may not open.
fn first_denied(path: &Path) -> Option<PathBuf> {
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let metadata = match fs::symlink_metadata(path) {
        Err(error) => return is_denied(&error).then(|| path.to_owned()),
        Ok(metadata) => metadata,
    };
    if metadata.is_file() {
        return fs::File::open(path).err().filter(is_denied).map(|_| path.to_owned());
    }
    if !metadata.is_dir() {
        return None;
    }
    match fs::read_dir(path) {
        Err(error) => is_denied(&error).then(|| path.to_owned()),
        Ok(entries) => entries.filter_map(Result::ok).find_map(|entry| first_denied(&entry.path())),
    }
}

impl From<crate::store::NotOpened> for ServerError {
    fn from(error: crate::store::NotOpened) -> Self {
        Self::Database { place: error.place, detail: error.detail }
    }
}

/// What to do about a directory that is not ours to use.
fn whose(problem: io::ErrorKind) -> &'static str {
    match problem {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ": the user that the server runs as must be able to read and write its data directory, with all that is in it"
        }
        _ => "",
    }
}

/// Why a server does not start, or stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A directory or file of the data directory cannot be made, read or written.
    #[error("{path}: {source}{}", whose(source.kind()), path = .path.display())]
    Data {
        /// What was touched.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another server holds the data directory.
    #[error("{path}: another server uses this directory, or a gateway does: stop it, or give this one its own (--data, or --state of a gateway)", path = .path.display())]
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
    /// The database is the record of another bucket, or directory.
    #[error(
        "the database {database} is the record of the store {recorded}, and not of {place}, {found}: nothing was changed; name a database and blobs that belong together (database, blobs, --data), or where these do, as after a copy, write {recorded} to {place}/store.id"
    )]
    OtherStore {
        /// The database file, or a URL without its password.
        database: String,
        /// The id of the store that it records.
        recorded: String,
        /// The bucket, or the directory.
        place: String,
        /// Its id, or that it has none.
        found: String,
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
    #[error("{setting} {path}: {problem}", path = .path.display())]
    Tls {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and what was expected.
        problem: String,
    },
}
