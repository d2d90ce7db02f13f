//! Proofs that a log gives about itself: between two of its sizes, and of an entry by tiles.

use std::collections::BTreeMap;

use symseal_seal::fragment::tiles_of_path;
use symseal_seal::tiles::TileKind;
use symseal_seal::tlog::consistency_proof;
use symseal_seal::{ConsistencyProof, TileFragment};

use super::{LogError, TileLog};

impl TileLog {
    /// The proof that the tree of `to` entries begins with that of `from`; `to` is at most the log's size.
    ///
    /// # Errors
    /// [`LogError`] where a tile cannot be read.
    pub fn consistency(&self, from: u64, to: u64) -> Result<ConsistencyProof, LogError> {
        let hashes = consistency_proof(&mut self.nodes(), from, to.min(self.state.size))?;
        Ok(ConsistencyProof { origin: self.identity.origin.to_string(), from, to, hashes })
    }

    /// The checkpoint, and the tiles from which the audit path of entry `index` under it follows.
    ///
    /// # Errors
    /// [`LogError`] where a tile cannot be read.
    pub fn fragment(&self, index: u64) -> Result<TileFragment, LogError> {
        let mut tiles = BTreeMap::new();
        for path in tiles_of_path(index, self.state.size) {
            let level = match path.kind {
                TileKind::Hashes(level) => usize::from(level),
                TileKind::Entries => continue,
            };
            // The last, partial tiles are in memory; their files may be those of a later size already.
            let edge = self.state.edges.get(level).filter(|edge| edge.len() == usize::from(path.width));
            let hashes = match edge {
                Some(edge) => edge.clone(),
                None => super::read::read_tile(&self.directory, path)?,
            };
            tiles.insert(path, hashes);
        }
        Ok(TileFragment { checkpoint: self.state.checkpoint.clone(), index, tiles })
    }
}
