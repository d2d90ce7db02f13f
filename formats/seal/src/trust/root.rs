//! `root.json`: the root keys, signed by themselves, and every root before them.
//!
//! A root is replaced by one that enough keys of the old root *and* of the new one have signed. The file
//! carries the whole chain from version 1, so that whoever knows any earlier root can follow it.

use serde::{Deserialize, Serialize};

use super::{TrustError, TrustFile};
use crate::dsse::pae;
use crate::encoding::{Hash, from_base64, sha256, to_base64};
use crate::keys::ArtifactPublicKey;
use crate::seen::Version;
use crate::time::UtcSeconds;

/// `schema` of a root.
pub const ROOT_SCHEMA: &str = "symseal.root.v1";
/// The payload type over which root signatures are made.
pub const ROOT_PAYLOAD_TYPE: &str = "application/vnd.symseal.root.v1+json";
/// The most root keys that are read.
const MAX_ROOT_KEYS: usize = 16;
/// The most roots of one chain.
const MAX_ROOTS: usize = 256;

/// What a root says, and what its keys sign: the canonical JSON of this under [`ROOT_PAYLOAD_TYPE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootDocument {
    /// [`ROOT_SCHEMA`].
    pub schema: String,
    /// Rises with every rotation; from 1.
    pub version: u64,
    /// Last second of use; null: none.
    pub expires: Option<UtcSeconds>,
    /// How many root keys must sign this root, the next one, and policies.
    pub threshold: u64,
    /// The root keys.
    pub keys: Vec<KeyDocument>,
}

/// A public key in a root or policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyDocument {
    /// base64(SHA-256(SPKI)).
    pub key_id: String,
    /// [`ArtifactPublicKey::ALGORITHM`].
    pub algorithm: String,
    /// SPKI DER in base64.
    pub spki: String,
}

impl From<&ArtifactPublicKey> for KeyDocument {
    fn from(key: &ArtifactPublicKey) -> Self {
        Self {
            key_id: key.key_id().to_string(),
            algorithm: ArtifactPublicKey::ALGORITHM.into(),
            spki: to_base64(key.spki()),
        }
    }
}

impl KeyDocument {
    /// Reads the key, whose id must be the hash of its SPKI; `file` is where an error says that it stands.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn read(&self, file: TrustFile) -> Result<ArtifactPublicKey, TrustError> {
        if self.algorithm != ArtifactPublicKey::ALGORITHM {
            let expected = format!("keys of algorithm {}", ArtifactPublicKey::ALGORITHM);
            return Err(TrustError::new(file, expected, shortened(&self.algorithm)));
        }
        let spki = from_base64(&self.spki)
            .ok_or_else(|| TrustError::new(file, "the base64 of a key's SPKI", shortened(&self.spki)))?;
        let key = ArtifactPublicKey::from_spki(&spki)
            .map_err(|error| TrustError::refused_by(file, "an ECDSA P-256 key", &error))?;
        let computed = key.key_id().to_string();
        if computed != self.key_id {
            let expected = format!("key id {computed}, the hash of the key's SPKI");
            return Err(TrustError::new(file, expected, shortened(&self.key_id)));
        }
        Ok(key)
    }
}

/// What is printed of a text that came from outside.
pub(super) fn shortened(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

/// The file: the current root with its signatures, and the roots before it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootFile {
    root: RootDocument,
    signatures: Vec<RootSignature>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    previous: Vec<SignedRoot>,
}

/// A root and its signatures: by keys of its own, and of the root before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedRoot {
    /// What is signed.
    pub root: RootDocument,
    /// Each by another key.
    pub signatures: Vec<RootSignature>,
}

/// One signature over [`RootDocument::signed_bytes`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootSignature {
    /// The signing key's id.
    pub keyid: String,
    /// ASN.1 DER in base64.
    pub sig: String,
}

impl RootSignature {
    /// A signature (ASN.1 DER) by the key with this id.
    #[must_use]
    pub fn new(keyid: &str, signature: &[u8]) -> Self {
        Self { keyid: keyid.into(), sig: to_base64(signature) }
    }
}

/// A root whose signatures hold, back to version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Rises by one with every rotation.
    pub version: u64,
    /// Last second of use, if bounded.
    pub expires: Option<UtcSeconds>,
    /// How many of the keys must sign.
    pub threshold: u64,
    /// The root keys.
    pub keys: Vec<ArtifactPublicKey>,
    /// Every version from 1 to this one.
    pub history: Vec<Version>,
}

impl RootDocument {
    /// A root of one key.
    #[must_use]
    pub fn one_key(key: &ArtifactPublicKey, expires: Option<UtcSeconds>) -> Self {
        Self { schema: ROOT_SCHEMA.into(), version: 1, expires, threshold: 1, keys: vec![key.into()] }
    }

    /// The bytes that a root key signs: the DSSE PAE of the canonical JSON.
    #[must_use]
    pub fn signed_bytes(&self) -> Vec<u8> {
        pae(ROOT_PAYLOAD_TYPE, &crate::canonical_json(self))
    }

    /// The bytes of `root.json`, given the signature (ASN.1 DER) of the one key over
    /// [`Self::signed_bytes`].
    #[must_use]
    pub fn to_file(&self, key_id: &str, signature: &[u8]) -> Vec<u8> {
        let signatures = vec![RootSignature::new(key_id, signature)];
        write_chain(&[SignedRoot { root: self.clone(), signatures }])
    }

    /// SHA-256 of the canonical JSON: what identifies this version.
    #[must_use]
    pub fn sha256(&self) -> Hash {
        sha256(&crate::canonical_json(self))
    }
}

