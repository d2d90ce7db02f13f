//! ECDSA P-256 public keys: those of artifacts and roots, and of logs that sign so.

use std::fmt;

use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use p256::pkcs8::{DecodePublicKey as _, EncodePublicKey as _};

use super::{KeyError, KeyId, key_id};
use crate::encoding::Hash;

/// An ECDSA P-256 public key: what verifies artifact and root signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct ArtifactPublicKey {
    key: p256::ecdsa::VerifyingKey,
    spki: Vec<u8>,
}

impl ArtifactPublicKey {
    /// The name of the algorithm in policies.
    pub const ALGORITHM: &'static str = "ecdsa-p256-sha256";

    /// Reads SPKI DER. Only the uncompressed point is accepted, so that one key has one id.
    ///
    /// # Errors
    /// [`KeyError::NotP256`] for any other key or encoding.
    pub fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let refused = || KeyError::NotP256 { found: spki.len() };
        let key = p256::ecdsa::VerifyingKey::from_public_key_der(spki).map_err(|_| refused())?;
        let canonical = key.to_public_key_der().map_err(|_| refused())?;
        if canonical.as_bytes() != spki {
            return Err(refused());
        }
        Ok(Self { key, spki: spki.to_vec() })
    }

    /// Reads a PEM `PUBLIC KEY` block, the form that cosign's `--key` takes.
    ///
    /// # Errors
    /// [`KeyError::NotPem`] or [`KeyError::NotP256`].
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        Self::from_spki(&super::spki_of_pem(pem)?)
    }

    /// The PEM form of [`Self::spki`].
    #[must_use]
    pub fn to_pem(&self) -> String {
        super::pem_of_spki(&self.spki)
    }

    /// The key as SPKI DER.
    #[must_use]
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// base64(SHA-256(SPKI)).
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        key_id(&self.spki)
    }

    /// Whether `signature` (ASN.1 DER) is this key's ECDSA signature over SHA-256(`message`).
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        p256::ecdsa::Signature::from_der(signature).is_ok_and(|signature| self.key.verify(message, &signature).is_ok())
    }

    /// [`Self::verifies`] for a message of which only the SHA-256 is known.
    #[must_use]
    pub fn verifies_digest(&self, digest: &Hash, signature: &[u8]) -> bool {
        p256::ecdsa::Signature::from_der(signature)
            .is_ok_and(|signature| self.key.verify_prehash(digest, &signature).is_ok())
    }
}

impl fmt::Debug for ArtifactPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArtifactPublicKey({})", self.key_id())
    }
}
