//! Appending: entries, tiles, checkpoint, memory, in this order.

use std::fs;
use std::path::Path;

use symseal_seal::tiles::{TILE_HEIGHT, TILE_WIDTH, TileKind, TilePath, node_in_tile, push_entry};
use symseal_seal::tlog::{inclusion_proof, leaf_hash, root, verify_inclusion};
use symseal_seal::{Hash, LogId};

use super::read::Edges;
use super::{CHECKPOINT_FILE, LogError, State, TileLog, sign};

/// Where an entry stands in the log, and the proof of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Position, from 0.
    pub index: u64,
    /// Whether the entry was in the log before.
    pub duplicate: bool,
    /// Size of the tree to which the proof leads.
    pub size: u64,
    /// Its root.
    pub root: Hash,
    /// Siblings from the leaf upwards.
    pub proof: Vec<Hash>,
    /// The signed checkpoint of that size and root.
    pub checkpoint: String,
    /// The log's id.
    pub log_id: LogId,
}

/// Files to write, and the state that they make.
struct Step {
    files: Vec<(TilePath, Vec<u8>)>,
    state: State,
}

impl TileLog {
    /// Appends an entry and gives its position and proof; an entry that is already there is not
    /// appended again. When this returns, entry and checkpoint are on the disk.
    ///
    /// # Errors
    /// [`LogError`]. The log has its old state or the new one, never another; after a failure at the
    /// checkpoint the value answers [`LogError::MustReopen`] from then on.
    pub fn append(&mut self, entry: &[u8]) -> Result<Appended, LogError> {
        if self.must_reopen {
            return Err(LogError::MustReopen { path: self.directory.clone() });
        }
        let leaf = leaf_hash(entry);
        if let Some(index) = self.index_of.get(&leaf).copied() {
            return self.prove(index, &leaf, true);
        }
        let step = self.plan(entry, &leaf)?;
        for (tile, bytes) in &step.files {
            let path = self.directory.join(tile.to_string());
            self.disk.replace(&path, bytes).map_err(LogError::io(&path, "write it"))?;
        }
        // From here on an error leaves it open which checkpoint a reader finds.
        self.must_reopen = true;
        let path = self.directory.join(CHECKPOINT_FILE);
        self.disk.replace(&path, step.state.checkpoint.as_bytes()).map_err(LogError::io(&path, "write it"))?;
        self.remember(&step.state.checkpoint)?;
        self.must_reopen = false;
        let index = self.state.size;
        self.state = step.state;
        self.index_of.insert(leaf, index);
        for (tile, _) in &step.files {
            if tile.width == TILE_WIDTH {
                remove_partial_tiles(&self.directory, *tile);
            }
        }
        self.prove(index, &leaf, false)
    }

    /// The position and proof of an entry that is in the log.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn find(&self, entry: &[u8]) -> Result<Option<Appended>, LogError> {
        let leaf = leaf_hash(entry);
        self.index_of.get(&leaf).map(|index| self.prove(*index, &leaf, true)).transpose()
    }

    fn prove(&self, index: u64, leaf: &Hash, duplicate: bool) -> Result<Appended, LogError> {
        let State { size, root, .. } = self.state;
        let proof = inclusion_proof(&mut self.nodes(), index, size)?;
        // A tile that was damaged since the log was opened must not go out as a proof.
        verify_inclusion(leaf, index, size, &proof, &root).map_err(|error| {
            LogError::damaged(&self.directory, format!("tiles that prove entry {index}"), error.to_string())
        })?;
        let checkpoint = self.state.checkpoint.clone();
        Ok(Appended { index, duplicate, size, root, proof, checkpoint, log_id: self.id() })
    }

    fn plan(&self, entry: &[u8], leaf: &Hash) -> Result<Step, LogError> {
        let size = self.state.size + 1;
        let mut edges = self.state.edges.clone();
        let mut entries = self.state.entries.clone();
        push_entry(&mut entries, entry).map_err(|_| LogError::EntryTooLarge { found: entry.len() })?;
        let mut files = Vec::new();
        let last = |kind, level: u32| {
            let count = size >> (TILE_HEIGHT * level);
            TilePath::at_size(kind, (count - 1) / u64::from(TILE_WIDTH), size)
        };
        if let Some(tile) = last(TileKind::Entries, 0) {
            files.push((tile, entries.clone()));
        }
        let mut carried = Some(*leaf);
        let mut level = 0_usize;
        while let Some(hash) = carried.take() {
            if edges.len() == level {
                edges.push(Vec::new());
            }
            let Some(edge) = edges.get_mut(level) else { break };
            edge.push(hash);
            let kind = TileKind::Hashes(u8::try_from(level).unwrap_or(u8::MAX));
            if let Some(tile) = last(kind, u32::try_from(level).unwrap_or(u32::MAX)) {
                files.push((tile, edge.concat()));
            }
            // A full tile is one hash of the level above.
            carried = node_in_tile(edge, TILE_HEIGHT, 0);
            if carried.is_some() {
                edge.clear();
            }
            level += 1;
        }
        if edges.first().is_some_and(Vec::is_empty) {
            entries.clear();
        }
        let root = root(&mut Edges(&edges), size)?;
        let checkpoint = sign(&self.key, &self.identity, size, root);
        Ok(Step { files, state: State { size, root, checkpoint, edges, entries } })
    }
}

/// Partial tiles are needed until a checkpoint covers the full one. Nothing depends on their going.
fn remove_partial_tiles(directory: &Path, full: TilePath) {
    let mut name = full.to_string();
    name.push_str(".p");
    let _ = fs::remove_dir_all(directory.join(name));
}
