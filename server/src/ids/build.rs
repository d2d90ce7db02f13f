//! Making an index.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::{BundleEntry, CHECKSUM, Counts, HAS_MODULES_ROOT, HEADER, IS_LOOSE, MAGIC, filter, hash};
use crate::numbered::Numbered;

/// More than an index of this form can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index of ids would have more than 2^32 - 1 {what}")]
pub struct TooLarge {
    /// Rows or bytes of what.
    pub what: &'static str,
}

/// A file that is offered for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewCandidate<'a> {
    /// Number that [`IdsBuilder::bundle`] gave.
    pub bundle: u32,
    /// What it answers.
    pub kind: u8,
    /// How good its content is: less is better.
    pub debug_info: u8,
    /// The file.
    pub sha256: [u8; 32],
    /// Its bytes.
    pub size: u64,
    /// The module's file name.
    pub name: &'a str,
    /// The file's own name.
    pub file: &'a str,
}

/// Gathers bundles, keys and candidates in any order.
#[derive(Debug, Default)]
pub struct IdsBuilder {
    seed: u64,
    content: u32,
    bundles: Vec<BundleRow>,
    files: Numbered<FileRow>,
    strings: HashMap<Box<str>, u32>,
    keys: Vec<u8>,
    text: Vec<u8>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy)]
struct BundleRow {
    texts: [u32; 3],
    flags: u32,
    symbol_index: [u8; 32],
    modules_root: [u8; 32],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileRow {
    sha256: [u8; 32],
    size: u64,
    name: u32,
    file: u32,
}

/// One candidate of one key. The order is that of the rows: by hash, then by preference.
#[derive(Debug, Clone, Copy)]
struct Row {
    hash: u64,
    key_at: usize,
    key_len: usize,
    kind: u8,
    debug_info: u8,
    file: u32,
    bundle: u32,
}

fn number(value: usize, what: &'static str) -> Result<u32, TooLarge> {
    // The largest number stays free, so that a count and a number fit alike.
    u32::try_from(value).ok().filter(|number| *number < u32::MAX).ok_or(TooLarge { what })
}

impl IdsBuilder {
    /// An empty index; the seed is random where others choose the keys, and `content` tells the caller's versions apart.
    #[must_use]
    pub fn new(seed: u64, content: u32) -> Self {
        Self { seed, content, ..Self::default() }
    }

    /// Adds a bundle; its number.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn bundle(&mut self, entry: &BundleEntry) -> Result<u32, TooLarge> {
        let number = number(self.bundles.len(), "bundles")?;
        let texts = [self.string(&entry.digest)?, self.string(&entry.name)?, self.string(&entry.version)?];
        let has_root = if entry.modules_root.is_some() { HAS_MODULES_ROOT } else { 0 };
        let flags = has_root | if entry.is_loose { IS_LOOSE } else { 0 };
        let (symbol_index, modules_root) = (entry.symbol_index, entry.modules_root.unwrap_or_default());
        self.bundles.push(BundleRow { texts, flags, symbol_index, modules_root });
        Ok(number)
    }

