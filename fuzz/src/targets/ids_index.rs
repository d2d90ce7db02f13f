//! The server's index of ids, opened and searched. Length and checksum are made good first, or nothing else would be read.

use ids::Ids;
use sha2::{Digest as _, Sha256};

// The module itself and not its crate, which brings the HTTP stack.
#[allow(dead_code, unused_imports, reason = "the server uses all of it")]
#[path = "../../../server/src/ids/mod.rs"]
mod ids;

pub(super) fn run(bytes: &[u8]) {
    let _ = Ids::open(bytes);
    let mut whole = bytes.to_vec();
    let length = (whole.len() as u64 + 32).to_le_bytes();
    if let Some(field) = whole.get_mut(8..16) {
        field.copy_from_slice(&length);
    }
    let checksum = Sha256::digest(&whole);
    whole.extend_from_slice(&checksum);
    let Ok(ids) = Ids::open(whole) else { return };
    for key in ids.keys().take(1000) {
        let _ = (key.candidates().take(1000).count(), ids.find(key.bytes).take(1000).count());
    }
    let _ = ids.find(bytes).take(1000).count();
    for number in 0..ids.bundle_count().min(1000) {
        let _ = ids.bundle(number);
    }
}
