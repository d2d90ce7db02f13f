//! Reading the log's files: the checkpoint, and the tiles that it covers.

use std::fs;
use std::io;
use std::path::Path;

use symseal_seal::SignedCheckpoint;
use symseal_seal::tiles::{TILE_WIDTH, TileKind, TilePath};

use super::Log;

/// What a reader asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LogFile {
    /// The signed head.
    Checkpoint,
    /// Hashes or entries.
    Tile(TilePath),
}

/// A file cannot be given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The published checkpoint does not cover it.
    #[error("the log has no such tile yet: its checkpoint covers {size} entries")]
    Beyond {
        /// Entries.
        size: u64,
    },
    /// The checkpoint cannot be read.
    #[error("the log's checkpoint is damaged")]
    Damaged,
    /// The disk said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Log {
    /// The place of the files, for [`read`].
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// The bytes of a file. What lies on the disk beyond the published checkpoint is not shown: an append that
/// broke off leaves tiles that may yet change.
pub(crate) fn read(directory: &Path, file: LogFile) -> Result<Vec<u8>, ReadError> {
    let checkpoint = fs::read_to_string(directory.join("checkpoint"))?;
    let LogFile::Tile(tile) = file else { return Ok(checkpoint.into_bytes()) };
    let size = SignedCheckpoint::parse(&checkpoint).map_err(|_| ReadError::Damaged)?.checkpoint.size;
    let now = TilePath::at_size(tile.kind, tile.index, size).filter(|now| now.width >= tile.width);
    let now = now.ok_or(ReadError::Beyond { size })?;
    // A partial tile may be gone from the disk; a wider one begins with the same bytes. The widest may itself
    // be replaced between two reads, and then the full one is there.
    let full = TilePath { width: TILE_WIDTH, ..tile };
    let mut bytes = Err(io::ErrorKind::NotFound.into());
    for there in [tile, now, full] {
        bytes = fs::read(directory.join(there.to_string()));
        if !matches!(&bytes, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    let mut bytes = bytes?;
    bytes.truncate(length(&bytes, tile));
    Ok(bytes)
}

/// How many of the bytes are the tile's.
fn length(bytes: &[u8], tile: TilePath) -> usize {
    let width = usize::from(tile.width);
    if let TileKind::Hashes(_) = tile.kind {
        return width * 32;
    }
    let mut rest = bytes;
    for _ in 0..width {
        let Some((length, tail)) = rest.split_first_chunk::<2>() else { break };
        rest = tail.get(usize::from(u16::from_be_bytes(*length))..).unwrap_or_default();
    }
    bytes.len() - rest.len()
}