/// The bytes of `root.json` for a chain of roots, oldest first; empty for an empty chain.
#[must_use]
pub fn write_chain(chain: &[SignedRoot]) -> Vec<u8> {
    let Some((last, previous)) = chain.split_last() else { return Vec::new() };
    crate::canonical_json(&RootFile {
        root: last.root.clone(),
        signatures: last.signatures.clone(),
        previous: previous.to_vec(),
    })
}

fn refused(expected: impl Into<String>, found: impl Into<String>) -> TrustError {
    TrustError::new(TrustFile::Root, expected, found)
}

/// The roots of `root.json`, oldest first; their signatures are not looked at.
///
/// # Errors
/// [`TrustError`].
pub fn read_chain(bytes: &[u8]) -> Result<Vec<SignedRoot>, TrustError> {
    let file: RootFile = serde_json::from_slice(bytes)
        .map_err(|error| refused("the JSON of a root and its signatures", error.to_string()))?;
    if file.previous.len() >= MAX_ROOTS {
        return Err(refused(format!("at most {MAX_ROOTS} roots"), (file.previous.len() + 1).to_string()));
    }
    let mut chain = file.previous;
    chain.push(SignedRoot { root: file.root, signatures: file.signatures });
    Ok(chain)
}

/// A root of the chain, read; its signatures are checked against it and the one before.
struct Link {
    threshold: u64,
    keys: Vec<ArtifactPublicKey>,
}

impl Link {
    fn read(root: &RootDocument) -> Result<Self, TrustError> {
        if root.schema != ROOT_SCHEMA {
            return Err(refused("schema symseal.root.v1", shortened(&root.schema)));
        }
        if root.keys.len() > MAX_ROOT_KEYS {
            return Err(refused("at most 16 root keys", root.keys.len().to_string()));
        }
        let keys = root.keys.iter().map(|key| key.read(TrustFile::Root)).collect::<Result<Vec<_>, _>>()?;
        for (n, key) in keys.iter().enumerate() {
            if keys.iter().take(n).any(|other| other == key) {
                return Err(refused("each root key once", format!("{} twice", key.key_id())));
            }
        }
        // A threshold of none would make every root valid; one above the number of keys, no root.
        if root.threshold == 0 || root.threshold > keys.len() as u64 {
            let found = format!("threshold {} of {} keys", root.threshold, keys.len());
            return Err(refused("a threshold between 1 and the number of root keys", found));
        }
        Ok(Self { threshold: root.threshold, keys })
    }

    /// Whether enough of this root's keys are among the signers.
    fn signed_by(&self, signers: &[String], version: u64, whose: &str) -> Result<(), TrustError> {
        let own = self.keys.iter().filter(|key| signers.contains(&key.key_id().to_string())).count() as u64;
        if own >= self.threshold {
            return Ok(());
        }
        Err(refused(format!("root version {version} signed by {} of {whose} keys", self.threshold), own.to_string()))
    }
}

/// Checks every signature; gives the ids of the signers.
fn signers(signed: &SignedRoot, known: &[&ArtifactPublicKey]) -> Result<Vec<String>, TrustError> {
    let message = signed.root.signed_bytes();
    let mut signers = Vec::new();
    if signed.signatures.len() > 2 * MAX_ROOT_KEYS {
        return Err(refused("at most 32 signatures", signed.signatures.len().to_string()));
    }
    for signature in &signed.signatures {
        let key = known.iter().find(|key| key.key_id().to_string() == signature.keyid).ok_or_else(|| {
            let ids: Vec<String> = known.iter().map(|key| key.key_id().to_string()).collect();
            refused(format!("signatures by {}", ids.join(", ")), shortened(&signature.keyid))
        })?;
        if signers.contains(&signature.keyid) {
            return Err(refused("one signature of each root key", format!("two by {}", signature.keyid)));
        }
        if !from_base64(&signature.sig).is_some_and(|signature| key.verifies(&message, &signature)) {
            return Err(refused(format!("a signature that {} verifies", signature.keyid), "one that it does not"));
        }
        signers.push(signature.keyid.clone());
    }
    Ok(signers)
}

impl Root {
    /// Reads `root.json` and checks the whole chain: versions from 1 without a gap, each root signed by
    /// enough of its own keys and enough of the keys before.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, TrustError> {
        let chain = read_chain(bytes)?;
        let mut history = Vec::new();
        let mut before: Option<Link> = None;
        for (version, signed) in (1_u64..).zip(&chain) {
            if signed.root.version != version {
                let found = signed.root.version.to_string();
                return Err(refused(format!("root version {version}, as every one from 1 on"), found));
            }
            let link = Link::read(&signed.root)?;
            let known: Vec<&ArtifactPublicKey> =
                link.keys.iter().chain(before.iter().flat_map(|link| &link.keys)).collect();
            let signers = signers(signed, &known)?;
            link.signed_by(&signers, version, "its own")?;
            if let Some(before) = &before {
                before.signed_by(&signers, version, "the previous root's")?;
            }
            history.push(Version { version, sha256: signed.root.sha256() });
            before = Some(link);
        }
        let (Some(link), Some(last)) = (before, chain.last()) else { return Err(refused("a root", "none")) };
        Ok(Self {
            version: last.root.version,
            expires: last.root.expires,
            threshold: link.threshold,
            keys: link.keys,
            history,
        })
    }

    /// SHA-256 of the first root: what a trust directory is known by, however often its root is rotated.
    #[must_use]
    pub fn identity(&self) -> Hash {
        self.history.first().map_or([0; 32], |first| first.sha256)
    }

    /// SHA-256 of the current root, for a person to compare.
    #[must_use]
    pub fn sha256(&self) -> Hash {
        self.history.last().map_or([0; 32], |last| last.sha256)
    }
}
