//! Whether the seals of a bundle, and what was seen before, show that a log signed two histories.

use std::collections::BTreeMap;

use crate::checkpoint::SignedCheckpoint;
use crate::checks::{Check, id};
use crate::encoding::{Hash, to_base64};
use crate::seen::Seen;
use crate::sigstore::SigstoreBundle;
use crate::trust::Trust;

/// Of so many seals the checkpoints are compared; anybody may put more beside a bundle.
const MOST: usize = 1024;

/// The check `log.freshness`, failed, where two checkpoints that one log of the policy signed have one size and two roots, or where one has another root
/// than the history that was seen. Whose seals they stand in does not matter, nor whether those hold: the log signed both. Seals are otherwise judged
/// one by one, and not beyond the policy's threshold.
pub(super) fn two_in<S: AsRef<[u8]>>(seals: &[S], trust: &Trust, seen: Option<&Seen>) -> Option<Check> {
    let mut roots: BTreeMap<(String, u64), Hash> = BTreeMap::new();
    for seal in seals.iter().take(MOST) {
        let Ok(seal) = SigstoreBundle::parse(seal.as_ref()) else { continue };
        let Ok(signed) = SignedCheckpoint::parse(&seal.entry.checkpoint) else { continue };
        let Some(log) = trust.policy.log(seal.entry.log_id, Some(&signed.checkpoint.origin)) else { continue };
        if signed.verify(&log.identity).is_err() {
            continue;
        }
        let checkpoint = &signed.checkpoint;
        let here =
            *roots.entry((format!("{} {}", checkpoint.origin, log.id), checkpoint.size)).or_insert(checkpoint.root);
        let before = seen.and_then(|seen| seen.root_of(trust, &log.identity, checkpoint.size));
        if let Some(other) = [Some(here), before].into_iter().flatten().find(|root| *root != checkpoint.root) {
            let named = |root: &Hash| format!("root {} at {} entries", to_base64(root), checkpoint.size);
            let check = Check::failed(id::LOG_FRESHNESS, named(&other), named(&checkpoint.root));
            return Some(check.with_detail(format!(
                "log {} signed two histories: keep both checkpoints and ask its operator; a consistency proof tells which is the one seen before",
                checkpoint.origin
            )));
        }
    }
    None
}
