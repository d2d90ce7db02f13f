//! A transparency log in a directory: C2SP tlog-tiles, an Ed25519 checkpoint, one writer at a time.
//!
//! `checkpoint`, `tile/<L>/<N>[.p/<W>]` and `tile/entries/<N>[.p/<W>]` are what any static file server
//! can publish. An append writes entries and tiles first and the checkpoint last, each by rename, so
//! that a crash at any step leaves the log as it was or with the new entry. The last signed
//! checkpoint is also kept outside the directory: a log that was put back from a backup would
//! otherwise sign a second history.

mod append;
mod error;
mod positions;
mod prove;
mod published;
mod read;
#[cfg(feature = "online")]
mod remote;
#[cfg(test)]
mod tests;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_seal::{Checkpoint, Hash, LogId, LogIdentity, Origin};

use crate::durable::Disk;
use crate::keys::{LogKey, random_bytes};
pub use append::Appended;
pub use error::LogError;
use positions::Positions;
pub use published::PublishedLog;
#[cfg(feature = "online")]
pub(crate) use read::TileNodes;

/// File name of the checkpoint in a log's directory.
pub(crate) const CHECKPOINT_FILE: &str = "checkpoint";
/// File name of the writer's lease.
const LEASE_FILE: &str = ".lease";
/// How long [`TileLog::open`] waits for another writer to finish.
pub const LEASE_WAIT: Duration = Duration::from_secs(10);

/// A log, open for appending: this process holds its lease.
#[derive(Debug)]
pub struct TileLog {
    directory: PathBuf,
    last_seen: PathBuf,
    key: LogKey,
    identity: LogIdentity,
    state: State,
    /// So that an entry is logged once.
    positions: Positions,
    /// The directory may be ahead of this value; only opening again tells.
    must_reopen: bool,
    disk: Disk,
    /// Unlocked when dropped.
    _lease: File,
}

/// What changes with an append.
#[derive(Debug, Clone)]
struct State {
    size: u64,
    root: Hash,
    /// The signed note.
    checkpoint: String,
    /// For each level the hashes of its last, partial tile; empty where the last tile is full.
    edges: Vec<Vec<Hash>>,
    /// The bytes of the last, partial entry bundle.
    entries: Vec<u8>,
}

/// A new, unique origin: `log-<16 hex digits>.symseal.internal`.
///
/// # Errors
/// [`LogError::Entropy`] if the operating system gives no random bytes.
pub fn mint_origin() -> Result<Origin, LogError> {
    let entropy = |reason: String| LogError::Entropy { reason };
    let unique = random_bytes::<8>().map_err(|error| entropy(error.to_string()))?;
    let origin = format!("log-{}.symseal.internal", symseal_seal::encoding::to_hex(&unique));
    origin.parse().map_err(|error: symseal_seal::OriginError| entropy(error.to_string()))
}

/// Signs a checkpoint.
fn sign(key: &LogKey, identity: &LogIdentity, size: u64, root: Hash) -> String {
    let text = Checkpoint { origin: identity.origin.to_string(), size, root, extensions: Vec::new() }.to_text();
    let signature = NoteSignature {
        name: identity.origin.to_string(),
        hint: identity.id().hint(),
        signature: key.sign(text.as_bytes()),
    };
    SignedNote { text, signatures: vec![signature] }.to_text()
}

impl TileLog {
    /// Makes an empty log in an absent or empty directory. `last_seen` is a file outside it, which must
    /// not exist; it is where the last signed checkpoint is remembered.
    ///
    /// # Errors
    /// [`LogError`]. A directory that a crash left without a checkpoint can be used again.
    pub fn create(directory: &Path, origin: Origin, key: LogKey, last_seen: &Path) -> Result<Self, LogError> {
        Self::create_on(Disk::default(), directory, origin, key, last_seen)
    }

    fn create_on(
        disk: Disk,
        directory: &Path,
        origin: Origin,
        key: LogKey,
        last_seen: &Path,
    ) -> Result<Self, LogError> {
        let identity = key.identity(&origin).ok_or(LogError::WeakKey)?;
        if last_seen.exists() {
            return Err(LogError::Exists { path: last_seen.to_owned() });
        }
        disk.make_directory(directory).map_err(LogError::io(directory, "make it"))?;
        let lease = take_lease(directory, Duration::ZERO)?;
        for name in [CHECKPOINT_FILE, "tile"] {
            let path = directory.join(name);
            if path.exists() {
                return Err(LogError::Exists { path });
            }
        }
        let root = symseal_seal::tlog::empty_root();
        let checkpoint = sign(&key, &identity, 0, root);
        let path = directory.join(CHECKPOINT_FILE);
        disk.replace(&path, checkpoint.as_bytes()).map_err(LogError::io(&path, "write it"))?;
        disk.replace(last_seen, checkpoint.as_bytes()).map_err(LogError::io(last_seen, "write it"))?;
        Ok(Self {
            directory: directory.to_owned(),
            last_seen: last_seen.to_owned(),
            key,
            identity,
            state: State { size: 0, root, checkpoint, edges: Vec::new(), entries: Vec::new() },
            positions: Positions::default(),
            must_reopen: false,
            disk,
            _lease: lease,
        })
    }

