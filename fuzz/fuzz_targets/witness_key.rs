//! A witness's published key: it has one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symseal_seal::{SignedCheckpoint, Witness};

const CHECKPOINT: &str = include_str!("../../formats/seal/tests/golden/checkpoint");

fuzz_target!(|data: &str| {
    let Ok(witness) = data.parse::<Witness>() else { return };
    assert_eq!(witness.to_string(), data);
    let golden = SignedCheckpoint::parse(CHECKPOINT).expect("the golden checkpoint");
    let _ = witness.cosigned(&golden.note);
});
