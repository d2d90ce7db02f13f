//! What a Rekor v1 answers to a new or a known entry, as a [`LogEntry`].
//!
//! Source: rekor, `openapi.yaml`, `LogEntry`: an object with one member, whose name is the entry's UUID.
//! Hashes are hex here, and base64 in a Sigstore bundle.

use serde::Deserialize;
use std::collections::BTreeMap;

use symseal_seal::encoding::{from_base64, hash_from_hex};
use symseal_seal::entry::{ENTRY_LIMIT, SignedEntryTimestamp};
use symseal_seal::log_entry::LOG_ENTRY_LIMIT;
use symseal_seal::note::NOTE_LIMIT;
use symseal_seal::tlog::MAX_PROOF_HASHES;
use symseal_seal::{EntryKind, Hash, LogEntry, LogId, UtcSeconds};

/// The bytes are no answer of a Rekor v1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RekorV1AnswerError {
    /// Larger than any answer about one entry.
    #[error("more than {LOG_ENTRY_LIMIT} bytes")]
    TooLarge,
    /// Not the JSON of one entry.
    #[error("{reason}")]
    Json {
        /// What the JSON reader said.
        reason: String,
    },
    /// None, or several entries.
    #[error("{found} entries")]
    Count {
        /// How many.
        found: usize,
    },
    /// A field does not hold what its type says.
    #[error("another value in {field}")]
    Field {
        /// The field.
        field: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    body: String,
    integrated_time: i64,
    #[serde(rename = "logID")]
    log_id: String,
    log_index: u64,
    verification: Verification,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Verification {
    inclusion_proof: Proof,
    signed_entry_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Proof {
    checkpoint: String,
    hashes: Vec<String>,
    log_index: u64,
    root_hash: String,
    tree_size: u64,
}

/// Reads the answer. Its form is right then; nothing is verified yet.
///
/// # Errors
/// [`RekorV1AnswerError`].
pub fn parse_rekor_v1_answer(json: &[u8]) -> Result<LogEntry, RekorV1AnswerError> {
    if json.len() > LOG_ENTRY_LIMIT {
        return Err(RekorV1AnswerError::TooLarge);
    }
    let answers: BTreeMap<String, Answer> =
        serde_json::from_slice(json).map_err(|error| RekorV1AnswerError::Json { reason: error.to_string() })?;
    let found = answers.len();
    let mut answers = answers.into_values();
    let (Some(answer), None) = (answers.next(), answers.next()) else {
        return Err(RekorV1AnswerError::Count { found });
    };
    let field = |field| RekorV1AnswerError::Field { field };
    let proof = answer.verification.inclusion_proof;
    if proof.checkpoint.len() > NOTE_LIMIT {
        return Err(field("checkpoint"));
    }
    if proof.hashes.len() > MAX_PROOF_HASHES {
        return Err(field("hashes"));
    }
    // Signed 64-bit integers in a Sigstore bundle.
    let counts =
        [("logIndex", answer.log_index), ("inclusionProof.logIndex", proof.log_index), ("treeSize", proof.tree_size)];
    if let Some((name, _)) = counts.into_iter().find(|(_, count)| i64::try_from(*count).is_err()) {
        return Err(field(name));
    }
    let hashes: Option<Vec<Hash>> = proof.hashes.iter().map(|hash| hash_from_hex(hash)).collect();
    let body = from_base64(&answer.body).filter(|body| body.len() <= ENTRY_LIMIT);
    Ok(LogEntry {
        kind: EntryKind::Dsse(SignedEntryTimestamp {
            integrated_time: Some(answer.integrated_time)
                .filter(|time| *time >= 0)
                .map(UtcSeconds)
                .ok_or_else(|| field("integratedTime"))?,
            signature: from_base64(&answer.verification.signed_entry_timestamp)
                .ok_or_else(|| field("signedEntryTimestamp"))?,
        }),
        log_index: answer.log_index,
        log_id: hash_from_hex(&answer.log_id).map(LogId).ok_or_else(|| field("logID"))?,
        canonicalized_body: body.ok_or_else(|| field("body"))?,
        proof_index: proof.log_index,
        proof_size: proof.tree_size,
        proof_root: hash_from_hex(&proof.root_hash).ok_or_else(|| field("rootHash"))?,
        hashes: hashes.ok_or_else(|| field("hashes"))?,
        checkpoint: proof.checkpoint,
    })
}

#[cfg(test)]
mod tests {
    use symseal_seal::{ArtifactPublicKey, LogIdentity, LogPublicKey, SigstoreBundle, verify_entry};

    use super::*;

    /// What a real rekor-server 1.5.4 answered to the envelope of the golden seal, its key and its origin.
    const ANSWER: &str = include_str!("../../tests/golden/rekor_v1_answer.json");
    const KEY: &str = include_str!("../../tests/golden/rekor_v1.pub");
    const ORIGIN: &str = include_str!("../../tests/golden/rekor_v1.origin");
    const SEAL: &[u8] = include_bytes!("../../../formats/seal/tests/golden/seal.sigstore.json");
    const ARTIFACT: &str = include_str!("../../tests/golden/artifact.pem");

    fn identity() -> LogIdentity {
        LogIdentity { origin: ORIGIN.trim().parse().unwrap(), key: LogPublicKey::from_pem(KEY).unwrap() }
    }

    fn artifact() -> ArtifactPublicKey {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("artifact.pem");
        std::fs::write(&path, ARTIFACT).unwrap();
        crate::ArtifactKey::load_pem(&path).unwrap().public().clone()
    }

    #[test]
    fn the_answer_of_a_real_server_verifies() {
        let envelope = SigstoreBundle::parse(SEAL).unwrap().envelope;
        let entry = parse_rekor_v1_answer(ANSWER.as_bytes()).unwrap();
        verify_entry(&entry, &envelope, &artifact(), &identity()).unwrap();
        assert_eq!((entry.proof_index, entry.hashes.len()), (4, 1));
        assert_eq!(
            entry.canonicalized_body,
            symseal_seal::entry::dsse_v001(&envelope, &envelope.digest(), &artifact())
        );
    }

    #[test]
    fn a_changed_answer_is_malformed_or_does_not_verify() {
        let envelope = SigstoreBundle::parse(SEAL).unwrap().envelope;
        let (identity, artifact) = (identity(), artifact());
        let (mut malformed, mut refused, mut unchanged) = (0, 0, 0);
        let good = parse_rekor_v1_answer(ANSWER.as_bytes()).unwrap();
        let answer = ANSWER.trim_end().as_bytes();
        for n in 0..answer.len() {
            let mut changed = answer.to_vec();
            changed[n] = if changed[n] == b'5' { b'6' } else { b'5' };
            match parse_rekor_v1_answer(&changed) {
                Err(_) => malformed += 1,
                // The UUID, which nothing depends on.
                Ok(entry) if entry == good => unchanged += 1,
                Ok(entry) => {
                    assert!(verify_entry(&entry, &envelope, &artifact, &identity).is_err(), "byte {n}");
                    refused += 1;
                }
            }
            assert!(parse_rekor_v1_answer(&answer[..n]).is_err());
        }
        assert!(malformed > 50 && refused > 500 && unchanged < 100, "{malformed} {refused} {unchanged}");
    }

    #[test]
    fn other_shapes_are_refused() {
        let json: serde_json::Value = serde_json::from_str(ANSWER).unwrap();
        let (uuid, entry) = json.as_object().unwrap().iter().next().unwrap();
        let two = serde_json::json!({"a": entry, uuid.as_str(): entry});
        assert_eq!(parse_rekor_v1_answer(two.to_string().as_bytes()), Err(RekorV1AnswerError::Count { found: 2 }));
        assert_eq!(parse_rekor_v1_answer(b"{}"), Err(RekorV1AnswerError::Count { found: 0 }));
        assert_eq!(parse_rekor_v1_answer(&vec![b' '; LOG_ENTRY_LIMIT + 1]), Err(RekorV1AnswerError::TooLarge));
        for (pointer, value) in [
            ("/integratedTime", serde_json::json!(-1)),
            ("/logIndex", serde_json::json!(u64::MAX)),
            ("/logID", serde_json::json!("AA")),
            ("/verification/inclusionProof/hashes", serde_json::json!(vec!["00"; 65])),
            ("/verification/inclusionProof/rootHash", serde_json::json!("")),
            ("/verification/signedEntryTimestamp", serde_json::json!("*")),
            ("/verification", serde_json::json!({})),
        ] {
            let mut changed = entry.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            let changed = serde_json::json!({uuid.as_str(): changed});
            assert!(parse_rekor_v1_answer(changed.to_string().as_bytes()).is_err(), "{pointer}");
        }
    }
}
