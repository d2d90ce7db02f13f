//! Public keys: ECDSA P-256 for artifacts and roots, Ed25519 for logs; and what their ids are.

use std::fmt;

use ed25519_dalek::Verifier as _;
use p256::pkcs8::{DecodePublicKey as _, EncodePublicKey as _};

use crate::encoding::{Hash, hash_from_base64, sha256, to_base64};

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
    /// No Ed25519 key in the one accepted encoding.
    #[error(
        "expected the SPKI DER of an Ed25519 key (44 bytes), found {found} bytes of another kind; log keys are Ed25519"
    )]
    NotEd25519 {
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
        let (label, document) =
            p256::pkcs8::Document::from_pem(pem).map_err(|error| KeyError::NotPem { reason: error.to_string() })?;
        if label != "PUBLIC KEY" {
            return Err(KeyError::NotPem { reason: format!("found a block {label:?}") });
        }
        Self::from_spki(document.as_bytes())
    }

    /// The PEM form of [`Self::spki`].
    #[must_use]
    pub fn to_pem(&self) -> String {
        let body = to_base64(&self.spki);
        let mut pem = String::from("-----BEGIN PUBLIC KEY-----\n");
        for (n, character) in body.chars().enumerate() {
            if n > 0 && n % 64 == 0 {
                pem.push('\n');
            }
            pem.push(character);
        }
        pem.push_str("\n-----END PUBLIC KEY-----\n");
        pem
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
}

impl fmt::Debug for ArtifactPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArtifactPublicKey({})", self.key_id())
    }
}

/// The id of a log: the untruncated C2SP key hash, `SHA-256(origin ‖ 0x0A ‖ 0x01 ‖ public key)`.
/// The first four bytes are the key hint in its checkpoints' signature lines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub Hash);

impl LogId {
    /// The id of the Ed25519 key `public` that signs under the name `origin` (C2SP signed-note).
    #[must_use]
    pub fn of(origin: &str, public: &[u8; 32]) -> Self {
        let mut hashed = Vec::with_capacity(origin.len() + 34);
        hashed.extend_from_slice(origin.as_bytes());
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

/// An Ed25519 public key: what verifies checkpoints.
#[derive(Clone, PartialEq, Eq)]
pub struct LogPublicKey {
    key: ed25519_dalek::VerifyingKey,
}

impl LogPublicKey {
    /// Takes the 32 bytes of the key.
    ///
    /// # Errors
    /// [`KeyError::NotEd25519`] if they are no point of the curve, or one of small order.
    pub fn from_bytes(public: &[u8; 32]) -> Result<Self, KeyError> {
        let refused = || KeyError::NotEd25519 { found: public.len() };
        let key = ed25519_dalek::VerifyingKey::from_bytes(public).map_err(|_| refused())?;
        if key.is_weak() {
            return Err(refused());
        }
        Ok(Self { key })
    }

    /// Reads SPKI DER.
    ///
    /// # Errors
    /// [`KeyError::NotEd25519`] for any other key or encoding.
    pub fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let refused = || KeyError::NotEd25519 { found: spki.len() };
        let public = spki.strip_prefix(&ED25519_SPKI_PREFIX).ok_or_else(refused)?;
        Self::from_bytes(public.try_into().map_err(|_| refused())?)
    }

    /// The key as SPKI DER.
    #[must_use]
    pub fn spki(&self) -> Vec<u8> {
        let mut spki = ED25519_SPKI_PREFIX.to_vec();
        spki.extend_from_slice(self.key.as_bytes());
        spki
    }

    /// The id of the log that signs with this key under `origin`.
    #[must_use]
    pub fn log_id(&self, origin: &str) -> LogId {
        LogId::of(origin, self.key.as_bytes())
    }

    /// Whether `signature` (64 bytes) is this key's signature over `message`, by the strict rules
    /// (no small-order points).
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(signature) = ed25519_dalek::Signature::from_slice(signature) else { return false };
        self.key.verify(message, &signature).is_ok() && self.key.verify_strict(message, &signature).is_ok()
    }
}

impl fmt::Debug for LogPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogPublicKey({})", to_base64(self.key.as_bytes()))
    }
}
