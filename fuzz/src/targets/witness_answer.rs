//! What a witness answers to a checkpoint: the first byte chooses status and media type.

use symseal_seal::note::SignedNote;
use symseal_sealer::witness::{WitnessAnswer, parse_witness_answer};

pub(super) fn run(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else { return };
    let (status, media_type) = match kind {
        b'l' => (200, Some("text/plain; charset=utf-8")),
        b's' => (409, Some("text/x.tlog.size")),
        other => (300 + u16::from(*other), None),
    };
    match parse_witness_answer(status, media_type, body) {
        // Lines have one spelling, and so has a size but for the line feed at its end.
        Ok(WitnessAnswer::Cosignatures(signatures)) => {
            let note = SignedNote { text: "log\n".into(), signatures }.to_text();
            assert_eq!(note.strip_prefix("log\n\n").map(str::as_bytes), Some(body));
        }
        Ok(WitnessAnswer::Has(size)) => {
            assert_eq!(size.to_string().as_bytes(), body.strip_suffix(b"\n").unwrap_or(body))
        }
        Err(error) => assert!(error.to_string().len() < 8 * 1024),
    }
}
