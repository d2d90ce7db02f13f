//! What signs artifacts: a key in a file, in a PKCS#11 token, or behind a program of the user's.
//!
//! Each gives its public key when it is opened, so that a key of another kind is refused before
//! anything is signed; and each signature is verified before it is used.

mod program;
mod source;
#[cfg(feature = "pkcs11")]
mod token;
mod token_uri;

use symseal_seal::ArtifactPublicKey;

use crate::keys::ArtifactKey;
pub use program::{PROGRAM_LIMIT, ProgramSigner};
pub use source::{KeySource, KeySourceError, OpenSignerError};
#[cfg(feature = "pkcs11")]
pub use token::TokenSigner;
pub use token_uri::{TOKEN_URI_LIMIT, TokenUri, TokenUriError};

/// Signs with one ECDSA P-256 key.
pub trait Signer {
    /// The public key.
    fn public(&self) -> &ArtifactPublicKey;

    /// What the signer is called in errors; holds no secret.
    fn name(&self) -> String;

    /// The ASN.1 DER signature over SHA-256(`message`). A caller uses [`sign_verified`].
    ///
    /// # Errors
    /// [`SignError`] with what the signer said.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError>;
}

/// A signer cannot be used, or gave no usable signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// It cannot be reached, or said no.
    #[error("{signer}: {reason}")]
    Failed {
        /// The signer.
        signer: String,
        /// What went wrong, and what to do.
        reason: String,
    },
    /// Its key is of another kind.
    #[error("{signer}: expected an ECDSA P-256 key, found {found}")]
    Kind {
        /// The signer.
        signer: String,
        /// What it has, and why that is not enough.
        found: String,
    },
    /// What it gave is not its key's signature over the message.
    #[error("{signer}: expected a signature that its public key {key} verifies, found another; nothing was sealed")]
    Wrong {
        /// The signer.
        signer: String,
        /// The key's id.
        key: String,
    },
}

/// Signs, and verifies the signature.
///
/// # Errors
/// [`SignError`].
pub fn sign_verified(signer: &dyn Signer, message: &[u8]) -> Result<Vec<u8>, SignError> {
    let signature = Signer::sign(signer, message)?;
    if signer.public().verifies(message, &signature) {
        return Ok(signature);
    }
    Err(SignError::Wrong { signer: signer.name(), key: signer.public().key_id().to_string() })
}

impl Signer for ArtifactKey {
    fn public(&self) -> &ArtifactPublicKey {
        Self::public(self)
    }

    fn name(&self) -> String {
        format!("artifact key {}", self.key_id())
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        Ok(Self::sign(self, message))
    }
}

/// Reads the public key that a signer gave, naming it where it is of another kind.
fn public_key(signer: &str, spki: &[u8]) -> Result<ArtifactPublicKey, SignError> {
    use crate::keys::content;
    ArtifactPublicKey::from_spki(spki).map_err(|_| SignError::Kind {
        signer: signer.to_owned(),
        found: format!("{}; {}", content::of_spki(spki), content::WHY_P256),
    })
}

/// What is repeated of another program's words: the first lines, without control characters.
fn quoted(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(4).collect();
    lines.join("; ").chars().filter(|c| !c.is_control()).take(400).collect()
}
