//! Key files: PKCS#8 PEM, mode 0600, never overwritten.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ed25519_dalek::Signer as _;
use ed25519_dalek::pkcs8::EncodePrivateKey as _;
use p256::pkcs8::{DecodePrivateKey as _, EncodePublicKey as _, LineEnding};
use symseal_seal::{ArtifactPublicKey, KeyId, LogIdentity, LogPublicKey, Origin};

use crate::durable::{directory_of, sync_directory};

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
    /// The operating system gave no random bytes.
    #[error("cannot get random bytes for a new key: {reason}")]
    Entropy {
        /// What it said.
        reason: String,
    },
}

const ARTIFACT_KIND: &str = "an unencrypted ECDSA P-256 private key in PKCS#8 PEM (\"PRIVATE KEY\")";
const LOG_KIND: &str = "an unencrypted Ed25519 private key in PKCS#8 PEM (\"PRIVATE KEY\")";
/// More than any key file; bounds what is read of a wrong file.
const KEY_FILE_LIMIT: u64 = 64 * 1024;

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

    fn new(key: p256::ecdsa::SigningKey) -> Option<Self> {
        let spki = key.verifying_key().to_public_key_der().ok()?;
        let public = ArtifactPublicKey::from_spki(spki.as_bytes()).ok()?;
        Some(Self { key, public })
    }

    /// Writes the key to a new file.
    ///
    /// # Errors
    /// [`KeyFileError::Exists`] or [`KeyFileError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        use p256::pkcs8::EncodePrivateKey as _;
        let pem = self.key.to_pkcs8_pem(LineEnding::LF).map_err(|error| encoding_failed(path, &error))?;
        write_private(path, pem.as_bytes())
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// [`KeyFileError::Io`], or [`KeyFileError::Kind`] with what the file holds instead.
    pub fn load_pem(path: &Path) -> Result<Self, KeyFileError> {
        let pem = read_pem(path, ARTIFACT_KIND)?;
        p256::ecdsa::SigningKey::from_pkcs8_pem(&pem).ok().and_then(Self::new).ok_or_else(|| KeyFileError::Kind {
            path: path.to_owned(),
            expected: ARTIFACT_KIND,
            found: artifact_refusal(&pem),
        })
    }

    /// The ASN.1 DER signature over SHA-256(`message`), deterministic (RFC 6979).
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
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

    /// Writes the key to a new file.
    ///
    /// # Errors
    /// [`KeyFileError::Exists`] or [`KeyFileError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        // Version 1 of PKCS#8, without the public key: OpenSSL before 3.5 does not read the other.
        let bytes = ed25519_dalek::pkcs8::KeypairBytes { secret_key: self.key.to_bytes(), public_key: None };
        let pem = bytes
            .to_pkcs8_pem(ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF)
            .map_err(|error| encoding_failed(path, &error))?;
        write_private(path, pem.as_bytes())
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// [`KeyFileError::Io`], or [`KeyFileError::Kind`] with what the file holds instead.
    pub fn load_pem(path: &Path) -> Result<Self, KeyFileError> {
        use ed25519_dalek::pkcs8::DecodePrivateKey as _;
        let pem = read_pem(path, LOG_KIND)?;
        let key = ed25519_dalek::SigningKey::from_pkcs8_pem(&pem).map_err(|_| KeyFileError::Kind {
            path: path.to_owned(),
            expected: LOG_KIND,
            found: format!("{}; log keys are Ed25519, so that witnesses can cosign", content_of(&pem)),
        })?;
        Ok(Self { key })
    }

    /// The 64-byte signature over `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.key.sign(message).to_bytes().to_vec()
    }

    /// The identity of the log that signs with this key under `origin`; `None` only for a key of small
    /// order, which no generated key is.
    #[must_use]
    pub fn identity(&self, origin: &Origin) -> Option<LogIdentity> {
        let key = LogPublicKey::from_ed25519(self.key.verifying_key().as_bytes()).ok()?;
        Some(LogIdentity { origin: origin.clone(), key })
    }
}

pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], KeyFileError> {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(|error| KeyFileError::Entropy { reason: error.to_string() })?;
    Ok(bytes)
}

fn encoding_failed(path: &Path, error: &dyn fmt::Display) -> KeyFileError {
    KeyFileError::Io { path: path.to_owned(), doing: "encode the key", source: io::Error::other(error.to_string()) }
}

/// Writes a private file that does not exist yet; readable by its owner alone from its first byte on.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    let io = |doing| move |source| KeyFileError::Io { path: path.to_owned(), doing, source };
    let directory = directory_of(path);
    if path.symlink_metadata().is_ok() {
        return Err(KeyFileError::Exists { path: path.to_owned() });
    }
    // `tempfile` makes files of mode 0600, whatever the umask.
    let mut file =
        tempfile::Builder::new().prefix(".key-").tempfile_in(directory).map_err(io("create a file beside it"))?;
    file.write_all(bytes).map_err(io("write it"))?;
    file.as_file().sync_all().map_err(io("write it"))?;
    file.persist_noclobber(path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.to_owned() },
        _ => KeyFileError::Io { path: path.to_owned(), doing: "put it in place", source: error.error },
    })?;
    sync_directory(directory).map_err(io("make it durable"))
}

fn read_pem(path: &Path, expected: &'static str) -> Result<String, KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), doing: "read it", source };
    let kind = |found: String| KeyFileError::Kind { path: path.to_owned(), expected, found };
    let metadata = fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(kind("no regular file".into()));
    }
    if metadata.len() > KEY_FILE_LIMIT {
        return Err(kind(format!("{} bytes", metadata.len())));
    }
    String::from_utf8(fs::read(path).map_err(io)?).map_err(|_| kind("bytes that are no text".into()))
}

/// What a PEM text holds, for a person to read.
fn content_of(pem: &str) -> String {
    let label = pem
        .lines()
        .find_map(|line| line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")))
        .unwrap_or_default();
    match label {
        "" => "no PEM block".into(),
        "PRIVATE KEY" => format!("{} key", algorithm_of(pem)),
        "ENCRYPTED PRIVATE KEY" => "an encrypted key; decrypt it with `openssl pkcs8`".into(),
        "EC PRIVATE KEY" => "a key in SEC 1 form; convert it with `openssl pkcs8 -topk8 -nocrypt`".into(),
        "PUBLIC KEY" => "a public key; the private one is needed to sign".into(),
        other => format!("a PEM block {other:?}"),
    }
}

fn artifact_refusal(pem: &str) -> String {
    let content = content_of(pem);
    if content.ends_with(" key") {
        // Rekor v2 logs a hashedrekord, which holds the digest of what was signed and nothing else.
        format!("{content}; a log entry holds only a SHA-256 digest, and logs and clients take P-256 keys for that")
    } else {
        content
    }
}

/// Names the algorithm of a PKCS#8 key by its object identifier.
fn algorithm_of(pem: &str) -> &'static str {
    const KNOWN: [(&[u8], &str); 7] = [
        (&[0x06, 0x03, 0x2b, 0x65, 0x70], "an Ed25519"),
        (&[0x06, 0x03, 0x2b, 0x65, 0x71], "an Ed448"),
        (&[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01], "an RSA"),
        (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22], "an ECDSA P-384"),
        (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23], "an ECDSA P-521"),
        (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a], "an ECDSA secp256k1"),
        (&[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], "an ECDSA P-256"),
    ];
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
    let der = symseal_seal::encoding::from_base64(&body).unwrap_or_default();
    // The identifier stands within the first bytes, before the key itself.
    let head = der.get(..der.len().min(48)).unwrap_or_default();
    let holds = |oid: &[u8]| head.windows(oid.len()).any(|window| window == oid);
    KNOWN.iter().find(|(oid, _)| holds(oid)).map_or("an unknown or damaged", |(_, name)| name)
}
