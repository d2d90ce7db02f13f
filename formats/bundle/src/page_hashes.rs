//! The file of page hashes of one shard. Described in `docs/formats/bundle.md`, "Page hashes".
//!
//! ```text
//! header   "SYMPGHS\0"  version u32 = 1  files u32
//! files    sha256 [32]  size u64  page size u32  pages u32  first u64      by rising sha256 and page size
//! hashes   [32] × the sum of all pages, file after file
//! ```
//! All integers are little-endian; `first` is the index of the file's first hash.

use std::ops::Range;

use crate::digest::Digest;
use crate::pages::{self, Hash};

/// The first eight bytes.
pub const MAGIC: [u8; 8] = *b"SYMPGHS\0";

/// The one version.
pub const VERSION: u32 = 1;

/// Media type of its layer.
pub const MEDIA_TYPE: &str = "application/vnd.symseal.page-hashes.v1";

/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
const FILE_BYTES: usize = 56;
const HASH_BYTES: usize = 32;

/// The page hashes of one file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePages {
    /// The file.
    pub sha256: Digest,
    /// Bytes a page.
    pub page_size: u32,
    /// The file's size in bytes.
    pub size: u64,
    /// The hash of each page.
    pub leaves: Vec<Hash>,
}

/// Why some bytes are no file of page hashes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageHashesError {
    /// It does not begin with the magic and a version that is read here.
    #[error("not a file of page hashes of version {VERSION}")]
    Header,
    /// The sizes that it states and its own do not agree.
    #[error("a file of page hashes with {expected} bytes would fit its header, found {found}")]
    Size {
        /// Bytes that the header asks for.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// An entry contradicts itself or its neighbour.
    #[error("entry {entry} of the page hashes: {problem}")]
    Entry {
        /// Ordinal of the entry.
        entry: u32,
        /// What is wrong.
        problem: &'static str,
    },
    /// More files or pages than the format can count.
    #[error("more files or pages than a file of page hashes can hold")]
    TooMany,
}

/// Writes the page hashes of `files`. They are sorted; doubles (one file under two titles) are written once.
pub fn write(files: &[FilePages]) -> Result<Vec<u8>, PageHashesError> {
    let mut sorted: Vec<&FilePages> = files.iter().collect();
    sorted.sort_unstable();
    sorted.dedup_by(|a, b| a.sha256 == b.sha256 && a.page_size == b.page_size);
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(sorted.len()).map_err(|_| PageHashesError::TooMany)?.to_le_bytes());
    let mut first = 0u64;
    for file in &sorted {
        let pages = u32::try_from(file.leaves.len()).map_err(|_| PageHashesError::TooMany)?;
        bytes.extend_from_slice(file.sha256.as_bytes());
        bytes.extend_from_slice(&file.size.to_le_bytes());
        bytes.extend_from_slice(&file.page_size.to_le_bytes());
        bytes.extend_from_slice(&pages.to_le_bytes());
        bytes.extend_from_slice(&first.to_le_bytes());
        first += u64::from(pages);
    }
    for hash in sorted.iter().flat_map(|file| &file.leaves) {
        bytes.extend_from_slice(&hash.0);
    }
    Ok(bytes)
}

/// How many bytes of a file of page hashes come before the hashes, as its first [`HEADER_BYTES`] say.
pub fn directory_end(header: &[u8]) -> Result<u64, PageHashesError> {
    let header = header.first_chunk::<HEADER_BYTES>().ok_or(PageHashesError::Header)?;
    let mut header = Fields(header);
    if header.take::<8>() != Some(MAGIC) || header.u32() != Some(VERSION) {
        return Err(PageHashesError::Header);
    }
    let count = header.u32().ok_or(PageHashesError::Header)?;
    Ok(HEADER_BYTES as u64 + u64::from(count) * FILE_BYTES as u64)
}

