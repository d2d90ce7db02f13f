//! The blocks of a tar, in order.

use std::io::{self, Read};

use ::tar::{EntryType, GnuExtSparseHeader, Header};

use super::extensions::{Extensions, MAX_PAX_BYTES, decimal};
use super::sparse::{MAX_PARTS, Next, SparseFile};
use crate::archive::error::{Halt, LimitKind};
use crate::archive::kind::is_tar_header;
use crate::archive::limits::Account;

const BLOCK: usize = 512;
const BLOCK_BYTES: u64 = BLOCK as u64;

/// What an entry is.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::archive) enum Item {
    /// A regular file; the stream's reader gives its bytes.
    File,
    /// A further name of an earlier file.
    HardLink {
        /// The earlier file's path.
        target: Vec<u8>,
    },
    /// A symbolic link.
    SymbolicLink {
        /// What it names.
        target: Vec<u8>,
    },
    /// A folder.
    Folder,
    /// A device or pipe, or an entry that only the program that made the archive has a use for.
    Special,
}

/// One entry.
#[derive(Debug)]
pub(in crate::archive) struct Entry {
    pub(in crate::archive) path: Vec<u8>,
    pub(in crate::archive) item: Item,
    /// Bytes of a file, its holes included.
    pub(in crate::archive) size: u64,
}

/// A tar as it is read. After [`TarStream::next`] gave a file, this is the reader of its bytes.
pub(in crate::archive) struct TarStream<'s> {
    input: &'s mut dyn Read,
    archive: String,
    account: &'s Account<'s>,
    /// Stored bytes of the current entry that were not read, and the padding behind them.
    left: u64,
    padding: u64,
    sparse: Option<SparseFile>,
    /// A block that was read to see what it is, and is the next header.
    pending: Option<[u8; BLOCK]>,
    /// A block of zeros was read, with which a tar ends.
    is_ended: bool,
}

/// GNU tar's name of the volume (`--label`), and a folder with the list of what was in it (`--listed-incremental`). (GNU tar manual, "Basic Tar Format")
const VOLUME_LABEL: u8 = b'V';
const FOLDER_LIST: u8 = b'D';

impl<'s> TarStream<'s> {
    pub(in crate::archive) fn new(input: &'s mut dyn Read, archive: &str, account: &'s Account<'s>) -> Self {
        Self {
            input,
            archive: archive.to_owned(),
            account,
            left: 0,
            padding: 0,
            sparse: None,
            pending: None,
            is_ended: false,
        }
    }

    /// Skips what is left of the current entry, and gives the next one; none at the end.
    pub(in crate::archive) fn next(&mut self) -> Result<Option<Entry>, Halt> {
        let mut extensions = Extensions::default();
        let mut is_extended = false;
        loop {
            self.skip_entry()?;
            let Some(block) = self.block(is_extended)? else { return Ok(None) };
            let header = Header::from_byte_slice(&block);
            let kind = header.entry_type();
            // GNU tar leaves the size of a volume label empty.
            let size = if kind.as_byte() == VOLUME_LABEL { Ok(0) } else { header.entry_size() };
            let size = size.map_err(|error| self.damaged("a tar header with a size", error.to_string()))?;
            match kind {
                EntryType::GNULongName => extensions.path = Some(self.long_name(size)?),
                EntryType::GNULongLink => extensions.link = Some(self.long_name(size)?),
                EntryType::XHeader => {
                    self.count("pax header")?;
                    let records = self.extension(size, LimitKind::HeaderBytes, MAX_PAX_BYTES)?;
                    extensions.add_pax(&records).map_err(|found| self.damaged("pax records", found))?;
                }
                // Global records say nothing about names and sizes in any archive that we know of: git's commit id.
                EntryType::XGlobalHeader => {
                    self.count("pax global header")?;
                    self.holds(size);
                    continue;
                }
                kind if kind.as_byte() == VOLUME_LABEL => {
                    self.count("volume label")?;
                    continue;
                }
                kind => return self.entry(header, kind, extensions, size).map(Some),
            }
            is_extended = true;
        }
    }

