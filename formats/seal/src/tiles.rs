//! C2SP tlog-tiles: where the hashes and entries of a log lie, and what is in those files.

use std::fmt;
use std::str::FromStr;

use crate::encoding::{Hash, decimal};
use crate::entry::ENTRY_LIMIT;
use crate::tlog::node_hash;

/// Height of a tile.
pub const TILE_HEIGHT: u32 = 8;
/// Hashes in a full tile, and entries in a full entry bundle.
pub const TILE_WIDTH: u16 = 256;
/// The highest level of tiles that a path may name.
pub const MAX_TILE_LEVEL: u8 = 63;

/// What a tile holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileKind {
    /// Hashes at this level; level 0 holds leaf hashes.
    Hashes(u8),
    /// The entries themselves.
    Entries,
}

/// The name of one tile: `tile/<L>/<N>[.p/<W>]` or `tile/entries/<N>[.p/<W>]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TilePath {
    /// Hashes or entries.
    pub kind: TileKind,
    /// Which tile of its level.
    pub index: u64,
    /// 1 to 256 hashes or entries; 256 is a full tile.
    pub width: u16,
}

/// A text is no tile path, or the bytes are not the tile's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TileError {
    /// Not in the canonical form.
    #[error("expected tile/<L>/<N>[.p/<W>] or tile/entries/<N>[.p/<W>], found {found:?}")]
    Path {
        /// The text.
        found: String,
    },
    /// A tile of hashes has another size.
    #[error("expected a tile of {expected} bytes, found {found}")]
    Size {
        /// 32 bytes a hash.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// An entry bundle ends within an entry, or holds another number of them.
    #[error("expected an entry bundle of exactly {expected} entries, found {found} and {rest} bytes more")]
    Entries {
        /// The width of its path.
        expected: usize,
        /// Whole entries found.
        found: usize,
        /// Bytes after them.
        rest: usize,
    },
    /// An entry does not fit the 16-bit length.
    #[error("expected an entry of at most {ENTRY_LIMIT} bytes, found {found}")]
    EntryTooLarge {
        /// Its size in bytes.
        found: usize,
    },
}

impl fmt::Display for TilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TileKind::Hashes(level) => write!(f, "tile/{level}/")?,
            TileKind::Entries => f.write_str("tile/entries/")?,
        }
        let digits = self.index.to_string();
        let padded = format!("{}{digits}", "0".repeat((3 - digits.len() % 3) % 3));
        let groups = padded.len() / 3;
        for (n, digit) in padded.chars().enumerate() {
            if n % 3 == 0 {
                if n > 0 {
                    f.write_str("/")?;
                }
                if n / 3 + 1 < groups {
                    f.write_str("x")?;
                }
            }
            write!(f, "{digit}")?;
        }
        if self.width < TILE_WIDTH { write!(f, ".p/{}", self.width) } else { Ok(()) }
    }
}

fn parse_index(text: &str) -> Option<u64> {
    let mut groups = text.split('/').peekable();
    let mut index = 0_u64;
    let mut first = true;
    while let Some(group) = groups.next() {
        let digits = if groups.peek().is_some() { group.strip_prefix('x')? } else { group };
        if digits.len() != 3 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // A leading group of zeros would be a second name for the same tile.
        if first && groups.peek().is_some() && digits == "000" {
            return None;
        }
        first = false;
        index = index.checked_mul(1000)?.checked_add(digits.parse().ok()?)?;
    }
    Some(index)
}

fn parse_path(text: &str) -> Option<TilePath> {
    let (kind, rest) = text.strip_prefix("tile/")?.split_once('/')?;
    let kind = if kind == "entries" {
        TileKind::Entries
    } else {
        TileKind::Hashes(u8::try_from(decimal(kind)?).ok().filter(|level| *level <= MAX_TILE_LEVEL)?)
    };
    let (index, width) = match rest.split_once(".p/") {
        None => (rest, TILE_WIDTH),
        Some((index, width)) => {
            let width = u16::try_from(decimal(width)?).ok().filter(|width| (1..TILE_WIDTH).contains(width))?;
            (index, width)
        }
    };
    Some(TilePath { kind, index: parse_index(index)?, width })
}

