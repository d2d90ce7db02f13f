//! Appending: entries and tiles, then the checkpoint, then the memory of it. A batch shares one such round.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use symseal_seal::entry::ENTRY_LIMIT;
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

/// A tree as it grows by a batch, and the files that differ from those on the disk.
struct Growth {
    size: u64,
    edges: Vec<Vec<Hash>>,
    entries: Vec<u8>,
    full: Vec<(TilePath, Vec<u8>)>,
    /// Levels below this one have a last tile that changed.
    changed_levels: usize,
}

impl Growth {
    fn of(state: &State) -> Self {
        Self {
            size: state.size,
            edges: state.edges.clone(),
            entries: state.entries.clone(),
            full: Vec::new(),
            changed_levels: 0,
        }
    }

    fn push(&mut self, entry: &[u8], leaf: Hash) -> Result<(), LogError> {
        push_entry(&mut self.entries, entry).map_err(|_| LogError::EntryTooLarge { found: entry.len() })?;
        self.size += 1;
        if self.size.is_multiple_of(u64::from(TILE_WIDTH)) {
            let index = self.size / u64::from(TILE_WIDTH) - 1;
            let tile = TilePath { kind: TileKind::Entries, index, width: TILE_WIDTH };
            self.full.push((tile, std::mem::take(&mut self.entries)));
        }
        let mut carried = Some(leaf);
        let mut level = 0_usize;
        while let Some(hash) = carried.take() {
            if self.edges.len() == level {
                self.edges.push(Vec::new());
            }
            let Some(edge) = self.edges.get_mut(level) else { break };
            edge.push(hash);
            // A full tile is one hash of the level above.
            carried = node_in_tile(edge, TILE_HEIGHT, 0);
            if carried.is_some() {
                let kind = TileKind::Hashes(u8::try_from(level).unwrap_or(u8::MAX));
                let above = u32::try_from(level + 1).unwrap_or(u32::MAX);
                let count = self.size.checked_shr(TILE_HEIGHT.saturating_mul(above)).unwrap_or(0);
                let tile = TilePath { kind, index: count.saturating_sub(1), width: TILE_WIDTH };
                self.full.push((tile, edge.concat()));
                edge.clear();
            }
            level += 1;
        }
        self.changed_levels = self.changed_levels.max(level);
        Ok(())
    }

    /// The files to write: full tiles, and the last one of each level that changed.
    fn files(&self) -> Vec<(TilePath, Vec<u8>)> {
        let mut files = self.full.clone();
        let last = |kind, count: u64| TilePath::at_size(kind, count / u64::from(TILE_WIDTH), self.size);
        if let Some(tile) = last(TileKind::Entries, self.size).filter(|_| !self.entries.is_empty()) {
            files.push((tile, self.entries.clone()));
        }
        for (level, edge) in
            self.edges.iter().enumerate().take(self.changed_levels).filter(|(_, edge)| !edge.is_empty())
        {
            let height = TILE_HEIGHT.saturating_mul(u32::try_from(level).unwrap_or(u32::MAX));
            let kind = TileKind::Hashes(u8::try_from(level).unwrap_or(u8::MAX));
            if let Some(tile) = last(kind, self.size.checked_shr(height).unwrap_or(0)) {
                files.push((tile, edge.concat()));
            }
        }
        files
    }
}

impl TileLog {
    /// Appends an entry and gives its position and proof; an entry that is already there is not
    /// appended again. When this returns, entry and checkpoint are on the disk.
    ///
    /// # Errors
    /// [`LogError`]. The log has its old state or the new one, never another; after a failure at the
    /// checkpoint the value answers [`LogError::MustReopen`] from then on.
    pub fn append(&mut self, entry: &[u8]) -> Result<Appended, LogError> {
        let mut answers = self.append_batch(&[entry])?;
        let nothing = || LogError::damaged(&self.directory, "one answer for one entry", "none");
        answers.pop().ok_or_else(nothing)?
    }

