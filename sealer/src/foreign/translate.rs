//! Log entries that sigstore-rust does not read, in a form that it reads.
//!
//! Each such entry is held to the bundle by [`rekor_v1`] and [`rekor_v2`], and to its log by [`log`](super::log), as it was logged;
//! sigstore-rust gets a copy of the bundle in which the entry has a form that it reads, for everything that is not about the log:
//! certificates, timestamps, the signature, the artifact. The time of a Rekor v1 is one of these, and comes with the log's
//! signature over the entry: where sigstore-rust asks whether the log signed the copy's entry, the provider asks for the one that
//! was logged.

use serde_json::{Value, json};
use sigstore_types::HashAlgorithm;
use symseal_seal::encoding::{from_base64, to_base64};
use symseal_seal::pae;

use super::checks::{Refusal, id};
use super::provider::Promise;
use super::{log, provider, rekor_v1, rekor_v2};

/// A bundle as sigstore-rust reads it, and the entries as they were logged.
pub(super) struct Translated {
    /// The bundle's JSON.
    pub(super) json: String,
    /// The body of each entry, in their order.
    pub(super) bodies: Vec<Vec<u8>>,
    /// What the logs promised of the entries that have another form now.
    pub(super) promises: Vec<Promise>,
}

/// What a bundle signs, as its JSON says.
pub(super) enum Content {
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

    /// The digest of what an envelope's signature is over; `None` of a message, which is the artifact.
    pub(super) fn signed_digest(&self, algorithm: HashAlgorithm) -> Option<Vec<u8>> {
        let Self::Envelope { payload_type, payload } = self else { return None };
        provider::digest(algorithm, &pae(payload_type, payload))
    }
}

/// The bundle for sigstore-rust, where an entry is none that it reads; `None` where it reads them all, or where the bundle is
/// malformed, which it says better. `artifact` gives a digest of the artifact, where one is needed.
///
/// # Errors
/// The [`Refusal`] of an entry that is not of this bundle.
pub(super) fn translate(
    json: &str,
    mut artifact: impl FnMut(HashAlgorithm) -> Result<Vec<u8>, Refusal>,
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
        let stand_in = match (kind("kind"), kind("version")) {
            (kind @ ("hashedrekord" | "dsse"), "0.0.2") => match rekor_v2::stand_in(&bytes, kind, content.as_ref())? {
                Some(stand_in) => {
                    let sha256 = stand_in.needs_artifact.then(|| artifact(HashAlgorithm::Sha2256)).transpose()?;
                    Some(stand_in.body(sha256.as_deref()))
                }
                None => None,
            },
            ("hashedrekord", "0.0.1") => rekor_v1::stand_in(&bytes, content.as_ref(), &mut artifact)?,
            _ => None,
        };
        stand_ins.extend(stand_in.map(|body| (at, body)));
        bodies.push(bytes);
    }
    if stand_ins.is_empty() {
        return Ok(None);
    }
    if entries.iter().any(is_v2) && !entries.iter().all(is_v2) {
        let found = "entries of a Rekor v1 beside ones of a Rekor v2, not all in the usual form";
        return Err(Refusal::of(id::SUPPORTED, "entries of one kind of log", found));
    }
    let mut promises = Vec::new();
    for (at, body) in stand_ins {
        let (Some(entry), Some(logged)) = (entries.get_mut(at), bodies.get(at)) else { continue };
        let body = body.to_string().into_bytes();
        promises.extend(promise(entry, &body, logged));
        entry["canonicalizedBody"] = to_base64(&body).into();
        if is_v2(entry) {
            entry["kindVersion"] = json!({"kind": "hashedrekord", "version": "0.0.2"});
        }
    }
    Ok(Some(Translated { json: bundle.to_string(), bodies, promises }))
}

fn is_v2(entry: &Value) -> bool {
    entry["kindVersion"]["version"] == "0.0.2" && entry["kindVersion"]["kind"] != "intoto"
}

/// What a Rekor v1 signed of an entry, beside what sigstore-rust will ask for. Numbers are text in this JSON.
fn promise(entry: &Value, body: &[u8], logged: &[u8]) -> Option<Promise> {
    let number =
        |field: &str| entry[field].as_str().and_then(|text| text.parse::<i64>().ok()).or(entry[field].as_i64());
    // What is absent is zero in the signed form.
    let (time, index) = (number("integratedTime").unwrap_or(0), number("logIndex")?);
    let log_id = from_base64(entry["logId"]["keyId"].as_str()?)?;
    let signed = |body: &[u8]| log::promise_payload(body, time, index, &log_id);
    Some(Promise { asked: signed(body), logged: signed(logged) })
}
