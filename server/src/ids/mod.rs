//! Ids to files: an immutable, compact index that is searched where it lies, in memory or in a map of a file.
//!
//! [`IdsBuilder`] makes the bytes, [`Ids`] reads them. The form is described in `docs/formats/ids_index.md`. A key is any
//! byte string; what it means, and which of its candidates may be shown, is the caller's business. The index is made from
//! bundles, and whoever loses it makes it again: a reader refuses what is not whole ([`Ids::open`]), and repairs nothing.
//!
//! The module does no IO.

mod build;
mod filter;
mod hash;
mod read;

pub use build::{IdsBuilder, NewCandidate, TooLarge};
pub use read::{Candidate, Ids, IdsError, Key};

/// What the bytes begin with; the last one is the version.
const MAGIC: [u8; 8] = *b"SYMIDS\x00\x01";

/// Bytes of the header.
const HEADER: usize = 64;
/// Bytes of the SHA-256 at the end, over everything before it.
const CHECKSUM: usize = 32;
/// Bytes of a row of a key: hash, where its bytes are, where its candidates begin.
const KEY_ROW: usize = 16;
/// Bytes of a row of a candidate: file, bundle, kind, debug information, two that are zero.
const CANDIDATE_ROW: usize = 12;
/// Bytes of a row of a file: SHA-256, size, where its module's name and its own are.
const FILE_ROW: usize = 48;
/// Bytes of a row of a bundle: where its digest, name and version are, flags, SHA-256 of its symbol index, root of its modules.
const BUNDLE_ROW: usize = 80;

/// Flag of a bundle row: there is a root of modules.
const HAS_MODULES_ROOT: u32 = 1;
/// Flag of a bundle row: no bundle but a file that was uploaded by itself.
const IS_LOOSE: u32 = 2;

/// What an id belongs to: a bundle, or a file that was uploaded by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleEntry {
    /// Digest of its image index or manifest, as text.
    pub digest: String,
    /// The release's name; of a loose file its own.
    pub name: String,
    /// The release's version.
    pub version: String,
    /// SHA-256 of `symbol_index.json`; zeros where there is none.
    pub symbol_index: [u8; 32],
    /// Root of the tree over its modules, as the symbol index gives it.
    pub modules_root: Option<[u8; 32]>,
    /// It is a loose file.
    pub is_loose: bool,
}

/// Where the parts are in the bytes, each from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Layout {
    filter: usize,
    directory: usize,
    keys: usize,
    candidates: usize,
    files: usize,
    bundles: usize,
    text: usize,
    checksum: usize,
}

/// How much there is of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    filter_blocks: u32,
    bucket_bits: u32,
    keys: u32,
    candidates: u32,
    files: u32,
    bundles: u32,
    text: u64,
}

impl Counts {
    /// Where the parts are; `None` when they do not fit this machine's memory.
    fn layout(&self) -> Option<Layout> {
        let part = |count: usize, bytes: usize| count.checked_mul(bytes);
        let count = |number: u32| usize::try_from(number).ok();
        let buckets = 1_usize.checked_shl(self.bucket_bits)?.checked_add(1)?;
        let filter = HEADER;
        let directory = filter.checked_add(part(count(self.filter_blocks)?, filter::BLOCK)?)?;
        let keys = directory.checked_add(part(buckets, 4)?)?;
        // One row more says where the last key ends.
        let candidates = keys.checked_add(part(count(self.keys)?.checked_add(1)?, KEY_ROW)?)?;
        let files = candidates.checked_add(part(count(self.candidates)?, CANDIDATE_ROW)?)?;
        let bundles = files.checked_add(part(count(self.files)?, FILE_ROW)?)?;
        let text = bundles.checked_add(part(count(self.bundles)?, BUNDLE_ROW)?)?;
        let checksum = text.checked_add(usize::try_from(self.text).ok()?)?;
        Some(Layout { filter, directory, keys, candidates, files, bundles, text, checksum })
    }
}

#[cfg(test)]
mod tests;
