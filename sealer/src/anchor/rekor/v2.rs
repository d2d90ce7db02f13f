//! Rekor v2: `POST /api/v2/log/entries`.
//!
//! Source: rekor-tiles, `CLIENTS.md` and `api/proto/rekor/v2/rekor_service.proto`. The answer is Sigstore's
//! `TransparencyLogEntry`. Of an entry that stands in the log already it says the index alone (409,
//! `x-log-index`); its proof is then made from the log's tiles.

use std::time::Duration;

use serde_json::json;
use symseal_seal::encoding::{decimal, sha256, to_base64};
use symseal_seal::entry::hashedrekord_v002;
use symseal_seal::{ArtifactPublicKey, Envelope, LogEntry};

use super::RekorLog;
use super::http::{Answer, Http};
use super::tiles::{self, Missing};
use crate::anchor::AnchorError;

const PATH: &str = "/api/v2/log/entries";
/// How often the log's tiles are read for an entry that its checkpoint does not cover yet.
const READS: u32 = 20;
/// The wait between two reads.
const READ_WAIT: Duration = Duration::from_millis(500);

pub(super) async fn create(
    log: &RekorLog,
    http: &Http<'_>,
    envelope: &Envelope,
    key: &ArtifactPublicKey,
) -> Result<LogEntry, AnchorError> {
    let pae_digest = sha256(&envelope.pae());
    let request = json!({"hashedRekordRequestV002": {
        "digest": to_base64(&pae_digest),
        "signature": {
            "content": to_base64(&envelope.signature),
            "verifier": {
                "publicKey": {"rawBytes": to_base64(key.spki())},
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            },
        },
    }});
    let answer = http.post(PATH, &request).await?;
    match answer.status.as_u16() {
        200 | 201 => LogEntry::parse(&answer.body)
            .map_err(|error| log.answer("a transparency-log entry as the answer", error.to_string())),
        409 => {
            let index = duplicate_index(&answer)
                .ok_or_else(|| log.answer("the index of an entry that it has already (x-log-index)", "none"))?;
            let body = hashedrekord_v002(&pae_digest, &envelope.signature, key.spki());
            existing(log, http, index, body).await
        }
        _ => Err(http.refused(&answer)),
    }
}

fn duplicate_index(answer: &Answer) -> Option<u64> {
    answer.header("x-log-index").and_then(decimal)
}

/// The entry at `index`, with a proof made from the log's tiles. They are read again while the published
/// checkpoint is older than the entry, and where the log grew between two reads.
async fn existing(log: &RekorLog, http: &Http<'_>, index: u64, body: Vec<u8>) -> Result<LogEntry, AnchorError> {
    let mut last = String::new();
    for read in 0..READS {
        if read > 0 {
            tokio::time::sleep(READ_WAIT).await;
        }
        match tiles::entry(log, http, index, &body).await? {
            Ok(entry) => return Ok(entry),
            Err(Missing::ForNow(reason)) => last = reason,
            Err(Missing::Lasting(reason)) => {
                last = reason;
                break;
            }
        }
    }
    let reason = format!(
        "{last}; it is read at {} (--log-read names another place, such as a static server of the log's tiles)",
        log.read_url()
    );
    Err(AnchorError::Duplicate { log: log.url.clone(), index, reason })
}
