//! The Sigstore bundle v0.3 that carries a seal: managed key, DSSE envelope, one log entry.
//!
//! Source: sigstore protobuf-specs, `sigstore_bundle.proto`, in proto3 JSON. Fields that are not part of
//! a seal are refused, so that every byte of one means something.

use serde::{Deserialize, Serialize};

use crate::dsse::{Envelope, EnvelopeError, EnvelopeJson};
use crate::log_entry::{EntryJson, LogEntry, LogEntryError};

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
    /// The log entry is malformed, or of another kind.
    #[error(transparent)]
    Entry(#[from] LogEntryError),
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

fn value(field: &'static str, expected: &'static str, found: &str) -> Result<(), SigstoreBundleError> {
    if found == expected {
        return Ok(());
    }
    Err(SigstoreBundleError::Value { field, expected, found: found.chars().take(120).collect() })
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
