//! An RPM header: an index of tags, and a store that they point into (rpm.org, "Header Structure"). A package has two: of what was signed and its signatures
//! the first, of everything else the second.

use std::collections::HashMap;
use std::io::Read;

use crate::archive::error::{Halt, LimitKind};
use crate::archive::limits::{Account, Limits};
use crate::archive::member::normalised;

/// Magic value and version of a header.
const MAGIC: [u8; 4] = [0x8e, 0xad, 0xe8, 0x01];
/// Magic value, four unused bytes, entries of the index, bytes of the store.
const PROLOGUE_BYTES: usize = 16;
const ENTRY_BYTES: u64 = 16;
/// The most entries of an index that rpm itself takes.
const MAX_ENTRIES: u64 = 65_535;

/// The tags that say which files a package has (rpm.org, "RPM Tags").
mod tag {
    pub(super) const FILE_SIZES: u32 = 1028;
    pub(super) const FILE_MODES: u32 = 1030;
    pub(super) const FILE_FLAGS: u32 = 1037;
    pub(super) const FILE_DEVICES: u32 = 1095;
    pub(super) const FILE_INODES: u32 = 1096;
    pub(super) const DIR_INDEXES: u32 = 1116;
    pub(super) const BASE_NAMES: u32 = 1117;
    pub(super) const DIR_NAMES: u32 = 1118;
    pub(super) const LONG_FILE_SIZES: u32 = 5008;
    /// Among the signatures.
    pub(super) const FILE_SIGNATURES: u32 = 274;
}

/// Hex digits of a file's signature. One by a key of 4096 bits has about 1,100.
const MOST_SIGNATURE_DIGITS: usize = 4096;

/// A file that is listed and not in the payload.
const FLAG_GHOST: u64 = 1 << 6;
/// What a mode says of a file's kind, and a regular file.
pub(super) const MODE_KIND: u32 = 0o170_000;
pub(super) const MODE_FILE: u32 = 0o100_000;
pub(super) const MODE_LINK: u32 = 0o120_000;
pub(super) const MODE_FOLDER: u32 = 0o040_000;

/// Sizes of a header's two parts, in bytes.
#[derive(Debug)]
pub(super) struct Sizes {
    index: u64,
    store: u64,
}

impl Sizes {
    pub(super) fn bytes(&self) -> u64 {
        self.index.saturating_add(self.store)
    }
}

/// Reads the beginning of a header, and checks what it claims against the limit.
pub(super) fn sizes(input: &mut dyn Read, archive: &str, account: &Account<'_>, what: &str) -> Result<Sizes, Halt> {
    let expected = format!("an RPM {what}");
    let mut prologue = [0; PROLOGUE_BYTES];
    let read = input.read_exact(&mut prologue);
    read.map_err(|error| account.halt(archive, &expected, &error))?;
    if !prologue.starts_with(&MAGIC) {
        return Err(account.damaged(archive, &expected, "another magic value").into());
    }
    let word = |at: usize| u64::from(word(&prologue, at).unwrap_or(0));
    let sizes = Sizes { index: word(8).saturating_mul(ENTRY_BYTES), store: word(12) };
    account.within(archive, LimitKind::HeaderBytes, MAX_ENTRIES.saturating_mul(ENTRY_BYTES), sizes.index)?;
    account.within(archive, LimitKind::HeaderBytes, account.limits.header_bytes, sizes.bytes())?;
    Ok(sizes)
}

/// A package's header.
#[derive(Debug)]
pub(super) struct Header {
    entries: HashMap<u32, Entry>,
    store: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: u32,
    offset: usize,
    count: usize,
}

/// Device and inode of a file where the package was built: names that have them in common are names of one file.
pub(super) type FileIdentity = (u64, u64);

/// What the header says of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileEntry {
    pub(super) path: Vec<u8>,
    pub(super) mode: u32,
    /// Bytes in the payload.
    pub(super) stored: u64,
    /// Which file it is; of regular files that the payload has.
    pub(super) identity: Option<FileIdentity>,
    /// A further name of the file that the payload has last.
    pub(super) is_hard_link: bool,
}

impl Header {
    pub(super) fn read(
        input: &mut dyn Read,
        sizes: &Sizes,
        archive: &str,
        account: &Account<'_>,
    ) -> Result<Self, Halt> {
        let mut bytes = Vec::new();
        let read = input.take(sizes.bytes()).read_to_end(&mut bytes);
        let read = read.map_err(|error| account.halt(archive, "an RPM header", &error))?;
        if (read as u64) < sizes.bytes() {
            return Err(account.damaged(archive, "an RPM header", "the end").into());
        }
        let index_bytes = usize::try_from(sizes.index).unwrap_or(usize::MAX).min(bytes.len());
        let store = bytes.split_off(index_bytes);
        let mut entries = HashMap::new();
        for entry in bytes.as_chunks::<{ ENTRY_BYTES as usize }>().0 {
            let [tag, kind, offset, count] =
                [0, 4, 8, 12].map(|at| usize::try_from(word(entry, at).unwrap_or(0)).unwrap_or(usize::MAX));
            let (tag, kind) = (u32::try_from(tag).unwrap_or(0), u32::try_from(kind).unwrap_or(0));
            entries.entry(tag).or_insert(Entry { kind, offset, count });
        }
        Ok(Self { entries, store })
    }

