//! Public keys: ECDSA P-256 for artifacts and roots, Ed25519 or ECDSA P-256 for logs; and what their
//! ids are.

mod artifact;
mod log;

use std::fmt;

use crate::encoding::{Hash, hash_from_base64, sha256, to_base64};
pub use artifact::ArtifactPublicKey;
pub use log::{LogId, LogPublicKey};
pub(crate) use log::{ed25519_key, ed25519_verifies};

/// A public key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No ECDSA P-256 key in the one accepted encoding.
    #[error(
        "expected the SPKI DER of an ECDSA P-256 key (uncompressed point, 91 bytes), found {found} bytes of another kind; artifact and root keys are P-256, as a Rekor v2 hashedrekord entry holds only a digest"
    )]
    NotP256 {
        /// How many bytes were given.
        found: usize,
    },
    /// No key that a log signs with, in the one accepted encoding.
    #[error(
        "expected the SPKI DER of an Ed25519 key (44 bytes) or of an ECDSA P-256 key (uncompressed point, 91 bytes), found {found} bytes of another kind; those are the keys of logs"
    )]
    NotALogKey {
        /// How many bytes were given.
        found: usize,
    },
    /// The text is no PEM public key.
    #[error("expected a PEM block \"PUBLIC KEY\": {reason}")]
    NotPem {
        /// What the PEM reader said.
        reason: String,
    },
}

/// The id of an artifact or root key: SHA-256 of its SPKI DER, base64 wherever it is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub Hash);

impl KeyId {
    /// Reads the base64 form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        hash_from_base64(text).map(Self)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_base64(&self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// The id of a public key given as SPKI DER.
#[must_use]
pub fn key_id(spki: &[u8]) -> KeyId {
    KeyId(sha256(spki))
}

/// A PEM `PUBLIC KEY` block of the DER.
fn pem_of_spki(spki: &[u8]) -> String {
    let mut pem = String::from("-----BEGIN PUBLIC KEY-----\n");
    for (n, character) in to_base64(spki).chars().enumerate() {
        if n > 0 && n % 64 == 0 {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem.push_str("\n-----END PUBLIC KEY-----\n");
    pem
}

/// The DER of a PEM `PUBLIC KEY` block.
fn spki_of_pem(pem: &str) -> Result<Vec<u8>, KeyError> {
    let (label, document) =
        p256::pkcs8::Document::from_pem(pem).map_err(|error| KeyError::NotPem { reason: error.to_string() })?;
    if label != "PUBLIC KEY" {
        return Err(KeyError::NotPem { reason: format!("found a block {label:?}") });
    }
    Ok(document.as_bytes().to_vec())
}
