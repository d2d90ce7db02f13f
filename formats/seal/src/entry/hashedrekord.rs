//! The canonical body of a Rekor `hashedrekord` 0.0.2: what embedded logs and Rekor v2 hold.
//!
//! A DSSE envelope is logged by the SHA-256 of its PAE, its signature and the key, so an entry stays
//! small however large the payload is.

use serde_json::json;

use crate::encoding::{Hash, to_base64};

/// The canonical body (RFC 8785) of the entry for a P-256 signature over a PAE.
///
/// `pae_sha256` is SHA-256 of the PAE, `signature` the ASN.1 DER bytes, `spki` the signer's key.
#[must_use]
pub fn hashedrekord_v002(pae_sha256: &Hash, signature: &[u8], spki: &[u8]) -> Vec<u8> {
    crate::canonical_json(&json!({
        "apiVersion": "0.0.2",
        "kind": "hashedrekord",
        "spec": {"hashedRekordV002": {
            "data": {"algorithm": "SHA2_256", "digest": to_base64(pae_sha256)},
            "signature": {
                "content": to_base64(signature),
                "verifier": {
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "publicKey": {"rawBytes": to_base64(spki)},
                },
            },
        }},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_canonical_json() {
        let body = String::from_utf8(hashedrekord_v002(&[0; 32], &[1], &[2])).unwrap();
        assert_eq!(
            body,
            concat!(
                r#"{"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":{"algorithm":"SHA2_256","#,
                r#""digest":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},"signature":{"content":"AQ==","verifier":"#,
                r#"{"keyDetails":"PKIX_ECDSA_P256_SHA_256","publicKey":{"rawBytes":"Ag=="}}}}}}"#
            )
        );
    }
}
