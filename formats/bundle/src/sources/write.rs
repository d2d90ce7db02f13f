//! Files in the order of their paths → packs and their table.

use std::collections::BTreeMap;

use super::pack::PackBuilder;
use super::{
    CheckedBy, MAX_PACKS, MAX_PATH_BYTES, MAX_SOURCE_BYTES, MIN_PACK_BYTES, PackEntry, SCHEMA, SourceEntry,
    SourceTable, SourcesError, SourcesStatistics, pack_title, value,
};
use crate::digest::Digest;

/// Takes source files and gives packs as they fill up, so that one pack at most is held in memory.
///
/// A pack ends where the next file would not fit, and, once it has [`MIN_PACK_BYTES`], after a file whose path's SHA-256
/// begins with a zero byte. So a file that is added, removed or changed alters the pack that it is in and rarely the next
/// one, and a later release sends those alone.
#[derive(Debug, Default)]
pub struct SourcesWriter {
    packs: Vec<PackEntry>,
    files: Vec<SourceEntry>,
    statistics: SourcesStatistics,
    /// Where each content lies: pack and offset.
    placed: BTreeMap<Digest, (u32, u64)>,
    pack: PackBuilder,
    bytes: Vec<u8>,
}

/// A finished pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    /// Its entry in the table.
    pub entry: PackEntry,
    /// Its bytes, a zip file.
    pub bytes: Vec<u8>,
}

impl SourcesWriter {
    /// A writer without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, by its path as the line tables name it. Files come in the order of their paths, those of one path in the
    /// order of their digests. Bytes that are there already are not stored again. Gives the packs that are full now.
    pub fn add(&mut self, path: &str, bytes: &[u8], checked_by: Option<CheckedBy>) -> Result<Vec<Pack>, SourcesError> {
        let sha256 = Digest::of(bytes);
        let place = || path.chars().take(200).collect::<String>();
        if path.is_empty() || path.len() > MAX_PATH_BYTES {
            return Err(value(place(), format!("expected a path of 1 to {MAX_PATH_BYTES} bytes")));
        }
        let size = bytes.len() as u64;
        if size > MAX_SOURCE_BYTES {
            return Err(value(place(), format!("{size} bytes, more than the {MAX_SOURCE_BYTES} of a source file")));
        }
        if self.files.last().is_some_and(|last| (last.path.as_str(), last.sha256) >= (path, sha256)) {
            return Err(value(place(), "the files do not come in the order of their paths and digests"));
        }
        let mut full = Vec::new();
        let (pack, offset) = match self.placed.get(&sha256) {
            Some(placed) => *placed,
            None => {
                let mut name = self.pack.name_of(path, &sha256);
                if !self.pack.is_empty() && !self.pack.has_room(&name, size) {
                    full.extend(self.end_pack());
                    name = self.pack.name_of(path, &sha256);
                }
                let number = self.packs.len();
                if number >= MAX_PACKS {
                    return Err(SourcesError::TooMany);
                }
                let header = self.pack.add(name, bytes, self.bytes.len() as u64);
                self.bytes.extend(header);
                let placed = (u32::try_from(number).unwrap_or(u32::MAX), self.bytes.len() as u64);
                self.bytes.extend(bytes);
                self.placed.insert(sha256, placed);
                if self.pack.bytes() >= MIN_PACK_BYTES && ends_pack(path) {
                    full.extend(self.end_pack());
                }
                placed
            }
        };
        let file = SourceEntry { path: path.to_owned(), size, sha256, pack, offset, checked_by };
        self.statistics.add(&file);
        self.files.push(file);
        Ok(full)
    }

    /// The last pack, where there is one, and the table.
    pub fn finish(mut self) -> Result<(Option<Pack>, SourceTable), SourcesError> {
        let last = self.end_pack();
        let table = SourceTable {
            schema: SCHEMA.to_owned(),
            packs: self.packs,
            files: self.files,
            statistics: self.statistics,
        };
        Ok((last, table))
    }

    fn end_pack(&mut self) -> Option<Pack> {
        if self.pack.is_empty() {
            return None;
        }
        let pack = std::mem::take(&mut self.pack);
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.extend(pack.tail(bytes.len() as u64));
        let entry =
            PackEntry { path: pack_title(self.packs.len()), sha256: Digest::of(&bytes), size: bytes.len() as u64 };
        self.packs.push(entry.clone());
        Some(Pack { entry, bytes })
    }
}

/// One path of 256.
fn ends_pack(path: &str) -> bool {
    Digest::of(path.as_bytes()).as_bytes().first() == Some(&0)
}
