//! Searching an index where it lies.

use sha2::{Digest as _, Sha256};

use super::build::bucket_of;
use super::{
    BUNDLE_ROW, BundleEntry, CANDIDATE_ROW, CHECKSUM, Counts, FILE_ROW, HAS_MODULES_ROOT, HEADER, IS_LOOSE, KEY_ROW,
    Layout, MAGIC, filter, hash,
};

/// An index, over bytes that do not change.
#[derive(Debug)]
pub struct Ids<B> {
    bytes: B,
    seed: u64,
    content: u32,
    counts: Counts,
    layout: Layout,
}

/// Why bytes are no index. Whoever has the bundles makes it again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdsError {
    /// Another format, or another version of it.
    #[error("expected an index of ids of version 1, found another beginning")]
    Magic,
    /// Parts that are not of the sizes that the header says.
    #[error("the header of the index says {expected} bytes, found {found}")]
    Size {
        /// As the header's counts give.
        expected: String,
        /// Bytes at hand.
        found: usize,
    },
    /// Changed since it was written.
    #[error("the checksum at the end of the index does not hold")]
    Checksum,
}

/// A key with its candidates.
#[derive(Debug, Clone, Copy)]
pub struct Key<'i, B> {
    ids: &'i Ids<B>,
    /// Its bytes.
    pub bytes: &'i [u8],
    first: u32,
    end: u32,
}

/// A file that is offered for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'i> {
    /// Number of its bundle.
    pub bundle: u32,
    /// What it answers.
    pub kind: u8,
    /// How good its content is: less is better.
    pub debug_info: u8,
    /// The file.
    pub sha256: &'i [u8; 32],
    /// Its bytes.
    pub size: u64,
    /// The module's file name.
    pub name: &'i str,
    /// The file's own name.
    pub file: &'i str,
}

impl<B: AsRef<[u8]>> Ids<B> {
    /// Reads the header and compares the checksum, which reads every byte once.
    ///
    /// # Errors
    /// [`IdsError`].
    pub fn open(bytes: B) -> Result<Self, IdsError> {
        let all = bytes.as_ref();
        let found = all.len();
        let size = |expected: String| IdsError::Size { expected, found };
        if !all.starts_with(&MAGIC) {
            return Err(IdsError::Magic);
        }
        let length = u64_at(all, 8).ok_or_else(|| size(format!("at least {HEADER}")))?;
        let seed = u64_at(all, 16).unwrap_or_default();
        let count = |at| u32_at(all, at).ok_or_else(|| size(format!("at least {HEADER}")));
        let counts = Counts {
            filter_blocks: count(24)?,
            bucket_bits: count(28)?,
            keys: count(32)?,
            candidates: count(36)?,
            files: count(40)?,
            bundles: count(44)?,
            text: u64_at(all, 48).ok_or_else(|| size(format!("at least {HEADER}")))?,
        };
        let content = count(56)?;
        let layout = counts.layout().ok_or_else(|| size("more than fit in memory".to_owned()))?;
        let expected = layout.checksum.checked_add(CHECKSUM);
        if expected != Some(found) || length != found as u64 || counts.filter_blocks == 0 {
            return Err(size(expected.map_or_else(|| "more than fit in memory".to_owned(), |size| size.to_string())));
        }
        let (before, checksum) = all.split_at_checked(layout.checksum).ok_or(IdsError::Checksum)?;
        if Sha256::digest(before).as_slice() != checksum {
            return Err(IdsError::Checksum);
        }
        Ok(Self { seed, content, counts, layout, bytes })
    }

