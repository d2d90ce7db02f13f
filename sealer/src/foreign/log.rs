//! What the specifications ask of a log entry and sigstore-rust lets pass: the entry's own log, and not just any of the
//! root, signs the checkpoint; the checkpoint is well formed; a Rekor v2 names itself in it; the log's key was valid.
//!
//! Sources: the Rekor v2 specification, section 7.2 ("the expected server name, using the checkpoint format"), C2SP
//! tlog-checkpoint and signed-note, RFC 6962 section 2.1.1 for the size.

use std::time::SystemTime;

use sigstore_crypto::VerificationKey;
use sigstore_trust_root::{TransparencyLog, TrustedRoot};
use sigstore_types::bundle::{InclusionProof, MediaType};
use sigstore_types::{Bundle, KindVersion, SignatureBytes, TransparencyLogEntry};
use sigstore_verify::VerificationResult;
use symseal_seal::encoding::{to_base64, to_hex};
use symseal_seal::note::NoteSignature;
use symseal_seal::tlog::{leaf_hash, verify_inclusion};
use symseal_seal::{Hash, SignedCheckpoint, UtcSeconds};

use super::checks::{Refusal, id};

/// The root's log that an entry names.
pub(super) fn trusted<'a>(entry: &TransparencyLogEntry, root: &'a TrustedRoot) -> Option<&'a TransparencyLog> {
    root.tlogs.iter().find(|log| log.log_id.key_id.as_bytes() == entry.log_id.key_id.as_bytes())
}

/// Checks that every entry names a log of the root. First of all, as nothing else can be said of an entry of an unknown log:
/// sigstore-rust looks for a key by the checkpoint's, and would speak of that.
pub(super) fn check_ids(bundle: &Bundle, root: &TrustedRoot) -> Result<(), Refusal> {
    bundle.verification_material.tlog_entries.iter().try_for_each(|entry| known(entry, root).map(|_| ()))
}

fn known<'a>(entry: &TransparencyLogEntry, root: &'a TrustedRoot) -> Result<&'a TransparencyLog, Refusal> {
    trusted(entry, root).ok_or_else(|| {
        let known: Vec<String> = root.tlogs.iter().map(|log| log.log_id.key_id.to_string()).collect();
        let expected = format!("the id of a log of the trusted root: {}", known.join(", "));
        Refusal::of(id::LOG_ID, expected, entry.log_id.key_id.to_string())
    })
}

/// Checks every entry of a bundle whose signatures and proofs hold, and whose signature has the result's times.
pub(super) fn check(bundle: &Bundle, root: &TrustedRoot, result: &VerificationResult) -> Result<(), Refusal> {
    for entry in &bundle.verification_material.tlog_entries {
        let log = known(entry, root)?;
        if let Some(window) = log.public_key.valid_for
            && let Some(time) = result.verified_timestamps().iter().find(|time| !window.contains(**time))
        {
            let expected = format!("a time at which the key of {} was valid", log.base_url);
            return Err(Refusal::of(id::LOG_KEY_VALIDITY, expected, time.to_string()));
        }
        if let Some(proof) = &entry.inclusion_proof {
            check_checkpoint(entry, proof, log)?;
        }
    }
    Ok(())
}

/// Checks that the entries whose bodies these are, as they were logged, are in the trees of their checkpoints, and of a Rekor v1
/// what it promised; the times that it did so. Their checkpoints themselves are for [`check`].
pub(super) fn check_inclusion(
    bundle: &Bundle,
    bodies: &[Vec<u8>],
    root: &TrustedRoot,
) -> Result<Vec<UtcSeconds>, Refusal> {
    let entries = &bundle.verification_material.tlog_entries;
    let malformed = |found: String| Refusal::new(id::BUNDLE_FORM, found);
    if entries.is_empty() || entries.len() != bodies.len() {
        return Err(malformed(format!("{} log entries", entries.len())));
    }
    let is_v01 = bundle.media_type() == MediaType::Bundle0_1;
    let now = SystemTime::now().try_into().map_err(|_| malformed("a clock that no date has".to_owned()))?;
    let mut times = Vec::new();
    for (entry, body) in entries.iter().zip(bodies) {
        let is_v2 = entry.kind_version == KindVersion::HashedRekordV002;
        if is_v01 && entry.inclusion_promise.is_none() {
            return Err(malformed("a log entry of a bundle v0.1 without an inclusion promise".to_owned()));
        }
        match &entry.inclusion_proof {
            Some(proof) => check_proof(entry, proof, body, is_v2)?,
            None if is_v01 => {}
            None => return Err(malformed("a log entry without an inclusion proof".to_owned())),
        }
        let log = known(entry, root)?;
        // The crate does not use a key before its time, and was not asked.
        let window = log.public_key.valid_for;
        if window.is_some_and(|window| !window.has_started_by(now)) {
            return Err(Refusal::new(id::LOG_KEY_VALIDITY, "a log's key whose time has not begun"));
        }
        if !is_v2 && let Some(promise) = &entry.inclusion_promise {
            let time = entry.integrated_time;
            if let Some(time) = time.filter(|time| *time > now) {
                return Err(Refusal::new(id::LOG_TIME, format!("{time}, which is yet to come")));
            }
            if let Some(time) = time.filter(|time| window.is_some_and(|window| !window.contains(*time))) {
                let expected = format!("a time at which the key of {} was valid", log.base_url);
                return Err(Refusal::of(id::LOG_KEY_VALIDITY, expected, time.to_string()));
            }
            let seconds = time.map(|time| time.as_second());
            let refuse = |found: String| Refusal::new(id::LOG_PROMISE, found);
            let id = entry.log_id.key_id.as_bytes();
            let payload = promise_payload(body, seconds.unwrap_or(0), entry.log_index.as_i64(), id);
            let key =
                VerificationKey::from_spki(&log.public_key.raw_bytes).map_err(|error| refuse(error.to_string()))?;
            let signature = SignatureBytes::new(promise.signed_entry_timestamp.as_bytes().to_vec());
            key.verify(&payload, &signature).map_err(|_| refuse("one that does not verify".to_owned()))?;
            times.extend(seconds.map(UtcSeconds));
        }
    }
    Ok(times)
}

