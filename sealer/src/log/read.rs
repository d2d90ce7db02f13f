//! Reading a log's directory: every tile checked against the leaf hashes, the root against the
//! checkpoint.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use symseal_seal::encoding::to_base64;
use symseal_seal::tiles::{TILE_HEIGHT, TILE_WIDTH, TileKind, TilePath, node_in_tile, parse_entries, parse_hashes};
use symseal_seal::tlog::{Nodes, leaf_hash};
use symseal_seal::{Checkpoint, Hash, LogIdentity, Origin, SignedCheckpoint};

use super::{CHECKPOINT_FILE, LogError, State, TileLog};
use crate::keys::LogKey;

/// What opening a directory gives.
pub(super) struct Opened {
    pub(super) identity: LogIdentity,
    pub(super) state: State,
    /// Every leaf hash, in order.
    pub(super) leaves: Vec<Hash>,
}

const FULL: usize = TILE_WIDTH as usize;

/// Parses a checkpoint and verifies it as the log's.
pub(super) fn verified(text: &str, identity: &LogIdentity, path: &Path) -> Result<Checkpoint, LogError> {
    let wrong = |source| LogError::Checkpoint { path: path.to_owned(), source };
    let signed = SignedCheckpoint::parse(text).map_err(wrong)?;
    signed.verify(identity).map_err(wrong)?;
    Ok(signed.checkpoint)
}

pub(super) fn open(directory: &Path, key: &LogKey) -> Result<Opened, LogError> {
    let path = directory.join(CHECKPOINT_FILE);
    let text = fs::read_to_string(&path).map_err(LogError::io(&path, "read it"))?;
    let first = text.lines().next().unwrap_or_default();
    let origin: Origin = first
        .parse()
        .map_err(|error: symseal_seal::OriginError| LogError::damaged(&path, "an origin", error.to_string()))?;
    let identity = key.identity(&origin).ok_or(LogError::WeakKey)?;
    let checkpoint = verified(&text, &identity, &path)?;
    let size = checkpoint.size;

    let leaves = read_level(directory, 0, size)?;
    let mut levels = vec![leaves];
    // Each hash of a level is the root of a full tile of the level below.
    for level in 1_u8.. {
        let below = levels.last().map(Vec::as_slice).unwrap_or_default();
        let computed: Vec<Hash> =
            below.chunks_exact(FULL).filter_map(|tile| node_in_tile(tile, TILE_HEIGHT, 0)).collect();
        if computed.is_empty() {
            break;
        }
        let stored = read_level(directory, level, size)?;
        if let Some(wrong) = computed.iter().zip(&stored).position(|(one, other)| one != other) {
            let tile = TilePath::at_size(TileKind::Hashes(level), (wrong / FULL) as u64, size);
            let path = tile.map_or_else(|| directory.to_owned(), |tile| directory.join(tile.to_string()));
            return Err(LogError::damaged(&path, "the roots of the tiles below", "other hashes"));
        }
        levels.push(stored);
    }
    let edges: Vec<Vec<Hash>> = levels.iter().map(|level| level.chunks_exact(FULL).remainder().to_vec()).collect();
    let root = symseal_seal::tlog::root(&mut Edges(&edges), size)?;
    if root != checkpoint.root {
        let expected = format!("the root {} over {size} entries", to_base64(&root));
        return Err(LogError::damaged(&path, expected, to_base64(&checkpoint.root)));
    }
    let entries = read_last_entries(directory, size, edges.first().map(Vec::as_slice).unwrap_or_default())?;
    let leaves = levels.into_iter().next().unwrap_or_default();
    Ok(Opened { identity, state: State { size, root, checkpoint: text, edges, entries }, leaves })
}

/// Reads a tile of hashes.
pub(super) fn read_tile(directory: &Path, tile: TilePath) -> Result<Vec<Hash>, LogError> {
    let path = directory.join(tile.to_string());
    let bytes = fs::read(&path).map_err(LogError::io(&path, "read a tile that the checkpoint needs"))?;
    parse_hashes(&bytes, tile.width)
        .map_err(|error| LogError::damaged(&path, format!("a tile of width {}", tile.width), error.to_string()))
}

fn read_level(directory: &Path, level: u8, size: u64) -> Result<Vec<Hash>, LogError> {
    let mut hashes = Vec::new();
    for index in 0_u64.. {
        let Some(tile) = TilePath::at_size(TileKind::Hashes(level), index, size) else { break };
        hashes.extend(read_tile(directory, tile)?);
    }
    Ok(hashes)
}

/// The partial entry bundle at the end, which the next append extends, checked against its leaves.
fn read_last_entries(directory: &Path, size: u64, leaves: &[Hash]) -> Result<Vec<u8>, LogError> {
    if leaves.is_empty() {
        return Ok(Vec::new());
    }
    let Some(tile) = TilePath::at_size(TileKind::Entries, size / u64::from(TILE_WIDTH), size) else {
        return Ok(Vec::new());
    };
    let path = directory.join(tile.to_string());
    let bytes = fs::read(&path).map_err(LogError::io(&path, "read the last entries"))?;
    check_entries(&path, &bytes, tile.width, leaves)?;
    Ok(bytes)
}

