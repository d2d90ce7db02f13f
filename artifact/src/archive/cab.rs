//! Cabinets (Microsoft Cabinet Format, MS-CAB): symbol stores keep each file in one, as `app.pd_`.
//!
//! A cabinet's files lie one behind the other in folders, and a folder is a row of blocks of at most 32 KiB, stored or packed with MSZIP: deflate
//! (RFC 1951) that may refer to the block before. LZX and Quantum are told and not read.

use std::io::{self, Read};

use flate2::{Decompress, FlushDecompress, Status};

use super::decompress::{Ratio, Unpacked};
use super::error::Halt;
use super::member::Inside;
use super::report::PassedOverReason;
use super::walk::Walk;

/// Bytes of a cabinet's header, of a folder's, of a file's before its name, and of a block's.
const HEADER: usize = 36;
const FOLDER: usize = 8;
const FILE: usize = 16;
const BLOCK: usize = 8;

/// Bits of the header's flags: names of the cabinet before and of the one behind, and sizes of reserved areas, stand behind it.
const HAS_PREVIOUS: u16 = 1;
const HAS_NEXT: u16 = 2;
const HAS_RESERVED: u16 = 4;

/// Numbers of folders from here on say that a file goes on in another cabinet.
const CONTINUED: u16 = 0xfffd;

/// The longest name, in bytes.
const NAME_LIMIT: usize = 256;

/// Unpacked bytes of a block, and what the next one may refer to.
const WINDOW: usize = 32 << 10;

/// What every block of MSZIP begins with.
const MSZIP_MAGIC: &[u8] = b"CK";

#[derive(Debug, Clone, Copy)]
struct Folder {
    /// Where its first block is in the cabinet.
    start: u64,
    blocks: u16,
    packing: Packing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Stored,
    Mszip,
    Other(&'static str),
}

#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    size: u64,
    /// In its folder's unpacked bytes.
    start: u64,
    folder: usize,
}

/// Visits the files of a cabinet.
pub(super) fn read(walk: &mut Walk<'_>, inside: &Inside, input: &mut dyn Read) -> Result<(), Halt> {
    let mut input = Placed { input, at: 0 };
    let failed = |walk: &Walk<'_>, error: &io::Error| walk.account.halt(&inside.label, "a sound cabinet", error);
    let directory = Directory::read(&mut input).map_err(|error| failed(walk, &error))?;
    let (folders, reserved) = (directory.folders, directory.reserved);
    let mut entries = directory.entries.into_iter().peekable();
    for (number, folder) in folders.iter().enumerate() {
        if entries.peek().is_none_or(|entry| entry.folder != number) {
            continue;
        }
        if let Packing::Other(packing) = folder.packing {
            while let Some(entry) = entries.next_if(|entry| entry.folder == number) {
                let place = walk.begin(inside, with_slashes(entry.name), Some(entry.size))?;
                let what = format!("a cabinet that is packed with {packing}; unpack it with cabextract");
                walk.report.pass_over(place.label(), PassedOverReason::Unsupported(what));
            }
            continue;
        }
        input.skip_to(folder.start).map_err(|error| failed(walk, &error))?;
        let ratio = Ratio::default();
        let blocks = Blocks::new(ratio.packed(&mut input), *folder, reserved);
        let mut content = Unpacked::new(blocks, ratio, walk.account, &inside.label);
        let mut at = 0;
        while let Some(entry) = entries.next_if(|entry| entry.folder == number) {
            let place = walk.begin(inside, with_slashes(entry.name), Some(entry.size))?;
            let Some(before) = entry.start.checked_sub(at) else {
                return Err(walk.account.damaged(&inside.label, "members that do not overlap", "two that do").into());
            };
            skip(&mut content, before).map_err(|error| failed(walk, &error))?;
            let mut own = (&mut content).take(entry.size);
            walk.member(&place, &mut own)?;
            let left = own.limit();
            skip(&mut content, left).map_err(|error| failed(walk, &error))?;
            at = entry.start.saturating_add(entry.size);
        }
    }
    Ok(())
}

fn skip(input: &mut dyn Read, bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut input.take(bytes), &mut io::sink())?;
    if skipped < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// Names are Windows paths.
fn with_slashes(mut name: Vec<u8>) -> Vec<u8> {
    name.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    name
}

/// A reader that knows where it stands.
struct Placed<'i> {
    input: &'i mut dyn Read,
    at: u64,
}

impl Placed<'_> {
    fn skip_to(&mut self, place: u64) -> io::Result<()> {
        let ahead =
            place.checked_sub(self.at).ok_or_else(|| invalid("parts that are not in the order of the format"))?;
        skip(self, ahead)
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Up to a zero byte.
    fn text(&mut self) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            match self.bytes::<1>()? {
                [0] => return Ok(text),
                [byte] => text.push(byte),
            }
            if text.len() > NAME_LIMIT {
                return Err(invalid("a name of more than 256 bytes"));
            }
        }
    }
}

impl Read for Placed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

/// What stands before the blocks.
struct Directory {
    folders: Vec<Folder>,
    /// By folder and place.
    entries: Vec<Entry>,
    /// Reserved bytes behind each block's header.
    reserved: u8,
}

