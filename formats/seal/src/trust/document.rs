//! The JSON of a policy: what is written and signed, before anything of it is believed.

use serde::{Deserialize, Serialize};

use super::TrustError;
use super::policy::{POLICY_PAYLOAD_TYPE, POLICY_SCHEMA, refused};
use super::root::KeyDocument;
use crate::checkpoint::LogIdentity;
use crate::dsse::{MultiEnvelope, pae};
use crate::keys::ArtifactPublicKey;
use crate::time::UtcSeconds;

/// A policy's JSON. Unknown fields are refused: a limit that is not understood must not be ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDocument {
    /// [`POLICY_SCHEMA`].
    pub schema: String,
    /// Only rises; from 1.
    pub version: u64,
    /// Last second of use; null: none.
    pub expires: Option<UtcSeconds>,
    /// How many distinct artifact keys must have sealed a bundle.
    pub threshold: u64,
    /// Who may sign.
    pub keys: Vec<PolicyKeyDocument>,
    /// Where it must be logged; a seal counts with any one of them.
    pub logs: Vec<PolicyLogDocument>,
    /// Keys that are no longer trusted.
    pub revocations: Vec<RevocationDocument>,
    /// Whether a checkpoint counts only with a consistency proof where a smaller one was seen before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub require_consistency: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A revocation in a policy's JSON: everything by the key is distrusted, but for the exceptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevocationDocument {
    /// The revoked key. Its entry in `keys` stays, for the exceptions.
    pub key_id: String,
    /// Why, for a person to read.
    pub reason: String,
    /// Digests (`sha256:…`) of bundles or symbol indexes that still count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except_digests: Vec<String>,
    /// Places in logs before which its seals still count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except_before: Vec<LogPlaceDocument>,
}

/// A place in a log in a policy's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogPlaceDocument {
    /// The log's origin.
    pub origin: String,
    /// A position in its tree.
    pub index: u64,
}

/// A witness in a policy's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WitnessDocument {
    /// Name and key as the witness publishes them: `<name>+<hash>+<base64>`.
    pub key: String,
    /// Who runs it, for a person to read.
    pub operator: String,
}

/// A key in a policy's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyKeyDocument {
    /// base64(SHA-256(SPKI)).
    pub key_id: String,
    /// [`ArtifactPublicKey::ALGORITHM`].
    pub algorithm: String,
    /// SPKI DER in base64.
    pub spki: String,
    /// Release names that it may sign: exact, or ending in `*` for a prefix.
    pub names: Vec<String>,
    /// Predicate types that it may sign.
    pub predicate_types: Vec<String>,
    /// First second of its validity; null: open.
    pub not_before: Option<UtcSeconds>,
    /// Last second; null: open.
    pub not_after: Option<UtcSeconds>,
}

/// A log in a policy's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyLogDocument {
    /// Its origin.
    pub origin: String,
    /// base64 of its id; pins the key in `trusted_root.json`.
    pub log_id: String,
    /// Who runs it, for a person to read.
    pub operator: String,
    /// First second of its validity; null: open.
    pub not_before: Option<UtcSeconds>,
    /// Last second; null: open.
    pub not_after: Option<UtcSeconds>,
    /// How many of the witnesses must have cosigned a checkpoint.
    pub witness_quorum: u64,
    /// The witnesses that count.
    pub witnesses: Vec<WitnessDocument>,
    /// Where the log was closed: entries at this position or after do not count. Absent: it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries_before: Option<u64>,
}

impl PolicyKeyDocument {
    /// The entry of a key that may sign these names, for this program's own predicate type.
    #[must_use]
    pub fn new(key: &ArtifactPublicKey, names: &[String], not_before: Option<UtcSeconds>) -> Self {
        let KeyDocument { key_id, algorithm, spki } = KeyDocument::from(key);
        Self {
            key_id,
            algorithm,
            spki,
            names: names.to_vec(),
            predicate_types: vec![crate::PREDICATE_TYPE.into()],
            not_before,
            not_after: None,
        }
    }
}

impl PolicyLogDocument {
    /// The entry of an open log without witnesses.
    #[must_use]
    pub fn new(log: &LogIdentity, operator: &str, not_before: Option<UtcSeconds>) -> Self {
        Self {
            origin: log.origin.to_string(),
            log_id: log.id().to_string(),
            operator: operator.into(),
            not_before,
            not_after: None,
            witness_quorum: 0,
            witnesses: Vec::new(),
            entries_before: None,
        }
    }
}

impl PolicyDocument {
    /// A policy of one key and one log, version 1.
    #[must_use]
    pub fn one_key(key: PolicyKeyDocument, log: PolicyLogDocument, expires: Option<UtcSeconds>) -> Self {
        Self {
            schema: POLICY_SCHEMA.into(),
            version: 1,
            expires,
            threshold: 1,
            keys: vec![key],
            logs: vec![log],
            revocations: Vec::new(),
            require_consistency: false,
        }
    }

    /// The bytes that the root key signs.
    #[must_use]
    pub fn signed_bytes(&self) -> Vec<u8> {
        pae(POLICY_PAYLOAD_TYPE, &crate::canonical_json(self))
    }

    /// The bytes of `policy.dsse.json`, given the root key's signature (ASN.1 DER) over
    /// [`Self::signed_bytes`].
    #[must_use]
    pub fn to_file(&self, root_key_id: &str, signature: &[u8]) -> Vec<u8> {
        self.to_file_of(vec![(root_key_id.to_owned(), signature.to_vec())])
    }

    /// The same with the signatures of several root keys, each by its id.
    #[must_use]
    pub fn to_file_of(&self, signatures: Vec<(String, Vec<u8>)>) -> Vec<u8> {
        let payload = crate::canonical_json(self);
        MultiEnvelope { payload_type: POLICY_PAYLOAD_TYPE.into(), payload, signatures }.to_json()
    }

    /// What `policy.dsse.json` says, whoever signed it: for changing it, not for believing it.
    ///
    /// # Errors
    /// [`TrustError`] where it is malformed.
    pub fn read_unverified(file: &[u8]) -> Result<Self, TrustError> {
        let envelope = MultiEnvelope::parse(file).map_err(|error| refused("a DSSE envelope", error.to_string()))?;
        serde_json::from_slice(&envelope.payload).map_err(|error| refused("the JSON of a policy", error.to_string()))
    }
}
