//! The three files of a trust directory as bytes: read, replaced, put into one file and taken out again.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use symseal_seal::encoding::{from_base64, to_base64};
use symseal_seal::trust::{POLICY_FILE, ROOT_FILE, TRUST_FILE_LIMIT, TRUSTED_ROOT_FILE, trusted_root};
use symseal_seal::{Trust, TrustError, fingerprint, is_fingerprint_of};

use super::{LoadTrustError, TrustInitError, exchange};
use crate::durable::{Disk, directory_of, sync_directory};

/// `schema` of a trust directory in one file.
const EXPORT_SCHEMA: &str = "symseal.trust.v1";
/// The largest such file: three files in base64, and room.
const EXPORT_LIMIT: u64 = 5 * 1024 * 1024;

/// The bytes of the three files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFiles {
    /// `root.json`.
    pub root: Vec<u8>,
    /// `policy.dsse.json`.
    pub policy: Vec<u8>,
    /// `trusted_root.json`.
    pub logs: Vec<u8>,
}

/// Each file in base64, so that it comes out byte for byte.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportJson {
    schema: String,
    root: String,
    policy: String,
    trusted_root: String,
}

/// A trust directory in one file cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum TrustImportError {
    /// Not such a file.
    #[error("{}: expected a trust directory in one file (symseal trust export), found {found}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// Its content is not trustworthy.
    #[error("{}: {source}", path.display())]
    Trust {
        /// The file.
        path: PathBuf,
        /// The failed check.
        source: TrustError,
    },
    /// Nobody said which root to expect.
    #[error(
        "{}: expected to be told the root's fingerprint, found no --fingerprint; ask whoever made the file, by another way than the file came, and compare with: {found}",
        path.display()
    )]
    Unconfirmed {
        /// The file.
        path: PathBuf,
        /// The root's fingerprint.
        found: String,
    },
    /// The root is another.
    #[error("{}: expected the root fingerprint {expected}, found {found}; do not use this file", path.display())]
    Fingerprint {
        /// The file.
        path: PathBuf,
        /// What was given.
        expected: String,
        /// The file's.
        found: String,
    },
    /// The directory holds a newer or another trust.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Older {
        /// The directory.
        path: PathBuf,
        /// What the file had to hold.
        expected: String,
        /// What it holds.
        found: String,
    },
    /// The directory that is there cannot be read.
    #[error(transparent)]
    Load(#[from] LoadTrustError),
    /// The directory cannot be written.
    #[error(transparent)]
    Write(#[from] TrustInitError),
}

impl TrustFiles {
    /// Reads the three files of a directory.
    ///
    /// # Errors
    /// [`LoadTrustError::Io`] or [`LoadTrustError::TooLarge`].
    pub fn read(directory: &Path) -> Result<Self, LoadTrustError> {
        let read = |name: &str| {
            let path = directory.join(name);
            let found = match fs::metadata(&path) {
                Ok(metadata) if !metadata.is_file() => {
                    let source = io::Error::new(io::ErrorKind::InvalidInput, "found a directory, a pipe or a device");
                    return Err(LoadTrustError::Io { path, source });
                }
                Ok(metadata) => metadata.len(),
                Err(source) => return Err(LoadTrustError::Io { path, source }),
            };
            if found > TRUST_FILE_LIMIT as u64 {
                return Err(LoadTrustError::TooLarge { path, found });
            }
            fs::read(&path).map_err(|source| LoadTrustError::Io { path, source })
        };
        Ok(Self { root: read(ROOT_FILE)?, policy: read(POLICY_FILE)?, logs: read(TRUSTED_ROOT_FILE)? })
    }

    /// Checks the chain of signatures.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn verify(&self) -> Result<Trust, TrustError> {
        Trust::load_parts(&self.root, &self.policy, &self.logs)
    }

    /// The three files in one, as `symseal trust export` writes it.
    #[must_use]
    pub fn to_export(&self) -> Vec<u8> {
        let file = ExportJson {
            schema: EXPORT_SCHEMA.into(),
            root: to_base64(&self.root),
            policy: to_base64(&self.policy),
            trusted_root: to_base64(&self.logs),
        };
        // Four texts: writing them cannot fail, and an empty file is refused when it is read.
        serde_json::to_vec_pretty(&file).unwrap_or_default()
    }

    fn from_export(path: &Path) -> Result<Self, TrustImportError> {
        let form = |found: String| TrustImportError::Form { path: path.to_owned(), found };
        let metadata = fs::metadata(path).map_err(|error| form(error.to_string()))?;
        if metadata.len() > EXPORT_LIMIT {
            return Err(form(format!("{} bytes", metadata.len())));
        }
        let bytes = fs::read(path).map_err(|error| form(error.to_string()))?;
        let file: ExportJson = serde_json::from_slice(&bytes).map_err(|error| form(error.to_string()))?;
        if file.schema != EXPORT_SCHEMA {
            return Err(form("another schema".into()));
        }
        let decode = |text: &str| from_base64(text).ok_or_else(|| form("a part that is not base64".into()));
        Ok(Self { root: decode(&file.root)?, policy: decode(&file.policy)?, logs: decode(&file.trusted_root)? })
    }

    /// Replaces the files of a directory, in an order in which a reader never finds a policy that names a log
    /// without its key. A new root changes all three at once: the directory is exchanged for another.
    pub(super) fn replace(&self, directory: &Path, old: &Self) -> Result<(), TrustInitError> {
        if self.root != old.root {
            return exchange::exchange(directory, self);
        }
        let io = |source| TrustInitError::Io { path: directory.to_owned(), doing: "write its files", source };
        let disk = Disk::default();
        let put = |name: &str, bytes: &[u8]| disk.replace(&directory.join(name), &with_line_end(bytes)).map_err(io);
        let ids = |file: &[u8]| -> Vec<_> {
            trusted_root::parse(file).map_or_else(|_| Vec::new(), |logs| logs.iter().map(|log| log.id).collect())
        };
        let (before, after) = (ids(&old.logs), ids(&self.logs));
        if before.iter().all(|id| after.contains(id)) {
            put(TRUSTED_ROOT_FILE, &self.logs)?;
            put(POLICY_FILE, &self.policy)
        } else {
            put(POLICY_FILE, &self.policy)?;
            put(TRUSTED_ROOT_FILE, &self.logs)
        }
    }
}

