//! What `--key` says: a file, a PKCS#11 URI, or a program.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{ProgramSigner, SignError, Signer, TokenUri, TokenUriError};
use crate::keys::{ArtifactKey, AskPassphrase, KeyFileError};

/// Where the key that signs is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file.
    File(PathBuf),
    /// In a token: `pkcs11:…` (RFC 7512).
    Token(TokenUri),
    /// Behind a program: `exec:PROGRAM`.
    Program(PathBuf),
}

/// The text names no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySourceError {
    /// No readable PKCS#11 URI.
    #[error(transparent)]
    Token(#[from] TokenUriError),
    /// `exec:` with nothing behind it.
    #[error("expected exec:PROGRAM, found no program")]
    NoProgram,
}

/// A signer cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenSignerError {
    /// The key file cannot be used.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The token or program cannot be used.
    #[error(transparent)]
    Signer(#[from] SignError),
    /// This program was built without the feature.
    #[error("{uri}: this build of symseal reads no PKCS#11 tokens; build it with the feature pkcs11")]
    NoTokens {
        /// What was asked for.
        uri: String,
    },
}

impl FromStr for KeySource {
    type Err = KeySourceError;

    fn from_str(text: &str) -> Result<Self, KeySourceError> {
        if text.starts_with("pkcs11:") {
            return Ok(Self::Token(text.parse()?));
        }
        match text.strip_prefix("exec:") {
            Some("") => Err(KeySourceError::NoProgram),
            Some(program) => Ok(Self::Program(program.into())),
            None => Ok(Self::File(text.into())),
        }
    }
}

impl From<PathBuf> for KeySource {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Token(uri) => write!(f, "{uri}"),
            Self::Program(program) => write!(f, "exec:{}", program.display()),
        }
    }
}

impl KeySource {
    /// Opens the signer and reads its public key. `ask` gives the passphrase of an encrypted file or the
    /// PIN of a token, where one is needed.
    ///
    /// # Errors
    /// [`OpenSignerError`]; a key of another kind is refused here, before anything is signed.
    pub fn open(&self, ask: &AskPassphrase<'_>) -> Result<Box<dyn Signer>, OpenSignerError> {
        match self {
            Self::File(path) => Ok(Box::new(ArtifactKey::load(path, ask)?)),
            Self::Program(program) => Ok(Box::new(ProgramSigner::open(program)?)),
            #[cfg(feature = "pkcs11")]
            Self::Token(uri) => Ok(Box::new(super::TokenSigner::open(uri, ask)?)),
            #[cfg(not(feature = "pkcs11"))]
            Self::Token(uri) => Err(OpenSignerError::NoTokens { uri: uri.to_string() }),
        }
    }

    /// The file, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&std::path::Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Token(_) | Self::Program(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_file_unless_it_says_otherwise() {
        let parse = |text: &str| text.parse::<KeySource>();
        assert_eq!(parse("keys/a.pem"), Ok(KeySource::File("keys/a.pem".into())));
        assert_eq!(parse("exec:./kms"), Ok(KeySource::Program("./kms".into())));
        assert_eq!(parse("exec:"), Err(KeySourceError::NoProgram));
        assert!(matches!(parse("pkcs11:token=a;object=b?module-path=/m.so"), Ok(KeySource::Token(_))));
        assert!(matches!(parse("pkcs11:toke=a"), Err(KeySourceError::Token(_))));
    }
}
