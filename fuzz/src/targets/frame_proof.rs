//! Frame proofs: read, followed to their root; what holds says something within bounds.

use symseal_bundle::frame_proof::FrameProof;

pub(super) fn run(data: &[u8]) {
    let Ok(proof) = FrameProof::parse(data) else { return };
    let written = proof.to_json().expect("what was read can be written");
    assert_eq!(FrameProof::parse(&written).expect("and read again"), proof);
    if let Ok(proved) = proof.check() {
        assert!(proved.hit.is_none_or(|hit| hit.frames.len() <= 1024));
    }
}
