//! Any bytes as the list of a stored bundle's modules: what is found is within bounds, and a record whose checksum does not hold is none.

use symseal_bundle::stored_modules::StoredModules;

pub(super) fn run(bytes: &[u8]) {
    let Ok(stored) = StoredModules::open(bytes) else { return };
    let _ = (stored.bundle(), stored.symbol_index(), stored.is_empty());
    // Ids as they may stand in the records.
    for id in ["00", "aa00", "bb00", "ffff", "93ac61ec5a8eb1396f9fbd350e3169a558528a40"] {
        let found = id.parse().ok().and_then(|id| stored.module(&id));
        assert!(found.is_none_or(|facts| facts.digests.len() * 32 <= bytes.len()));
    }
}
