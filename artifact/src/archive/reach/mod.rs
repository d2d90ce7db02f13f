//! How one member of an archive is reached without reading what lies before it.
//!
//! A reading of the whole archive notes for each member of the outermost archive where its bytes are: in the file itself, or in a *payload*, a compressed
//! stream in the file. Many payloads can be unpacked from places within them: xz from each block, by the index at its end; zstd from each frame, by its seek table or
//! by the headers of its blocks; gzip from each block that says its size (BGZF). From the last such place before the member it is unpacked; without any, from the
//! payload's beginning. A place is advice: who reads by it compares what comes with what came before.

mod bgzf;
mod frames;
mod xz;

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read, SeekFrom};
use std::rc::Rc;
use std::str::FromStr;

use flate2::read::DeflateDecoder;

use super::ReadSeek;
use super::decompress::unpack;
use super::kind::ArchiveKind;
use super::limits::{Account, Limits};

/// Where a member's bytes are in the outermost file. As text: packing, start, packed bytes, bytes before, size, with spaces between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    packing: Packing,
    /// First byte of the payload in the file.
    start: u64,
    /// Bytes of the payload in the file, which may end before.
    packed: u64,
    /// Unpacked bytes of the payload before the member.
    before: u64,
    /// The member's bytes.
    size: u64,
}

/// What a payload is packed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Stored,
    /// One member of a zip.
    Deflate,
    Gzip,
    Bzip2,
    Xz,
    Zstd,
    Lzma,
}

const NAMES: [(Packing, &str); 7] = [
    (Packing::Stored, "stored"),
    (Packing::Deflate, "deflate"),
    (Packing::Gzip, "gzip"),
    (Packing::Bzip2, "bzip2"),
    (Packing::Xz, "xz"),
    (Packing::Zstd, "zstd"),
    (Packing::Lzma, "lzma"),
];

/// A payload while it is read.
#[derive(Debug, Clone)]
pub(super) struct Payload {
    packing: Packing,
    start: u64,
    packed: u64,
    /// Unpacked bytes that were read of it.
    at: Rc<Cell<u64>>,
}

impl Payload {
    /// `None` where a payload of that kind cannot be read from within an archive.
    pub(super) fn new(kind: ArchiveKind, start: u64, packed: u64, at: Rc<Cell<u64>>) -> Option<Self> {
        let packing = match kind {
            ArchiveKind::Tar => Packing::Stored,
            ArchiveKind::Gzip => Packing::Gzip,
            ArchiveKind::Bzip2 => Packing::Bzip2,
            ArchiveKind::Xz => Packing::Xz,
            ArchiveKind::Zstd => Packing::Zstd,
            ArchiveKind::Lzma => Packing::Lzma,
            ArchiveKind::Zip | ArchiveKind::Ar | ArchiveKind::Rpm | ArchiveKind::Cab => return None,
        };
        Some(Self { packing, start, packed, at })
    }

    /// A member of so many bytes that begins here.
    pub(super) fn reach(&self, size: u64) -> Reach {
        Reach { packing: self.packing, start: self.start, packed: self.packed, before: self.at.get(), size }
    }
}

/// From where a payload can be unpacked: an offset in the payload, and how many unpacked bytes lie before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Restart {
    packed: u64,
    unpacked: u64,
}

impl Reach {
    /// A member of a zip, packed or not.
    pub(super) fn in_zip(is_deflated: bool, start: u64, packed: u64, size: u64) -> Self {
        let packing = if is_deflated { Packing::Deflate } else { Packing::Stored };
        Self { packing, start, packed, before: 0, size }
    }

