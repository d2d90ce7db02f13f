//! An entry's proof from the checkpoint and the tiles that a log publishes (C2SP tlog-tiles).

use std::collections::HashMap;

use symseal_seal::tiles::{TilePath, parse_hashes};
use symseal_seal::tlog::{inclusion_proof, leaf_hash, verify_inclusion};
use symseal_seal::{EntryKind, Hash, LogEntry, SignedCheckpoint};

use super::RekorLog;
use super::http::Http;
use crate::anchor::AnchorError;
use crate::log::TileNodes;

/// The most tiles that one proof takes: at each of eight levels the entry's own, its neighbour at the right
/// edge, and room.
const MAX_TILES: usize = 32;

/// Why an entry's proof cannot be had.
pub(super) enum Missing {
    /// The log has not published it yet, or grew while it was read.
    ForNow(String),
    /// Reading again will not help.
    Lasting(String),
}

/// The entry of `body` at `index`.
pub(super) async fn entry(
    log: &RekorLog,
    http: &Http<'_>,
    index: u64,
    body: &[u8],
) -> Result<Result<LogEntry, Missing>, AnchorError> {
    let answer = http.read("checkpoint").await?;
    if answer.status.as_u16() != 200 {
        return Ok(Err(Missing::Lasting(format!("its checkpoint answered status {}", answer.status.as_u16()))));
    }
    let expected = "a checkpoint that a pinned log signed";
    let text = String::from_utf8(answer.body).map_err(|_| log.answer(expected, "bytes that are no text"))?;
    let signed = SignedCheckpoint::parse(&text).map_err(|error| log.answer(expected, error.to_string()))?;
    let mut wrong = String::new();
    let identity = log.identities.iter().find(|identity| match signed.verify(identity) {
        Ok(()) => true,
        Err(error) => {
            wrong = error.to_string();
            false
        }
    });
    let Some(identity) = identity else {
        return Err(log.answer(expected, wrong));
    };
    let (size, root) = (signed.checkpoint.size, signed.checkpoint.root);
    if size <= index {
        return Ok(Err(Missing::ForNow(format!("its published checkpoint has {size} entries"))));
    }

    let mut tiles: HashMap<TilePath, Vec<Hash>> = HashMap::new();
    let hashes = loop {
        match inclusion_proof(&mut TileNodes { size, tiles: &tiles }, index, size) {
            Ok(hashes) => break hashes,
            Err(tile) if tiles.len() == MAX_TILES || tiles.contains_key(&tile) => {
                return Err(log.answer("tiles that prove an entry", format!("none by {tile}")));
            }
            Err(tile) => {
                let answer = http.read(&tile.to_string()).await?;
                if answer.status.as_u16() != 200 {
                    let reason = format!("{tile} answered status {}", answer.status.as_u16());
                    return Ok(Err(Missing::ForNow(reason)));
                }
                let hashes = parse_hashes(&answer.body, tile.width)
                    .map_err(|error| log.answer("a tile of hashes", format!("{tile}: {error}")))?;
                tiles.insert(tile, hashes);
            }
        }
    };
    // Another entry at this index, or tiles and checkpoint of two moments.
    if let Err(error) = verify_inclusion(&leaf_hash(body), index, size, &hashes, &root) {
        return Ok(Err(Missing::ForNow(format!("its tiles do not prove our entry: {error}"))));
    }
    Ok(Ok(LogEntry {
        kind: EntryKind::HashedRekord,
        log_index: index,
        log_id: identity.id(),
        canonicalized_body: body.to_vec(),
        proof_index: index,
        proof_size: size,
        proof_root: root,
        hashes,
        checkpoint: text,
    }))
}
