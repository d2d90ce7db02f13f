//! The canonical body of a Rekor v1 `dsse` 0.0.1 entry.
//!
//! Source: rekor, `pkg/types/dsse/v0.0.1/entry.go`. `envelopeHash` is the hash of the text that was
//! submitted, which a bundle does not keep; it is the one field that is taken over and not compared.

use serde::Deserialize;
use serde_json::json;

use crate::dsse::Envelope;
use crate::encoding::{Hash, hash_from_hex, sha256, to_base64, to_hex};
use crate::keys::ArtifactPublicKey;

/// The canonical body (RFC 8785) of the entry for an envelope with one signature by `key`.
///
/// `envelope_sha256` is the SHA-256 of the envelope's text as it was submitted.
#[must_use]
pub fn dsse_v001(envelope: &Envelope, envelope_sha256: &Hash, key: &ArtifactPublicKey) -> Vec<u8> {
    crate::canonical_json(&json!({
        "apiVersion": "0.0.1",
        "kind": "dsse",
        "spec": {
            "envelopeHash": {"algorithm": "sha256", "value": to_hex(envelope_sha256)},
            "payloadHash": {"algorithm": "sha256", "value": to_hex(&sha256(&envelope.payload))},
            "signatures": [{
                "signature": to_base64(&envelope.signature),
                "verifier": to_base64(key.to_pem().as_bytes()),
            }],
        },
    }))
}

#[derive(Deserialize)]
struct BodyJson {
    spec: SpecJson,
}

#[derive(Deserialize)]
struct SpecJson {
    #[serde(rename = "envelopeHash")]
    envelope_hash: HashJson,
}

#[derive(Deserialize)]
struct HashJson {
    value: String,
}

/// The body that an entry of this envelope and key has, with the `envelopeHash` of `logged`; `None` where
/// that has none. Whoever compares the result with `logged` byte by byte has compared everything else:
/// the payload's hash, the one signature, the one verifier, and that there is no field more.
#[must_use]
pub fn rebuild_dsse_v001(logged: &[u8], envelope: &Envelope, key: &ArtifactPublicKey) -> Option<Vec<u8>> {
    let body: BodyJson = serde_json::from_slice(logged).ok()?;
    let submitted = hash_from_hex(&body.spec.envelope_hash.value)?;
    Some(dsse_v001(envelope, &submitted, key))
}
