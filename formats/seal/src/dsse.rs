//! The DSSE envelope: what is signed (PAE), and the strict form in which it stands in a seal.
//!
//! Source: DSSE protocol and envelope, version 1.0.2. Stricter here: exactly one signature, and one
//! spelling of base64.

use serde::{Deserialize, Serialize};

use crate::encoding::{Hash, from_base64, sha256, to_base64};

/// The payload type of an in-toto statement.
pub const IN_TOTO_PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// The bytes that a DSSE signature covers: `DSSEv1 SP len(type) SP type SP len(body) SP body`, lengths
/// in bytes and decimal.
#[must_use]
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// An envelope with its one signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// What kind of payload it is.
    pub payload_type: String,
    /// The payload's bytes.
    pub payload: Vec<u8>,
    /// The key id that the envelope claims; empty: none. Not covered by the signature.
    pub keyid: String,
    /// The signature's bytes (for ECDSA: ASN.1 DER).
    pub signature: Vec<u8>,
}

/// An envelope is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not the JSON form.
    #[error("expected a DSSE envelope with payload, payloadType and signatures: {reason}")]
    Json {
        /// What the JSON reader said.
        reason: String,
    },
    /// None, or several, signatures.
    #[error("expected exactly one DSSE signature, found {found}")]
    SignatureCount {
        /// How many there are.
        found: usize,
    },
    /// A field is not base64 in the standard alphabet with padding.
    #[error("expected padded standard base64 in the envelope's {field}")]
    Base64 {
        /// `payload` or `sig`.
        field: &'static str,
    },
}

/// The JSON form of an envelope.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnvelopeJson {
    payload: String,
    #[serde(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<SignatureJson>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureJson {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    keyid: String,
    sig: String,
}

impl TryFrom<EnvelopeJson> for Envelope {
    type Error = EnvelopeError;

    fn try_from(json: EnvelopeJson) -> Result<Self, EnvelopeError> {
        let found = json.signatures.len();
        let mut signatures = json.signatures.into_iter();
        let (Some(signature), None) = (signatures.next(), signatures.next()) else {
            return Err(EnvelopeError::SignatureCount { found });
        };
        Ok(Self {
            payload: from_base64(&json.payload).ok_or(EnvelopeError::Base64 { field: "payload" })?,
            payload_type: json.payload_type,
            keyid: signature.keyid,
            signature: from_base64(&signature.sig).ok_or(EnvelopeError::Base64 { field: "sig" })?,
        })
    }
}

impl From<&Envelope> for EnvelopeJson {
    fn from(envelope: &Envelope) -> Self {
        Self {
            payload: to_base64(&envelope.payload),
            payload_type: envelope.payload_type.clone(),
            signatures: vec![SignatureJson { keyid: envelope.keyid.clone(), sig: to_base64(&envelope.signature) }],
        }
    }
}

impl Envelope {
    /// Reads an envelope that is a JSON document of its own.
    ///
    /// # Errors
    /// [`EnvelopeError`] says what is wrong with it.
    pub fn parse(json: &[u8]) -> Result<Self, EnvelopeError> {
        let json: EnvelopeJson =
            serde_json::from_slice(json).map_err(|error| EnvelopeError::Json { reason: error.to_string() })?;
        Self::try_from(json)
    }

    /// The canonical JSON (RFC 8785) of the envelope.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        crate::canonical_json(&EnvelopeJson::from(self))
    }

    /// The bytes that the signature covers.
    #[must_use]
    pub fn pae(&self) -> Vec<u8> {
        pae(&self.payload_type, &self.payload)
    }

    /// SHA-256 of [`Self::to_json`]: the envelope's identity however it was embedded (`dsse_ref`).
    #[must_use]
    pub fn digest(&self) -> Hash {
        sha256(&self.to_json())
    }

    /// `dsse:` and the lower-case hex of [`Self::digest`], as trace events name an envelope.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("dsse:{}", crate::encoding::to_hex(&self.digest()))
    }
}

/// An envelope with several signatures: how a policy stands in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultiEnvelope {
    /// What kind of payload it is.
    pub payload_type: String,
    /// The payload's bytes.
    pub payload: Vec<u8>,
    /// Key id and signature of each signer, at least one.
    pub signatures: Vec<(String, Vec<u8>)>,
}

