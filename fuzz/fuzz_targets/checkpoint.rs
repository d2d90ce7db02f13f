//! Checkpoints: what is read is written back as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symseal_seal::SignedCheckpoint;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(signed) = SignedCheckpoint::parse(text) {
        assert_eq!(signed.note.to_text(), text);
        assert_eq!(signed.checkpoint.to_text(), signed.note.text);
    }
});
