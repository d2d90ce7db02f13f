//! Tile fragments: a checkpoint and the tiles from which one entry's audit path follows.
//!
//! A fragment replaces the audit path in a seal, for who has the log's tiles and not its server. It is
//! never believed as a tree of its own: the path is computed from the tiles, and then led from *our*
//! entry's leaf hash to the root that the log signed. A reader that takes the leaf from the tile
//! accepts a forged one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::encoding::{Hash, from_base64, to_base64};
use crate::note::NOTE_LIMIT;
use crate::tiles::{TILE_HEIGHT, TILE_WIDTH, TileError, TileKind, TilePath, node_in_tile, parse_hashes};
use crate::tlog::{InclusionError, Nodes, inclusion_proof, verify_inclusion};

/// The largest fragment that is read, in bytes: sixteen full tiles in base64, a checkpoint, and room.
pub const FRAGMENT_LIMIT: usize = 512 * 1024;
/// The most tiles that one path can need: at most two of each of eight levels.
pub const MAX_FRAGMENT_TILES: usize = 16;

/// A fragment, as read; nothing is verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileFragment {
    /// The signed checkpoint's text.
    pub checkpoint: String,
    /// Position of the entry in the log.
    pub index: u64,
    /// Tiles of hashes by their paths.
    pub tiles: BTreeMap<TilePath, Vec<Hash>>,
}

/// A fragment is malformed, or does not prove the entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    /// Larger than [`FRAGMENT_LIMIT`].
    #[error("expected a tile fragment of at most {FRAGMENT_LIMIT} bytes, found {found}")]
    TooLarge {
        /// Its size in bytes.
        found: usize,
    },
    /// Not the JSON form.
    #[error("expected the JSON of a tile fragment (checkpoint, index, tiles): {reason}")]
    Json {
        /// What the JSON reader said.
        reason: String,
    },
    /// A path or a tile is malformed.
    #[error("{path}: {source}")]
    Tile {
        /// The path as given.
        path: String,
        /// What is wrong.
        source: TileError,
    },
    /// A tile that the path needs is not there, or has another width.
    #[error("expected the tile {path}, found none of that name")]
    Missing {
        /// Its path at the checkpoint's size.
        path: TilePath,
    },
    /// A tile that the path does not need.
    #[error("expected only tiles that the path of entry {index} needs, found {path}")]
    Unused {
        /// Its path.
        path: TilePath,
        /// The entry.
        index: u64,
    },
    /// The tiles hold another hash in the entry's own place.
    #[error("expected in {path} the hash of entry {index} or of a tile below it, found another")]
    Forged {
        /// The tile.
        path: TilePath,
        /// The entry.
        index: u64,
    },
    /// The path does not lead to the checkpoint's root.
    #[error(transparent)]
    Inclusion(#[from] InclusionError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FragmentJson {
    checkpoint: String,
    index: u64,
    #[serde(deserialize_with = "each_once")]
    tiles: BTreeMap<String, String>,
}

/// A map in which no name stands twice: of two tiles of one name a reader would have to choose.
fn each_once<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Unique;
    impl<'de> Visitor<'de> for Unique {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("tiles by path, each once")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut tiles = BTreeMap::new();
            while let Some((path, tile)) = map.next_entry::<String, String>()? {
                if tiles.insert(path, tile).is_some() {
                    return Err(serde::de::Error::custom("expected each tile once"));
                }
            }
            Ok(tiles)
        }
    }
    deserializer.deserialize_map(Unique)
}

/// The tile and the place in it of a node of the tree.
fn place(height: u32, index: u64, size: u64) -> Option<(TilePath, u32, usize)> {
    let row = height % TILE_HEIGHT;
    let level = u8::try_from(height / TILE_HEIGHT).ok()?;
    let above = TILE_HEIGHT - row;
    let offset = index & ((1_u64 << above) - 1);
    let tile = TilePath::at_size(TileKind::Hashes(level), index >> above, size)?;
    Some((tile, row, usize::try_from(offset).ok()?))
}

/// The nodes of a tree out of tiles, and which tiles were asked for.
struct Tiles<'a> {
    tiles: &'a BTreeMap<TilePath, Vec<Hash>>,
    size: u64,
    used: BTreeSet<TilePath>,
}

impl Nodes for Tiles<'_> {
    type Error = FragmentError;

    fn node(&mut self, height: u32, index: u64) -> Result<Hash, FragmentError> {
        let (path, row, offset) = place(height, index, self.size)
            .ok_or(FragmentError::Inclusion(InclusionError::Index { index, size: self.size }))?;
        self.used.insert(path);
        let hashes = self.tiles.get(&path).ok_or(FragmentError::Missing { path })?;
        node_in_tile(hashes, row, offset).ok_or(FragmentError::Missing { path })
    }
}

