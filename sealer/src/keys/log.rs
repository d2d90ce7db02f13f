//! The key of a log: Ed25519.

use std::fmt;
use std::path::Path;

use ed25519_dalek::Signer as _;
use symseal_seal::{LogIdentity, LogPublicKey, Origin};

use super::{AskPassphrase, KeyFileError, Passphrase, content, encoding_failed, file, no_passphrase, random_bytes};

const KIND: &str = "an Ed25519 private key in PKCS#8 PEM, plain or encrypted";

/// The private key of a log: Ed25519.
#[derive(Clone)]
pub struct LogKey {
    key: ed25519_dalek::SigningKey,
}

impl fmt::Debug for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogKey({})", symseal_seal::encoding::to_base64(self.key.verifying_key().as_bytes()))
    }
}

impl LogKey {
    /// Makes a new key in memory.
    ///
    /// # Errors
    /// [`KeyFileError::Entropy`].
    pub fn generate() -> Result<Self, KeyFileError> {
        Ok(Self { key: ed25519_dalek::SigningKey::from_bytes(&random_bytes::<32>()?) })
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
        use ed25519_dalek::pkcs8::EncodePrivateKey as _;
        // Version 1 of PKCS#8, without the public key: OpenSSL before 3.5 does not read the other.
        let bytes = ed25519_dalek::pkcs8::KeypairBytes { secret_key: self.key.to_bytes(), public_key: None };
        let pkcs8 = bytes.to_pkcs8_der().map_err(|error| encoding_failed(path, &error))?;
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
        use ed25519_dalek::pkcs8::DecodePrivateKey as _;
        let pkcs8 = file::read_pkcs8(path, KIND, ask)?;
        let key = ed25519_dalek::SigningKey::from_pkcs8_der(pkcs8.as_bytes()).map_err(|_| KeyFileError::Kind {
            path: path.to_owned(),
            expected: KIND,
            found: format!(
                "{}; log keys are Ed25519, so that witnesses can cosign",
                content::of_pkcs8(pkcs8.as_bytes())
            ),
        })?;
        Ok(Self { key })
    }

    /// The 64-byte signature over `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.key.sign(message).to_bytes().to_vec()
    }

    /// Its public half: SPKI in PEM.
    #[must_use]
    pub fn public_pem(&self) -> String {
        LogPublicKey::Ed25519(self.key.verifying_key()).to_pem()
    }

    /// The identity of the log that signs with this key under `origin`; `None` only for a key of small
    /// order, which no generated key is.
    #[must_use]
    pub fn identity(&self, origin: &Origin) -> Option<LogIdentity> {
        let key = LogPublicKey::from_ed25519(self.key.verifying_key().as_bytes()).ok()?;
        Some(LogIdentity { origin: origin.clone(), key })
    }
}