impl Directory {
    fn read(input: &mut Placed<'_>) -> io::Result<Self> {
        let header = input.bytes::<HEADER>()?;
        let files_at = u64::from(u32_at(&header, 16));
        let [minor, major] = [24, 25].map(|at| header.get(at).copied().unwrap_or_default());
        if (major, minor) != (1, 3) {
            return Err(invalid(&format!("version {major}.{minor} in the place of 1.3")));
        }
        let [folder_count, file_count, flags] = [26, 28, 30].map(|at| u16_at(&header, at));
        let (mut of_folder, mut of_block) = (0, 0);
        if flags & HAS_RESERVED != 0 {
            let sizes = input.bytes::<4>()?;
            let of_header = u16_at(&sizes, 0);
            [of_folder, of_block] = [2, 3].map(|at| sizes.get(at).copied().unwrap_or_default());
            skip(input, of_header.into())?;
        }
        for flag in [HAS_PREVIOUS, HAS_NEXT] {
            if flags & flag != 0 {
                // Name and label of the other cabinet.
                input.text()?;
                input.text()?;
            }
        }
        let mut folders = Vec::new();
        for _ in 0..folder_count {
            let folder = input.bytes::<FOLDER>()?;
            skip(input, of_folder.into())?;
            let packing = match u16_at(&folder, 6) & 0xf {
                0 => Packing::Stored,
                1 => Packing::Mszip,
                2 => Packing::Other("Quantum"),
                3 => Packing::Other("LZX"),
                _ => Packing::Other("an unknown method"),
            };
            folders.push(Folder { start: u32_at(&folder, 0).into(), blocks: u16_at(&folder, 4), packing });
        }
        input.skip_to(files_at)?;
        let mut entries = Vec::new();
        for _ in 0..file_count {
            let entry = input.bytes::<FILE>()?;
            let name = input.text()?;
            let folder = u16_at(&entry, 8);
            if folder >= CONTINUED || usize::from(folder) >= folders.len() {
                return Err(invalid("a file that goes on in another cabinet"));
            }
            let (size, start) = (u32_at(&entry, 0).into(), u32_at(&entry, 4).into());
            entries.push(Entry { name, size, start, folder: folder.into() });
        }
        entries.sort_by_key(|entry| (entry.folder, entry.start));
        Ok(Self { folders, entries, reserved: of_block })
    }
}

/// The unpacked bytes of a folder.
struct Blocks<R> {
    input: R,
    left: u16,
    packing: Packing,
    reserved: u8,
    inflate: Decompress,
    /// What a block is unpacked from.
    packed: Vec<u8>,
    /// The block that is read, and where in it.
    block: Vec<u8>,
    at: usize,
}

impl<R: Read> Blocks<R> {
    fn new(input: R, folder: Folder, reserved: u8) -> Self {
        Self {
            input,
            left: folder.blocks,
            packing: folder.packing,
            reserved,
            inflate: Decompress::new(false),
            packed: Vec::new(),
            block: Vec::new(),
            at: 0,
        }
    }

    fn next_block(&mut self) -> io::Result<()> {
        let mut header = [0; BLOCK];
        self.input.read_exact(&mut header)?;
        let (stated, packed, unpacked) = (u32_at(&header, 0), u16_at(&header, 4), u16_at(&header, 6));
        let mut reserved = vec![0; self.reserved.into()];
        self.input.read_exact(&mut reserved)?;
        self.packed.resize(packed.into(), 0);
        self.input.read_exact(&mut self.packed)?;
        let sum = checksum(&self.packed) ^ checksum(&reserved) ^ u32_at(&header, 4);
        if stated != 0 && stated != sum {
            return Err(invalid(&format!("a block with the checksum {sum:#010x} in the place of {stated:#010x}")));
        }
        let unpacked = usize::from(unpacked);
        if unpacked == 0 || unpacked > WINDOW {
            return Err(invalid(&format!("a block of {unpacked} unpacked bytes in the place of 1 to {WINDOW}")));
        }
        self.at = 0;
        if self.packing == Packing::Stored {
            std::mem::swap(&mut self.block, &mut self.packed);
        } else {
            self.inflate(unpacked)?;
        }
        if self.block.len() != unpacked {
            return Err(invalid(&format!("a block of {} unpacked bytes in the place of {unpacked}", self.block.len())));
        }
        Ok(())
    }

    /// The block before comes first, as a stored block of deflate, so that it is there to be referred to.
    fn inflate(&mut self, unpacked: usize) -> io::Result<()> {
        let Some(packed) = self.packed.strip_prefix(MSZIP_MAGIC) else {
            return Err(invalid("a block that does not begin with CK"));
        };
        self.inflate.reset(false);
        let mut out = Vec::with_capacity(self.block.len().saturating_add(unpacked));
        let before = self.block.len();
        if let Ok(length) = u16::try_from(before)
            && length > 0
        {
            let mut stored = vec![0];
            stored.extend_from_slice(&length.to_le_bytes());
            stored.extend_from_slice(&(!length).to_le_bytes());
            stored.extend_from_slice(&self.block);
            self.inflate.decompress_vec(&stored, &mut out, FlushDecompress::None).map_err(io::Error::other)?;
        }
        let status =
            self.inflate.decompress_vec(packed, &mut out, FlushDecompress::Finish).map_err(io::Error::other)?;
        if status != Status::StreamEnd || out.len() < before {
            return Err(invalid("a deflate stream that does not end with its block"));
        }
        self.block = out.split_off(before);
        Ok(())
    }
}

impl<R: Read> Read for Blocks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.block.len() {
            let Some(left) = self.left.checked_sub(1) else { return Ok(0) };
            self.left = left;
            self.next_block()?;
        }
        let mut rest = self.block.get(self.at..).unwrap_or_default();
        let read = rest.read(buffer)?;
        self.at = self.at.saturating_add(read);
        Ok(read)
    }
}

/// All words exclusive-or; of what is left the bytes in the order of the most significant first.
fn checksum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(0, |sum, word| sum ^ u32::from_le_bytes(*word));
    sum ^ rest.iter().fold(0, |last, byte| last << 8 | u32::from(*byte))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u16::from_le_bytes(*word))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

fn invalid(found: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, found)
}
