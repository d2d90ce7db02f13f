//! A log as anybody may read it: its checkpoint and its tiles, without its key and without its lease.
//!
//! What is made from them (proofs between two sizes, tile fragments) is checked against the checkpoint's root before it is
//! given away. Whether the log is the one that it says it is, whoever uses a proof must judge: [`PublishedLog::verify`].

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use symseal_seal::fragment::tiles_of_path;
use symseal_seal::tiles::{TILE_WIDTH, TileKind, TilePath, parse_entries, parse_hashes};
use symseal_seal::tlog::{consistency_proof, inclusion_proof, leaf_hash, root, verify_consistency, verify_inclusion};
use symseal_seal::{Checkpoint, CheckpointError, ConsistencyProof, Hash, LogIdentity, SignedCheckpoint, TileFragment};

use super::read::TileNodes;
#[cfg(feature = "online")]
use super::remote::RemoteLog;
use super::{CHECKPOINT_FILE, LogError};

/// More tiles than any two proofs of one log take.
const MAX_TILES: usize = 512;
/// The largest checkpoint that is read, in bytes.
const CHECKPOINT_LIMIT: u64 = 64 << 10;

/// A log, open for reading, as it stood at its checkpoint.
#[derive(Debug)]
pub struct PublishedLog {
    source: Source,
    /// The directory, or the URL as errors name it.
    directory: PathBuf,
    text: String,
    signed: SignedCheckpoint,
}

/// Where a log's files are.
#[derive(Debug)]
enum Source {
    Directory,
    #[cfg(feature = "online")]
    Remote(RemoteLog),
}