fn check_entries(path: &Path, bytes: &[u8], width: u16, leaves: &[Hash]) -> Result<(), LogError> {
    let entries = parse_entries(bytes, width)
        .map_err(|error| LogError::damaged(path, format!("{width} entries"), error.to_string()))?;
    match entries.iter().zip(leaves).position(|(entry, leaf)| leaf_hash(entry) != *leaf) {
        Some(n) => Err(LogError::damaged(path, format!("entry {n} with the hash in its tile"), "another entry")),
        None => Ok(()),
    }
}

/// The right edge of a tree: enough for its own root.
pub(super) struct Edges<'a>(pub(super) &'a [Vec<Hash>]);

impl Nodes for Edges<'_> {
    type Error = LogError;

    fn node(&mut self, height: u32, index: u64) -> Result<Hash, LogError> {
        let (level, row, offset) = place(height, index);
        self.0
            .get(level)
            .and_then(|edge| node_in_tile(edge, row, offset))
            .ok_or_else(|| LogError::damaged(Path::new("tile"), "a hash at the right edge", "none"))
    }
}

/// Level, row within the tile, and offset in that row of a node.
fn place(height: u32, index: u64) -> (usize, u32, usize) {
    let row = height % TILE_HEIGHT;
    // A tile has 2^(8 − row) nodes in this row.
    let offset = index & ((1_u64 << (TILE_HEIGHT - row)) - 1);
    ((height / TILE_HEIGHT) as usize, row, offset as usize)
}

/// Nodes out of tiles that were read from elsewhere, in a log of `size` entries; the error is the tile that
/// is missing, or that lacks the node.
pub(crate) struct TileNodes<'a> {
    pub(crate) size: u64,
    pub(crate) tiles: &'a HashMap<TilePath, Vec<Hash>>,
}

impl Nodes for TileNodes<'_> {
    type Error = TilePath;

    fn node(&mut self, height: u32, index: u64) -> Result<Hash, TilePath> {
        let (level, row, offset) = place(height, index);
        let kind = TileKind::Hashes(u8::try_from(level).unwrap_or(u8::MAX));
        let number = index >> (TILE_HEIGHT - row);
        let missing = TilePath { kind, index: number, width: TILE_WIDTH };
        let tile = TilePath::at_size(kind, number, self.size).ok_or(missing)?;
        self.tiles.get(&tile).and_then(|hashes| node_in_tile(hashes, row, offset)).ok_or(tile)
    }
}

/// Every node of a log's tree: the last tiles from memory, the others from the disk.
pub(super) struct LogNodes<'a> {
    log: &'a TileLog,
    /// The tile read last: neighbouring nodes of a proof often share it.
    cached: Option<(TilePath, Vec<Hash>)>,
}

impl TileLog {
    pub(super) fn nodes(&self) -> LogNodes<'_> {
        LogNodes { log: self, cached: None }
    }

    /// Reads every entry bundle and compares it with the leaf hashes: what [`TileLog::open`] leaves out,
    /// as it would read the whole log.
    ///
    /// # Errors
    /// [`LogError::Damaged`] or [`LogError::Io`] for the first file that is wrong.
    pub fn check_entries(&self) -> Result<(), LogError> {
        for index in 0_u64.. {
            let size = self.state.size;
            let (Some(entries), Some(hashes)) = (
                TilePath::at_size(TileKind::Entries, index, size),
                TilePath::at_size(TileKind::Hashes(0), index, size),
            ) else {
                break;
            };
            let path = self.directory.join(entries.to_string());
            let bytes = fs::read(&path).map_err(LogError::io(&path, "read entries"))?;
            check_entries(&path, &bytes, entries.width, &read_tile(&self.directory, hashes)?)?;
        }
        Ok(())
    }
}

impl Nodes for LogNodes<'_> {
    type Error = LogError;

    fn node(&mut self, height: u32, index: u64) -> Result<Hash, LogError> {
        let (level, row, offset) = place(height, index);
        let tile_index = index >> (TILE_HEIGHT - row);
        let kind = TileKind::Hashes(u8::try_from(level).unwrap_or(u8::MAX));
        let missing = || LogError::damaged(&self.log.directory, format!("node {index} at height {height}"), "none");
        let tile = TilePath::at_size(kind, tile_index, self.log.state.size).ok_or_else(missing)?;
        if tile.width < TILE_WIDTH {
            let edge = self.log.state.edges.get(level);
            return edge.and_then(|edge| node_in_tile(edge, row, offset)).ok_or_else(missing);
        }
        if self.cached.as_ref().is_none_or(|(path, _)| *path != tile) {
            self.cached = Some((tile, read_tile(&self.log.directory, tile)?));
        }
        let hashes = self.cached.as_ref().map(|(_, hashes)| hashes.as_slice()).unwrap_or_default();
        node_in_tile(hashes, row, offset)
            .ok_or_else(|| LogError::damaged(&self.log.directory.join(tile.to_string()), "256 hashes", "fewer"))
    }
}
