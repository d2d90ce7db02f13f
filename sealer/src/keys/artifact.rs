//! The key that signs artifacts, and roots: ECDSA P-256.

use std::fmt;
use std::path::Path;

use p256::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, EncodePublicKey as _};
use symseal_seal::{ArtifactPublicKey, KeyId};

use super::{AskPassphrase, KeyFileError, Passphrase, content, encoding_failed, file, no_passphrase, random_bytes};

const KIND: &str = "an ECDSA P-256 private key in PKCS#8 PEM, plain, encrypted, or as cosign writes it";

/// The private key that signs artifacts, or a root: ECDSA P-256.
pub struct ArtifactKey {
    key: p256::ecdsa::SigningKey,
    public: ArtifactPublicKey,
}

impl fmt::Debug for ArtifactKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArtifactKey({})", self.key_id())
    }
}

impl ArtifactKey {
    /// Makes a new key in memory.
    ///
    /// # Errors
    /// [`KeyFileError::Entropy`].
    pub fn generate() -> Result<Self, KeyFileError> {
        // A random scalar is out of range once in 2^32 attempts.
        for _ in 0..8 {
            let secret = random_bytes::<32>()?;
            if let Ok(key) = p256::ecdsa::SigningKey::from_slice(&secret) {
                return Self::new(key).ok_or_else(|| KeyFileError::Entropy { reason: "no usable key".into() });
            }
        }
        Err(KeyFileError::Entropy { reason: "no usable scalar in 8 attempts".into() })
    }

    /// Makes a new key and writes it to `path` (PKCS#8 PEM, mode 0600).
    ///
    /// # Errors
    /// [`KeyFileError`]; nothing is left under the name.
    pub fn generate_file(path: &Path) -> Result<Self, KeyFileError> {
        let key = Self::generate()?;
        key.write(path)?;
        Ok(key)
    }

    /// The key itself, for another crate's idea of a signer.
    #[cfg(feature = "keyless")]
    pub(crate) fn into_signing_key(self) -> p256::ecdsa::SigningKey {
        self.key
    }

    fn new(key: p256::ecdsa::SigningKey) -> Option<Self> {
        let spki = key.verifying_key().to_public_key_der().ok()?;
        let public = ArtifactPublicKey::from_spki(spki.as_bytes()).ok()?;
        Some(Self { key, public })
    }

    /// Writes the key to a new file, in the clear.
    ///
    /// # Errors
    /// [`KeyFileError::Exists`] or [`KeyFileError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        self.write_as(path, None)
    }

    /// Writes the key to a new file, encrypted where there is a passphrase.
    ///
    /// # Errors
    /// [`KeyFileError::Exists`] or [`KeyFileError::Io`].
    pub fn write_as(&self, path: &Path, passphrase: Option<&Passphrase>) -> Result<(), KeyFileError> {
        let pkcs8 = self.key.to_pkcs8_der().map_err(|error| encoding_failed(path, &error))?;
        file::write_pkcs8(path, pkcs8.as_bytes(), passphrase)
    }

    /// Reads a key file that is not encrypted.
    ///
    /// # Errors
    /// [`KeyFileError::Io`], or [`KeyFileError::Kind`] with what the file holds instead.
    pub fn load_pem(path: &Path) -> Result<Self, KeyFileError> {
        Self::load(path, &no_passphrase)
    }

    /// Reads a key file; `ask` is asked if it is encrypted.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn load(path: &Path, ask: &AskPassphrase<'_>) -> Result<Self, KeyFileError> {
        let pkcs8 = file::read_pkcs8(path, KIND, ask)?;
        let key = p256::ecdsa::SigningKey::from_pkcs8_der(pkcs8.as_bytes()).ok().and_then(Self::new);
        key.ok_or_else(|| {
            let found = format!("{}; {}", content::of_pkcs8(pkcs8.as_bytes()), content::WHY_P256);
            KeyFileError::Kind { path: path.to_owned(), expected: KIND, found }
        })
    }

    /// The ASN.1 DER signature over SHA-256(`message`), deterministic (RFC 6979).
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        use p256::ecdsa::signature::Signer as _;
        let signature: p256::ecdsa::Signature = self.key.sign(message);
        signature.to_der().as_bytes().to_vec()
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> &ArtifactPublicKey {
        &self.public
    }

    /// The public key as SPKI DER.
    #[must_use]
    pub fn spki(&self) -> &[u8] {
        self.public.spki()
    }

    /// base64(SHA-256(SPKI)).
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        self.public.key_id()
    }
}
