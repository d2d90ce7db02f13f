//! A tile fragment: what is read is written and read alike, and proves no entry but the log's own.

use symseal_seal::tlog::leaf_hash;
use symseal_seal::{SignedCheckpoint, TileFragment};

const CHECKPOINT: &str = include_str!("../../../formats/seal/tests/golden/checkpoint");

pub(super) fn run(data: &[u8]) {
    let Ok(fragment) = TileFragment::parse(data) else { return };
    assert_eq!(TileFragment::parse(&fragment.to_json()).as_ref(), Ok(&fragment));
    let golden = SignedCheckpoint::parse(CHECKPOINT).expect("the golden checkpoint").checkpoint;
    assert!(fragment.verify(&leaf_hash(b"forged"), golden.size, &golden.root).is_err());
    // The first entries of the golden log.
    for n in 0..4_u64 {
        if fragment.verify(&leaf_hash(format!("entry {n}").as_bytes()), golden.size, &golden.root).is_ok() {
            assert_eq!(fragment.index, n);
        }
    }
}
