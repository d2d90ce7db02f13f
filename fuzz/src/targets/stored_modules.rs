//! Any bytes as the list of a stored bundle's modules: what is found is within bounds. The checksums are made good first, or little would be read.

use symseal_bundle::stored_modules::StoredModules;

pub(super) fn run(bytes: &[u8]) {
    look(bytes);
    let mut whole = bytes.to_vec();
    let number = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let count = number(&whole, 12).unwrap_or_default().min(bytes.len() / 8);
    for place in (0..count).map(|at| 88 + 8 * at) {
        let bounds = number(&whole, place).zip(number(&whole, place + 8));
        let record = bounds.and_then(|(start, end)| whole.get(start..end));
        let Some(checksum) = record.map(crc32fast::hash) else { continue };
        if let Some(field) = whole.get_mut(place + 4..place + 8) {
            field.copy_from_slice(&checksum.to_le_bytes());
        }
    }
    let of_header = whole.get(..80).map(crc32fast::hash).unwrap_or_default();
    let Some(field) = whole.get_mut(80..88) else { return };
    field.fill(0);
    field[4..].copy_from_slice(&of_header.to_le_bytes());
    let checksum = crc32fast::hash(&whole).to_le_bytes();
    let Some(field) = whole.get_mut(80..84) else { return };
    field.copy_from_slice(&checksum);
    look(&whole);
}

fn look(bytes: &[u8]) {
    let Ok(stored) = StoredModules::open(bytes) else { return };
    let _ = (stored.bundle(), stored.symbol_index(), stored.is_empty(), stored.check());
    // Ids as they may stand in the records.
    for id in ["00", "aa00", "bb00", "ffff", "93ac61ec5a8eb1396f9fbd350e3169a558528a40"] {
        let found = id.parse().ok().and_then(|id| stored.module(&id).ok().flatten());
        assert!(found.is_none_or(|facts| facts.digests.len() * 32 <= bytes.len()));
    }
}
