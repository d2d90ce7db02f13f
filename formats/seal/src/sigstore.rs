//! The Sigstore bundle v0.3 that carries a seal: managed key, DSSE envelope, one log entry.
//!
//! Source: sigstore protobuf-specs, `sigstore_bundle.proto` and `sigstore_rekor.proto`, in proto3
//! JSON. Fields that are not part of a seal are refused, so that every byte of one means something.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::dsse::{Envelope, EnvelopeError, EnvelopeJson};
use crate::encoding::{Hash, decimal, from_base64, hash_from_base64, to_base64};
use crate::entry::{ENTRY_KIND, ENTRY_LIMIT, ENTRY_VERSION};
use crate::keys::LogId;
use crate::note::NOTE_LIMIT;
use crate::tlog::MAX_PROOF_HASHES;

/// `mediaType` of the JSON, and of its layer and artifact in a registry.
pub const SIGSTORE_BUNDLE_MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The largest seal that is read, in bytes: a statement, an entry, a checkpoint, and room.
pub const SEAL_LIMIT: usize = 512 * 1024;

/// A seal, as read; its form is right, nothing is verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigstoreBundle {
    /// The id of the key that signed, as claimed.
    pub hint: String,
    /// The signed statement.
    pub envelope: Envelope,
    /// Its entry in a log.
    pub entry: LogEntry,
}

/// A log entry with its inclusion proof and checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Position in the log, from 0.
    pub log_index: u64,
    /// The log, as claimed.
    pub log_id: LogId,
    /// The bytes of the entry.
    pub canonicalized_body: Vec<u8>,
    /// The position again, as the proof states it.
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

/// The bytes are no seal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SigstoreBundleError {
    /// Larger than [`SEAL_LIMIT`].
    #[error("expected a seal of at most {SEAL_LIMIT} bytes, found {found}")]
    TooLarge {
        /// Its size in bytes.
        found: usize,
    },
    /// Not the JSON form, or with a field that no seal has.
    #[error("expected the JSON of a Sigstore bundle v0.3 with a public-key hint: {reason}")]
    Json {
        /// What the JSON reader said.
        reason: String,
    },
    /// Another kind or version of document.
    #[error("expected {expected} as {field}, found {found:?}")]
    Value {
        /// The field.
        field: &'static str,
        /// The only value that a seal has there.
        expected: &'static str,
        /// What it says.
        found: String,
    },
    /// The envelope is malformed.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// None, or several, log entries.
    #[error("expected exactly one log entry, found {found}")]
    EntryCount {
        /// How many there are.
        found: usize,
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
struct BundleJson {
    media_type: String,
    verification_material: MaterialJson,
    dsse_envelope: EnvelopeJson,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MaterialJson {
    public_key: HintJson,
    #[serde(default)]
    tlog_entries: Vec<EntryJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HintJson {
    hint: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EntryJson {
    // Proto3 JSON may leave out what is zero: the index of a log's first entry.
    #[serde(default)]
    log_index: Int64,
    log_id: LogIdJson,
    kind_version: KindVersionJson,
    #[serde(default, skip_serializing)]
    #[allow(
        dead_code,
        reason = "signed by nobody in a v2 log: taken where a foreign writer put it, never used or printed"
    )]
    integrated_time: Int64,
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

fn value(field: &'static str, expected: &'static str, found: &str) -> Result<(), SigstoreBundleError> {
    if found == expected {
        return Ok(());
    }
    Err(SigstoreBundleError::Value { field, expected, found: found.chars().take(120).collect() })
}

const HASH: &str = "the base64 of 32 bytes";

impl TryFrom<EntryJson> for LogEntry {
    type Error = SigstoreBundleError;

    fn try_from(json: EntryJson) -> Result<Self, SigstoreBundleError> {
        let field = |field, expected| SigstoreBundleError::Field { field, expected };
        value("kindVersion.kind", ENTRY_KIND, &json.kind_version.kind)?;
        value("kindVersion.version", ENTRY_VERSION, &json.kind_version.version)?;
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
        Self {
            log_index: Int64(entry.log_index),
            log_id: LogIdJson { key_id: entry.log_id.to_string() },
            kind_version: KindVersionJson { kind: ENTRY_KIND.into(), version: ENTRY_VERSION.into() },
            integrated_time: Int64(0),
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

impl SigstoreBundle {
    /// Reads a seal.
    ///
    /// # Errors
    /// [`SigstoreBundleError`] says what is malformed, or which part is of a kind that seals do not have.
    pub fn parse(json: &[u8]) -> Result<Self, SigstoreBundleError> {
        if json.len() > SEAL_LIMIT {
            return Err(SigstoreBundleError::TooLarge { found: json.len() });
        }
        let json: BundleJson =
            serde_json::from_slice(json).map_err(|error| SigstoreBundleError::Json { reason: error.to_string() })?;
        value("mediaType", SIGSTORE_BUNDLE_MEDIA_TYPE, &json.media_type)?;
        let found = json.verification_material.tlog_entries.len();
        let mut entries = json.verification_material.tlog_entries.into_iter();
        let (Some(entry), None) = (entries.next(), entries.next()) else {
            return Err(SigstoreBundleError::EntryCount { found });
        };
        Ok(Self {
            hint: json.verification_material.public_key.hint,
            envelope: json.dsse_envelope.try_into()?,
            entry: entry.try_into()?,
        })
    }

    /// The seal as canonical JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        crate::canonical_json(&BundleJson {
            media_type: SIGSTORE_BUNDLE_MEDIA_TYPE.into(),
            verification_material: MaterialJson {
                public_key: HintJson { hint: self.hint.clone() },
                tlog_entries: vec![EntryJson::from(&self.entry)],
            },
            dsse_envelope: EnvelopeJson::from(&self.envelope),
        })
    }
}
