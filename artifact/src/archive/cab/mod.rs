//! Cabinets (Microsoft Cabinet Format, MS-CAB): symbol stores keep each file in one, as `app.pd_`.
//!
//! A cabinet's files lie one behind the other in folders, and a folder is a row of blocks of at most 32 KiB, stored or packed with MSZIP: deflate
//! (RFC 1951) that may refer to the block before; or with LZX, which refers to up to 2 MiB before. Quantum is told and not read.

mod blocks;
mod lzx;

use std::io::{self, Read};

use blocks::Blocks;

use super::decompress::{Ratio, Unpacked};
use super::error::Halt;
use super::member::Inside;
use super::report::PassedOverReason;
use super::walk::Walk;

/// Bytes of a cabinet's header, of a folder's, and of a file's before its name.
const HEADER: usize = 36;
const FOLDER: usize = 8;
const FILE: usize = 16;

/// Bits of the header's flags: names of the cabinet before and of the one behind, and sizes of reserved areas, stand behind it.
const HAS_PREVIOUS: u16 = 1;
const HAS_NEXT: u16 = 2;
const HAS_RESERVED: u16 = 4;

/// Numbers of folders from here on say that a file goes on in another cabinet.
const CONTINUED: u16 = 0xfffd;

/// The longest name, in bytes.
const NAME_LIMIT: usize = 256;

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
    /// With a window of 2 to the power of so many bytes.
    Lzx(u8),
    Other(&'static str),
}

impl Packing {
    /// The method in the lowest four bits; of LZX the window in those from the ninth on.
    fn of(packing: u16) -> Self {
        let [method, window] = packing.to_le_bytes().map(|byte| byte & 0x1f);
        match (method & 0xf, window) {
            (0, _) => Self::Stored,
            (1, _) => Self::Mszip,
            (2, _) => Self::Other("Quantum"),
            (3, bits) if lzx::WINDOWS.contains(&bits) => Self::Lzx(bits),
            _ => Self::Other("an unknown method"),
        }
    }
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
                walk.pass_over(place.label(), PassedOverReason::Unsupported(what));
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
            let packing = Packing::of(u16_at(&folder, 6));
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

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u16::from_le_bytes(*word))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

fn invalid(found: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, found)
}
