//! The checkpoints that were seen of one log, and how another one stands to them.

use std::collections::BTreeMap;

use super::file::{MAX_CHECKPOINTS, SIZE_LIMIT};
use crate::checkpoint::Checkpoint;
use crate::checks::{Check, id};
use crate::consistency::ConsistencyProof;
use crate::encoding::{Hash, to_base64};
use crate::tlog::{ConsistencyError, verify_consistency};

/// Roots by size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SeenLog {
    /// Of trees that are of one history: each was the first to be seen, or proved from another.
    pub(super) proved: BTreeMap<u64, Hash>,
    /// Of trees that nothing connects with these. They prove nothing, but that the log signed them.
    pub(super) unproved: BTreeMap<u64, Hash>,
}

/// How a checkpoint stands to those that were seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It was seen.
    Known,
    /// Another root was seen at its size.
    Forked(Hash),
    /// Nothing was seen of the log.
    First,
    /// A proof connects it with the one of this size.
    Proved(u64),
    /// The proof between it and the one of this size does not hold; and why.
    Disproved(u64, ConsistencyError),
    /// There is no proof between it and any of them; the largest has this size.
    Unproved(u64),
}

impl SeenLog {
    pub(super) fn standing(&self, checkpoint: &Checkpoint, proofs: &[ConsistencyProof]) -> Standing {
        if let Some(root) = self.proved.get(&checkpoint.size) {
            return if *root == checkpoint.root { Standing::Known } else { Standing::Forked(*root) };
        }
        if let Some(standing) = self.by_proof(checkpoint, proofs) {
            return standing;
        }
        // Which of the two is of this history a proof would tell; that there are two is known.
        let other = self.unproved.get(&checkpoint.size).filter(|root| **root != checkpoint.root);
        match (other, self.proved.last_key_value()) {
            (Some(other), _) => Standing::Forked(*other),
            (None, None) => Standing::First,
            (None, Some((largest, _))) => Standing::Unproved(*largest),
        }
    }

    /// The first proof between the checkpoint and one of the history that was seen.
    fn by_proof(&self, checkpoint: &Checkpoint, proofs: &[ConsistencyProof]) -> Option<Standing> {
        let now = (checkpoint.size, &checkpoint.root);
        for proof in proofs.iter().filter(|proof| proof.origin == checkpoint.origin) {
            let other = match (proof.from == now.0, proof.to == now.0) {
                (true, false) => proof.to,
                (false, true) => proof.from,
                _ => continue,
            };
            let Some(root) = self.proved.get(&other) else { continue };
            let (first, second) = if other < now.0 { ((other, root), now) } else { (now, (other, root)) };
            return Some(match verify_consistency(first, second, &proof.hashes) {
                Ok(()) => Standing::Proved(other),
                Err(error) => Standing::Disproved(other, error),
            });
        }
        None
    }

    /// Keeps a checkpoint that is the first, or proved. What nothing connects with the others may be of another history: it is kept apart, and held
    /// against nothing but another root at its size. `Err` says why it is not kept, or kept apart.
    pub(super) fn keep(&mut self, checkpoint: &Checkpoint, proofs: &[ConsistencyProof]) -> Result<(), String> {
        match self.standing(checkpoint, proofs) {
            Standing::Known => Ok(()),
            _ if checkpoint.size >= SIZE_LIMIT => Err("no log has so many entries".to_owned()),
            Standing::First | Standing::Proved(_) => {
                self.unproved.remove(&checkpoint.size);
                insert(&mut self.proved, checkpoint);
                Ok(())
            }
            Standing::Forked(_) => Err("another root was seen at that size".to_owned()),
            Standing::Disproved(other, _) => Err(format!("the proof between it and {other} seen before does not hold")),
            Standing::Unproved(largest) => {
                insert(&mut self.unproved, checkpoint);
                Err(format!("no proof connects it with {largest} seen before"))
            }
        }
    }

    /// The check `log.freshness`.
    pub(super) fn check(
        &self,
        checkpoint: &Checkpoint,
        proofs: &[ConsistencyProof],
        require_consistency: bool,
    ) -> Check {
        let size = checkpoint.size;
        let named = |root: &Hash| format!("root {} at {size} entries", to_base64(root));
        match self.standing(checkpoint, proofs) {
            Standing::Known => Check::passed(id::LOG_FRESHNESS, format!("{size} entries, as seen before")),
            Standing::Forked(other) => Check::failed(id::LOG_FRESHNESS, named(&other), named(&checkpoint.root))
                .with_detail(
                    "the log signed two histories: keep both checkpoints and ask its operator; a consistency proof tells which is the one seen before",
                ),
            Standing::First => {
                Check::passed(id::LOG_FRESHNESS, format!("{size} entries, nothing seen of the log before"))
            }
            Standing::Proved(other) => {
                Check::passed(id::LOG_FRESHNESS, format!("{size} entries, consistent with {other} seen before"))
            }
            Standing::Disproved(other, error) => {
                let expected = format!("a proof that {size} entries are consistent with {other} seen before");
                Check::refused_by(id::LOG_FRESHNESS, expected.as_str(), &error).with_detail(expected)
            }
            Standing::Unproved(largest) if size > largest && require_consistency => {
                let expected = format!("a consistency proof from {largest} to {size} entries");
                Check::failed(id::LOG_FRESHNESS, expected, "none")
                    .with_detail("the policy asks for one: give it with --consistency")
            }
            // An old bundle has a smaller tree, and is no fault; but nothing says that it is of this history.
            Standing::Unproved(largest) => {
                let why = format!("{size} entries, {largest} seen before, and no consistency proof between them");
                Check::skipped(id::LOG_FRESHNESS, format!("not checked: {why}; nothing will be held against it but another root"))
            }
        }
    }
}

/// Adds a checkpoint; of too many the smallest goes.
fn insert(roots: &mut BTreeMap<u64, Hash>, checkpoint: &Checkpoint) {
    roots.insert(checkpoint.size, checkpoint.root);
    if roots.len() > MAX_CHECKPOINTS {
        roots.pop_first();
    }
}
