//! Entries of a Rekor v2 that sigstore-rust does not read: `hashedrekord` 0.0.2 by other keys than ECDSA P-256, and `dsse` 0.0.2,
//! which rekor-tiles wrote until 2.2.
//!
//! Each is held to the bundle here, and to its log by [`log`](super::log); sigstore-rust gets a copy of the bundle in which the
//! entry has the form that it reads, for everything that is not about the log: certificates, timestamps, the signature, the artifact.
//!
//! Sources: rekor-tiles 2.2 and 2.3 (`pkg/types`, `CLIENTS.md`), Sigstore's registry of algorithms for which key goes with which
//! digest, and sigstore-go 1.2, which makes the entry of a bundle's key anew.

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha384};
use sigstore_crypto::KeyAlgorithm;
use sigstore_types::DerPublicKey;
use symseal_seal::encoding::{from_base64, to_base64};
use symseal_seal::pae;

use super::checks::{Refusal, id};

/// What sigstore-rust reads.
const READ: &str = "PKIX_ECDSA_P256_SHA_256";

/// A bundle as sigstore-rust reads it, and the entries as they were logged.
pub(super) struct Translated {
    /// The bundle's JSON.
    pub(super) json: String,
    /// The body of each entry, in their order.
    pub(super) bodies: Vec<Vec<u8>>,
}

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

/// The bundle for sigstore-rust, where an entry is none that it reads; `None` where it reads them all, or where the bundle is
/// malformed, which it says better. `artifact` gives the SHA-256 of the artifact, where that is needed.
///
/// # Errors
/// The [`Refusal`] of an entry that is not of this bundle.
pub(super) fn translate(
    json: &str,
    artifact: impl FnOnce() -> Result<[u8; 32], Refusal>,
) -> Result<Option<Translated>, Refusal> {
    let Ok(mut bundle) = serde_json::from_str::<Value>(json) else { return Ok(None) };
    let content = Content::of(&bundle);
    let Some(entries) = bundle.pointer_mut("/verificationMaterial/tlogEntries").and_then(Value::as_array_mut) else {
        return Ok(None);
    };
    let mut bodies = Vec::with_capacity(entries.len());
    let mut stand_ins = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let kind = |field: &str| entry["kindVersion"][field].as_str().unwrap_or_default();
        let Some(bytes) = entry["canonicalizedBody"].as_str().and_then(from_base64) else { return Ok(None) };
        if let ("hashedrekord" | "dsse", "0.0.2") = (kind("kind"), kind("version")) {
            match parse(&bytes, kind("kind")) {
                Ok(body) => stand_ins.extend(body.stand_in(content.as_ref())?.map(|stand_in| (at, stand_in))),
                // sigstore-rust refuses it, too, and first says whether it was logged.
                Err(_) if kind("kind") == "hashedrekord" => {}
                Err(refusal) => return Err(refusal),
            }
        }
        bodies.push(bytes);
    }
    if stand_ins.is_empty() {
        return Ok(None);
    }
    let is_v2 = |entry: &Value| entry["kindVersion"]["version"] == "0.0.2" && entry["kindVersion"]["kind"] != "intoto";
    if !entries.iter().all(is_v2) {
        let found = "entries of a Rekor v1 beside one of a Rekor v2 in a form of its own";
        return Err(Refusal::of(id::SUPPORTED, "entries of one kind of log", found));
    }
    let mut artifact_sha256 = None;
    if stand_ins.iter().any(|(_, stand_in)| stand_in.needs_artifact) {
        artifact_sha256 = Some(artifact()?);
    }
    for (at, stand_in) in stand_ins {
        let Some(entry) = entries.get_mut(at) else { continue };
        entry["canonicalizedBody"] = to_base64(stand_in.body(artifact_sha256).to_string().as_bytes()).into();
        entry["kindVersion"] = json!({"kind": "hashedrekord", "version": "0.0.2"});
    }
    Ok(Some(Translated { json: bundle.to_string(), bodies }))
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

/// What a bundle signs, as its JSON says.
enum Content {
    Envelope { payload_type: String, payload: Vec<u8> },
    Message { algorithm: String, digest: String },
}

impl Content {
    fn of(bundle: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(envelope) = bundle.get("dsseEnvelope") {
            let payload = from_base64(envelope["payload"].as_str()?)?;
            return Some(Self::Envelope { payload_type: text(&envelope["payloadType"])?, payload });
        }
        let digest = &bundle["messageSignature"]["messageDigest"];
        Some(Self::Message { algorithm: text(&digest["algorithm"])?, digest: text(&digest["digest"])? })
    }
}

/// What an entry says, in the form that is read.
struct StandIn {
    /// Base64; of a message by a key with another digest it is to be computed.
    digest: String,
    needs_artifact: bool,
    signature: String,
    verifier: Value,
}

impl StandIn {
    fn body(self, artifact: Option<[u8; 32]>) -> Value {
        let digest = artifact.filter(|_| self.needs_artifact).map_or(self.digest, |digest| to_base64(&digest));
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
        let digest = match (content, &data, &dsse) {
            (Content::Envelope { payload, .. }, None, Some(logged)) => {
                let found = to_base64(&Sha256::digest(payload));
                if logged.algorithm != "SHA2_256" || logged.digest != found {
                    return Err(refuse("another payload's hash than the envelope's"));
                }
                envelope_digest(content, "SHA2_256")
            }
            (Content::Envelope { .. }, Some(logged), _) => {
                if logged.algorithm != details.hash || logged.digest != envelope_digest(content, details.hash) {
                    return Err(refuse("another digest than the envelope's"));
                }
                envelope_digest(content, "SHA2_256")
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

/// The digest, in base64, of what an envelope's signature is over.
fn envelope_digest(content: &Content, hash: &str) -> String {
    let Content::Envelope { payload_type, payload } = content else { return String::new() };
    let signed = pae(payload_type, payload);
    if hash == "SHA2_384" { to_base64(&Sha384::digest(&signed)) } else { to_base64(&Sha256::digest(&signed)) }
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