    /// Whether what ended is the tar, and not only its bytes.
    pub(in crate::archive) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether an entry follows behind the end, as in tars that were written one behind the other. Reads what there is.
    pub(in crate::archive) fn goes_on(&mut self) -> Result<bool, Halt> {
        let mut block = Vec::with_capacity(BLOCK);
        loop {
            block.clear();
            let read = (&mut *self.input).take(BLOCK_BYTES).read_to_end(&mut block);
            read.map_err(|error| self.account.halt(&self.archive, "a sound end of the stream", &error))?;
            match block.first_chunk() {
                None => return Ok(false),
                Some(block) if is_tar_header(block) => return Ok(true),
                Some(_) => {}
            }
        }
    }

    /// Whether the current entry is a sparse file.
    pub(in crate::archive) fn has_holes(&self) -> bool {
        self.sparse.is_some()
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: EntryType,
        extensions: Extensions,
        header_size: u64,
    ) -> Result<Entry, Halt> {
        let Extensions { path, link, size, sparse } = extensions;
        let stored = size.unwrap_or(header_size);
        let path = sparse.name.clone().or(path).unwrap_or_else(|| header.path_bytes().into_owned());
        let target = || link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
        let item = match kind {
            EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => Item::Folder,
            EntryType::Regular | EntryType::Continuous => {
                self.holds(stored);
                let mut size = stored;
                if sparse.is_sparse {
                    size = sparse.real_size.unwrap_or(stored);
                    self.claims(&path, size)?;
                    let map = if sparse.major == Some(1) { self.map_in_data()? } else { sparse.map };
                    self.sparse_by(map, size)?;
                }
                return Ok(Entry { path, item: Item::File, size });
            }
            EntryType::GNUSparse => {
                let size = self.old_sparse(header, &path, stored)?;
                return Ok(Entry { path, item: Item::File, size });
            }
            EntryType::Link => {
                let target = target();
                self.link_data(stored)?;
                Item::HardLink { target }
            }
            EntryType::Symlink => Item::SymbolicLink { target: target() },
            EntryType::Directory => Item::Folder,
            EntryType::Char | EntryType::Block | EntryType::Fifo => Item::Special,
            kind if kind.as_byte() == FOLDER_LIST => {
                self.holds(stored);
                Item::Folder
            }
            // Parts of files of another volume, and what is not known: skipped.
            _ => {
                self.holds(stored);
                Item::Special
            }
        };
        Ok(Entry { path, item, size: 0 })
    }

    /// A hard link's size is that of the file in some archives and that of its data in others (pax allows both). The next
    /// block tells: either it is a header, or data.
    fn link_data(&mut self, size: u64) -> Result<(), Halt> {
        if size == 0 {
            return Ok(());
        }
        let Some(block) = self.raw_block()? else { return Ok(()) };
        if is_tar_header(&block) || is_zero(&block) {
            self.pending = Some(block);
            return Ok(());
        }
        self.holds(size);
        if self.left <= BLOCK_BYTES {
            (self.left, self.padding) = (0, 0);
        } else {
            self.left = self.left.saturating_sub(BLOCK_BYTES);
        }
        Ok(())
    }

    /// GNU's old form: four parts in the header, the others in blocks before the data.
    fn old_sparse(&mut self, header: &Header, path: &[u8], stored: u64) -> Result<u64, Halt> {
        let expected = "a sparse header of GNU tar";
        let gnu = header.as_gnu().ok_or_else(|| self.damaged(expected, "another kind of header"))?;
        let bad = |this: &Self, error: io::Error| this.damaged(expected, error.to_string());
        let size = gnu.real_size().map_err(|error| bad(self, error))?;
        self.claims(path, size)?;
        let mut map = Vec::new();
        for part in gnu.sparse.iter().filter(|part| !part.is_empty()) {
            let offset = part.offset().map_err(|error| bad(self, error))?;
            map.push((offset, part.length().map_err(|error| bad(self, error))?));
        }
        let mut goes_on = gnu.is_extended();
        while goes_on {
            let block = self.raw_block()?.ok_or_else(|| self.damaged("more of a sparse map", "the end"))?;
            let mut extension = GnuExtSparseHeader::new();
            extension.as_mut_bytes().copy_from_slice(&block);
            for part in extension.sparse().iter().filter(|part| !part.is_empty()) {
                let offset = part.offset().map_err(|error| bad(self, error))?;
                map.push((offset, part.length().map_err(|error| bad(self, error))?));
            }
            self.parts_within(map.len())?;
            goes_on = extension.is_extended();
        }
        self.holds(stored);
        self.sparse_by(map, size)?;
        Ok(size)
    }

