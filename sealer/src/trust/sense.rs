//! What no maker of a trust directory can mean, though its signatures hold: it is said before it is signed.

use symseal_seal::{ArtifactPublicKey, LogPublicKey, Trust, Validity};

use super::edit::Refused;

/// What was expected and what is found instead: a threshold that no keys reach, a validity that ends before it begins, a log that keeps its
/// checkpoints with a key of the root or of a signer, and so proves nothing of what that key's owner did.
pub(super) fn nonsense(trust: &Trust) -> Option<Refused> {
    let policy = &trust.policy;
    let keys = policy.keys.len() as u64;
    if policy.threshold > keys {
        let expected = format!("a threshold of at most {keys}, as there are no more keys");
        return Some((expected, policy.threshold.to_string()));
    }
    let validities = policy.keys.iter().map(|key| (format!("key {}", key.id), &key.validity));
    let validities =
        validities.chain(policy.logs.iter().map(|log| (format!("log {}", log.identity.origin), &log.validity)));
    for (whose, validity) in validities {
        if let Validity { not_before: Some(start), not_after: Some(end) } = validity
            && start > end
        {
            return Some((format!("an end of {whose} after its beginning at {start}"), end.to_string()));
        }
    }
    let signers = policy.keys.iter().map(|key| &key.key);
    let signers: Vec<&ArtifactPublicKey> = signers.chain(&trust.root.keys).collect();
    policy.logs.iter().find_map(|log| match &log.identity.key {
        LogPublicKey::Ecdsa(key) if signers.contains(&key) => Some((
            format!(
                "a key of its own for log {}: whoever signs bundles or policies must not sign its checkpoints",
                log.identity.origin
            ),
            format!("{}, which signs those too", key.key_id()),
        )),
        _ => None,
    })
}
