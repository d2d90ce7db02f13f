//! A log that speaks as a Rekor v1 does: one entry, its audit path empty, a signed entry timestamp. The real server is
//! asked in `tests/certify`; here everything it says can be said wrongly too.

use serde_json::{Value, json};
use symseal_seal::encoding::{sha256, to_base64, to_hex};
use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_sealer::ArtifactKey;

pub struct RekorV1 {
    key: ArtifactKey,
}

impl RekorV1 {
    pub fn new() -> Self {
        Self { key: ArtifactKey::generate().unwrap() }
    }

    fn id(&self) -> [u8; 32] {
        sha256(self.key.spki())
    }

    /// The log as a trusted root has it.
    pub fn trusted(&self, valid_for: Value) -> Value {
        json!({
            "baseUrl": "https://rekor-v1.example.org",
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": to_base64(self.key.spki()),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": valid_for,
            },
            "logId": {"keyId": to_base64(&self.id())},
        })
    }

    /// The entry with this body at this time. Its index counts over several shards, that of the proof in one.
    pub fn entry(&self, kind: &str, version: &str, body: &[u8], time: i64) -> Value {
        let (index, root) = (1234, sha256(&[&[0], body].concat()));
        // The keys are in the order of RFC 8785 already.
        let payload = json!({
            "body": to_base64(body), "integratedTime": time, "logID": to_hex(&self.id()), "logIndex": index,
        });
        let text = format!("rekor-v1.example.org - 77\n1\n{}\n", to_base64(&root));
        let signature = NoteSignature {
            name: "rekor-v1.example.org".into(),
            hint: self.id().first_chunk().copied().unwrap(),
            signature: self.key.sign(text.as_bytes()),
        };
        json!({
            "logIndex": index.to_string(),
            "logId": {"keyId": to_base64(&self.id())},
            "kindVersion": {"kind": kind, "version": version},
            "integratedTime": time.to_string(),
            "inclusionPromise": {"signedEntryTimestamp": to_base64(&self.key.sign(payload.to_string().as_bytes()))},
            "inclusionProof": {
                "logIndex": "0", "treeSize": "1", "rootHash": to_base64(&root), "hashes": [],
                "checkpoint": {"envelope": SignedNote { text, signatures: vec![signature] }.to_text()},
            },
            "canonicalizedBody": to_base64(body),
        })
    }
}

/// The body of a `hashedrekord` 0.0.1; `verifier` is PEM.
pub fn hashedrekord(artifact_sha256: &[u8; 32], signature: &[u8], verifier: &str) -> Vec<u8> {
    hashedrekord_by("sha256", artifact_sha256, signature, verifier)
}

/// The same with a digest by another algorithm: sha384 or sha512.
pub fn hashedrekord_by(algorithm: &str, digest: &[u8], signature: &[u8], verifier: &str) -> Vec<u8> {
    let value = json!({
        "apiVersion": "0.0.1",
        "kind": "hashedrekord",
        "spec": {
            "data": {"hash": {"algorithm": algorithm, "value": to_hex(digest)}},
            "signature": {"content": to_base64(signature), "publicKey": {"content": to_base64(verifier.as_bytes())}},
        },
    });
    value.to_string().into_bytes()
}

/// The body of a `dsse` 0.0.1; `verifier` is PEM.
pub fn dsse(payload: &[u8], signature: &[u8], verifier: &str) -> Vec<u8> {
    let hash = |hex: String| json!({"algorithm": "sha256", "value": hex});
    let value = json!({
        "apiVersion": "0.0.1",
        "kind": "dsse",
        "spec": {
            "envelopeHash": hash("00".repeat(32)),
            "payloadHash": hash(to_hex(&sha256(payload))),
            "signatures": [{"signature": to_base64(signature), "verifier": to_base64(verifier.as_bytes())}],
        },
    });
    value.to_string().into_bytes()
}
