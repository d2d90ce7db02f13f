//! `policy.dsse.json`: which keys may sign which names, and which logs count.

pub use super::document::{
    LogPlaceDocument, PolicyDocument, PolicyKeyDocument, PolicyLogDocument, RevocationDocument, WitnessDocument,
};
use super::root::{KeyDocument, Root, shortened};
use super::trusted_root::TrustedLog;
use super::{TrustError, TrustFile};
use crate::checkpoint::LogIdentity;
use crate::cosignature::{Witness, WitnessError};
use crate::dsse::MultiEnvelope;
use crate::encoding::{Hash, hash_from_hex, sha256};
use crate::keys::{ArtifactPublicKey, KeyId, LogId, LogPublicKey};
use crate::origin::Origin;
use crate::time::{UtcSeconds, Validity};

/// `schema` of a policy.
pub const POLICY_SCHEMA: &str = "symseal.policy.v1";
/// The payload type of the envelope around a policy.
pub const POLICY_PAYLOAD_TYPE: &str = "application/vnd.symseal.policy.v1+json";
/// The most keys or logs that are read.
const MAX_ITEMS: usize = 1024;
/// The most digests that one revocation excepts.
const MAX_EXCEPTIONS: usize = 8192;

/// A policy whose signature holds.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Only rises.
    pub version: u64,
    /// Last second of use, if bounded.
    pub expires: Option<UtcSeconds>,
    /// SHA-256 of the signed payload: what identifies this version.
    pub sha256: Hash,
    /// The root keys that signed it.
    pub signed_by: Vec<KeyId>,
    /// How many distinct keys must have sealed a bundle.
    pub threshold: u64,
    /// Who may sign.
    pub keys: Vec<PolicyKey>,
    /// Where it must be logged.
    pub logs: Vec<PolicyLog>,
    /// Which keys are distrusted.
    pub revocations: Vec<Revocation>,
    /// Whether a larger checkpoint than the one seen counts only with a consistency proof.
    pub require_consistency: bool,
}

/// A revocation of a policy.
#[derive(Debug, Clone)]
pub struct Revocation {
    /// The revoked key.
    pub key_id: KeyId,
    /// Why, for a person to read.
    pub reason: String,
    /// Bundles and symbol indexes that still count.
    pub except_digests: Vec<Hash>,
    /// By origin: the place before which the key's entries still count.
    pub except_before: Vec<(String, u64)>,
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
    /// The witnesses that count, each key once.
    pub witnesses: Vec<Witness>,
    /// Where the log was closed, if it was.
    pub entries_before: Option<u64>,
}

pub(super) fn refused(expected: impl Into<String>, found: impl Into<String>) -> TrustError {
    TrustError::new(TrustFile::Policy, expected, found)
}

fn refused_by(expected: &str, error: &impl std::fmt::Display) -> TrustError {
    TrustError::refused_by(TrustFile::Policy, expected, error)
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
    witnesses: Vec<Witness>,
    document: PolicyLogDocument,
}

impl UnattachedLog {
    fn read(json: PolicyLogDocument) -> Result<Self, TrustError> {
        let origin = json.origin.parse::<Origin>().map_err(|error| refused_by("a log origin", &error))?;
        let id = LogId::parse(&json.log_id)
            .ok_or_else(|| refused("the base64 of a 32-byte log id", shortened(&json.log_id)))?;
        if json.witnesses.len() > MAX_ITEMS {
            return Err(refused(format!("at most {MAX_ITEMS} witnesses"), json.witnesses.len().to_string()));
        }
        let mut witnesses: Vec<Witness> = Vec::new();
        for witness in &json.witnesses {
            let witness: Witness =
                witness.key.parse().map_err(|error: WitnessError| refused_by("a witness key", &error))?;
            // One key under two names would be counted twice.
            if witnesses.iter().any(|other| other.public() == witness.public() || other.name() == witness.name()) {
                return Err(refused("each witness once", format!("{} twice", witness.name())));
            }
            witnesses.push(witness);
        }
        if json.witness_quorum > witnesses.len() as u64 {
            let expected = format!("a witness quorum of at most {}, the witnesses of {origin}", witnesses.len());
            return Err(refused(expected, json.witness_quorum.to_string()));
        }
        Ok(Self { origin, id, witnesses, document: json })
    }

    fn attach(self, known: &[TrustedLog]) -> Result<PolicyLog, TrustError> {
        let Self { origin, id, witnesses, document: json } = self;
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
            witnesses,
            entries_before: json.entries_before,
        })
    }
}

/// A policy whose signatures hold; its logs' keys are not looked up yet.
pub(super) struct SignedPolicy {
    version: u64,
    sha256: Hash,
    expires: Option<UtcSeconds>,
    signed_by: Vec<KeyId>,
    threshold: u64,
    keys: Vec<PolicyKey>,
    logs: Vec<UnattachedLog>,
    revocations: Vec<Revocation>,
    require_consistency: bool,
}