/// The tiles that the audit path of entry `index` in a log of `size` entries is computed from.
#[must_use]
pub fn tiles_of_path(index: u64, size: u64) -> BTreeSet<TilePath> {
    struct Asked {
        size: u64,
        paths: BTreeSet<TilePath>,
    }
    impl Nodes for Asked {
        type Error = std::convert::Infallible;

        fn node(&mut self, height: u32, index: u64) -> Result<Hash, Self::Error> {
            self.paths.extend(place(height, index, self.size).map(|(path, _, _)| path));
            Ok([0; 32])
        }
    }
    let mut asked = Asked { size, paths: BTreeSet::new() };
    let Ok(_) = inclusion_proof(&mut asked, index, size);
    asked.paths
}

impl TileFragment {
    /// Reads a fragment. Every tile has exactly the bytes of its width.
    ///
    /// # Errors
    /// [`FragmentError`] says what is malformed.
    pub fn parse(json: &[u8]) -> Result<Self, FragmentError> {
        if json.len() > FRAGMENT_LIMIT {
            return Err(FragmentError::TooLarge { found: json.len() });
        }
        let malformed = |reason: String| FragmentError::Json { reason };
        let json: FragmentJson = serde_json::from_slice(json).map_err(|error| malformed(error.to_string()))?;
        if json.tiles.len() > MAX_FRAGMENT_TILES {
            return Err(malformed(format!("at most {MAX_FRAGMENT_TILES} tiles, found {}", json.tiles.len())));
        }
        if json.checkpoint.len() > NOTE_LIMIT {
            return Err(malformed("a checkpoint of at most 64 KiB".into()));
        }
        let mut tiles = BTreeMap::new();
        for (path, tile) in &json.tiles {
            let shown = || path.chars().take(120).collect::<String>();
            let wrong = |source| FragmentError::Tile { path: shown(), source };
            let parsed: TilePath = path.parse().map_err(wrong)?;
            if parsed.kind == TileKind::Entries {
                return Err(wrong(TileError::Path { found: shown() }));
            }
            let bytes = from_base64(tile).ok_or_else(|| malformed(format!("the base64 of {}", shown())))?;
            tiles.insert(parsed, parse_hashes(&bytes, parsed.width).map_err(wrong)?);
        }
        Ok(Self { checkpoint: json.checkpoint, index: json.index, tiles })
    }

    /// The fragment as canonical JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let tile = |(path, hashes): (&TilePath, &Vec<Hash>)| (path.to_string(), to_base64(&hashes.concat()));
        crate::canonical_json(&FragmentJson {
            checkpoint: self.checkpoint.clone(),
            index: self.index,
            tiles: self.tiles.iter().map(tile).collect(),
        })
    }

    /// Proves that `leaf` is the entry in the tree of `size` entries with this root: computes the audit
    /// path from the tiles and leads it from the leaf to the root. Each hash of each tile has its use:
    /// what stands in the entry's own place must be the entry's, and there is no tile more.
    ///
    /// # Errors
    /// [`FragmentError`] says what does not hold.
    pub fn verify(&self, leaf: &Hash, size: u64, root: &Hash) -> Result<(), FragmentError> {
        let mut nodes = Tiles { tiles: &self.tiles, size, used: BTreeSet::new() };
        let proof = inclusion_proof(&mut nodes, self.index, size)?;
        verify_inclusion(leaf, self.index, size, &proof, root)?;
        let used = nodes.used;
        if let Some(path) = self.tiles.keys().find(|path| !used.contains(path)) {
            return Err(FragmentError::Unused { path: *path, index: self.index });
        }
        self.own_places(leaf, size)
    }

    /// The path never reads the entry's own hashes; they are compared here, from the leaf upwards.
    fn own_places(&self, leaf: &Hash, size: u64) -> Result<(), FragmentError> {
        let mut hash = *leaf;
        let mut index = self.index;
        for level in 0_u8.. {
            let kind = TileKind::Hashes(level);
            let Some(path) = TilePath::at_size(kind, index / u64::from(TILE_WIDTH), size) else { break };
            let Some(hashes) = self.tiles.get(&path) else { break };
            let offset = usize::try_from(index % u64::from(TILE_WIDTH)).unwrap_or(usize::MAX);
            if hashes.get(offset).is_some_and(|found| *found != hash) {
                return Err(FragmentError::Forged { path, index: self.index });
            }
            // Only a full tile has a hash in the level above.
            let Some(above) = node_in_tile(hashes, TILE_HEIGHT, 0) else { break };
            hash = above;
            index /= u64::from(TILE_WIDTH);
        }
        Ok(())
    }
}
