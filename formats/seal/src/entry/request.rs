//! What a client of a Rekor v2 posts: `hashedRekordRequestV002` in proto3 JSON.
//!
//! Source: rekor-tiles, `api/proto/rekor/v2/hashedrekord.proto` and `verifier.proto`.

use serde::Deserialize;

use super::hashedrekord_v002;
use crate::encoding::{Hash, from_base64, hash_from_base64};
use crate::keys::ArtifactPublicKey;

/// The largest request that is read, in bytes: digest, signature and key fit in less than 1 KiB.
pub const ENTRY_REQUEST_LIMIT: usize = 16 * 1024;
/// An ASN.1 DER signature of P-256 has at most 72 bytes.
const SIGNATURE_LIMIT: usize = 72;
/// The one algorithm that is taken.
const KEY_DETAILS: &str = "PKIX_ECDSA_P256_SHA_256";

/// A request to log a P-256 signature over something with this SHA-256.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashedRekordRequest {
    /// What was signed, by its SHA-256.
    pub digest: Hash,
    /// ASN.1 DER.
    pub signature: Vec<u8>,
    /// The signer's key, as the client says.
    pub key: ArtifactPublicKey,
}

/// The bytes are no such request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryRequestError {
    /// Larger than [`ENTRY_REQUEST_LIMIT`].
    #[error("expected a request of at most {ENTRY_REQUEST_LIMIT} bytes, found {found}")]
    TooLarge {
        /// Its size in bytes.
        found: usize,
    },
    /// Not the JSON form, or with a field that it does not have.
    #[error("expected the JSON of a hashedRekordRequestV002: {reason}")]
    Json {
        /// What the JSON reader said.
        reason: String,
    },
    /// A field does not hold what its type says.
    #[error("expected {expected} in {field}")]
    Field {
        /// The field.
        field: &'static str,
        /// What belongs there.
        expected: &'static str,
    },
    /// Another kind of key, or a certificate.
    #[error(
        "expected a public key of the kind {KEY_DETAILS}, found {found}: this log takes the signatures of ECDSA P-256 keys alone"
    )]
    KeyKind {
        /// What the request has.
        found: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestJson {
    #[serde(rename = "hashedRekordRequestV002", alias = "hashed_rekord_request_v002")]
    request: HashedRekordJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HashedRekordJson {
    digest: String,
    signature: SignatureJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureJson {
    content: String,
    verifier: VerifierJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifierJson {
    #[serde(default, rename = "publicKey", alias = "public_key")]
    public_key: Option<RawBytesJson>,
    #[serde(default, rename = "x509Certificate", alias = "x509_certificate")]
    certificate: Option<RawBytesJson>,
    #[serde(default, rename = "keyDetails", alias = "key_details")]
    key_details: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBytesJson {
    #[serde(rename = "rawBytes", alias = "raw_bytes")]
    raw_bytes: String,
}

impl HashedRekordRequest {
    /// Reads a request. Nothing is verified but that the key is one of P-256.
    ///
    /// # Errors
    /// [`EntryRequestError`] says what is malformed or not taken.
    pub fn parse(json: &[u8]) -> Result<Self, EntryRequestError> {
        if json.len() > ENTRY_REQUEST_LIMIT {
            return Err(EntryRequestError::TooLarge { found: json.len() });
        }
        let RequestJson { request } =
            serde_json::from_slice(json).map_err(|error| EntryRequestError::Json { reason: error.to_string() })?;
        let wrong = |field, expected| EntryRequestError::Field { field, expected };
        let SignatureJson { content, verifier } = request.signature;
        let kind = |found: &str| EntryRequestError::KeyKind { found: found.chars().take(80).collect() };
        if verifier.key_details != KEY_DETAILS {
            return Err(kind(&format!("{:?}", verifier.key_details)));
        }
        let key = match (verifier.public_key, verifier.certificate) {
            (Some(key), None) => key.raw_bytes,
            (None, Some(_)) => return Err(kind("a certificate")),
            _ => return Err(wrong("signature.verifier", "a publicKey and nothing else")),
        };
        let key = from_base64(&key).ok_or_else(|| wrong("signature.verifier.publicKey.rawBytes", "base64"))?;
        let key = ArtifactPublicKey::from_spki(&key).map_err(|error| kind(&error.to_string()))?;
        let signature = from_base64(&content).filter(|bytes| (8..=SIGNATURE_LIMIT).contains(&bytes.len()));
        Ok(Self {
            digest: hash_from_base64(&request.digest).ok_or_else(|| wrong("digest", "the base64 of 32 bytes"))?,
            signature: signature
                .ok_or_else(|| wrong("signature.content", "the base64 of an ASN.1 DER signature of P-256"))?,
            key,
        })
    }

    /// Whether the signature is the key's over what has this digest.
    #[must_use]
    pub fn signature_holds(&self) -> bool {
        self.key.verifies_digest(&self.digest, &self.signature)
    }

    /// The canonical body of the entry.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        hashedrekord_v002(&self.digest, &self.signature, self.key.spki())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::to_base64;

    // The key of RFC 6979, A.2.5, as SPKI.
    const SPKI: &str = concat!(
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYP7UuiVanTHJYet0xjVtaMBJuJI7Yfx8yPnLJOVJFsW",
        "UZqiPUGOL8z2ZOmJ+H3+wRBZHm9r9Kz3RGBZ3Xx0CwQ=="
    );

    fn request(spki: &str, details: &str) -> String {
        format!(
            r#"{{"hashedRekordRequestV002":{{"digest":"{}","signature":{{"content":"{}","verifier":{{"publicKey":{{"rawBytes":"{spki}"}},"keyDetails":"{details}"}}}}}}}}"#,
            to_base64(&[1; 32]),
            to_base64(&[2; 70]),
        )
    }

    #[test]
    fn other_kinds_of_keys_and_other_forms_are_refused() {
        let parse = |text: &str| HashedRekordRequest::parse(text.as_bytes());
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        assert!(refused(&request(SPKI, "PKIX_ED25519")).contains("PKIX_ED25519"));
        assert!(refused(&request("AAAA", KEY_DETAILS)).contains("ECDSA P-256"));
        assert!(refused("{}").contains("hashedRekordRequestV002"));
        assert!(refused(&request(SPKI, KEY_DETAILS).replace("\"digest\"", "\"diggest\"")).contains("diggest"));
        assert!(matches!(parse(&" ".repeat(20_000)), Err(EntryRequestError::TooLarge { found: 20_000 })));
        let certificate = request(SPKI, KEY_DETAILS).replace("publicKey", "x509Certificate");
        assert!(refused(&certificate).contains("certificate"));
    }

    #[test]
    fn damaged_requests_are_refused_or_read_without_harm() {
        let text = request(SPKI, KEY_DETAILS).into_bytes();
        for at in 0..text.len() {
            let _ = HashedRekordRequest::parse(text.get(..at).unwrap()).unwrap_err();
            for replacement in [0, b'"', b'}', b'A', 0xff] {
                let mut damaged = text.clone();
                damaged[at] = replacement;
                if let Ok(request) = HashedRekordRequest::parse(&damaged) {
                    assert!(!request.signature_holds());
                }
            }
        }
    }
}
