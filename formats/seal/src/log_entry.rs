//! A log entry with its proof: Sigstore's `TransparencyLogEntry` in proto3 JSON.
//!
//! Source: sigstore protobuf-specs, `sigstore_rekor.proto`. Rekor v2 answers with this very form.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::encoding::{Hash, decimal, from_base64, hash_from_base64, to_base64};
use crate::entry::{DSSE, ENTRY_LIMIT, EntryKind, HASHEDREKORD, SignedEntryTimestamp};
use crate::keys::LogId;
use crate::note::NOTE_LIMIT;
use crate::origin::Origin;
use crate::tiles::entry_reference;
use crate::time::UtcSeconds;
use crate::tlog::MAX_PROOF_HASHES;

/// The largest JSON of one entry that is read, in bytes: a body, a checkpoint, a proof, and room.
pub const LOG_ENTRY_LIMIT: usize = 256 * 1024;

/// A log entry with its inclusion proof and checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Which kind of entry it is.
    pub kind: EntryKind,
    /// Position in the log, from 0. In a Rekor v1 it counts over all of its trees.
    pub log_index: u64,
    /// The log, as claimed.
    pub log_id: LogId,
    /// The bytes of the entry.
    pub canonicalized_body: Vec<u8>,
    /// Position in the tree of the checkpoint. Of a Rekor v1 it is what the proof is about; elsewhere
    /// it is `log_index` once more.
    pub proof_index: u64,
    /// The tree's size, as the proof states it; the checkpoint's is the one that counts.
    pub proof_size: u64,
    /// The tree's root, likewise.
    pub proof_root: Hash,
    /// Siblings from the leaf upwards.
    pub hashes: Vec<Hash>,
    /// The signed checkpoint's text.
    pub checkpoint: String,
}

/// The JSON is no log entry of a kind that seals have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogEntryError {
    /// Larger than [`LOG_ENTRY_LIMIT`].
    #[error("expected a log entry of at most {LOG_ENTRY_LIMIT} bytes, found {found}")]
    TooLarge {
        /// Its size in bytes.
        found: usize,
    },
    /// Not the JSON form, or with a field that no entry has.
    #[error("expected the JSON of a transparency-log entry: {reason}")]
    Json {
        /// What the JSON reader said.
        reason: String,
    },
    /// Another kind or version.
    #[error("expected a log entry of the kind hashedrekord 0.0.2 (Rekor v2) or dsse 0.0.1 (Rekor v1), found {found:?}")]
    Kind {
        /// Kind and version.
        found: String,
    },
    /// A field does not hold what its type says.
    #[error("expected {expected} in {field}")]
    Field {
        /// The field.
        field: &'static str,
        /// What belongs there.
        expected: &'static str,
    },
}

/// A 64-bit integer of proto3 JSON: written as a string, read as a string or a number.
#[derive(Debug, Clone, Copy, Default)]
struct Int64(u64);

