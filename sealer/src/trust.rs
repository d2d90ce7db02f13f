//! The trust directory on disk: made for one key and one log, and read back.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use symseal_seal::trust::policy::{PolicyDocument, PolicyKeyDocument, PolicyLogDocument};
use symseal_seal::trust::{POLICY_FILE, ROOT_FILE, RootDocument, TRUST_FILE_LIMIT, TRUSTED_ROOT_FILE, trusted_root};
use symseal_seal::{ArtifactPublicKey, LogIdentity, PREDICATE_TYPE, Trust, TrustError, UtcSeconds};

use crate::durable::{directory_of, sync_directory};
use crate::keys::ArtifactKey;

/// What a trust directory of one key and one log says.
#[derive(Debug)]
pub struct TrustInit<'a> {
    /// The root key; signs root and policy, and can be kept offline afterwards.
    pub root: &'a ArtifactKey,
    /// The key that may sign bundles. May be the root key, but had better not.
    pub artifact: &'a ArtifactPublicKey,
    /// Release names that it may sign: exact, or ending in `*` for a prefix.
    pub names: &'a [String],
    /// The log in which seals must stand.
    pub log: &'a LogIdentity,
    /// Who runs it, for a person to read.
    pub operator: &'a str,
    /// Now: key and log count from here on.
    pub at: UtcSeconds,
    /// Last second of the policy; `None`: no end.
    pub expires: Option<UtcSeconds>,
}

/// A trust directory cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TrustInitError {
    /// There is something in the directory already.
    #[error("{}: expected an absent or empty directory, found files; a trust directory is never overwritten", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// What was asked for makes no usable policy.
    #[error("this policy could not be used: {0}")]
    Policy(#[from] TrustError),
    /// The file system said no.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// A trust directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadTrustError {
    /// A file is missing or unreadable.
    #[error("{}: expected a file of a trust directory: {source}; make one with `symseal trust init`", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file is larger than any of a trust directory.
    #[error("{}: expected at most {TRUST_FILE_LIMIT} bytes, found {found}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        found: u64,
    },
    /// Its content is not trustworthy.
    #[error("{}: {source}", directory.display())]
    Trust {
        /// The directory.
        directory: PathBuf,
        /// The failed check; [`TrustError::to_check`] gives it for a report.
        source: TrustError,
    },
}

/// Writes `root.json`, `policy.dsse.json` and `trusted_root.json` into `directory`, which must be absent
/// or empty and appears whole.
///
/// # Errors
/// [`TrustInitError`]; nothing is left behind.
pub fn trust_init(directory: &Path, init: &TrustInit<'_>) -> Result<Trust, TrustInitError> {
    let root_id = init.root.key_id().to_string();
    let root = RootDocument::one_key(init.root.public(), None);
    let root_file = root.to_file(&root_id, &init.root.sign(&root.signed_bytes()));
    let key = PolicyKeyDocument {
        key_id: init.artifact.key_id().to_string(),
        algorithm: ArtifactPublicKey::ALGORITHM.into(),
        spki: symseal_seal::encoding::to_base64(init.artifact.spki()),
        names: init.names.to_vec(),
        predicate_types: vec![PREDICATE_TYPE.into()],
        not_before: Some(init.at),
        not_after: None,
    };
    let log = PolicyLogDocument {
        origin: init.log.origin.to_string(),
        log_id: init.log.id().to_string(),
        operator: init.operator.into(),
        not_before: Some(init.at),
        not_after: None,
        witness_quorum: 0,
        witnesses: Vec::new(),
    };
    let policy = PolicyDocument::one_key(key, log, init.expires);
    let policy_file = policy.to_file(&root_id, &init.root.sign(&policy.signed_bytes()));
    let logs_file = trusted_root::one_log(init.log, init.at);
    // What could not be read back is not written: names that are no patterns, for one.
    let trust = Trust::load_parts(&root_file, &policy_file, &logs_file)?;
    write_directory(directory, &[(ROOT_FILE, root_file), (POLICY_FILE, policy_file), (TRUSTED_ROOT_FILE, logs_file)])?;
    Ok(trust)
}

fn write_directory(directory: &Path, files: &[(&str, Vec<u8>)]) -> Result<(), TrustInitError> {
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
    let temporary =
        tempfile::Builder::new().prefix(".trust-").tempdir_in(parent).map_err(io("make a directory beside it"))?;
    for (name, bytes) in files {
        let mut file = fs::File::create_new(temporary.path().join(name)).map_err(io("write its files"))?;
        file.write_all(bytes).and_then(|()| file.write_all(b"\n")).map_err(io("write its files"))?;
        file.sync_all().map_err(io("write its files"))?;
    }
    share_with_readers(temporary.path()).map_err(io("set its mode"))?;
    sync_directory(temporary.path()).map_err(io("write its files"))?;
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

/// Reads a trust directory and checks its chain of signatures.
///
/// # Errors
/// [`LoadTrustError`].
pub fn load_trust(directory: &Path) -> Result<Trust, LoadTrustError> {
    let read = |name: &str| {
        let path = directory.join(name);
        let found = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(source) => return Err(LoadTrustError::Io { path, source }),
        };
        if found > TRUST_FILE_LIMIT as u64 {
            return Err(LoadTrustError::TooLarge { path, found });
        }
        fs::read(&path).map_err(|source| LoadTrustError::Io { path, source })
    };
    let (root, policy, logs) = (read(ROOT_FILE)?, read(POLICY_FILE)?, read(TRUSTED_ROOT_FILE)?);
    Trust::load_parts(&root, &policy, &logs)
        .map_err(|source| LoadTrustError::Trust { directory: directory.to_owned(), source })
}