    /// pax form 1.0: the map is text at the beginning of the data, padded to a block.
    fn map_in_data(&mut self) -> Result<Vec<(u64, u64)>, Halt> {
        let mut text = MapText { block: [0; BLOCK], at: BLOCK };
        let count = text.number(self)?;
        self.parts_within(usize::try_from(count).unwrap_or(usize::MAX))?;
        let mut map = Vec::new();
        for _ in 0..count {
            map.push((text.number(self)?, text.number(self)?));
        }
        Ok(map)
    }

    fn sparse_by(&mut self, map: Vec<(u64, u64)>, size: u64) -> Result<(), Halt> {
        let sparse = SparseFile::new(map, size, self.left);
        self.sparse = Some(sparse.map_err(|found| self.damaged("a map of a sparse file", found))?);
        Ok(())
    }

    fn parts_within(&self, parts: usize) -> Result<(), Halt> {
        let bytes = |parts: usize| (parts as u64).saturating_mul(size_of::<(u64, u64)>() as u64);
        Ok(self.account.within(&self.archive, LimitKind::HeaderBytes, bytes(MAX_PARTS), bytes(parts))?)
    }

    /// A sparse file's size costs its archive nothing: it is checked before the map is read.
    fn claims(&self, path: &[u8], size: u64) -> Result<(), Halt> {
        self.account.member(&self.archive, &crate::archive::member::reported(path), path.len())?;
        let allowed = self.account.limits.member_bytes;
        Ok(self.account.within(&self.archive, LimitKind::MemberBytes, allowed, size)?)
    }