impl FromStr for TilePath {
    type Err = TileError;

    fn from_str(text: &str) -> Result<Self, TileError> {
        parse_path(text).ok_or_else(|| TileError::Path { found: text.chars().take(120).collect() })
    }
}

impl TilePath {
    /// The entry bundle that holds leaf `index`, by its full name.
    #[must_use]
    pub fn entries_of(index: u64) -> Self {
        Self { kind: TileKind::Entries, index: index / u64::from(TILE_WIDTH), width: TILE_WIDTH }
    }

    /// The tile `index` of a level as it stands in a log of `size` entries; `None` if the log has none.
    #[must_use]
    pub fn at_size(kind: TileKind, index: u64, size: u64) -> Option<Self> {
        let level = match kind {
            TileKind::Hashes(level) => u32::from(level),
            TileKind::Entries => 0,
        };
        let count = size.checked_shr(level.checked_mul(TILE_HEIGHT)?).unwrap_or(0);
        let before = index.checked_mul(u64::from(TILE_WIDTH))?;
        let width = count.checked_sub(before)?.min(u64::from(TILE_WIDTH));
        let width = u16::try_from(width).ok().filter(|width| *width > 0)?;
        Some(Self { kind, index, width })
    }
}

/// The name of a logged entry: `<origin>/tile/entries/<N>#<index>` (`rekor_tile_ref`).
#[must_use]
pub fn entry_reference(origin: &str, index: u64) -> String {
    format!("{origin}/{}#{index}", TilePath::entries_of(index))
}

/// The hashes of a tile of `width`.
///
/// # Errors
/// [`TileError::Size`] unless the tile has exactly 32 bytes a hash.
pub fn parse_hashes(bytes: &[u8], width: u16) -> Result<Vec<Hash>, TileError> {
    let expected = usize::from(width) * 32;
    let (hashes, rest) = bytes.as_chunks::<32>();
    if bytes.len() != expected || !rest.is_empty() {
        return Err(TileError::Size { expected, found: bytes.len() });
    }
    Ok(hashes.to_vec())
}

/// The entries of an entry bundle of `width`.
///
/// # Errors
/// [`TileError::Entries`] unless it holds exactly that many and nothing more.
pub fn parse_entries(bytes: &[u8], width: u16) -> Result<Vec<&[u8]>, TileError> {
    let mut entries = Vec::new();
    let mut rest = bytes;
    while entries.len() < usize::from(width) {
        let Some((length, tail)) = rest.split_first_chunk::<2>() else { break };
        let Some((entry, tail)) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length))) else { break };
        entries.push(entry);
        rest = tail;
    }
    if entries.len() != usize::from(width) || !rest.is_empty() {
        return Err(TileError::Entries { expected: usize::from(width), found: entries.len(), rest: rest.len() });
    }
    Ok(entries)
}

/// Appends one entry to the bytes of an entry bundle.
///
/// # Errors
/// [`TileError::EntryTooLarge`].
pub fn push_entry(bundle: &mut Vec<u8>, entry: &[u8]) -> Result<(), TileError> {
    let length = u16::try_from(entry.len()).map_err(|_| TileError::EntryTooLarge { found: entry.len() })?;
    bundle.extend_from_slice(&length.to_be_bytes());
    bundle.extend_from_slice(entry);
    Ok(())
}

