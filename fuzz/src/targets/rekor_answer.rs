//! What a Rekor of either API answers to a new entry.

use symseal_seal::LogEntry;
use symseal_sealer::anchor::parse_rekor_v1_answer;

pub(super) fn run(data: &[u8]) {
    let _ = LogEntry::parse(data);
    if let Ok(entry) = parse_rekor_v1_answer(data) {
        // It can be written into a seal and read again.
        assert!(i64::try_from(entry.log_index).is_ok() && i64::try_from(entry.proof_size).is_ok());
    }
}