    /// Extension headers count as members: a tar of nothing else ends.
    fn count(&self, what: &str) -> Result<(), Halt> {
        Ok(self.account.member(&self.archive, what, 0)?)
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>, Halt> {
        self.count("long name")?;
        // A zero byte ends the name.
        let allowed = self.account.limits.path_bytes.saturating_add(1);
        let mut name = self.extension(size, LimitKind::PathBytes, allowed)?;
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
        Ok(name)
    }

    fn extension(&mut self, size: u64, limit: LimitKind, allowed: u64) -> Result<Vec<u8>, Halt> {
        self.account.within(&self.archive, limit, allowed, size)?;
        self.holds(size);
        let mut bytes = Vec::new();
        let read = self.by_ref().take(size).read_to_end(&mut bytes);
        read.map_err(|error| self.account.halt(&self.archive, "more of an extension header", &error))?;
        Ok(bytes)
    }

    /// The current entry has so many stored bytes.
    fn holds(&mut self, bytes: u64) {
        self.left = bytes;
        self.padding = bytes.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(bytes).saturating_sub(bytes);
        self.sparse = None;
    }

    fn skip_entry(&mut self) -> Result<(), Halt> {
        self.sparse = None;
        let skip = self.left.saturating_add(self.padding);
        let padding = self.padding;
        (self.left, self.padding) = (0, 0);
        let skipped = io::copy(&mut (&mut *self.input).take(skip), &mut io::sink());
        let skipped = skipped.map_err(|error| self.account.halt(&self.archive, "more of a member", &error))?;
        // The padding of the very last member may be missing.
        if skipped.saturating_add(padding) < skip {
            let found = format!("the end, {} bytes early", skip.saturating_sub(skipped));
            return Err(self.damaged("more of a member", found));
        }
        Ok(())
    }

    /// The next header; none at the end, which is a block of zeros or the end of the input.
    fn block(&mut self, is_extended: bool) -> Result<Option<[u8; BLOCK]>, Halt> {
        let block = match self.pending.take() {
            Some(block) => Some(block),
            None => self.raw_block()?,
        };
        self.is_ended = block.as_ref().is_some_and(is_zero);
        match block.filter(|block| !is_zero(block)) {
            None if is_extended => Err(self.damaged("a tar header behind its extension", "the end")),
            None => Ok(None),
            Some(block) if is_tar_header(&block) => Ok(Some(block)),
            Some(_) => Err(self.damaged("a tar header", "a block with a wrong checksum")),
        }
    }

    /// The next 512 bytes; none at the end.
    fn raw_block(&mut self) -> Result<Option<[u8; BLOCK]>, Halt> {
        let mut block = Vec::with_capacity(BLOCK);
        let read = (&mut *self.input).take(BLOCK_BYTES).read_to_end(&mut block);
        read.map_err(|error| self.account.halt(&self.archive, "a tar header", &error))?;
        match block.first_chunk() {
            Some(block) => Ok(Some(*block)),
            None if block.is_empty() => Ok(None),
            None => Err(self.damaged("a block of 512 bytes", format!("the end behind {} bytes", block.len()))),
        }
    }

    fn damaged(&self, expected: &str, found: impl Into<String>) -> Halt {
        Halt::Archive(self.account.damaged(&self.archive, expected, found))
    }

    fn cut_short(&self) -> io::Error {
        let found = format!("the end, {} bytes early", self.left);
        self.account.fail(self.account.damaged(&self.archive, "more of a member", found))
    }

    fn read_stored(&mut self, buffer: &mut [u8], at_most: u64) -> io::Result<usize> {
        let wanted = usize::try_from(at_most.min(self.left)).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        let read = self.input.read(buffer)?;
        if read == 0 {
            return Err(self.cut_short());
        }
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }

    fn read_hole(&mut self, buffer: &mut [u8], bytes: u64) -> io::Result<usize> {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX).min(buffer.len());
        buffer.iter_mut().take(wanted).for_each(|byte| *byte = 0);
        let counted = self.account.hole(&self.archive, wanted as u64);
        counted.map(|()| wanted).map_err(|error| self.account.fail(error))
    }
}

impl Read for TarStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(sparse) = self.sparse.as_mut() else { return self.read_stored(buffer, u64::MAX) };
        let read = match sparse.next() {
            Next::Hole(bytes) => self.read_hole(buffer, bytes)?,
            Next::Stored(bytes) => self.read_stored(buffer, bytes)?,
            Next::End => 0,
        };
        if let Some(sparse) = self.sparse.as_mut() {
            sparse.advance(read as u64);
        }
        Ok(read)
    }
}

/// Numbers in decimal, each with a line end, in whole blocks.
struct MapText {
    block: [u8; BLOCK],
    at: usize,
}

impl MapText {
    /// Digits of the largest number.
    const MAX_DIGITS: usize = 20;

    fn number(&mut self, stream: &mut TarStream<'_>) -> Result<u64, Halt> {
        let mut digits = Vec::with_capacity(Self::MAX_DIGITS);
        loop {
            if self.at >= BLOCK {
                let read = stream.read_exact(&mut self.block);
                read.map_err(|error| stream.account.halt(&stream.archive, "a map of a sparse file", &error))?;
                self.at = 0;
            }
            let byte = self.block.get(self.at).copied().unwrap_or(b'\n');
            self.at = self.at.saturating_add(1);
            if byte == b'\n' {
                return decimal(&digits).map_err(|found| stream.damaged("a map of a sparse file", found));
            }
            if digits.len() == Self::MAX_DIGITS {
                return Err(stream.damaged("a map of a sparse file", "a number without an end"));
            }
            digits.push(byte);
        }
    }
}

fn is_zero(block: &[u8; BLOCK]) -> bool {
    block.iter().all(|byte| *byte == 0)
}
