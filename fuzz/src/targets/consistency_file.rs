//! A file of consistency proofs: read and written alike, and none of its proofs panics or joins unrelated trees.

use symseal_seal::ConsistencyProof;
use symseal_seal::tlog::{leaf_hash, verify_consistency};

pub(super) fn run(data: &[u8]) {
    let Ok(proofs) = ConsistencyProof::parse_file(data) else { return };
    assert_eq!(ConsistencyProof::parse_file(&ConsistencyProof::to_file(&proofs)).as_ref(), Ok(&proofs));
    let (one, other) = (leaf_hash(b"one"), leaf_hash(b"other"));
    for proof in proofs.iter().filter(|proof| proof.from > 0) {
        assert!(verify_consistency((proof.from, &one), (proof.to, &other), &proof.hashes).is_err());
    }
}
