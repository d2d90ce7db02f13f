//! `policy.dsse.json`: which keys may sign which names, and which logs count.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::root::{KeyDocument, Root, shortened};
use super::trusted_root::TrustedLog;
use super::{TrustError, TrustFile};
use crate::checkpoint::LogIdentity;
use crate::dsse::{Envelope, pae};
use crate::keys::{ArtifactPublicKey, KeyId, LogId, LogPublicKey};
use crate::origin::Origin;
use crate::time::{UtcSeconds, Validity};

/// `schema` of a policy.
pub const POLICY_SCHEMA: &str = "symseal.policy.v1";
/// The payload type of the envelope around a policy.
pub const POLICY_PAYLOAD_TYPE: &str = "application/vnd.symseal.policy.v1+json";
/// The most keys or logs that are read.
const MAX_ITEMS: usize = 1024;

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
    /// How many artifact keys must sign a bundle. This version reads 1.
    pub threshold: u64,
    /// Who may sign.
    pub keys: Vec<PolicyKeyDocument>,
    /// Where it must be logged; a seal counts with any one of them.
    pub logs: Vec<PolicyLogDocument>,
    /// Keys that are no longer trusted. This version reads an empty list.
    pub revocations: Vec<Value>,
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
    /// The witnesses. This version checks none.
    pub witnesses: Vec<Value>,
}

/// A policy whose signature holds.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Only rises.
    pub version: u64,
    /// Last second of use, if bounded.
    pub expires: Option<UtcSeconds>,
    /// The root key that signed it.
    pub signed_by: KeyId,
    /// Who may sign.
    pub keys: Vec<PolicyKey>,
    /// Where it must be logged.
    pub logs: Vec<PolicyLog>,
}

/// A key of a policy.
#[derive(Debug, Clone)]
pub struct PolicyKey {
    /// The key.
    pub key: ArtifactPublicKey,
    /// Its id, which the policy states and the key's hash confirms.
    pub id: KeyId,
    /// Release names that it may sign: exact, or ending in `*` for a prefix.
    pub names: Vec<String>,
    /// Predicate types that it may sign.
    pub predicate_types: Vec<String>,
    /// When it counts.
    pub validity: Validity,
}

/// A log of a policy, with its key.
#[derive(Debug, Clone)]
pub struct PolicyLog {
    /// Origin and key.
    pub identity: LogIdentity,
    /// The id that the policy pins.
    pub id: LogId,
    /// Who runs it.
    pub operator: String,
    /// When it counts: the policy's window and that of `trusted_root.json`, both.
    pub validity: Validity,
    /// How many witnesses must have cosigned.
    pub witness_quorum: u64,
}

fn refused(expected: impl Into<String>, found: impl Into<String>) -> TrustError {
    TrustError::new(TrustFile::Policy, expected, found)
}

/// Whether `name` is what the pattern says: the same text, or, where it ends in `*`, one that begins so.
#[must_use]
pub fn name_matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

impl PolicyKey {
    /// Whether the key may sign releases of this name.
    #[must_use]
    pub fn may_sign_name(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| name_matches(pattern, name))
    }

    /// Whether the key may sign statements of this predicate type.
    #[must_use]
    pub fn may_sign_type(&self, predicate_type: &str) -> bool {
        self.predicate_types.iter().any(|allowed| allowed == predicate_type)
    }

    fn read(json: &PolicyKeyDocument) -> Result<Self, TrustError> {
        let document =
            KeyDocument { key_id: json.key_id.clone(), algorithm: json.algorithm.clone(), spki: json.spki.clone() };
        let key = document.read(TrustFile::Policy)?;
        // A `*` elsewhere looks like a pattern that this reader does not know.
        let is_pattern = |pattern: &String| !pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
        if let Some(pattern) = json.names.iter().find(|pattern| !is_pattern(pattern) || pattern.is_empty()) {
            return Err(refused("names that are exact or end in one *", shortened(pattern)));
        }
        Ok(Self {
            id: key.key_id(),
            key,
            names: json.names.clone(),
            predicate_types: json.predicate_types.clone(),
            validity: Validity { not_before: json.not_before, not_after: json.not_after },
        })
    }
}

/// A log as the policy states it, before its key is known.
struct UnattachedLog {
    origin: Origin,
    id: LogId,
    document: PolicyLogDocument,
}

impl UnattachedLog {
    fn read(json: PolicyLogDocument) -> Result<Self, TrustError> {
        let origin = json.origin.parse::<Origin>().map_err(|error| refused("a log origin", error.to_string()))?;
        let id = LogId::parse(&json.log_id)
            .ok_or_else(|| refused("the base64 of a 32-byte log id", shortened(&json.log_id)))?;
        Ok(Self { origin, id, document: json })
    }

