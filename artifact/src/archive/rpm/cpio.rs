//! cpio in the forms that RPM payloads have: `newc` (070701, 070702), and RPM's own for packages with a file of 4 GiB or
//! more (07070X), whose entries are but the number of a file in the header.

use std::io::{self, Read};

use super::header::{FileEntry, FileIdentity, Header, MODE_FILE, MODE_FOLDER, MODE_KIND, MODE_LINK};
use crate::archive::error::{Halt, LimitKind};
use crate::archive::limits::Account;

pub(super) const MAGIC_BYTES: usize = 6;
/// Thirteen fields of eight hex digits behind the magic value.
const FIELDS: usize = 13;
const FIELD_BYTES: usize = 8;
/// Headers with names, and contents, are padded to so many bytes.
const ALIGNMENT: u64 = 4;
/// The name of the entry behind the last one.
const TRAILER: &[u8] = b"TRAILER!!!";

pub(super) fn is_magic(bytes: &[u8]) -> bool {
    matches!(bytes, b"070701" | b"070702" | b"07070X")
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    File {
        /// Which file it is, where it may have several names.
        identity: Option<FileIdentity>,
    },
    /// A further name of a file, whose bytes come with its last name.
    HardLink {
        /// Which file it is.
        identity: FileIdentity,
    },
    SymbolicLink,
    Folder,
    Special,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) item: Item,
    pub(super) size: u64,
}

/// A cpio archive as it is read. After [`CpioStream::next`] gave a file, this is the reader of its bytes.
pub(super) struct CpioStream<'s> {
    input: &'s mut dyn Read,
    archive: &'s str,
    account: &'s Account<'s>,
    header: &'s Header,
    /// The header's files, once an entry asked for them.
    files: Option<Vec<FileEntry>>,
    left: u64,
    padding: u64,
}

impl<'s> CpioStream<'s> {
    pub(super) fn new(input: &'s mut dyn Read, archive: &'s str, account: &'s Account<'s>, header: &'s Header) -> Self {
        Self { input, archive, account, header, files: None, left: 0, padding: 0 }
    }

    /// Skips what is left of the current entry, and gives the next one; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Halt> {
        self.skip_entry()?;
        let mut magic = [0; MAGIC_BYTES];
        self.fill(&mut magic, "a cpio header")?;
        match &magic {
            b"070701" | b"070702" => self.with_name(),
            b"07070X" => self.by_number().map(Some),
            _ => Err(self.damaged("a cpio header", crate::escaped(&magic).into_owned())),
        }
    }

    fn with_name(&mut self) -> Result<Option<Entry>, Halt> {
        let mut fields = [0; FIELDS];
        for field in &mut fields {
            *field = self.hex()?;
        }
        let [inode, mode, _, _, links, _, size, major, minor, _, _, name_bytes, _] = fields;
        let name_bytes = u64::from(name_bytes);
        self.account.path_length(self.archive, name_bytes.saturating_sub(1))?;
        let header_bytes = (MAGIC_BYTES + FIELDS * FIELD_BYTES) as u64;
        let padded = header_bytes.saturating_add(name_bytes).next_multiple_of(ALIGNMENT).saturating_sub(header_bytes);
        let mut path = vec![0; usize::try_from(padded).unwrap_or(0)];
        self.fill(&mut path, "a cpio member's name")?;
        path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
        if path == TRAILER {
            return Ok(None);
        }
        let size = u64::from(size);
        self.holds(size);
        let device = u64::from(major) << 32 | u64::from(minor);
        let identity = (links > 1).then_some((device, u64::from(inode)));
        Ok(Some(Entry { path, item: item(mode, identity, size == 0), size }))
    }

    fn by_number(&mut self) -> Result<Entry, Halt> {
        let number = self.hex()?;
        let mut padding = [0; 2];
        self.fill(&mut padding, "a cpio header")?;
        let files = self.files.get_or_insert_with(|| self.header.files(self.account.limits));
        let file = usize::try_from(number).ok().and_then(|number| files.get_mut(number)).map(std::mem::take);
        let Some(FileEntry { path, mode, stored, identity, is_hard_link }) = file else {
            return Err(self.damaged("a file of the package's header", format!("number {number}")));
        };
        if path.is_empty() {
            return Err(self.damaged("each file once", format!("number {number} again")));
        }
        self.account.within(self.archive, LimitKind::MemberBytes, self.account.limits.member_bytes, stored)?;
        self.holds(stored);
        Ok(Entry { path, item: item(mode, identity, is_hard_link), size: stored })
    }

    fn hex(&mut self) -> Result<u32, Halt> {
        let mut digits = [0; FIELD_BYTES];
        self.fill(&mut digits, "a cpio header")?;
        let number = std::str::from_utf8(&digits).ok().and_then(|digits| u32::from_str_radix(digits, 16).ok());
        number.ok_or_else(|| self.damaged("eight hex digits", crate::escaped(&digits).into_owned()))
    }

    fn fill(&mut self, buffer: &mut [u8], expected: &str) -> Result<(), Halt> {
        let read = self.input.read_exact(buffer);
        read.map_err(|error| self.account.halt(self.archive, expected, &error))
    }

    fn holds(&mut self, bytes: u64) {
        self.left = bytes;
        self.padding = bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(bytes).saturating_sub(bytes);
    }

    fn skip_entry(&mut self) -> Result<(), Halt> {
        let skip = self.left.saturating_add(self.padding);
        (self.left, self.padding) = (0, 0);
        let skipped = io::copy(&mut (&mut *self.input).take(skip), &mut io::sink());
        let skipped = skipped.map_err(|error| self.account.halt(self.archive, "more of a member", &error))?;
        if skipped < skip {
            return Err(self.damaged("more of a member", format!("the end, {} bytes early", skip - skipped)));
        }
        Ok(())
    }

    fn damaged(&self, expected: &str, found: impl Into<String>) -> Halt {
        Halt::Archive(self.account.damaged(self.archive, expected, found))
    }
}

impl Read for CpioStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        let read = self.input.read(buffer)?;
        if read == 0 {
            let found = format!("the end, {} bytes early", self.left);
            return Err(self.account.fail(self.account.damaged(self.archive, "more of a member", found)));
        }
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

fn item(mode: u32, identity: Option<FileIdentity>, has_no_bytes: bool) -> Item {
    match (mode & MODE_KIND, identity) {
        (MODE_FILE, Some(identity)) if has_no_bytes => Item::HardLink { identity },
        (MODE_FILE, identity) => Item::File { identity },
        (MODE_LINK, _) => Item::SymbolicLink,
        (MODE_FOLDER, _) => Item::Folder,
        _ => Item::Special,
    }
}
