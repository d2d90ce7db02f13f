//! Checkpoints: what is read is written back as it was.

use symseal_seal::SignedCheckpoint;

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(signed) = SignedCheckpoint::parse(text) {
        assert_eq!(signed.note.to_text(), text);
        assert_eq!(signed.checkpoint.to_text(), signed.note.text);
    }
}