impl PublishedLog {
    /// Opens the log in a directory: an embedded one, or a copy of what a log publishes.
    ///
    /// # Errors
    /// [`LogError`]; among them that the tiles do not give the checkpoint's root.
    pub fn open(directory: &Path) -> Result<Self, LogError> {
        let path = directory.join(CHECKPOINT_FILE);
        let length = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(LogError::NoLog { path: directory.to_owned() });
            }
            Err(error) => return Err(LogError::io(&path, "read it")(error)),
        };
        if length > CHECKPOINT_LIMIT {
            return Err(LogError::damaged(&path, "a checkpoint of at most 64 KiB", format!("{length} bytes")));
        }
        let text = fs::read(&path).map_err(LogError::io(&path, "read it"))?;
        Self::checked(Source::Directory, directory.to_owned(), text)
    }

    /// Opens the log that is published at a URL: its read prefix, under which `checkpoint` and `tile/` are, or the URL of a
    /// Rekor v2 or a server of ours, which have them below `/api/v2`. Each file is fetched when it is needed, and nothing is
    /// believed: see [`PublishedLog::verify`].
    ///
    /// # Errors
    /// [`LogError`]; among them that the log does not answer, or that its tiles do not give the checkpoint's root.
    #[cfg(feature = "online")]
    pub fn open_url(url: &str) -> Result<Self, LogError> {
        let (remote, text) = RemoteLog::open(url)?;
        let directory = PathBuf::from(remote.prefix());
        Self::checked(Source::Remote(remote), directory, text)
    }

    fn checked(source: Source, directory: PathBuf, text: Vec<u8>) -> Result<Self, LogError> {
        let path = directory.join(CHECKPOINT_FILE);
        let damaged = |found: String| LogError::damaged(&path, "a checkpoint of at most 64 KiB", found);
        if text.len() as u64 > CHECKPOINT_LIMIT {
            return Err(damaged(format!("{} bytes", text.len())));
        }
        let text = String::from_utf8(text).map_err(|error| damaged(error.to_string()))?;
        let signed = SignedCheckpoint::parse(&text).map_err(|source| LogError::Checkpoint { path, source })?;
        let log = Self { source, directory, text, signed };
        let found = log.root_at(log.size())?;
        if found != log.checkpoint().root {
            return Err(LogError::damaged(&log.directory, "tiles with the checkpoint's root", "another root"));
        }
        Ok(log)
    }

    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.signed.checkpoint
    }

    /// The signed note, as it is published.
    #[must_use]
    pub fn checkpoint_text(&self) -> &str {
        &self.text
    }

    /// Number of entries at the checkpoint.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.signed.checkpoint.size
    }

    /// Whether this log signed the checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError`] says what does not hold.
    pub fn verify(&self, log: &LogIdentity) -> Result<(), CheckpointError> {
        self.signed.verify(log)
    }

    /// The root that the first `size` entries have.
    ///
    /// # Errors
    /// [`LogError`] where a tile cannot be read, or the log has fewer entries.
    pub fn root_at(&self, size: u64) -> Result<Hash, LogError> {
        self.check_size(size)?;
        self.with_tiles(|nodes| root(nodes, size))
    }

    /// The proof that the tree of `to` entries begins with that of `from`.
    ///
    /// # Errors
    /// [`LogError`] where a tile cannot be read or holds other hashes, or the log has fewer entries.
    pub fn consistency(&self, from: u64, to: u64) -> Result<ConsistencyProof, LogError> {
        self.check_size(to)?;
        self.check_size(from)?;
        let (from, to) = (from.min(to), from.max(to));
        let hashes = self.with_tiles(|nodes| consistency_proof(nodes, from, to))?;
        let roots = (self.root_at(from)?, self.root_at(to)?);
        verify_consistency((from, &roots.0), (to, &roots.1), &hashes)
            .map_err(|error| LogError::damaged(&self.directory, "tiles of one history", error.to_string()))?;
        Ok(ConsistencyProof { origin: self.checkpoint().origin.clone(), from, to, hashes })
    }

    /// The audit path of the entry with this leaf hash, at `index`, under the checkpoint.
    ///
    /// # Errors
    /// [`LogError`] where a tile cannot be read, or another entry stands there.
    pub fn inclusion(&self, index: u64, leaf: &Hash) -> Result<Vec<Hash>, LogError> {
        let hashes = self.with_tiles(|nodes| inclusion_proof(nodes, index, self.size()))?;
        verify_inclusion(leaf, index, self.size(), &hashes, &self.checkpoint().root)
            .map_err(|error| LogError::damaged(&self.directory, format!("our entry at {index}"), error.to_string()))?;
        Ok(hashes)
    }

    /// The checkpoint, and the tiles from which the audit path of entry `index` under it follows.
    ///
    /// # Errors
    /// [`LogError`] where a tile cannot be read or holds other hashes, or there is no such entry.
    pub fn fragment(&self, index: u64) -> Result<TileFragment, LogError> {
        let size = self.size();
        let leaf = self.leaf(index)?;
        let mut tiles = BTreeMap::new();
        for path in tiles_of_path(index, size) {
            tiles.insert(path, self.read(path)?);
        }
        let fragment = TileFragment { checkpoint: self.text.clone(), index, tiles };
        fragment
            .verify(&leaf, size, &self.checkpoint().root)
            .map_err(|error| LogError::damaged(&self.directory, "tiles that prove the entry", error.to_string()))?;
        Ok(fragment)
    }

    /// The hash of an entry, from the entry itself.
    fn leaf(&self, index: u64) -> Result<Hash, LogError> {
        let missing = || LogError::Size { path: self.directory.clone(), size: self.size(), found: index };
        let number = index / u64::from(TILE_WIDTH);
        let tile = TilePath::at_size(TileKind::Entries, number, self.size()).ok_or_else(missing)?;
        let (bytes, width) = self.file(tile)?;
        let path = self.directory.join(tile.to_string());
        let entries = parse_entries(&bytes, width)
            .map_err(|error| LogError::damaged(&path, format!("{width} entries"), error.to_string()))?;
        let at = usize::try_from(index % u64::from(TILE_WIDTH)).ok().filter(|at| *at < usize::from(tile.width));
        at.and_then(|at| entries.get(at)).map(|entry| leaf_hash(entry)).ok_or_else(missing)
    }

    fn check_size(&self, asked: u64) -> Result<(), LogError> {
        if asked > self.size() {
            return Err(LogError::Size { path: self.directory.clone(), size: self.size(), found: asked });
        }
        Ok(())
    }

    /// The bytes of a tile and their width: a log may drop a partial tile when the full one is there.
    fn file(&self, tile: TilePath) -> Result<(Vec<u8>, u16), LogError> {
        for tile in [tile, TilePath { width: TILE_WIDTH, ..tile }] {
            if let Some(bytes) = self.read_file(&tile.to_string())? {
                return Ok((bytes, tile.width));
            }
        }
        let found = "neither it nor the full tile that may stand for it";
        Err(LogError::damaged(&self.directory.join(tile.to_string()), "a tile that the checkpoint needs", found))
    }

    fn read_file(&self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        match &self.source {
            Source::Directory => {
                let path = self.directory.join(name);
                match fs::read(&path) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    read => read.map(Some).map_err(LogError::io(&path, "read it")),
                }
            }
            #[cfg(feature = "online")]
            Source::Remote(remote) => remote.read(name),
        }
    }

    fn read(&self, tile: TilePath) -> Result<Vec<Hash>, LogError> {
        let (bytes, width) = self.file(tile)?;
        let damaged = |error: &dyn std::fmt::Display| {
            let path = self.directory.join(tile.to_string());
            LogError::damaged(&path, format!("a tile of width {width}"), error.to_string())
        };
        let mut hashes = parse_hashes(&bytes, width).map_err(|error| damaged(&error))?;
        hashes.truncate(usize::from(tile.width));
        Ok(hashes)
    }

    /// Computes something out of tiles, each read when it is first needed.
    fn with_tiles<T>(&self, mut compute: impl FnMut(&mut TileNodes<'_>) -> Result<T, TilePath>) -> Result<T, LogError> {
        let mut tiles: HashMap<TilePath, Vec<Hash>> = HashMap::new();
        loop {
            match compute(&mut TileNodes { size: self.size(), tiles: &tiles }) {
                Ok(value) => return Ok(value),
                Err(tile) if tiles.len() == MAX_TILES || tiles.contains_key(&tile) => {
                    return Err(LogError::damaged(
                        &self.directory,
                        "tiles that hold the tree's nodes",
                        tile.to_string(),
                    ));
                }
                Err(tile) => drop(tiles.insert(tile, self.read(tile)?)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::LogKey;
    use crate::log::TileLog;

    fn log(entries: u32) -> (tempfile::TempDir, TileLog) {
        let dir = tempfile::tempdir().unwrap();
        let (path, seen) = (dir.path().join("log"), dir.path().join("seen"));
        let key = LogKey::generate().unwrap();
        let mut log = TileLog::create(&path, "log.example".parse().unwrap(), key, &seen).unwrap();
        for n in 0..entries {
            log.append(format!("{{\"entry\":{n}}}").as_bytes()).unwrap();
        }
        (dir, log)
    }

    #[test]
    fn a_reader_without_key_or_lease_gives_the_proofs_that_the_writer_gives() {
        let (dir, log) = log(300);
        let published = PublishedLog::open(&dir.path().join("log")).unwrap();
        published.verify(log.identity()).unwrap();
        for (from, to) in [(0, 300), (1, 300), (255, 256), (256, 257), (128, 299), (300, 300)] {
            assert_eq!(published.consistency(from, to).unwrap(), log.consistency(from, to).unwrap(), "{from} {to}");
        }
        for index in [0, 255, 256, 299] {
            assert_eq!(published.fragment(index).unwrap(), log.fragment(index).unwrap(), "{index}");
        }
        assert!(matches!(published.fragment(300), Err(LogError::Size { .. })));
        assert!(matches!(published.consistency(1, 301), Err(LogError::Size { .. })));
    }

    #[test]
    fn a_partial_tile_that_is_gone_is_cut_from_the_full_one() {
        let (dir, mut log) = log(200);
        let old = std::fs::read(dir.path().join("log/checkpoint")).unwrap();
        for n in 200..300 {
            log.append(format!("{{\"entry\":{n}}}").as_bytes()).unwrap();
        }
        let _ = std::fs::remove_dir_all(dir.path().join("log/tile/0/000.p"));
        let _ = std::fs::remove_dir_all(dir.path().join("log/tile/entries/000.p"));
        std::fs::write(dir.path().join("log/checkpoint"), old).unwrap();
        let published = PublishedLog::open(&dir.path().join("log")).unwrap();
        assert_eq!(published.size(), 200);
        published.fragment(199).unwrap();
        assert!(published.fragment(200).is_err());
    }

    #[test]
    fn changed_tiles_give_no_proof() {
        let (dir, _log) = log(300);
        let tile = dir.path().join("log/tile/0/000");
        let mut bytes = std::fs::read(&tile).unwrap();
        bytes[40] ^= 1;
        std::fs::write(&tile, bytes).unwrap();
        // The root of 300 entries comes from the tile above, which still holds; what lies below does not.
        let published = PublishedLog::open(&dir.path().join("log"));
        let refused = published.and_then(|log| log.consistency(1, 300));
        assert!(matches!(refused, Err(LogError::Damaged { .. })), "{refused:?}");
    }
}