/// The root of the complete subtree over `2^row` hashes of a tile, from hash `offset·2^row` on; `None`
/// if the tile does not hold them all.
#[must_use]
pub fn node_in_tile(hashes: &[Hash], row: u32, offset: usize) -> Option<Hash> {
    if row > TILE_HEIGHT {
        return None;
    }
    let count = 1_usize << row;
    let start = offset.checked_mul(count)?;
    let mut level: Vec<Hash> = hashes.get(start..start.checked_add(count)?)?.to_vec();
    while level.len() > 1 {
        level = level.chunks_exact(2).filter_map(|pair| Some(node_hash(pair.first()?, pair.get(1)?))).collect();
    }
    level.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, kind: TileKind, index: u64, width: u16) {
        let path = TilePath { kind, index, width };
        assert_eq!(path.to_string(), text);
        assert_eq!(text.parse(), Ok(path));
    }

    #[test]
    fn paths_are_written_in_groups_of_three_digits() {
        // The examples of the C2SP page.
        check("tile/0/x001/x234/067", TileKind::Hashes(0), 1_234_067, 256);
        check("tile/entries/x001/x234/067.p/8", TileKind::Entries, 1_234_067, 8);
        check("tile/0/000", TileKind::Hashes(0), 0, 256);
        check("tile/1/999.p/255", TileKind::Hashes(1), 999, 255);
        check("tile/63/x001/000", TileKind::Hashes(63), 1000, 256);
        check("tile/2/x018/x446/x744/x073/x709/x551/615", TileKind::Hashes(2), u64::MAX, 256);
    }

    #[test]
    fn a_tile_has_one_name() {
        for bad in [
            "",
            "tile/0/0",
            "tile/0/0000",
            "tile/0/x000/001",
            "tile/0/001/002",
            "tile/0/x001",
            "tile/00/001",
            "tile/64/001",
            "tile/-1/001",
            "tile/0/000.p/0",
            "tile/0/000.p/256",
            "tile/0/000.p/01",
            "tile/0/000.p/",
            "tile/0/000/",
            "/tile/0/000",
            "tile/0/../000",
            "tile/entry/000",
            "tile/0/x999/x999/x999/x999/x999/x999/999",
        ] {
            assert!(bad.parse::<TilePath>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_width_follows_from_the_size() {
        let width = |kind, index, size| TilePath::at_size(kind, index, size).map(|path| path.width);
        // C2SP: a log of 70000 entries has 273 full tiles at level 0 and one of width 112, and so on.
        assert_eq!(width(TileKind::Hashes(0), 272, 70_000), Some(256));
        assert_eq!(width(TileKind::Hashes(0), 273, 70_000), Some(112));
        assert_eq!(width(TileKind::Hashes(0), 274, 70_000), None);
        assert_eq!(width(TileKind::Entries, 273, 70_000), Some(112));
        assert_eq!(width(TileKind::Hashes(1), 0, 70_000), Some(256));
        assert_eq!(width(TileKind::Hashes(1), 1, 70_000), Some(17));
        assert_eq!(width(TileKind::Hashes(2), 0, 70_000), Some(1));
        assert_eq!(width(TileKind::Hashes(3), 0, 70_000), None);
        assert_eq!(width(TileKind::Hashes(63), u64::MAX, u64::MAX), None);
    }

    #[test]
    fn entry_bundles_are_read_whole_or_not_at_all() {
        let mut bundle = Vec::new();
        for entry in [&b"one"[..], b"", b"three"] {
            push_entry(&mut bundle, entry).unwrap();
        }
        assert_eq!(parse_entries(&bundle, 3).unwrap(), [&b"one"[..], b"", b"three"]);
        assert!(parse_entries(&bundle, 2).is_err());
        assert!(parse_entries(&bundle, 4).is_err());
        for cut in 0..bundle.len() {
            assert!(parse_entries(bundle.get(..cut).unwrap(), 3).is_err());
        }
        assert_eq!(push_entry(&mut bundle, &[0; 65_536]), Err(TileError::EntryTooLarge { found: 65_536 }));
        assert_eq!(parse_hashes(&[0; 63], 2), Err(TileError::Size { expected: 64, found: 63 }));
        assert_eq!(parse_hashes(&[0; 64], 2).unwrap().len(), 2);
    }

    #[test]
    fn a_logged_entry_has_a_reference() {
        assert_eq!(entry_reference("log.example", 70_000), "log.example/tile/entries/273#70000");
    }
}
