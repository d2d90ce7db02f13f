//! A witness's published key: it has one spelling.

use symseal_seal::{SignedCheckpoint, Witness};

const CHECKPOINT: &str = include_str!("../../../formats/seal/tests/golden/checkpoint");

pub(super) fn run(data: &[u8]) {
    let Ok(data) = std::str::from_utf8(data) else { return };
    let Ok(witness) = data.parse::<Witness>() else { return };
    assert_eq!(witness.to_string(), data);
    let golden = SignedCheckpoint::parse(CHECKPOINT).expect("the golden checkpoint");
    let _ = witness.cosigned(&golden.note);
}