    /// Opens a log for appending: takes the lease (waiting up to [`LEASE_WAIT`]), recomputes every tile
    /// and the root from the leaf hashes, and compares with the checkpoint and with the one last seen.
    ///
    /// # Errors
    /// [`LogError`], among them [`LogError::Leased`], [`LogError::Damaged`], [`LogError::WentBack`].
    pub fn open(directory: &Path, key: LogKey, last_seen: &Path) -> Result<Self, LogError> {
        Self::open_within(directory, key, last_seen, LEASE_WAIT)
    }

    /// [`Self::open`] with another limit on the wait for the lease.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(directory: &Path, key: LogKey, last_seen: &Path, wait: Duration) -> Result<Self, LogError> {
        Self::open_on(Disk::default(), directory, key, last_seen, wait)
    }

    fn open_on(disk: Disk, directory: &Path, key: LogKey, last_seen: &Path, wait: Duration) -> Result<Self, LogError> {
        if !Self::exists(directory) {
            return Err(LogError::NoLog { path: directory.to_owned() });
        }
        let lease = take_lease(directory, wait)?;
        let read::Opened { identity, state, leaves } = read::open(directory, &key)?;
        let log = Self {
            directory: directory.to_owned(),
            last_seen: last_seen.to_owned(),
            key,
            identity,
            state,
            positions: Positions::of(&leaves),
            must_reopen: false,
            disk,
            _lease: lease,
        };
        log.compare_last_seen()?;
        Ok(log)
    }

    /// Whether a directory holds a log.
    #[must_use]
    pub fn exists(directory: &Path) -> bool {
        directory.join(CHECKPOINT_FILE).is_file()
    }

    /// Refuses a log that is older than what was seen of it, or another; remembers a newer one (a crash
    /// came between checkpoint and memory).
    fn compare_last_seen(&self) -> Result<(), LogError> {
        let path = &self.last_seen;
        let text = match plain(path).and_then(|()| fs::read_to_string(path)) {
            Ok(text) => text,
            // A crash right after the first checkpoint leaves an empty log that was never seen.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.state.size == 0 => {
                return self.remember(&self.state.checkpoint);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(LogError::NothingSeen { path: path.clone(), size: self.state.size });
            }
            Err(error) => return Err(LogError::io(path, "read it")(error)),
        };
        let seen = read::verified(&text, &self.identity, path)?;
        if seen.size > self.state.size {
            return Err(LogError::WentBack {
                path: self.directory.clone(),
                seen: seen.size,
                found: self.state.size,
                origin: self.identity.origin.to_string(),
            });
        }
        let then = symseal_seal::tlog::root(&mut self.nodes(), seen.size)?;
        if then != seen.root {
            return Err(LogError::Forked {
                path: self.directory.clone(),
                size: seen.size,
                origin: self.identity.origin.to_string(),
            });
        }
        if seen.size < self.state.size { self.remember(&self.state.checkpoint) } else { Ok(()) }
    }

    fn remember(&self, checkpoint: &str) -> Result<(), LogError> {
        self.disk
            .replace(&self.last_seen, checkpoint.as_bytes())
            .map_err(LogError::io(&self.last_seen, "remember the checkpoint in it"))
    }

    /// Number of entries.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.state.size
    }

    /// The root over all entries.
    #[must_use]
    pub fn root(&self) -> Hash {
        self.state.root
    }

    /// The log's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The signed checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &str {
        &self.state.checkpoint
    }

    /// Origin and public key.
    #[must_use]
    pub fn identity(&self) -> &LogIdentity {
        &self.identity
    }

    /// The log's id.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.identity.id()
    }
}

/// Refuses a pipe in the place of a file: to open one may take for ever.
fn plain(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file, found a directory, a pipe or a device"))
        }
    }
}

/// Takes the writer's lease, waiting up to `wait` for whoever holds it.
fn take_lease(directory: &Path, wait: Duration) -> Result<File, LogError> {
    /// How often a held lease is tried again.
    const RETRY: Duration = Duration::from_millis(20);
    let path = directory.join(LEASE_FILE);
    match plain(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(LogError::io(&path, "open the lease")(error));
        }
        Ok(()) | Err(_) => {}
    }
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(LogError::io(&path, "open the lease"))?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if start.elapsed() < wait => std::thread::sleep(RETRY),
            Err(TryLockError::WouldBlock) => return Err(LogError::Leased { path: directory.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(LogError::io(&path, "lock the lease")(error)),
        }
    }
}