/// Which root keys signed: enough of them, each once, and nobody else.
fn root_signers(envelope: &MultiEnvelope, root: &Root) -> Result<Vec<KeyId>, TrustError> {
    let pae = envelope.pae();
    let mut signers: Vec<KeyId> = Vec::new();
    for (keyid, signature) in &envelope.signatures {
        let signer = root.keys.iter().find(|key| key.key_id().to_string() == *keyid).ok_or_else(|| {
            let ids: Vec<String> = root.keys.iter().map(|key| key.key_id().to_string()).collect();
            refused(format!("a signature by the root key {}", ids.join(" or ")), shortened(keyid))
        })?;
        if signers.contains(&signer.key_id()) {
            return Err(refused("one signature of each root key", format!("two by {keyid}")));
        }
        if !signer.verifies(&pae, signature) {
            let expected = format!("a signature that root key {} verifies", signer.key_id());
            return Err(refused(expected, "one that it does not"));
        }
        signers.push(signer.key_id());
    }
    if (signers.len() as u64) < root.threshold {
        return Err(refused(format!("signatures by {} root keys", root.threshold), signers.len().to_string()));
    }
    Ok(signers)
}

impl RevocationDocument {
    fn read(&self) -> Result<Revocation, TrustError> {
        let digest = |text: &String| {
            text.strip_prefix("sha256:")
                .and_then(hash_from_hex)
                .ok_or_else(|| refused("digests sha256:… in a revocation", shortened(text)))
        };
        if self.except_digests.len() > MAX_EXCEPTIONS || self.except_before.len() > MAX_ITEMS {
            return Err(refused("fewer exceptions of one revocation", self.except_digests.len().to_string()));
        }
        Ok(Revocation {
            key_id: KeyId::parse(&self.key_id)
                .ok_or_else(|| refused("the base64 of a revoked key's id", shortened(&self.key_id)))?,
            reason: self.reason.clone(),
            except_digests: self.except_digests.iter().map(digest).collect::<Result<Vec<_>, _>>()?,
            except_before: self.except_before.iter().map(|place| (place.origin.clone(), place.index)).collect(),
        })
    }
}

impl SignedPolicy {
    /// Reads `policy.dsse.json` and checks that enough root keys signed it.
    pub(super) fn parse(envelope: &[u8], root: &Root) -> Result<Self, TrustError> {
        let envelope = MultiEnvelope::parse(envelope)
            .map_err(|error| refused_by("a DSSE envelope with the root keys' signatures", &error))?;
        if envelope.payload_type != POLICY_PAYLOAD_TYPE {
            return Err(refused(format!("payload type {POLICY_PAYLOAD_TYPE}"), shortened(&envelope.payload_type)));
        }
        let signed_by = root_signers(&envelope, root)?;
        let json: PolicyDocument = serde_json::from_slice(&envelope.payload)
            .map_err(|error| refused("the JSON of a policy", error.to_string()))?;
        Self::read(json, sha256(&envelope.payload), signed_by)
    }

    fn read(json: PolicyDocument, sha256: Hash, signed_by: Vec<KeyId>) -> Result<Self, TrustError> {
        if json.schema != POLICY_SCHEMA {
            return Err(refused("schema symseal.policy.v1", shortened(&json.schema)));
        }
        if json.version == 0 {
            return Err(refused("a version of at least 1", "0"));
        }
        if json.threshold == 0 {
            return Err(refused("a threshold of at least 1", "0"));
        }
        if json.keys.len() > MAX_ITEMS || json.logs.len() > MAX_ITEMS || json.revocations.len() > MAX_ITEMS {
            let found =
                format!("{} keys, {} logs, {} revocations", json.keys.len(), json.logs.len(), json.revocations.len());
            return Err(refused(format!("at most {MAX_ITEMS} keys, logs and revocations"), found));
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
        let mut revocations: Vec<Revocation> = Vec::new();
        for revocation in &json.revocations {
            let revocation = revocation.read()?;
            if revocations.iter().any(|other| other.key_id == revocation.key_id) {
                return Err(refused("each revocation once", format!("{} twice", revocation.key_id)));
            }
            revocations.push(revocation);
        }
        Ok(Self {
            version: json.version,
            sha256,
            expires: json.expires,
            signed_by,
            threshold: json.threshold,
            keys,
            logs,
            revocations,
            require_consistency: json.require_consistency,
        })
    }

    /// Finds each log's key in what `trusted_root.json` gave.
    pub(super) fn with_logs(self, known: &[TrustedLog]) -> Result<Policy, TrustError> {
        let logs = self.logs.into_iter().map(|log| log.attach(known)).collect::<Result<Vec<_>, _>>()?;
        Ok(Policy {
            version: self.version,
            expires: self.expires,
            sha256: self.sha256,
            signed_by: self.signed_by,
            threshold: self.threshold,
            keys: self.keys,
            logs,
            revocations: self.revocations,
            require_consistency: self.require_consistency,
        })
    }
}

impl Policy {
    /// The key with this id.
    #[must_use]
    pub fn key(&self, id: &str) -> Option<&PolicyKey> {
        self.keys.iter().find(|key| key.id.to_string() == id)
    }

    /// The revocation of a key.
    #[must_use]
    pub fn revocation(&self, id: KeyId) -> Option<&Revocation> {
        self.revocations.iter().find(|revocation| revocation.key_id == id)
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