    /// Appends many entries in one round: one write of each file, one checkpoint. Gives position and proof
    /// of each in the order of `entries`; what is in the log already, or stands in the batch twice, is
    /// appended once. An entry that does not fit is an error of its own and keeps no other back.
    ///
    /// # Errors
    /// As [`Self::append`]; then none of the batch was acknowledged, and after opening the log again
    /// either all of it is there or nothing.
    pub fn append_batch(&mut self, entries: &[&[u8]]) -> Result<Vec<Result<Appended, LogError>>, LogError> {
        if self.must_reopen {
            return Err(LogError::MustReopen { path: self.directory.clone() });
        }
        let mut growth = Growth::of(&self.state);
        let mut new: HashMap<Hash, u64> = HashMap::new();
        // Index, leaf, and whether it was there before.
        let mut placed: Vec<Result<(u64, Hash, bool), LogError>> = Vec::with_capacity(entries.len());
        for entry in entries {
            let leaf = leaf_hash(entry);
            let known = match new.get(&leaf) {
                Some(index) => Some(*index),
                None => self.position(&leaf)?,
            };
            placed.push(match known {
                Some(index) => Ok((index, leaf, true)),
                None if entry.len() > ENTRY_LIMIT => Err(LogError::EntryTooLarge { found: entry.len() }),
                None => {
                    let index = growth.size;
                    growth.push(entry, leaf)?;
                    new.insert(leaf, index);
                    Ok((index, leaf, false))
                }
            });
        }
        if !new.is_empty() {
            self.commit(growth, new)?;
        }
        Ok(placed
            .into_iter()
            .map(|place| place.and_then(|(index, leaf, duplicate)| self.prove(index, &leaf, duplicate)))
            .collect())
    }

    fn commit(&mut self, growth: Growth, new: HashMap<Hash, u64>) -> Result<(), LogError> {
        let named: Vec<(PathBuf, Vec<u8>)> =
            growth.files().into_iter().map(|(tile, bytes)| (self.directory.join(tile.to_string()), bytes)).collect();
        self.disk.replace_all(&named).map_err(|(path, error)| LogError::io(&path, "write it")(error))?;
        let Growth { size, edges, entries, full, .. } = growth;
        let root = root(&mut Edges(&edges), size)?;
        let checkpoint = sign(&self.key, &self.identity, size, root);
        // From here on an error leaves it open which checkpoint a reader finds.
        self.must_reopen = true;
        let path = self.directory.join(CHECKPOINT_FILE);
        self.disk.replace(&path, checkpoint.as_bytes()).map_err(LogError::io(&path, "write it"))?;
        self.remember(&checkpoint)?;
        self.must_reopen = false;
        self.state = State { size, root, checkpoint, edges, entries };
        self.positions.extend(new);
        for (tile, _) in full {
            remove_partial_tiles(&self.directory, tile);
        }
        Ok(())
    }

    /// The position and proof of an entry that is in the log.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn find(&self, entry: &[u8]) -> Result<Option<Appended>, LogError> {
        let leaf = leaf_hash(entry);
        self.position(&leaf)?.map(|index| self.prove(index, &leaf, true)).transpose()
    }

    /// Where a leaf stands.
    fn position(&self, leaf: &Hash) -> Result<Option<u64>, LogError> {
        for candidate in self.positions.candidates(leaf) {
            if self.leaf(candidate)? == *leaf {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    fn leaf(&self, index: u64) -> Result<Hash, LogError> {
        use symseal_seal::tlog::Nodes as _;
        self.nodes().node(0, index)
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
}

/// Partial tiles are needed until a checkpoint covers the full one. Nothing depends on their going.
fn remove_partial_tiles(directory: &Path, full: TilePath) {
    let mut name = full.to_string();
    name.push_str(".p");
    let _ = fs::remove_dir_all(directory.join(name));
}