impl Serialize for Int64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Int64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Number(u64),
        }
        let value = match Form::deserialize(deserializer)? {
            Form::Number(value) => Some(value),
            Form::Text(text) => decimal(&text),
        };
        // The type in the proto is int64: what does not fit it has no meaning.
        value
            .filter(|value| i64::try_from(*value).is_ok())
            .map(Int64)
            .ok_or_else(|| serde::de::Error::custom("expected a decimal int64 without sign"))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EntryJson {
    // Proto3 JSON may leave out what is zero: the index of a log's first entry.
    #[serde(default)]
    log_index: Int64,
    log_id: LogIdJson,
    kind_version: KindVersionJson,
    // In a v2 log it is signed by nobody: taken where a foreign writer put it, never used or printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    integrated_time: Option<Int64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inclusion_promise: Option<PromiseJson>,
    inclusion_proof: ProofJson,
    canonicalized_body: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LogIdJson {
    key_id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KindVersionJson {
    kind: String,
    version: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PromiseJson {
    signed_entry_timestamp: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProofJson {
    #[serde(default)]
    log_index: Int64,
    root_hash: String,
    tree_size: Int64,
    #[serde(default)]
    hashes: Vec<String>,
    checkpoint: CheckpointJson,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointJson {
    envelope: String,
}

const HASH: &str = "the base64 of 32 bytes";

fn field(field: &'static str, expected: &'static str) -> LogEntryError {
    LogEntryError::Field { field, expected }
}

impl EntryJson {
    fn kind(&self) -> Result<EntryKind, LogEntryError> {
        let KindVersionJson { kind, version } = &self.kind_version;
        match (kind.as_str(), version.as_str()) {
            HASHEDREKORD => match self.inclusion_promise {
                None => Ok(EntryKind::HashedRekord),
                Some(_) => Err(field("inclusionPromise", "nothing, as a Rekor v2 promises nothing beside its proof")),
            },
            DSSE => {
                let time = self.integrated_time.and_then(|time| i64::try_from(time.0).ok());
                let promise = self.inclusion_promise.as_ref();
                let signature = promise.and_then(|promise| from_base64(&promise.signed_entry_timestamp));
                Ok(EntryKind::Dsse(SignedEntryTimestamp {
                    integrated_time: time
                        .map(UtcSeconds)
                        .ok_or_else(|| field("integratedTime", "the time of a Rekor v1 entry"))?,
                    signature: signature
                        .ok_or_else(|| field("inclusionPromise", "the base64 of a signed entry timestamp"))?,
                }))
            }
            _ => Err(LogEntryError::Kind { found: format!("{kind} {version}").chars().take(120).collect() }),
        }
    }
}

impl TryFrom<EntryJson> for LogEntry {
    type Error = LogEntryError;

    fn try_from(json: EntryJson) -> Result<Self, LogEntryError> {
        let kind = json.kind()?;
        let proof = json.inclusion_proof;
        if proof.hashes.len() > MAX_PROOF_HASHES {
            return Err(field("inclusionProof.hashes", "at most 64 hashes"));
        }
        if proof.checkpoint.envelope.len() > NOTE_LIMIT {
            return Err(field("inclusionProof.checkpoint", "at most 64 KiB"));
        }
        let hashes: Option<Vec<Hash>> = proof.hashes.iter().map(|hash| hash_from_base64(hash)).collect();
        let body = from_base64(&json.canonicalized_body).filter(|body| body.len() <= ENTRY_LIMIT);
        Ok(Self {
            kind,
            log_index: json.log_index.0,
            log_id: LogId::parse(&json.log_id.key_id).ok_or_else(|| field("logId.keyId", HASH))?,
            canonicalized_body: body.ok_or_else(|| field("canonicalizedBody", "the base64 of less than 64 KiB"))?,
            proof_index: proof.log_index.0,
            proof_size: proof.tree_size.0,
            proof_root: hash_from_base64(&proof.root_hash).ok_or_else(|| field("inclusionProof.rootHash", HASH))?,
            hashes: hashes.ok_or_else(|| field("inclusionProof.hashes", HASH))?,
            checkpoint: proof.checkpoint.envelope,
        })
    }
}

impl From<&LogEntry> for EntryJson {
    fn from(entry: &LogEntry) -> Self {
        let (kind, version) = entry.kind.name();
        let timestamp = match &entry.kind {
            EntryKind::HashedRekord => None,
            EntryKind::Dsse(timestamp) => Some(timestamp),
        };
        Self {
            log_index: Int64(entry.log_index),
            log_id: LogIdJson { key_id: entry.log_id.to_string() },
            kind_version: KindVersionJson { kind: kind.into(), version: version.into() },
            integrated_time: timestamp.map(|signed| Int64(u64::try_from(signed.integrated_time.0).unwrap_or(0))),
            inclusion_promise: timestamp
                .map(|signed| PromiseJson { signed_entry_timestamp: to_base64(&signed.signature) }),
            inclusion_proof: ProofJson {
                log_index: Int64(entry.proof_index),
                root_hash: to_base64(&entry.proof_root),
                tree_size: Int64(entry.proof_size),
                hashes: entry.hashes.iter().map(|hash| to_base64(hash)).collect(),
                checkpoint: CheckpointJson { envelope: entry.checkpoint.clone() },
            },
            canonicalized_body: to_base64(&entry.canonicalized_body),
        }
    }
}

impl LogEntry {
    /// Position in the tree of the checkpoint, from 0: what the inclusion proof is about. In a Rekor v1 the
    /// proof states it, as `log_index` counts over all trees.
    #[must_use]
    pub fn tree_index(&self) -> u64 {
        if self.kind.is_rekor_v1() { self.proof_index } else { self.log_index }
    }

    /// How traces and databases name the entry: `<origin>/tile/entries/<N>#<index>`, or, as a Rekor v1 has
    /// no tiles, `<host>/api/v1/log/entries?logIndex=<index>`.
    #[must_use]
    pub fn reference(&self, origin: &Origin) -> String {
        if self.kind.is_rekor_v1() {
            return format!("{}/api/v1/log/entries?logIndex={}", origin.name(), self.log_index);
        }
        entry_reference(origin.as_str(), self.log_index)
    }

    /// The JSON of the entry, as a Rekor v2 answers it.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Texts and numbers alone: writing them cannot fail.
        serde_json::to_vec(&EntryJson::from(self)).unwrap_or_default()
    }

    /// Reads the JSON of one entry, as a Rekor v2 answers it.
    ///
    /// # Errors
    /// [`LogEntryError`] says what is malformed, or that the kind is none that seals have.
    pub fn parse(json: &[u8]) -> Result<Self, LogEntryError> {
        if json.len() > LOG_ENTRY_LIMIT {
            return Err(LogEntryError::TooLarge { found: json.len() });
        }
        let json: EntryJson =
            serde_json::from_slice(json).map_err(|error| LogEntryError::Json { reason: error.to_string() })?;
        json.try_into()
    }
}
