//! A file that grows page by page, each compared with the page tree of the sealed index before anybody sees it.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};

use symseal_bundle::pages::{self, Hash};
use symseal_bundle::{FileEntry, Hasher};
use tempfile::NamedTempFile;

/// What was found in the place of what the seal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// Where, and what had to be found.
    pub(super) expected: String,
    /// What was found.
    pub(super) found: String,
}

/// The file in the making.
pub(super) struct CheckedFile {
    entry: FileEntry,
    /// The hashes of its pages, whose root is the index's; none: the whole alone is compared, and nothing is shown before.
    leaves: Option<Vec<Hash>>,
    file: NamedTempFile,
    hasher: Hasher,
    /// Bytes that are written.
    written: u64,
    /// Bytes that came and make no page yet.
    rest: Vec<u8>,
}

impl CheckedFile {
    /// An empty one in `file`.
    pub(super) fn new(entry: FileEntry, leaves: Option<Vec<Hash>>, file: NamedTempFile) -> Self {
        Self { entry, leaves, file, hasher: Hasher::default(), written: 0, rest: Vec::new() }
    }

    /// Another handle on the bytes, for those who read them meanwhile.
    pub(super) fn reader(&self) -> io::Result<File> {
        self.file.reopen()
    }

    /// How many bytes are checked and written; another source goes on from here.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// How many bytes may be shown. The last one is held back until the whole was compared.
    pub(super) fn shown(&self) -> u64 {
        match self.leaves {
            Some(_) => self.written.min(self.entry.size.saturating_sub(1)),
            None => 0,
        }
    }

    /// Whether all bytes are there.
    pub(super) fn is_full(&self) -> bool {
        self.written == self.entry.size
    }

    /// Takes the next bytes. Those beyond the file's size are left out. Blocks.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<Result<(), Mismatch>> {
        let page = u64::from(self.entry.page_size.max(1));
        self.rest.extend_from_slice(bytes);
        loop {
            let length = page.min(self.entry.size.saturating_sub(self.written));
            let length = usize::try_from(length).map_err(io::Error::other)?;
            if length == 0 {
                self.rest.clear();
                return Ok(Ok(()));
            }
            let Some(bytes) = self.rest.get(..length) else { return Ok(Ok(())) };
            if let Some(leaves) = &self.leaves {
                let index = self.written / page;
                let expected = usize::try_from(index).ok().and_then(|index| leaves.get(index)).copied();
                let found = pages::leaf_hash(bytes);
                if expected != Some(found) {
                    let expected = expected.map_or_else(|| "no such page".to_owned(), |hash| hash.to_string());
                    self.rest.clear();
                    let expected = format!("page {index} of {} with the hash {expected}", self.entry.sha256);
                    return Ok(Err(Mismatch { expected, found: found.to_string() }));
                }
            }
            self.file.write_all(bytes)?;
            self.hasher.update(bytes);
            self.written += length as u64;
            self.rest.drain(..length);
        }
    }

    /// Forgets what makes no page, before another source goes on; where pages cannot be told apart, everything.
    pub(super) fn break_off(&mut self) -> io::Result<()> {
        self.rest.clear();
        if self.leaves.is_none() {
            self.file.as_file_mut().set_len(0)?;
            self.file.rewind()?;
            self.hasher = Hasher::default();
            self.written = 0;
        }
        Ok(())
    }

    /// Compares the whole.
    pub(super) fn finish(self) -> Result<NamedTempFile, Mismatch> {
        let (found, size) = self.hasher.finish();
        if found == self.entry.sha256 && size == self.entry.size {
            return Ok(self.file);
        }
        Err(Mismatch {
            expected: format!("{} of {} bytes", self.entry.sha256, self.entry.size),
            found: format!("{found} of {size} bytes"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use symseal_bundle::FileRole;

    const PAGE: u32 = 1 << 10;

    fn entry(bytes: &[u8]) -> (FileEntry, Vec<Hash>) {
        let measured = pages::measure(bytes, PAGE);
        let entry = FileEntry {
            role: FileRole::Debuginfo,
            path: "a".into(),
            size: measured.size,
            sha256: measured.digest,
            media_type: "a/b".into(),
            page_size: PAGE,
            page_root: measured.root,
            piece_root: None,
            derived_from: Vec::new(),
        };
        (entry, measured.leaves)
    }

    fn bytes() -> Vec<u8> {
        (0..5000_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
    }

    fn begin(leaves: bool) -> (CheckedFile, Vec<u8>) {
        let bytes = bytes();
        let (entry, hashes) = entry(&bytes);
        (CheckedFile::new(entry, leaves.then_some(hashes), NamedTempFile::new().unwrap()), bytes)
    }

    #[test]
    fn a_file_that_comes_in_any_pieces_is_shown_up_to_its_last_byte_and_then_whole() {
        for piece in [1, 7, 1000, 1024, 3000, 100_000] {
            let (mut file, bytes) = begin(true);
            for piece in bytes.chunks(piece) {
                file.take(piece).unwrap().unwrap();
                assert!(file.shown() < bytes.len() as u64);
            }
            assert!(file.is_full());
            assert_eq!(std::fs::read(file.finish().unwrap().path()).unwrap(), bytes);
        }
    }

    #[test]
    fn a_changed_byte_is_found_in_its_page_and_nothing_of_the_page_is_shown() {
        for at in [0, 1023, 1024, 10_000, 19_999] {
            let (mut file, mut bytes) = begin(true);
            bytes[at] ^= 1;
            let mismatch = bytes.chunks(700).find_map(|piece| file.take(piece).unwrap().err()).unwrap();
            assert!(mismatch.expected.starts_with(&format!("page {} of sha256:", at / 1024)), "{mismatch:?}");
            assert_eq!(file.shown(), (at / 1024 * 1024) as u64);
            // Another source goes on behind the last good page.
            file.break_off().unwrap();
            bytes[at] ^= 1;
            file.take(&bytes[file.written() as usize..]).unwrap().unwrap();
            assert_eq!(std::fs::read(file.finish().unwrap().path()).unwrap(), bytes);
        }
    }

    #[test]
    fn without_page_hashes_nothing_is_shown_before_the_whole_was_compared() {
        let (mut file, mut bytes) = begin(false);
        bytes[7] ^= 1;
        file.take(&bytes).unwrap().unwrap();
        assert_eq!((file.shown(), file.is_full()), (0, true));
        file.break_off().unwrap();
        bytes[7] ^= 1;
        assert_eq!(file.written(), 0);
        file.take(&bytes).unwrap().unwrap();
        assert_eq!(std::fs::read(file.finish().unwrap().path()).unwrap(), bytes);

        let (mut file, bytes) = begin(false);
        file.take(&bytes[1..]).unwrap().unwrap();
        assert!(!file.is_full());
        assert!(file.finish().is_err());
    }

    #[test]
    fn what_comes_beyond_the_end_is_left_out() {
        let (mut file, mut bytes) = begin(true);
        bytes.extend_from_slice(&[7; 5000]);
        file.take(&bytes).unwrap().unwrap();
        assert_eq!(std::fs::metadata(file.finish().unwrap().path()).unwrap().len(), 20_000);
    }
}
