//! The public keys of logs, and what their ids are.

use std::fmt;

use ed25519_dalek::Verifier as _;

use super::{ArtifactPublicKey, KeyError};
use crate::encoding::{Hash, hash_from_base64, sha256, to_base64};
use crate::origin::Origin;

/// The id of a log, untruncated. Its first four bytes are the key hint in the signature lines of the
/// log's checkpoints.
///
/// * Ed25519: the C2SP key hash `SHA-256(name ‖ 0x0A ‖ 0x01 ‖ public key)`;
/// * ECDSA: `SHA-256(SPKI DER)`, without a name, as Rekor v1 and v2 have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub Hash);

impl LogId {
    /// The id of the Ed25519 key `public` that signs under the name `name` (C2SP signed-note).
    #[must_use]
    pub fn of(name: &str, public: &[u8; 32]) -> Self {
        let mut hashed = Vec::with_capacity(name.len() + 34);
        hashed.extend_from_slice(name.as_bytes());
        hashed.extend_from_slice(&[0x0A, 0x01]);
        hashed.extend_from_slice(public);
        Self(sha256(&hashed))
    }

    /// Reads the base64 form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        hash_from_base64(text).map(Self)
    }

    /// The key hint in a signature line.
    #[must_use]
    pub fn hint(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_base64(&self.0))
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogId({self})")
    }
}

/// DER of an Ed25519 SubjectPublicKeyInfo up to the 32 key bytes (RFC 8410, section 4).
const ED25519_SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The public key of a log: what verifies its checkpoints.
#[derive(Clone, PartialEq, Eq)]
pub enum LogPublicKey {
    /// Signs the text itself. Embedded logs have it, and most of Rekor v2.
    Ed25519(ed25519_dalek::VerifyingKey),
    /// Signs SHA-256 of the text. Rekor v1 has it, and Rekor v2 may.
    Ecdsa(ArtifactPublicKey),
}

/// An Ed25519 key that is neither off the curve nor of small order.
pub(crate) fn ed25519_key(public: &[u8; 32]) -> Option<ed25519_dalek::VerifyingKey> {
    ed25519_dalek::VerifyingKey::from_bytes(public).ok().filter(|key| !key.is_weak())
}

/// Whether `signature` (64 bytes) holds by the strict rules: no points of small order.
pub(crate) fn ed25519_verifies(key: &ed25519_dalek::VerifyingKey, message: &[u8], signature: &[u8]) -> bool {
    let Ok(signature) = ed25519_dalek::Signature::from_slice(signature) else { return false };
    key.verify(message, &signature).is_ok() && key.verify_strict(message, &signature).is_ok()
}

impl LogPublicKey {
    /// Takes the 32 bytes of an Ed25519 key.
    ///
    /// # Errors
    /// [`KeyError::NotALogKey`] if they are no point of the curve, or one of small order.
    pub fn from_ed25519(public: &[u8; 32]) -> Result<Self, KeyError> {
        ed25519_key(public).map(Self::Ed25519).ok_or(KeyError::NotALogKey { found: public.len() })
    }

    /// Reads SPKI DER.
    ///
    /// # Errors
    /// [`KeyError::NotALogKey`] for any other key or encoding.
    pub fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let refused = || KeyError::NotALogKey { found: spki.len() };
        match spki.strip_prefix(&ED25519_SPKI_PREFIX) {
            Some(public) => Self::from_ed25519(public.try_into().map_err(|_| refused())?).map_err(|_| refused()),
            None => ArtifactPublicKey::from_spki(spki).map(Self::Ecdsa).map_err(|_| refused()),
        }
    }

    /// Reads a PEM `PUBLIC KEY` block, as `GET /api/v1/log/publicKey` of Rekor v1 gives it.
    ///
    /// # Errors
    /// [`KeyError::NotPem`] or [`KeyError::NotALogKey`].
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        Self::from_spki(&super::spki_of_pem(pem)?)
    }

    /// The key as SPKI DER.
    #[must_use]
    pub fn spki(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(key) => {
                let mut spki = ED25519_SPKI_PREFIX.to_vec();
                spki.extend_from_slice(key.as_bytes());
                spki
            }
            Self::Ecdsa(key) => key.spki().to_vec(),
        }
    }

    /// The PEM form of [`Self::spki`].
    #[must_use]
    pub fn to_pem(&self) -> String {
        super::pem_of_spki(&self.spki())
    }

    /// The name of the key's kind in Sigstore's documents (`PublicKeyDetails`).
    #[must_use]
    pub fn details(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "PKIX_ED25519",
            Self::Ecdsa(_) => "PKIX_ECDSA_P256_SHA_256",
        }
    }

    /// The id of the log that signs with this key under the name of `origin`.
    #[must_use]
    pub fn log_id(&self, origin: &Origin) -> LogId {
        match self {
            Self::Ed25519(key) => LogId::of(origin.name(), key.as_bytes()),
            Self::Ecdsa(key) => LogId(key.key_id().0),
        }
    }

    /// Whether `signature` is this key's over `message`: 64 bytes by the strict rules of Ed25519, or an
    /// ASN.1 DER ECDSA signature over SHA-256 of the message.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Ed25519(key) => ed25519_verifies(key, message, signature),
            Self::Ecdsa(key) => key.verifies(message, signature),
        }
    }
}

impl fmt::Debug for LogPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ed25519(key) => write!(f, "LogPublicKey(Ed25519 {})", to_base64(key.as_bytes())),
            Self::Ecdsa(key) => write!(f, "LogPublicKey(ECDSA {})", key.key_id()),
        }
    }
}
