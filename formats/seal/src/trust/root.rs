//! `root.json`: the root keys, signed by themselves.

use serde::{Deserialize, Serialize};

use super::{TrustError, TrustFile};
use crate::dsse::pae;
use crate::encoding::{from_base64, to_base64};
use crate::keys::ArtifactPublicKey;
use crate::time::UtcSeconds;

/// `schema` of a root.
pub const ROOT_SCHEMA: &str = "symseal.root.v1";
/// The payload type over which root signatures are made.
pub const ROOT_PAYLOAD_TYPE: &str = "application/vnd.symseal.root.v1+json";
/// The most root keys that are read.
const MAX_ROOT_KEYS: usize = 16;

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
    /// How many root keys must sign. This version reads 1.
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
    pub(super) fn read(&self, file: TrustFile) -> Result<ArtifactPublicKey, TrustError> {
        if self.algorithm != ArtifactPublicKey::ALGORITHM {
            let expected = format!("keys of algorithm {}", ArtifactPublicKey::ALGORITHM);
            return Err(TrustError::new(file, expected, shortened(&self.algorithm)));
        }
        let spki = from_base64(&self.spki)
            .ok_or_else(|| TrustError::new(file, "the base64 of a key's SPKI", shortened(&self.spki)))?;
        let key = ArtifactPublicKey::from_spki(&spki)
            .map_err(|error| TrustError::new(file, "an ECDSA P-256 key", error.to_string()))?;
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

/// The file: what is signed, and the signatures.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootFile {
    root: RootDocument,
    signatures: Vec<RootSignature>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootSignature {
    keyid: String,
    sig: String,
}

/// A root whose signature holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Rises with every rotation.
    pub version: u64,
    /// Last second of use, if bounded.
    pub expires: Option<UtcSeconds>,
    /// The root keys; exactly one in this version.
    pub keys: Vec<ArtifactPublicKey>,
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
        let signatures = vec![RootSignature { keyid: key_id.into(), sig: to_base64(signature) }];
        crate::canonical_json(&RootFile { root: self.clone(), signatures })
    }
}

impl Root {
    /// Reads `root.json` and checks its signature.
    ///
    /// # Errors
    /// [`TrustError`], for faults and for what this version cannot check (several keys).
    pub fn parse(bytes: &[u8]) -> Result<Self, TrustError> {
        let refused = |expected: &str, found: String| TrustError::new(TrustFile::Root, expected, found);
        let file: RootFile = serde_json::from_slice(bytes)
            .map_err(|error| refused("the JSON of a root and its signatures", error.to_string()))?;
        let root = &file.root;
        if root.schema != ROOT_SCHEMA {
            return Err(refused("schema symseal.root.v1", shortened(&root.schema)));
        }
        if root.version == 0 {
            return Err(refused("a version of at least 1", "0".into()));
        }
        if root.keys.len() > MAX_ROOT_KEYS {
            return Err(refused("at most 16 root keys", root.keys.len().to_string()));
        }
        if root.keys.len() != 1 || root.threshold != 1 || file.signatures.len() != 1 {
            return Err(refused(
                "one root key, threshold 1 and one signature (this version checks no more)",
                format!("{} keys, threshold {}, {} signatures", root.keys.len(), root.threshold, file.signatures.len()),
            ));
        }
        let keys = root.keys.iter().map(|key| key.read(TrustFile::Root)).collect::<Result<Vec<_>, _>>()?;
        let message = root.signed_bytes();
        for (key, signature) in keys.iter().zip(&file.signatures) {
            let key_id = key.key_id().to_string();
            if signature.keyid != key_id {
                return Err(refused(&format!("a signature by {key_id}"), shortened(&signature.keyid)));
            }
            if !from_base64(&signature.sig).is_some_and(|signature| key.verifies(&message, &signature)) {
                return Err(refused(&format!("a signature that {key_id} verifies"), "one that it does not".into()));
            }
        }
        Ok(Self { version: root.version, expires: root.expires, keys })
    }
}
