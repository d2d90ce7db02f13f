//! `sources.json`: which source file lies where, and what its bytes are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    MAX_PACK_BYTES, MAX_PACKS, MAX_PATH_BYTES, MAX_SOURCE_BYTES, MAX_TABLE_BYTES, SCHEMA, SourcesError, pack_title,
    value,
};
use crate::canonical;
use crate::digest::Digest;

/// The table of a sources artifact. Serialized as RFC 8785 canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceTable {
    /// [`SCHEMA`].
    pub schema: String,
    /// The packs, by number.
    pub packs: Vec<PackEntry>,
    /// The files by path, then digest. Two files of one path are told apart by their digests.
    pub files: Vec<SourceEntry>,
    /// Counts.
    pub statistics: SourcesStatistics,
}

/// One zip pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackEntry {
    /// Its title, [`pack_title`].
    pub path: String,
    /// SHA-256 of its bytes; at the same time its blob's digest.
    pub sha256: Digest,
    /// Size in bytes.
    pub size: u64,
}

/// One source file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceEntry {
    /// The path as line tables name it: text of any form, and no path of this machine.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of its bytes.
    pub sha256: Digest,
    /// Number of the pack that holds it.
    pub pack: u32,
    /// Where its bytes begin in the pack, in bytes.
    pub offset: u64,
    /// The checksum of the debug information that it was compared with. None: there was none, and the path alone speaks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_by: Option<CheckedBy>,
}

/// A kind of checksum that debug information carries of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckedBy {
    /// DWARF 5 and CodeView.
    Md5,
    /// CodeView and portable PDBs.
    Sha1,
    /// CodeView and portable PDBs.
    Sha256,
}

/// Counts over the artifact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcesStatistics {
    /// Files of the table.
    pub files: u64,
    /// Their bytes; two files of the same bytes count twice.
    pub bytes: u64,
    /// Files that were compared with a checksum.
    pub checked: u64,
}

impl SourceTable {
    /// Reads and checks a table: schema, canonical form, order, bounds.
    ///
    /// Fields that this build does not know are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, SourcesError> {
        if bytes.len() as u64 > MAX_TABLE_BYTES {
            return Err(SourcesError::TooLarge { bytes: bytes.len() as u64 });
        }
        /// The schema alone, so that another version is named and not reported as a missing field.
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head = serde_json::from_slice(bytes)?;
        if head.schema != SCHEMA {
            return Err(SourcesError::Schema { found: head.schema.chars().take(80).collect() });
        }
        let table: Self = serde_json::from_slice(bytes)?;
        if !canonical::is_canonical(bytes) {
            return Err(SourcesError::NotCanonical);
        }
        table.check()?;
        Ok(table)
    }

    /// The bytes of `sources.json`.
    pub fn to_canonical_json(&self) -> Result<Vec<u8>, SourcesError> {
        let bytes = canonical::to_vec(self)?;
        if bytes.len() as u64 > MAX_TABLE_BYTES {
            return Err(SourcesError::TooLarge { bytes: bytes.len() as u64 });
        }
        Ok(bytes)
    }

    /// The files of this path, as line tables name it: none, one, or several that differ.
    pub fn find(&self, path: &str) -> &[SourceEntry] {
        let start = self.files.partition_point(|file| file.path.as_str() < path);
        let rest = self.files.get(start..).unwrap_or_default();
        rest.get(..rest.partition_point(|file| file.path == path)).unwrap_or_default()
    }

    fn check(&self) -> Result<(), SourcesError> {
        if self.packs.len() > MAX_PACKS {
            return Err(SourcesError::TooMany);
        }
        for (number, pack) in self.packs.iter().enumerate() {
            if pack.path != pack_title(number) {
                return Err(value(format!("packs/{number}"), format!("expected {:?}", pack_title(number))));
            }
            if pack.size > MAX_PACK_BYTES {
                return Err(value(
                    &pack.path,
                    format!("{} bytes, more than the {MAX_PACK_BYTES} of a pack", pack.size),
                ));
            }
        }
        let mut counted = SourcesStatistics::default();
        let mut before: Option<&SourceEntry> = None;
        let mut placed: BTreeMap<Digest, (u32, u64)> = BTreeMap::new();
        let mut last_placed = None;
        for file in &self.files {
            let place = || file.path.chars().take(200).collect::<String>();
            if file.path.is_empty() || file.path.len() > MAX_PATH_BYTES {
                return Err(value(place(), format!("expected a path of 1 to {MAX_PATH_BYTES} bytes")));
            }
            if before.is_some_and(|before| (&before.path, before.sha256) >= (&file.path, file.sha256)) {
                return Err(value(place(), "the files do not stand in the order of their paths and digests"));
            }
            let pack = usize::try_from(file.pack).ok().and_then(|number| self.packs.get(number));
            let Some(pack) = pack else {
                return Err(value(place(), format!("there is no pack {}", file.pack)));
            };
            let end = file.offset.checked_add(file.size);
            if file.size > MAX_SOURCE_BYTES || end.is_none_or(|end| end > pack.size) {
                return Err(value(place(), format!("{} bytes at {} are not in a pack", file.size, file.offset)));
            }
            let here = (file.pack, file.offset);
            match placed.get(&file.sha256) {
                Some(there) if *there == here => {}
                Some(_) => return Err(value(place(), "its bytes lie in the packs twice")),
                None if last_placed >= Some(here) => {
                    return Err(value(place(), "it does not lie behind the file before it"));
                }
                None => {
                    placed.insert(file.sha256, here);
                    last_placed = Some(here);
                }
            }
            counted.add(file);
            before = Some(file);
        }
        if counted != self.statistics {
            return Err(value("statistics", format!("expected {counted:?}, found {:?}", self.statistics)));
        }
        Ok(())
    }
}

impl SourceEntry {
    /// The file's bytes out of its pack. Their digest is checked; the pack's need not be.
    pub fn slice<'p>(&self, pack: &'p [u8]) -> Result<&'p [u8], SourcesError> {
        let differs = |found: String| SourcesError::Bytes {
            place: self.path.chars().take(200).collect(),
            expected: format!("{} of {} bytes at {}", self.sha256, self.size, self.offset),
            found,
        };
        let range = usize::try_from(self.offset).ok().zip(usize::try_from(self.size).ok());
        let bytes = range.and_then(|(start, size)| pack.get(start..start.checked_add(size)?));
        let bytes = bytes.ok_or_else(|| differs(format!("a pack of {} bytes", pack.len())))?;
        match Digest::of(bytes) {
            found if found == self.sha256 => Ok(bytes),
            found => Err(differs(found.to_string())),
        }
    }
}

impl SourcesStatistics {
    /// The counts of several tables, added up.
    pub fn of<'t>(tables: impl IntoIterator<Item = &'t SourceTable>) -> Self {
        tables.into_iter().map(|table| table.statistics).fold(Self::default(), |sum, one| Self {
            files: sum.files.saturating_add(one.files),
            bytes: sum.bytes.saturating_add(one.bytes),
            checked: sum.checked.saturating_add(one.checked),
        })
    }

    pub(super) fn add(&mut self, file: &SourceEntry) {
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(file.size);
        self.checked = self.checked.saturating_add(u64::from(file.checked_by.is_some()));
    }
}

impl CheckedBy {
    /// The stable text.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }
}
