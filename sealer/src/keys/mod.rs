//! Private keys in files: PKCS#8 PEM, plain or encrypted, mode 0600, never overwritten.
//!
//! Read are `PRIVATE KEY`, `ENCRYPTED PRIVATE KEY` (PBES2, RFC 8018) and what cosign writes,
//! `ENCRYPTED SIGSTORE PRIVATE KEY`; written are the first two. The passphrase of an encrypted file is
//! asked for when one is met, and work and memory that a file may ask for are bounded.

mod artifact;
pub(crate) mod content;
mod cosign;
mod file;
mod log;
mod passphrase;
mod pbes2;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use artifact::ArtifactKey;
pub use cosign::{cosign_cost, decrypt as decrypt_cosign};
pub use log::LogKey;
pub use passphrase::{AskPassphrase, Passphrase, PassphraseError, no_passphrase};
pub use pbes2::{decrypt as decrypt_pbes2, pbes2_cost};

/// A key file cannot be made, written or read.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// There is something under this name already.
    #[error("{}: expected no file of this name, found one; a key is never overwritten: choose another name", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file system said no.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The file holds another kind of key.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// Which key is needed, and why.
        expected: &'static str,
        /// What it holds, and what to do.
        found: String,
    },
    /// The file is encrypted and there is no passphrase.
    #[error("{}: the key is encrypted: {source}", path.display())]
    Passphrase {
        /// The file.
        path: PathBuf,
        /// Why there is none.
        source: PassphraseError,
    },
    /// The file is encrypted and cannot be decrypted.
    #[error("{}: {source}", path.display())]
    Encrypted {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: DecryptError,
    },
    /// The operating system gave no random bytes.
    #[error("cannot get random bytes for a new key: {reason}")]
    Entropy {
        /// What it said.
        reason: String,
    },
}

/// An encrypted key cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecryptError {
    /// Not the form of an encrypted key.
    #[error("expected {expected}, found {found}")]
    Malformed {
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A method that is not read.
    #[error(
        "expected a key encrypted with {expected}, found {found}; encrypt it anew: `openssl pkcs8 -topk8 -v2 aes-256-cbc -v2prf hmacWithSHA256`"
    )]
    Method {
        /// What is read.
        expected: &'static str,
        /// What the file says.
        found: String,
    },
    /// Deriving the key would take more work or memory than any honest file asks for.
    #[error("expected key derivation by {expected}, found {found}: the file asks for too much work, or too little")]
    Cost {
        /// The bounds.
        expected: &'static str,
        /// What the file asks for.
        found: String,
    },
    /// The passphrase is another one, or the file was changed.
    #[error("the passphrase does not decrypt this key: it is another one, or the file was changed")]
    WrongPassphrase,
}

pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], KeyFileError> {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(|error| KeyFileError::Entropy { reason: error.to_string() })?;
    Ok(bytes)
}

fn encoding_failed(path: &Path, error: &dyn fmt::Display) -> KeyFileError {
    KeyFileError::Io { path: path.to_owned(), doing: "encode the key", source: io::Error::other(error.to_string()) }
}