    /// Gives the member's bytes out of the outermost file to `visit`. They may be others than they were, and fewer: the file may have changed, or the place be wrong.
    ///
    /// # Errors
    /// Of the file, of `visit`, and where the payload cannot be unpacked from there.
    pub fn read<T>(
        &self,
        file: &mut dyn ReadSeek,
        visit: impl FnOnce(&mut dyn Read) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut payload = Part::new(file, self.start, self.packed)?;
        let kind = match self.packing {
            Packing::Stored => {
                payload.go_to(self.before)?;
                return visit(&mut payload.take(self.size));
            }
            Packing::Deflate => return visit(&mut DeflateDecoder::new(payload).take(self.size)),
            Packing::Gzip => ArchiveKind::Gzip,
            Packing::Bzip2 => ArchiveKind::Bzip2,
            Packing::Xz => ArchiveKind::Xz,
            Packing::Zstd => ArchiveKind::Zstd,
            Packing::Lzma => ArchiveKind::Lzma,
        };
        // What stands before the place for the decoder to see.
        let (restart, head) = match self.packing {
            Packing::Xz => xz::restart(&mut payload, self.before, self.size).unwrap_or_default(),
            Packing::Zstd => (frames::restart(&mut payload, self.before), Vec::new()),
            Packing::Gzip => (bgzf::restart(&mut payload, self.before), Vec::new()),
            _ => Default::default(),
        };
        payload.go_to(restart.packed)?;
        let limits = Limits::default();
        let account = Account::new(&limits);
        let mut input = head.as_slice().chain(payload);
        let mut unpacked = unpack(kind, "", &mut input, &account);
        let skip = self.before.saturating_sub(restart.unpacked);
        io::copy(&mut (&mut unpacked).take(skip), &mut io::sink())?;
        visit(&mut unpacked.take(self.size))
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(packing, _)| *packing == self.packing).map_or("", |(_, name)| name);
        write!(f, "{name} {} {} {} {}", self.start, self.packed, self.before, self.size)
    }
}

/// A text that says no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected the place of a member: packing, start, packed bytes, bytes before, size; found {0:?}")]
pub struct ParseReachError(String);

impl FromStr for Reach {
    type Err = ParseReachError;

    fn from_str(text: &str) -> Result<Self, ParseReachError> {
        let read = || {
            let mut words = text.split(' ');
            let name = words.next()?;
            let packing = NAMES.iter().find(|(_, known)| *known == name).map(|(packing, _)| *packing)?;
            let mut number = || words.next()?.parse().ok();
            let reach = Self { packing, start: number()?, packed: number()?, before: number()?, size: number()? };
            words.next().is_none().then_some(reach)
        };
        read().ok_or_else(|| ParseReachError(text.chars().take(100).collect()))
    }
}

/// A part of a file, read as a file of its own.
struct Part<'f> {
    file: &'f mut dyn ReadSeek,
    start: u64,
    length: u64,
    at: u64,
}

impl<'f> Part<'f> {
    fn new(file: &'f mut dyn ReadSeek, start: u64, length: u64) -> io::Result<Self> {
        let end = file.seek(SeekFrom::End(0))?;
        let length = end.checked_sub(start).ok_or(io::ErrorKind::UnexpectedEof)?.min(length);
        file.seek(SeekFrom::Start(start))?;
        Ok(Self { file, start, length, at: 0 })
    }

    fn go_to(&mut self, at: u64) -> io::Result<()> {
        let place = self.start.checked_add(at).filter(|_| at <= self.length).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.file.seek(SeekFrom::Start(place))?;
        self.at = at;
        Ok(())
    }

    /// So many bytes at a place; none where the part is shorter.
    fn bytes<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.go_to(at).ok()?;
        self.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(self.at)).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..left).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        let read = self.file.read(buffer)?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_after_it_was_written_down() {
        for (packing, _) in NAMES {
            let reach = Reach { packing, start: 1, packed: u64::MAX, before: 3, size: 4 };
            assert_eq!(reach.to_string().parse(), Ok(reach));
        }
        for text in ["", "xz", "xz 1 2 3", "xz 1 2 3 4 5", "lzo 1 2 3 4", "xz 1 2 3 -4", "xz  1 2 3 4"] {
            assert!(text.parse::<Reach>().is_err(), "{text}");
        }
    }
}
