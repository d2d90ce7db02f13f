//! Entries of a Rekor v2 that sigstore-rust does not read: `hashedrekord` 0.0.2 by other keys than ECDSA P-256, and `dsse` 0.0.2,
//! which rekor-tiles wrote until 2.2.
//!
//! Each is held to the bundle here; [`translate`](super::translate) says what for.
//!
//! Sources: rekor-tiles 2.2 and 2.3 (`pkg/types`, `CLIENTS.md`), Sigstore's registry of algorithms for which key goes with which
//! digest, and sigstore-go 1.2, which makes the entry of a bundle's key anew.

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sigstore_crypto::KeyAlgorithm;
use sigstore_types::{DerPublicKey, HashAlgorithm};
use symseal_seal::encoding::{from_base64, to_base64};

use super::checks::{Refusal, id};
use super::translate::Content;

/// What sigstore-rust reads.
const READ: &str = "PKIX_ECDSA_P256_SHA_256";

/// The body of an entry, of either kind.
#[derive(Deserialize)]
struct Body {
    kind: String,
    #[serde(rename = "apiVersion")]
    version: String,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
enum Spec {
    #[serde(rename = "hashedRekordV002")]
    HashedRekord(HashedRekord),
    #[serde(rename = "dsseV002")]
    Dsse(Dsse),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HashedRekord {
    data: LoggedDigest,
    signature: LoggedSignature,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Dsse {
    payload_hash: LoggedDigest,
    signatures: Vec<LoggedSignature>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoggedDigest {
    algorithm: String,
    digest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoggedSignature {
    content: String,
    verifier: Verifier,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Verifier {
    key_details: String,
    public_key: Option<RawBytes>,
    x509_certificate: Option<RawBytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawBytes {
    raw_bytes: String,
}

/// What sigstore-rust is to read in the place of an entry's body; `None` where it reads it as it is.
///
/// # Errors
/// The [`Refusal`] of an entry that is not of this bundle.
pub(super) fn stand_in(bytes: &[u8], kind: &str, content: Option<&Content>) -> Result<Option<StandIn>, Refusal> {
    match parse(bytes, kind) {
        Ok(body) => body.stand_in(content),
        // sigstore-rust refuses it, too, and first says whether it was logged.
        Err(_) if kind == "hashedrekord" => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

fn parse(bytes: &[u8], kind: &str) -> Result<Body, Refusal> {
    let refuse = |found: String| Refusal::new(id::LOG_ENTRY, found);
    super::shape::check_keys(&String::from_utf8_lossy(bytes)).map_err(refuse)?;
    let body: Body = serde_json::from_slice(bytes).map_err(|error| refuse(format!("a log entry's body: {error}")))?;
    let of_its_kind = matches!((&body.spec, kind), (Spec::HashedRekord(_), "hashedrekord") | (Spec::Dsse(_), "dsse"));
    if !of_its_kind || body.kind != kind || body.version != "0.0.2" {
        let found = format!("the body of a {} {:.20?} where the entry says {kind} 0.0.2", body.kind, body.version);
        return Err(refuse(found));
    }
    Ok(body)
}

/// What an entry says, in the form that is read.
pub(super) struct StandIn {
    /// Base64; of a message by a key with another digest it is to be computed.
    digest: String,
    pub(super) needs_artifact: bool,
    signature: String,
    verifier: Value,
}

impl StandIn {
    /// The body; `artifact` is the SHA-256 of the artifact, where that is needed.
    pub(super) fn body(self, artifact: Option<&[u8]>) -> Value {
        let digest = artifact.filter(|_| self.needs_artifact).map_or(self.digest, to_base64);
        json!({
            "apiVersion": "0.0.2", "kind": "hashedrekord",
            "spec": {"hashedRekordV002": {
                "data": {"algorithm": "SHA2_256", "digest": digest},
                "signature": {"content": self.signature, "verifier": self.verifier},
            }},
        })
    }
}

impl Body {
    /// `None` where it is read as it is.
    fn stand_in(self, content: Option<&Content>) -> Result<Option<StandIn>, Refusal> {
        let refuse = |found: &str| Refusal::new(id::LOG_ENTRY, found);
        let (signature, dsse, data) = match self.spec {
            Spec::HashedRekord(HashedRekord { data, signature }) => (signature, None, Some(data)),
            Spec::Dsse(Dsse { payload_hash, signatures }) => match <[LoggedSignature; 1]>::try_from(signatures) {
                Ok([signature]) => (signature, Some(payload_hash), None),
                Err(_) => {
                    return Err(refuse(
                        "expected the one signature of the envelope in the entry, found several or none",
                    ));
                }
            },
        };
        let details = details_of(&signature.verifier)?;
        if signature.verifier.key_details != details.name {
            let found = format!("{:.60} for a key of {}", signature.verifier.key_details, details.name);
            return Err(refuse(&found));
        }
        if data.is_some() && details.name == READ {
            return Ok(None);
        }
        let content = content.ok_or_else(|| refuse("a bundle whose content no entry can be compared with"))?;
        let signed = |hash| to_base64(&content.signed_digest(hash).unwrap_or_default());
        let digest = match (content, &data, &dsse) {
            (Content::Envelope { payload, .. }, None, Some(logged)) => {
                let found = to_base64(&Sha256::digest(payload));
                if logged.algorithm != "SHA2_256" || logged.digest != found {
                    return Err(refuse("another payload's hash than the envelope's"));
                }
                signed(HashAlgorithm::Sha2256)
            }
            (Content::Envelope { .. }, Some(logged), _) => {
                let hash = if details.hash == "SHA2_384" { HashAlgorithm::Sha2384 } else { HashAlgorithm::Sha2256 };
                if logged.algorithm != details.hash || logged.digest != signed(hash) {
                    return Err(refuse("another digest than the envelope's"));
                }
                signed(HashAlgorithm::Sha2256)
            }
            (Content::Message { algorithm, digest }, Some(logged), _) => {
                if logged.algorithm != details.hash || *algorithm != logged.algorithm || *digest != logged.digest {
                    return Err(refuse("another digest than the message's"));
                }
                digest.clone()
            }
            (Content::Message { .. }, None, _) | (Content::Envelope { .. }, None, None) => {
                return Err(refuse("an entry of an envelope in a bundle that has none"));
            }
        };
        let mut verifier = json!({ "keyDetails": READ });
        for (name, bytes) in
            [("publicKey", signature.verifier.public_key), ("x509Certificate", signature.verifier.x509_certificate)]
        {
            if let Some(bytes) = bytes {
                verifier[name] = json!({ "rawBytes": bytes.raw_bytes });
            }
        }
        let needs_artifact = matches!(content, Content::Message { .. }) && details.hash != "SHA2_256";
        Ok(Some(StandIn { digest, needs_artifact, signature: signature.content, verifier }))
    }
}

/// How the log calls a key's way to sign, and the digest that goes with it.
struct Details {
    name: &'static str,
    hash: &'static str,
}

fn details_of(verifier: &Verifier) -> Result<Details, Refusal> {
    let refuse = |found: String| Refusal::new(id::LOG_ENTRY, found);
    let unsupported = |found: String| Refusal::new(id::SUPPORTED, found);
    let decoded = |bytes: &RawBytes| {
        from_base64(&bytes.raw_bytes).ok_or_else(|| refuse("a key that is no base64 in a log entry".to_owned()))
    };
    let key = match (&verifier.public_key, &verifier.x509_certificate) {
        (Some(key), None) => DerPublicKey::new(decoded(key)?),
        (None, Some(certificate)) => {
            let certificate = sigstore_types::DerCertificate::new(decoded(certificate)?);
            let read = sigstore_crypto::parse_certificate_info(&certificate);
            read.map_err(|error| refuse(format!("a log entry's certificate: {error}")))?.public_key
        }
        _ => return Err(refuse("expected a key or a certificate in the log entry, found both or neither".to_owned())),
    };
    let algorithm = KeyAlgorithm::from_spki(&key).map_err(|error| refuse(format!("a log entry's key: {error}")))?;
    Ok(match algorithm {
        KeyAlgorithm::EcdsaP256 => Details { name: READ, hash: "SHA2_256" },
        KeyAlgorithm::EcdsaP384 => Details { name: "PKIX_ECDSA_P384_SHA_384", hash: "SHA2_384" },
        // The registry has three sizes; a SubjectPublicKeyInfo has some 38 bytes beside the modulus.
        KeyAlgorithm::Rsa => {
            let name = match key.as_bytes().len() {
                290..=300 => "PKIX_RSA_PKCS1V15_2048_SHA256",
                418..=430 => "PKIX_RSA_PKCS1V15_3072_SHA256",
                546..=558 => "PKIX_RSA_PKCS1V15_4096_SHA256",
                bytes => {
                    return Err(unsupported(format!("an RSA key of {bytes} bytes; expected 2048, 3072 or 4096 bits")));
                }
            };
            Details { name, hash: "SHA2_256" }
        }
        other => {
            let found =
                format!("an entry of a Rekor v2 by a key of {other:?}; expected ECDSA on P-256 or P-384, or RSA");
            return Err(unsupported(found));
        }
    })
}