fn check_proof(entry: &TransparencyLogEntry, proof: &InclusionProof, body: &[u8], is_v2: bool) -> Result<(), Refusal> {
    let signed = SignedCheckpoint::parse(proof.checkpoint.envelope());
    let checkpoint = signed.map_err(|error| Refusal::new(id::LOG_CHECKPOINT, error.to_string()))?.checkpoint;
    let path: Vec<Hash> = proof.hashes.iter().map(|hash| *hash.as_bytes()).collect();
    // A Rekor v1 has an index of its own in each of its trees, and says the root twice.
    let index = if is_v2 { entry.log_index.get() } else { proof.log_index.get() };
    if !is_v2 && *proof.root_hash.as_bytes() != checkpoint.root {
        return Err(Refusal::new(id::LOG_INCLUSION, "a proof for another root than the checkpoint's"));
    }
    verify_inclusion(&leaf_hash(body), index, checkpoint.size, &path, &checkpoint.root)
        .map_err(|error| Refusal::new(id::LOG_INCLUSION, error.to_string()))
}

/// What a Rekor v1 signs when it promises to include an entry: canonical JSON. `time` is in seconds since 1970, `index` over all
/// of its trees.
pub(super) fn promise_payload(body: &[u8], time: i64, index: i64, log_id: &[u8]) -> Vec<u8> {
    let (body, log_id) = (to_base64(body), to_hex(log_id));
    format!(r#"{{"body":"{body}","integratedTime":{time},"logID":"{log_id}","logIndex":{index}}}"#).into_bytes()
}

fn check_checkpoint(
    entry: &TransparencyLogEntry,
    proof: &InclusionProof,
    log: &TransparencyLog,
) -> Result<(), Refusal> {
    let refuse = |found: String| Refusal::new(id::LOG_CHECKPOINT, found);
    let signed = SignedCheckpoint::parse(proof.checkpoint.envelope()).map_err(|error| refuse(error.to_string()))?;
    let is_v2 = entry.kind_version == KindVersion::HashedRekordV002;
    if !is_v2 && proof.tree_size != signed.checkpoint.size {
        let expected = format!("a proof for the checkpoint's {} entries", signed.checkpoint.size);
        return Err(Refusal::of(id::LOG_INCLUSION, expected, format!("one for {}", proof.tree_size)));
    }
    let origin = &signed.checkpoint.origin;
    if is_v2 && !names(&log.base_url).contains(&origin.as_str()) {
        let expected = format!("the origin of {}", log.base_url);
        return Err(Refusal::of(id::LOG_CHECKPOINT, expected, format!("{origin:?}")));
    }
    // A log signs under its own name and the first bytes of its id. Lines of others, witnesses for one, are not ours to judge.
    let hint = log.log_id.key_id.as_bytes().get(..4);
    let key = VerificationKey::from_spki(&log.public_key.raw_bytes).map_err(|error| refuse(error.to_string()))?;
    let own = |line: &&NoteSignature| hint == Some(&line.hint[..]) && (!is_v2 || line.name == *origin);
    let mut lines = signed.note.signatures.iter().filter(own).peekable();
    if lines.peek().is_none() {
        let expected = format!("a signature line by {origin} with the key of {}", log.base_url);
        return Err(Refusal::of(id::LOG_CHECKPOINT, expected, "none"));
    }
    for line in lines {
        let signature = SignatureBytes::new(line.signature.clone());
        key.verify(signed.note.text.as_bytes(), &signature)
            .map_err(|_| refuse(format!("a signature by {} that does not verify", line.name)))?;
    }
    Ok(())
}

/// What a log at this address may call itself: its host, or its address without the scheme.
fn names(base_url: &str) -> [&str; 2] {
    let address = base_url.split_once("://").map_or(base_url, |(_, rest)| rest).trim_end_matches('/');
    let authority = address.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    [host.map_or(authority, |(host, _)| host), address]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_called_by_its_host_or_by_its_address() {
        assert_eq!(names("https://log2025-1.rekor.sigstore.dev"), ["log2025-1.rekor.sigstore.dev"; 2]);
        assert_eq!(names("http://localhost:3003/"), ["localhost", "localhost:3003"]);
        assert_eq!(names("https://log.example/a/b"), ["log.example", "log.example/a/b"]);
        assert_eq!(names("log.example"), ["log.example"; 2]);
    }
}