/// The most signatures of one envelope.
pub const MAX_ENVELOPE_SIGNATURES: usize = 16;

impl MultiEnvelope {
    /// Reads an envelope with 1 to [`MAX_ENVELOPE_SIGNATURES`] signatures.
    ///
    /// # Errors
    /// [`EnvelopeError`] says what is wrong with it.
    pub fn parse(json: &[u8]) -> Result<Self, EnvelopeError> {
        let json: EnvelopeJson =
            serde_json::from_slice(json).map_err(|error| EnvelopeError::Json { reason: error.to_string() })?;
        let found = json.signatures.len();
        if !(1..=MAX_ENVELOPE_SIGNATURES).contains(&found) {
            return Err(EnvelopeError::SignatureCount { found });
        }
        let mut signatures = Vec::new();
        for signature in json.signatures {
            let sig = from_base64(&signature.sig).ok_or(EnvelopeError::Base64 { field: "sig" })?;
            signatures.push((signature.keyid, sig));
        }
        let payload = from_base64(&json.payload).ok_or(EnvelopeError::Base64 { field: "payload" })?;
        Ok(Self { payload_type: json.payload_type, payload, signatures })
    }

    /// The canonical JSON (RFC 8785) of the envelope.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let signature = |(keyid, sig): &(String, Vec<u8>)| SignatureJson { keyid: keyid.clone(), sig: to_base64(sig) };
        crate::canonical_json(&EnvelopeJson {
            payload: to_base64(&self.payload),
            payload_type: self.payload_type.clone(),
            signatures: self.signatures.iter().map(signature).collect(),
        })
    }

    /// The bytes that each signature covers.
    #[must_use]
    pub fn pae(&self) -> Vec<u8> {
        pae(&self.payload_type, &self.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pae_counts_bytes_not_characters() {
        // The example of the DSSE protocol page, and one with a character of two bytes.
        assert_eq!(
            pae("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
        assert_eq!(pae("é", b""), "DSSEv1 2 é 0 ".as_bytes());
    }

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let found = match Envelope::parse(json.as_bytes()) {
            Ok(envelope) => {
                format!("{} {:?} {} {:?}", envelope.payload_type, envelope.payload, envelope.keyid, envelope.signature)
            }
            Err(EnvelopeError::Json { .. }) => "json".into(),
            Err(other) => other.to_string(),
        };
        assert_eq!(found, expected, "{json}");
    }

    #[test]
    fn only_the_strict_form_is_read() {
        check(r#"{"payloadType":"t","payload":"AQI=","signatures":[{"keyid":"k","sig":"Aw=="}]}"#, "t [1, 2] k [3]");
        check(r#"{"payloadType":"t","payload":"","signatures":[{"sig":""}]}"#, "t []  []");
        check(r#"{"payloadType":"t","payload":"","signatures":[]}"#, "expected exactly one DSSE signature, found 0");
        check(
            r#"{"payloadType":"t","payload":"","signatures":[{"sig":""},{"sig":""}]}"#,
            "expected exactly one DSSE signature, found 2",
        );
        check(
            r#"{"payloadType":"t","payload":"AQI","signatures":[{"sig":""}]}"#,
            "expected padded standard base64 in the envelope's payload",
        );
        check(
            r#"{"payloadType":"t","payload":"","signatures":[{"sig":"_w=="}]}"#,
            "expected padded standard base64 in the envelope's sig",
        );
        check(r#"{"payloadType":"t","payload":"","payload":"AQI=","signatures":[{"sig":""}]}"#, "json");
        check(r#"{"payloadType":"t","payload":"","signatures":[{"sig":""}],"more":1}"#, "json");
        check(r#"{"payload":"","signatures":[{"sig":""}]}"#, "json");
    }

    #[test]
    fn an_envelope_survives_writing_and_has_a_stable_reference() {
        let envelope =
            Envelope { payload_type: "t".into(), payload: vec![1, 2], keyid: "k".into(), signature: vec![3] };
        assert_eq!(
            envelope.to_json(),
            br#"{"payload":"AQI=","payloadType":"t","signatures":[{"keyid":"k","sig":"Aw=="}]}"#
        );
        assert_eq!(Envelope::parse(&envelope.to_json()), Ok(envelope.clone()));
        assert_eq!(envelope.reference().len(), 5 + 64);
    }
}
