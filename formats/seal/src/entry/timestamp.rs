//! The signed entry timestamp (SET) of Rekor v1: the log's promise that it took an entry, and when.
//!
//! Source: rekor, `pkg/api/entries.go`; Sigstore's client specification, section "transparency log".

use serde_json::json;

use crate::encoding::{to_base64, to_hex};
use crate::keys::LogId;
use crate::time::UtcSeconds;

/// A time and the log's signature over it. Nothing but this signature vouches for the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedEntryTimestamp {
    /// `integratedTime`.
    pub integrated_time: UtcSeconds,
    /// `inclusionPromise.signedEntryTimestamp`, an ASN.1 DER signature over [`timestamp_message`].
    pub signature: Vec<u8>,
}

/// The bytes that a signed entry timestamp covers: the canonical JSON of body, time, log id and the
/// index over all of the log's trees.
#[must_use]
pub fn timestamp_message(body: &[u8], integrated_time: UtcSeconds, log_id: LogId, log_index: u64) -> Vec<u8> {
    crate::canonical_json(&json!({
        "body": to_base64(body),
        "integratedTime": integrated_time.0,
        "logID": to_hex(&log_id.0),
        "logIndex": log_index,
    }))
}
