//! Entries of a Rekor v1 that sigstore-rust does not read: `hashedrekord` 0.0.1 with a digest of more than 256 bits, as keys on
//! P-384 have.
//!
//! Source: Rekor 1.5, `pkg/types/hashedrekord/v0.0.1/hashedrekord_v0_0_1_schema.json`.

use serde_json::Value;
use sigstore_types::HashAlgorithm;
use symseal_seal::encoding::to_hex;

use super::checks::{Refusal, id};
use super::translate::Content;

/// What sigstore-rust is to read in the place of an entry's body: the same with a SHA-256. `None` where it has one, or has no
/// such form, which sigstore-rust says better.
///
/// # Errors
/// The [`Refusal`] of an entry that is not of this bundle, or of an artifact whose digest cannot be computed.
pub(super) fn stand_in(
    bytes: &[u8],
    content: Option<&Content>,
    artifact: &mut impl FnMut(HashAlgorithm) -> Result<Vec<u8>, Refusal>,
) -> Result<Option<Value>, Refusal> {
    let refuse = |found: String| Refusal::new(id::LOG_ENTRY, found);
    let Ok(mut body) = serde_json::from_slice::<Value>(bytes) else { return Ok(None) };
    let algorithm = match body.pointer("/spec/data/hash/algorithm").and_then(Value::as_str) {
        Some("sha384") => HashAlgorithm::Sha2384,
        Some("sha512") => HashAlgorithm::Sha2512,
        _ => return Ok(None),
    };
    super::shape::check_keys(&String::from_utf8_lossy(bytes)).map_err(refuse)?;
    if body["kind"] != "hashedrekord" || body["apiVersion"] != "0.0.1" {
        return Err(refuse("the body of another kind than hashedrekord 0.0.1, which the entry says".to_owned()));
    }
    let content = content.ok_or_else(|| refuse("a bundle whose content no entry can be compared with".to_owned()))?;
    let mut digest = |algorithm| match content.signed_digest(algorithm) {
        Some(digest) => Ok(to_hex(&digest)),
        None => artifact(algorithm).map(|digest| to_hex(&digest)),
    };
    let Some(hash) = body.pointer_mut("/spec/data/hash") else { return Ok(None) };
    let expected = digest(algorithm)?;
    if hash["value"].as_str().is_none_or(|found| !found.eq_ignore_ascii_case(&expected)) {
        return Err(Refusal::of(id::LOG_ENTRY, format!("the digest {expected}"), hash["value"].to_string()));
    }
    *hash = serde_json::json!({ "algorithm": "sha256", "value": digest(HashAlgorithm::Sha2256)? });
    Ok(Some(body))
}