    /// The files as the payload refers to them in its form for files of 4 GiB and more: by their number. No more than
    /// the limits on members and on headers allow; a payload that names one behind those is damaged or a bomb.
    pub(super) fn files(&self, limits: &Limits) -> Vec<FileEntry> {
        let most = usize::try_from(limits.members).unwrap_or(usize::MAX);
        let numbers = |tag: u32| self.numbers(tag, most);
        let folders = self.texts(tag::DIR_NAMES, most);
        let names = self.texts(tag::BASE_NAMES, most);
        let (folder_of, modes) = (numbers(tag::DIR_INDEXES), numbers(tag::FILE_MODES));
        let long_sizes = numbers(tag::LONG_FILE_SIZES);
        let sizes = if long_sizes.is_empty() { numbers(tag::FILE_SIZES) } else { long_sizes };
        let (devices, inodes) = (numbers(tag::FILE_DEVICES), numbers(tag::FILE_INODES));
        let flags = numbers(tag::FILE_FLAGS);
        let number = |of: &[u64], at: usize| of.get(at).copied().unwrap_or(0);
        let file_identity = |at: usize| {
            let is_file = number(&modes, at) as u32 & MODE_KIND == MODE_FILE && number(&flags, at) & FLAG_GHOST == 0;
            is_file.then(|| inodes.get(at).map(|inode| (number(&devices, at), *inode))).flatten()
        };
        // Of several names of one file the payload has the bytes under the last.
        let mut last = HashMap::new();
        for at in 0..names.len() {
            if let Some(identity) = file_identity(at) {
                last.insert(identity, at);
            }
        }
        let entry = |(at, name): (usize, &&[u8])| {
            let folder = folder_of.get(at).and_then(|folder| folders.get(usize::try_from(*folder).ok()?));
            let mode = number(&modes, at) as u32;
            let identity = file_identity(at);
            let is_hard_link = identity.is_some_and(|identity| last.get(&identity) != Some(&at));
            let has_bytes = matches!(mode & MODE_KIND, MODE_FILE | MODE_LINK) && !is_hard_link;
            FileEntry {
                path: [folder.copied().unwrap_or_default(), name].concat(),
                mode,
                stored: if has_bytes { number(&sizes, at) } else { 0 },
                identity,
                is_hard_link,
            }
        };
        // A folder's name is stored once and used by many files.
        let mut bytes = 0_u64;
        let within = |file: &FileEntry| {
            bytes = bytes.saturating_add(file.path.len() as u64);
            bytes <= limits.header_bytes
        };
        names.iter().enumerate().map(entry).take_while(within).collect()
    }

    /// The signatures of files' bytes that this first header of a package has, in hex, by the files' paths in the second, as [`normalised`] has them.
    pub(super) fn file_signatures(&self, second: &Self, limits: &Limits) -> HashMap<Vec<u8>, String> {
        let most = usize::try_from(limits.members).unwrap_or(usize::MAX);
        let signatures = self.texts(tag::FILE_SIGNATURES, most);
        if signatures.iter().all(|text| text.is_empty()) {
            return HashMap::new();
        }
        let files = second.files(limits).into_iter().zip(signatures);
        let signed = files.filter_map(|(file, text)| {
            let is_hex =
                !text.is_empty() && text.len() <= MOST_SIGNATURE_DIGITS && text.iter().all(u8::is_ascii_hexdigit);
            is_hex.then(|| (normalised(&file.path), String::from_utf8_lossy(text).into_owned()))
        });
        signed.collect()
    }

    /// A tag's numbers: 8 to 64 bits wide, most significant byte first.
    fn numbers(&self, tag: u32, most: usize) -> Vec<u64> {
        let Some(entry) = self.entries.get(&tag) else { return Vec::new() };
        let width = match entry.kind {
            1 | 2 => 1,
            3 => 2,
            4 => 4,
            5 => 8,
            _ => return Vec::new(),
        };
        let bytes = self.store.get(entry.offset..).unwrap_or_default();
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        bytes.chunks_exact(width).take(entry.count.min(most)).map(number).collect()
    }

    /// A tag's texts, each ended by a zero byte.
    fn texts(&self, tag: u32, most: usize) -> Vec<&[u8]> {
        const TEXT: u32 = 6;
        const TEXT_ARRAY: u32 = 8;
        const TRANSLATED: u32 = 9;
        match self.entries.get(&tag) {
            Some(entry) if matches!(entry.kind, TEXT | TEXT_ARRAY | TRANSLATED) => {
                let bytes = self.store.get(entry.offset..).unwrap_or_default();
                bytes.split(|byte| *byte == 0).take(entry.count.min(most)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
