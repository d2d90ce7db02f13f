//! Any bytes as the list of a stored bundle's modules: what is found is within bounds. The checksum is made good first, or nothing else would be read.

use symseal_bundle::stored_modules::StoredModules;

pub(super) fn run(bytes: &[u8]) {
    let _ = StoredModules::open(bytes);
    let mut whole = bytes.to_vec();
    let Some(field) = whole.get_mut(80..84) else { return };
    field.fill(0);
    let checksum = crc32fast::hash(&whole).to_le_bytes();
    let Some(field) = whole.get_mut(80..84) else { return };
    field.copy_from_slice(&checksum);
    let Ok(stored) = StoredModules::open(&whole) else { return };
    let _ = (stored.bundle(), stored.symbol_index(), stored.is_empty());
    // Ids as they may stand in the records.
    for id in ["00", "aa00", "bb00", "ffff", "93ac61ec5a8eb1396f9fbd350e3169a558528a40"] {
        let found = id.parse().ok().and_then(|id| stored.module(&id));
        assert!(found.is_none_or(|facts| facts.digests.len() * 32 <= bytes.len()));
    }
}
