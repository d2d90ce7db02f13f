//! Passphrases: bytes that do not stay in memory, and where they come from.

use std::fmt;

use zeroize::Zeroizing;

/// A passphrase. Never printed, overwritten when dropped.
#[derive(Clone)]
pub struct Passphrase(Zeroizing<Vec<u8>>);

/// There is no passphrase to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct PassphraseError {
    /// Why, and what to do.
    pub reason: String,
}

/// Gives the passphrase of the thing that is named. Asked when an encrypted key is met, and not before.
pub type AskPassphrase<'a> = dyn Fn(&str) -> Result<Passphrase, PassphraseError> + 'a;

impl Passphrase {
    /// Takes the bytes as they are.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it has no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(…)")
    }
}

/// For callers that have none.
///
/// # Errors
/// Always.
pub fn no_passphrase(_name: &str) -> Result<Passphrase, PassphraseError> {
    Err(PassphraseError { reason: "no passphrase was given".into() })
}
