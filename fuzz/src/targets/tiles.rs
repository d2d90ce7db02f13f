//! Tiles and their names: the first byte is a width, the rest a tile, an entry bundle and a path.

use symseal_seal::tiles::{TilePath, node_in_tile, parse_entries, parse_hashes, push_entry};

pub(super) fn run(data: &[u8]) {
    let Some((width, rest)) = data.split_first() else { return };
    let width = u16::from(*width) + 1;
    if let Ok(hashes) = parse_hashes(rest, width) {
        assert_eq!(hashes.concat(), rest);
        let _ = node_in_tile(&hashes, u32::from(width) % 12, usize::from(width));
    }
    if let Ok(entries) = parse_entries(rest, width) {
        let mut again = Vec::new();
        for entry in entries {
            push_entry(&mut again, entry).expect("an entry that was read fits");
        }
        assert_eq!(again, rest);
    }
    if let Ok(text) = std::str::from_utf8(rest) {
        if let Ok(path) = text.parse::<TilePath>() {
            assert_eq!(path.to_string(), text);
        }
    }
}