    /// The candidates of a key, by kind and then by preference.
    pub fn find<'i>(&'i self, key: &[u8]) -> impl Iterator<Item = Candidate<'i>> + use<'i, B> {
        self.key(key).into_iter().flat_map(|key| key.candidates())
    }

    /// Whether the filter lets a key pass, by its hash.
    pub(super) fn passes(&self, hash: u64) -> Option<bool> {
        let block = filter::block_of(hash, self.counts.filter_blocks);
        let block = self.layout.filter.checked_add(block.checked_mul(filter::BLOCK)?)?;
        Some(filter::may_have(self.bytes.as_ref().get(block..)?.first_chunk()?, hash))
    }

    fn key<'i>(&'i self, key: &[u8]) -> Option<Key<'i, B>> {
        let hash = hash::hash(self.seed, key);
        let all = self.bytes.as_ref();
        if !self.passes(hash)? {
            return None;
        }
        let bucket = self.layout.directory.checked_add(bucket_of(hash, self.counts.bucket_bits).checked_mul(4)?)?;
        let (first, end) = (u32_at(all, bucket)?, u32_at(all, bucket.checked_add(4)?)?);
        for number in first..end.min(self.counts.keys) {
            let (found, row) = self.key_row(number)?;
            if found > hash {
                return None;
            }
            if found == hash && row.bytes == key {
                return Some(row);
            }
        }
        None
    }

    /// Every key, in the order of the rows.
    pub fn keys(&self) -> impl Iterator<Item = Key<'_, B>> {
        (0..self.counts.keys).filter_map(|number| self.key_row(number).map(|(_, key)| key))
    }

    /// The version that the writer gave for what it put in.
    pub fn content(&self) -> u32 {
        self.content
    }

    /// How many keys there are.
    pub fn key_count(&self) -> u32 {
        self.counts.keys
    }

    /// How many candidates all keys have together.
    pub fn candidate_count(&self) -> u32 {
        self.counts.candidates
    }

    /// How many bundles there are: their numbers begin with 0.
    pub fn bundle_count(&self) -> u32 {
        self.counts.bundles
    }

    /// The index's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// A bundle by its number.
    pub fn bundle(&self, number: u32) -> Option<BundleEntry> {
        let row = self.row(self.layout.bundles, number, self.counts.bundles, BUNDLE_ROW)?;
        let text = |at: usize| self.string(u32_at(row, at)?).map(str::to_owned);
        let flags = u32_at(row, 12)?;
        let modules_root = *row.get(48..)?.first_chunk::<32>()?;
        Some(BundleEntry {
            digest: text(0)?,
            name: text(4)?,
            version: text(8)?,
            symbol_index: *row.get(16..)?.first_chunk()?,
            modules_root: (flags & HAS_MODULES_ROOT != 0).then_some(modules_root),
            is_loose: flags & IS_LOOSE != 0,
        })
    }

    fn key_row(&self, number: u32) -> Option<(u64, Key<'_, B>)> {
        // The row behind the last one says where it ends.
        let rows = self.counts.keys.checked_add(1)?;
        let row = self.row(self.layout.keys, number, rows, KEY_ROW)?;
        let next = self.row(self.layout.keys, number.checked_add(1)?, rows, KEY_ROW)?;
        let (from, to) = (u32_at(row, 8)? as usize, u32_at(next, 8)? as usize);
        let bytes = self.text()?.get(from..to)?;
        Some((u64_at(row, 0)?, Key { ids: self, bytes, first: u32_at(row, 12)?, end: u32_at(next, 12)? }))
    }

    fn candidate(&self, number: u32) -> Option<Candidate<'_>> {
        let row = self.row(self.layout.candidates, number, self.counts.candidates, CANDIDATE_ROW)?;
        let file = self.row(self.layout.files, u32_at(row, 0)?, self.counts.files, FILE_ROW)?;
        Some(Candidate {
            bundle: u32_at(row, 4)?,
            kind: *row.get(8)?,
            debug_info: *row.get(9)?,
            sha256: file.first_chunk()?,
            size: u64_at(file, 32)?,
            name: self.string(u32_at(file, 40)?)?,
            file: self.string(u32_at(file, 44)?)?,
        })
    }

    fn row(&self, part: usize, number: u32, count: u32, bytes: usize) -> Option<&[u8]> {
        if number >= count {
            return None;
        }
        let at = part.checked_add((number as usize).checked_mul(bytes)?)?;
        self.bytes.as_ref().get(at..at.checked_add(bytes)?)
    }

    fn text(&self) -> Option<&[u8]> {
        self.bytes.as_ref().get(self.layout.text..self.layout.checksum)
    }

    fn string(&self, at: u32) -> Option<&str> {
        let text = self.text()?.get(at as usize..)?;
        let length = u32_at(text, 0)? as usize;
        std::str::from_utf8(text.get(4..)?.get(..length)?).ok()
    }
}

impl<'i, B: AsRef<[u8]>> Key<'i, B> {
    /// Its candidates, by kind and then by preference.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate<'i>> + use<'i, B> {
        let ids = self.ids;
        (self.first..self.end.min(ids.counts.candidates)).filter_map(|number| ids.candidate(number))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