    fn attach(self, known: &[TrustedLog]) -> Result<PolicyLog, TrustError> {
        let Self { origin, id, document: json } = self;
        let wrong = |expected: String, found: String| TrustError::new(TrustFile::TrustedRoot, expected, found);
        let Some(trusted) = known.iter().find(|log| log.id == id) else {
            let ids: Vec<String> = known.iter().take(4).map(|log| log.id.to_string()).collect();
            return Err(wrong(
                format!("the key of log {origin} with log id {id}"),
                format!("log ids {}", ids.join(", ")),
            ));
        };
        if trusted.host != origin.name() {
            return Err(wrong(format!("a baseUrl with the host {}", origin.name()), shortened(&trusted.host)));
        }
        // Rekor v1 signs timestamps and checkpoints with one ECDSA key; its log id is that key's.
        if origin.is_rekor_v1() && !matches!(trusted.key, LogPublicKey::Ecdsa(_)) {
            return Err(wrong(format!("an ECDSA P-256 key of the Rekor v1 {origin}"), trusted.key.details().into()));
        }
        let computed = trusted.key.log_id(&origin);
        if computed != id {
            return Err(wrong(format!("a key of {origin} with log id {id}"), format!("one with log id {computed}")));
        }
        let not_before = json.not_before.max(Some(trusted.validity.0));
        let not_after = match (json.not_after, trusted.validity.1) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Ok(PolicyLog {
            identity: LogIdentity { origin, key: trusted.key.clone() },
            id,
            operator: json.operator,
            validity: Validity { not_before, not_after },
            witness_quorum: json.witness_quorum,
        })
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
        Envelope {
            payload_type: POLICY_PAYLOAD_TYPE.into(),
            payload: crate::canonical_json(self),
            keyid: root_key_id.into(),
            signature: signature.to_vec(),
        }
        .to_json()
    }
}

/// A policy whose signature holds; its logs' keys are not looked up yet.
pub(super) struct SignedPolicy {
    version: u64,
    expires: Option<UtcSeconds>,
    signed_by: KeyId,
    keys: Vec<PolicyKey>,
    logs: Vec<UnattachedLog>,
}

impl SignedPolicy {
    /// Reads `policy.dsse.json` and checks that a root key signed it.
    pub(super) fn parse(envelope: &[u8], root: &Root) -> Result<Self, TrustError> {
        let envelope = Envelope::parse(envelope)
            .map_err(|error| refused("a DSSE envelope with one signature", error.to_string()))?;
        if envelope.payload_type != POLICY_PAYLOAD_TYPE {
            return Err(refused(format!("payload type {POLICY_PAYLOAD_TYPE}"), shortened(&envelope.payload_type)));
        }
        let signer = root.keys.iter().find(|key| key.key_id().to_string() == envelope.keyid).ok_or_else(|| {
            let ids: Vec<String> = root.keys.iter().map(|key| key.key_id().to_string()).collect();
            refused(format!("a signature by the root key {}", ids.join(" or ")), shortened(&envelope.keyid))
        })?;
        if !signer.verifies(&envelope.pae(), &envelope.signature) {
            let expected = format!("a signature that root key {} verifies", signer.key_id());
            return Err(refused(expected, "one that it does not"));
        }
        let json: PolicyDocument = serde_json::from_slice(&envelope.payload)
            .map_err(|error| refused("the JSON of a policy", error.to_string()))?;
        Self::read(json, signer.key_id())
    }

    fn read(json: PolicyDocument, signed_by: KeyId) -> Result<Self, TrustError> {
        if json.schema != POLICY_SCHEMA {
            return Err(refused("schema symseal.policy.v1", shortened(&json.schema)));
        }
        if json.version == 0 {
            return Err(refused("a version of at least 1", "0"));
        }
        if json.threshold != 1 {
            return Err(refused("threshold 1 (this version checks no more)", json.threshold.to_string()));
        }
        if !json.revocations.is_empty() {
            let found = format!("{} revocations", json.revocations.len());
            return Err(refused("no revocations (this version cannot judge them)", found));
        }
        if json.keys.len() > MAX_ITEMS || json.logs.len() > MAX_ITEMS {
            let found = format!("{} keys and {} logs", json.keys.len(), json.logs.len());
            return Err(refused(format!("at most {MAX_ITEMS} keys and logs"), found));
        }
        let mut keys: Vec<PolicyKey> = Vec::new();
        for key in &json.keys {
            let key = PolicyKey::read(key)?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(refused("each key once", format!("{} twice", key.id)));
            }
            keys.push(key);
        }
        let mut logs: Vec<UnattachedLog> = Vec::new();
        for log in json.logs {
            let log = UnattachedLog::read(log)?;
            // The trees of one Rekor v1 may share a key, and so an id.
            let shard = |other: &UnattachedLog| other.origin.is_rekor_v1() && log.origin.is_rekor_v1();
            if logs.iter().any(|other| other.origin == log.origin || (other.id == log.id && !shard(other))) {
                return Err(refused("each log once", format!("{} twice", log.origin)));
            }
            logs.push(log);
        }
        Ok(Self { version: json.version, expires: json.expires, signed_by, keys, logs })
    }

    /// Finds each log's key in what `trusted_root.json` gave.
    pub(super) fn with_logs(self, known: &[TrustedLog]) -> Result<Policy, TrustError> {
        let logs = self.logs.into_iter().map(|log| log.attach(known)).collect::<Result<Vec<_>, _>>()?;
        Ok(Policy { version: self.version, expires: self.expires, signed_by: self.signed_by, keys: self.keys, logs })
    }
}

impl Policy {
    /// The key with this id.
    #[must_use]
    pub fn key(&self, id: &str) -> Option<&PolicyKey> {
        self.keys.iter().find(|key| key.id.to_string() == id)
    }

    /// The log with this id. Trees of one Rekor v1 may share it: then the one with this origin, or the
    /// first.
    #[must_use]
    pub fn log(&self, id: LogId, origin: Option<&str>) -> Option<&PolicyLog> {
        let mut named = self.logs.iter().filter(|log| log.id == id);
        let exact = named.clone().find(|log| Some(log.identity.origin.as_str()) == origin);
        exact.or_else(|| named.next())
    }
}