/// Where the hashes of one file lie in a file of page hashes of which `directory` are the bytes before the hashes. Nothing but
/// the root over the hashes says that they are right.
pub fn locate(directory: &[u8], sha256: &Digest, page_size: u32) -> Option<Range<u64>> {
    let (entries, _) = directory.get(HEADER_BYTES..)?.as_chunks::<FILE_BYTES>();
    let mut found = entries.iter().filter_map(RawEntry::read);
    let raw = found.find(|raw| (raw.sha256, raw.page_size) == (*sha256, page_size))?;
    let start = raw.first.checked_mul(HASH_BYTES as u64)?.checked_add(directory.len() as u64)?;
    Some(start..start.checked_add(u64::from(raw.pages) * HASH_BYTES as u64)?)
}

/// A file of page hashes, read in place.
#[derive(Debug, Clone, Copy)]
pub struct PageHashes<'a> {
    entries: &'a [[u8; FILE_BYTES]],
    hashes: &'a [[u8; HASH_BYTES]],
}

/// One file's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages<'a> {
    /// The file.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes a page.
    pub page_size: u32,
    hashes: &'a [[u8; HASH_BYTES]],
}

impl<'a> Pages<'a> {
    /// The hash of each page.
    pub fn leaves(&self) -> Vec<Hash> {
        self.hashes.iter().map(|hash| Hash(*hash)).collect()
    }

    /// The root that the hashes give. A reader compares it with the index's before it trusts a hash.
    pub fn root(&self) -> Hash {
        pages::root(&self.leaves())
    }
}

impl<'a> PageHashes<'a> {
    /// Checks the whole structure: sizes, order, and that the files' hashes follow each other without gaps.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PageHashesError> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(PageHashesError::Header)?;
        let mut header = Fields(header);
        if header.take::<8>() != Some(MAGIC) || header.u32() != Some(VERSION) {
            return Err(PageHashesError::Header);
        }
        let count = header.u32().ok_or(PageHashesError::Header)?;
        let directory = u64::from(count) * FILE_BYTES as u64;
        let too_short = |expected: u64| PageHashesError::Size { expected, found: bytes.len() as u64 };
        let directory_end = usize::try_from(directory).ok().filter(|end| *end <= rest.len());
        let (entries, rest) = directory_end
            .and_then(|end| rest.split_at_checked(end))
            .ok_or_else(|| too_short(directory.saturating_add(HEADER_BYTES as u64)))?;
        let (entries, _) = entries.as_chunks::<FILE_BYTES>();
        let (hashes, odd) = rest.as_chunks::<HASH_BYTES>();
        let this = Self { entries, hashes };

        let mut next = 0u64;
        let mut before: Option<(Digest, u32)> = None;
        for (ordinal, entry) in entries.iter().enumerate() {
            let fail = |problem| PageHashesError::Entry { entry: ordinal as u32, problem };
            let raw = RawEntry::read(entry).ok_or_else(|| fail("it is cut short"))?;
            if u64::from(raw.pages) != pages::page_count(raw.size, raw.page_size) {
                return Err(fail("its page count does not fit its size"));
            }
            if raw.first != next {
                return Err(fail("its hashes do not follow those of the entry before"));
            }
            if before.is_some_and(|before| before >= (raw.sha256, raw.page_size)) {
                return Err(fail("it is out of order"));
            }
            before = Some((raw.sha256, raw.page_size));
            next += u64::from(raw.pages);
        }
        if next != hashes.len() as u64 || !odd.is_empty() {
            let hashes = next.saturating_mul(HASH_BYTES as u64);
            return Err(too_short(hashes.saturating_add(directory).saturating_add(HEADER_BYTES as u64)));
        }
        Ok(this)
    }

    /// The pages of the file with this digest, cut into pages of `page_size` bytes.
    pub fn find(&self, sha256: &Digest, page_size: u32) -> Option<Pages<'a>> {
        let key = (*sha256, page_size);
        let at = self
            .entries
            .partition_point(|entry| RawEntry::read(entry).is_some_and(|raw| (raw.sha256, raw.page_size) < key));
        let raw = RawEntry::read(self.entries.get(at)?)?;
        ((raw.sha256, raw.page_size) == key).then(|| self.pages(&raw)).flatten()
    }

    /// Every file's pages, in the file's order.
    pub fn files(&self) -> impl Iterator<Item = Pages<'a>> {
        let this = *self;
        this.entries.iter().filter_map(move |entry| this.pages(&RawEntry::read(entry)?))
    }

    fn pages(&self, raw: &RawEntry) -> Option<Pages<'a>> {
        let first = usize::try_from(raw.first).ok()?;
        let hashes = self.hashes.get(first..first.checked_add(raw.pages as usize)?)?;
        Some(Pages { sha256: raw.sha256, size: raw.size, page_size: raw.page_size, hashes })
    }
}