/// Holds off everybody else who would change the directory, as long as the file is open. Who waited reads the files again: they may be others now.
pub(super) fn lock(directory: &Path) -> Result<Option<File>, TrustInitError> {
    // Elsewhere a directory cannot be opened as a file.
    if !cfg!(unix) {
        return Ok(None);
    }
    let io = |source| TrustInitError::Io { path: directory.to_owned(), doing: "lock it", source };
    let file = File::open(directory).map_err(io)?;
    file.lock().map_err(io)?;
    Ok(Some(file))
}

fn with_line_end(bytes: &[u8]) -> Vec<u8> {
    let mut file = bytes.to_vec();
    if !file.ends_with(b"\n") {
        file.push(b'\n');
    }
    file
}

/// A directory beside the target with the three files in it.
pub(super) fn prepare(parent: &Path, files: &TrustFiles) -> io::Result<tempfile::TempDir> {
    let temporary = tempfile::Builder::new().prefix(".trust-").tempdir_in(parent)?;
    for (name, bytes) in [(ROOT_FILE, &files.root), (POLICY_FILE, &files.policy), (TRUSTED_ROOT_FILE, &files.logs)] {
        let mut file = File::create_new(temporary.path().join(name))?;
        file.write_all(&with_line_end(bytes))?;
        file.sync_all()?;
    }
    share_with_readers(temporary.path())?;
    sync_directory(temporary.path())?;
    Ok(temporary)
}

/// Writes a directory that is absent or empty; it appears whole.
pub(super) fn write_new(directory: &Path, files: &TrustFiles) -> Result<(), TrustInitError> {
    let io = |doing| move |source| TrustInitError::Io { path: directory.to_owned(), doing, source };
    match fs::read_dir(directory) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(TrustInitError::Exists { path: directory.to_owned() });
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io("read it")(error)),
    }
    let parent = directory_of(directory);
    fs::create_dir_all(parent).map_err(io("make the directory above it"))?;
    let temporary = prepare(parent, files).map_err(io("write its files"))?;
    fs::rename(temporary.path(), directory).map_err(io("put it in place"))?;
    // It has its final name now, and is no temporary directory to remove.
    let _ = temporary.keep();
    sync_directory(parent).map_err(io("make it durable"))
}

/// A trust directory holds nothing secret; temporary directories start as the owner's alone.
#[cfg(unix)]
fn share_with_readers(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn share_with_readers(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// Takes a trust directory over from one file. A new directory needs the root's fingerprint, which came by
/// another way; one that is there is only brought forward: its root must be in the file's chain, and the
/// policy's version may not fall.
///
/// # Errors
/// [`TrustImportError`]; the directory is as it was.
pub fn import(file: &Path, directory: &Path, confirmed: Option<&str>) -> Result<Trust, TrustImportError> {
    let files = TrustFiles::from_export(file)?;
    let trust = files.verify().map_err(|source| TrustImportError::Trust { path: file.to_owned(), source })?;
    let found = fingerprint(&trust.root.sha256());
    if let Some(expected) = confirmed.filter(|text| !is_fingerprint_of(text, &trust.root.sha256())) {
        return Err(TrustImportError::Fingerprint { path: file.to_owned(), expected: expected.to_owned(), found });
    }
    let is_new = fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none());
    if is_new {
        if confirmed.is_none() {
            return Err(TrustImportError::Unconfirmed { path: file.to_owned(), found });
        }
        write_new(directory, &files)?;
        return Ok(trust);
    }
    let _lock = lock(directory)?;
    let old_files = TrustFiles::read(directory)?;
    let old = old_files.verify().map_err(|source| LoadTrustError::Trust { directory: directory.to_owned(), source })?;
    let older =
        |expected: String, found: String| TrustImportError::Older { path: directory.to_owned(), expected, found };
    let known = old.root.history.last();
    if !known.is_some_and(|known| trust.root.history.contains(known)) {
        let expected = format!("a root that follows from this directory's, {}", fingerprint(&old.root.sha256()));
        return Err(older(expected, format!("version {}, {found}", trust.root.version)));
    }
    let (before, after) = (&old.policy, &trust.policy);
    if after.version < before.version || (after.version == before.version && after.sha256 != before.sha256) {
        let expected = format!("a policy after version {}", before.version);
        return Err(older(expected, format!("version {}", after.version)));
    }
    files.replace(directory, &old_files)?;
    Ok(trust)
}
