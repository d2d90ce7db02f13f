//! The trust directory on disk: made for one key and one log, read back, changed, carried elsewhere.

mod change;
mod difference;
mod edit;
mod exchange;
mod files;
mod sense;

use std::io;
use std::path::{Path, PathBuf};

use symseal_seal::trust::policy::{PolicyDocument, PolicyKeyDocument, PolicyLogDocument};
use symseal_seal::trust::{RootDocument, TRUST_FILE_LIMIT, trusted_root};
use symseal_seal::{ArtifactPublicKey, LogIdentity, Trust, TrustError, UtcSeconds};

use crate::keys::ArtifactKey;
pub use change::{RootChange, TrustChange, TrustChangeError};
pub use difference::Difference;
pub use edit::{End, KeyChange, LogChange, RevocationChange};
pub use files::{TrustFiles, TrustImportError, import};

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
    /// A policy that could be used and cannot be meant.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Nonsense {
        /// The directory.
        path: PathBuf,
        /// What a policy has.
        expected: String,
        /// What this one would have.
        found: String,
    },
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
    let key = PolicyKeyDocument::new(init.artifact, init.names, Some(init.at));
    let log = PolicyLogDocument::new(init.log, init.operator, Some(init.at));
    let policy = PolicyDocument::one_key(key, log, init.expires);
    let policy_file = policy.to_file(&root_id, &init.root.sign(&policy.signed_bytes()));
    let logs_file = trusted_root::one_log(init.log, init.at);
    // What could not be read back is not written: names that are no patterns, for one.
    let trust = Trust::load_parts(&root_file, &policy_file, &logs_file)?;
    if let Some((expected, found)) = sense::nonsense(&trust) {
        return Err(TrustInitError::Nonsense { path: directory.to_owned(), expected, found });
    }
    files::write_new(directory, &TrustFiles { root: root_file, policy: policy_file, logs: logs_file })?;
    Ok(trust)
}

/// Reads a trust directory and checks its chain of signatures.
///
/// # Errors
/// [`LoadTrustError`].
pub fn load_trust(directory: &Path) -> Result<Trust, LoadTrustError> {
    load_trust_files(directory).map(|(_, trust)| trust)
}

/// The same, with the files as they were read, by which a change is noticed.
///
/// # Errors
/// [`LoadTrustError`].
pub fn load_trust_files(directory: &Path) -> Result<(TrustFiles, Trust), LoadTrustError> {
    let files = TrustFiles::read(directory)?;
    let trust = files.verify().map_err(|source| LoadTrustError::Trust { directory: directory.to_owned(), source })?;
    Ok((files, trust))
}