struct RawEntry {
    sha256: Digest,
    size: u64,
    page_size: u32,
    pages: u32,
    first: u64,
}

impl RawEntry {
    fn read(entry: &[u8; FILE_BYTES]) -> Option<Self> {
        let mut fields = Fields(entry);
        Some(Self {
            sha256: Digest::from_bytes(fields.take()?),
            size: fields.u64()?,
            page_size: fields.u32()?,
            pages: fields.u32()?,
            first: fields.u64()?,
        })
    }
}

/// Little-endian fields, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pages_of(bytes: &[u8], page_size: u32) -> FilePages {
        FilePages {
            sha256: Digest::of(bytes),
            page_size,
            size: bytes.len() as u64,
            leaves: pages::leaves(bytes, page_size),
        }
    }

    #[test]
    fn what_was_written_is_found_again() {
        let files = [pages_of(&[1; 100], 16), pages_of(b"", 16), pages_of(&[2; 17], 16), pages_of(&[2; 17], 16)];
        let bytes = write(&files).unwrap();
        let read = PageHashes::parse(&bytes).unwrap();
        assert_eq!(read.files().count(), 3);
        for file in &files {
            let found = read.find(&file.sha256, 16).unwrap();
            assert_eq!((found.size, found.leaves()), (file.size, file.leaves.clone()));
            assert_eq!(found.root(), pages::root(&file.leaves));
        }
        assert_eq!(read.find(&Digest::of(b"other"), 16), None);
        assert_eq!(read.find(&files[0].sha256, 32), None);
    }

    #[test]
    fn every_cut_is_refused() {
        let bytes = write(&[pages_of(&[1; 100], 16), pages_of(&[2; 17], 16)]).unwrap();
        for end in 0..bytes.len() {
            assert!(PageHashes::parse(&bytes[..end]).is_err(), "{end} bytes");
        }
        assert!(PageHashes::parse(&[&bytes[..], &[0; 32]].concat()).is_err());
    }

    #[test]
    fn a_stated_count_of_four_billion_files_allocates_nothing() {
        let mut bytes = write(&[]).unwrap();
        bytes[12..16].fill(0xff);
        assert!(matches!(PageHashes::parse(&bytes), Err(PageHashesError::Size { .. })));
    }

    proptest! {
        #[test]
        fn mutated_files_are_read_or_refused(contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6), flips in prop::collection::vec(any::<(u16, u8)>(), 1..4)) {
            let files: Vec<FilePages> = contents.iter().map(|bytes| pages_of(bytes, 32)).collect();
            let mut bytes = write(&files).unwrap();
            prop_assert!(PageHashes::parse(&bytes).is_ok());
            for (at, value) in flips {
                let at = at as usize % bytes.len();
                bytes[at] = value;
            }
            if let Ok(read) = PageHashes::parse(&bytes) {
                for pages in read.files() {
                    prop_assert!(read.find(&pages.sha256, pages.page_size).is_some());
                }
            }
        }
    }
}