    /// Adds a candidate of a key. The same one twice counts once.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn add(&mut self, key: &[u8], new: &NewCandidate<'_>) -> Result<(), TooLarge> {
        let (name, file) = (self.string(new.name)?, self.string(new.file)?);
        let row = FileRow { sha256: new.sha256, size: new.size, name, file };
        let file = number(self.files.number(row), "files")?;
        number(self.rows.len(), "candidates")?;
        let key_at = self.keys.len();
        self.keys.extend_from_slice(key);
        self.rows.push(Row {
            hash: hash::hash(self.seed, key),
            key_at,
            key_len: key.len(),
            kind: new.kind,
            debug_info: new.debug_info,
            file,
            bundle: new.bundle,
        });
        Ok(())
    }

    /// The index's bytes.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn build(mut self) -> Result<Vec<u8>, TooLarge> {
        let mut rows = std::mem::take(&mut self.rows);
        let key_of = |row: &Row| self.keys.get(row.key_at..row.key_at.saturating_add(row.key_len)).unwrap_or_default();
        let preference = |row: &Row| {
            let file = self.files.values().get(row.file as usize);
            let file = file.map(|file| (std::cmp::Reverse(file.size), file.sha256));
            (row.kind, row.debug_info, file, row.bundle, row.file)
        };
        rows.sort_unstable_by(|a, b| {
            (a.hash, key_of(a)).cmp(&(b.hash, key_of(b))).then_with(|| preference(a).cmp(&preference(b)))
        });
        let mut keys: Vec<(u64, u32, u32)> = Vec::new();
        let mut key_text: Vec<u8> = Vec::new();
        let mut candidates: Vec<u8> = Vec::new();
        let mut count = 0_usize;
        let mut last: Option<Row> = None;
        for row in rows {
            let same_key = last.is_some_and(|last| last.hash == row.hash && key_of(&last) == key_of(&row));
            if same_key && last.is_some_and(|last| preference(&last) == preference(&row)) {
                continue;
            }
            if !same_key {
                keys.push((row.hash, number(key_text.len(), "bytes of keys")?, number(count, "candidates")?));
                key_text.extend_from_slice(key_of(&row));
            }
            candidates.extend_from_slice(&row.file.to_le_bytes());
            candidates.extend_from_slice(&row.bundle.to_le_bytes());
            candidates.extend_from_slice(&[row.kind, row.debug_info, 0, 0]);
            count += 1;
            last = Some(row);
        }
        let (end_of_keys, key_count) = (number(key_text.len(), "bytes of keys")?, number(keys.len(), "keys")?);
        let bucket_bits = bucket_bits(keys.len());
        let counts = Counts {
            filter_blocks: number(filter::blocks(keys.len()), "blocks of the filter")?,
            bucket_bits,
            keys: key_count,
            candidates: number(count, "candidates")?,
            files: number(self.files.values().len(), "files")?,
            bundles: number(self.bundles.len(), "bundles")?,
            text: (key_text.len() as u64).saturating_add(self.text.len() as u64),
        };
        let layout = counts.layout().ok_or(TooLarge { what: "bytes" })?;
        let mut bytes = Vec::with_capacity(layout.checksum.saturating_add(CHECKSUM));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&(layout.checksum.saturating_add(CHECKSUM) as u64).to_le_bytes());
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        let Counts { filter_blocks, keys: _, candidates: all, files, bundles, text, .. } = counts;
        for count in [filter_blocks, bucket_bits, key_count, all, files, bundles] {
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        bytes.extend_from_slice(&text.to_le_bytes());
        bytes.extend_from_slice(&self.content.to_le_bytes());
        bytes.resize(HEADER, 0);
        bytes.resize(layout.directory, 0);
        for (hash, ..) in &keys {
            let at = filter::block_of(*hash, filter_blocks).saturating_mul(filter::BLOCK).saturating_add(layout.filter);
            if let Some(block) = bytes.get_mut(at..at.saturating_add(filter::BLOCK)) {
                filter::add(block, *hash);
            }
        }
        directory(&keys, bucket_bits, &mut bytes);
        for (hash, key_at, candidates_at) in &keys {
            key_row(&mut bytes, *hash, *key_at, *candidates_at);
        }
        key_row(&mut bytes, u64::MAX, end_of_keys, all);
        bytes.extend_from_slice(&candidates);
        // Strings stand behind the keys.
        let string_at = |at: u32| number(end_of_keys as usize + at as usize, "bytes of text").map(u32::to_le_bytes);
        for file in self.files.values() {
            bytes.extend_from_slice(&file.sha256);
            bytes.extend_from_slice(&file.size.to_le_bytes());
            bytes.extend_from_slice(&string_at(file.name)?);
            bytes.extend_from_slice(&string_at(file.file)?);
        }
        for bundle in &self.bundles {
            for text in bundle.texts {
                bytes.extend_from_slice(&string_at(text)?);
            }
            bytes.extend_from_slice(&bundle.flags.to_le_bytes());
            bytes.extend_from_slice(&bundle.symbol_index);
            bytes.extend_from_slice(&bundle.modules_root);
        }
        bytes.extend_from_slice(&key_text);
        bytes.extend_from_slice(&self.text);
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&checksum);
        Ok(bytes)
    }

    /// Where a string is, behind its length.
    fn string(&mut self, text: &str) -> Result<u32, TooLarge> {
        if let Some(at) = self.strings.get(text) {
            return Ok(*at);
        }
        let (at, length) = (number(self.text.len(), "bytes of text")?, number(text.len(), "bytes of text")?);
        self.text.extend_from_slice(&length.to_le_bytes());
        self.text.extend_from_slice(text.as_bytes());
        self.strings.insert(text.into(), at);
        Ok(at)
    }
}

/// A bucket for about every two keys.
fn bucket_bits(keys: usize) -> u32 {
    (keys / 2).max(1).next_power_of_two().trailing_zeros()
}

/// The number of a hash's bucket.
pub(super) fn bucket_of(hash: u64, bits: u32) -> usize {
    hash.checked_shr(64_u32.saturating_sub(bits)).unwrap_or(0) as usize
}

/// For each bucket the number of its first key, and at the end their count.
fn directory(keys: &[(u64, u32, u32)], bits: u32, bytes: &mut Vec<u8>) {
    let mut at = 0_usize;
    for bucket in 0..1_usize << bits {
        at += keys.get(at..).unwrap_or_default().iter().take_while(|key| bucket_of(key.0, bits) < bucket).count();
        bytes.extend_from_slice(&(at as u32).to_le_bytes());
    }
    bytes.extend_from_slice(&(keys.len() as u32).to_le_bytes());
}

fn key_row(bytes: &mut Vec<u8>, hash: u64, key_at: u32, candidates_at: u32) {
    bytes.extend_from_slice(&hash.to_le_bytes());
    bytes.extend_from_slice(&key_at.to_le_bytes());
    bytes.extend_from_slice(&candidates_at.to_le_bytes());
}
