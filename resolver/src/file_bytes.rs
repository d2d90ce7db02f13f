//! The bytes of files that others may write to: read whole, never mapped, and hashed while they are read.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::Deref;
use std::sync::mpsc::channel;
use std::thread;

use memmap2::MmapMut;
use symseal_bundle::{Digest, Hasher};

/// Bytes that are read before the ones before them are hashed; two such pieces and less are not worth a thread.
const PIECE: usize = 1 << 20;

/// From so many bytes on it matters how many pages of memory the system has to find.
const LARGE: usize = 16 << 20;

/// The bytes of a file, and their digest.
#[derive(Debug)]
pub struct FileBytes {
    memory: Memory,
    digest: Digest,
}

#[derive(Debug)]
enum Memory {
    Bytes(Vec<u8>),
    /// Memory of its own, no map of a file.
    Pages(MmapMut),
}

impl FileBytes {
    /// The first bytes of an open file, which `first` may refuse: so many that what the file is shows in them.
    const FIRST: usize = 4096;

    /// Reads a file, of which at most the bytes that it has now are taken.
    ///
    /// # Errors
    /// As of reading it; [`ErrorKind::FileTooLarge`] where it has more than `most` bytes, and [`ErrorKind::OutOfMemory`] where there is no memory for it.
    pub fn read(file: File, most: u64) -> io::Result<Self> {
        Self::read_if(file, most, |_| Ok(()))
    }

    /// The same of a file whose first bytes show that it is wanted.
    pub(crate) fn read_if(mut file: File, most: u64, first: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<Self> {
        let size = file.metadata()?.len();
        if size > most {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let size = usize::try_from(size).map_err(|_| ErrorKind::OutOfMemory)?;
        let mut head = vec![0; Self::FIRST.min(size)];
        let read = fill(&mut file, &mut head)?;
        head.truncate(read);
        first(&head)?;
        let mut memory = Memory::of(size)?;
        let (read, digest) = fill_and_hash(&mut head.chain(file), memory.as_mut())?;
        memory.truncate(read);
        Ok(Self { memory, digest })
    }

    /// Their SHA-256.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of(&bytes), memory: Memory::Bytes(bytes) }
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Bytes(bytes) => bytes,
            Memory::Pages(pages) => pages,
        }
    }
}

impl Memory {
    /// So many bytes, at once, or memory would be asked for again and again.
    fn of(size: usize) -> io::Result<Self> {
        if size < LARGE {
            return Ok(Self::Bytes(vec![0; size]));
        }
        let pages = MmapMut::map_anon(size).map_err(|_| ErrorKind::OutOfMemory)?;
        // Large pages spare most of the system's work; without them it is slower.
        #[cfg(target_os = "linux")]
        let _ = pages.advise(memmap2::Advice::HugePage);
        Ok(Self::Pages(pages))
    }

    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Pages(pages) => pages,
        }
    }

    /// The file may have become shorter meanwhile.
    fn truncate(&mut self, size: usize) {
        match self {
            Self::Bytes(bytes) => bytes.truncate(size),
            Self::Pages(pages) if size < pages.len() => {
                *self = Self::Bytes(pages.get(..size).unwrap_or_default().to_vec());
            }
            Self::Pages(_) => {}
        }
    }
}

/// Fills `into` as far as there are bytes, while another thread hashes what came; gives how many there are, and their digest.
fn fill_and_hash(source: &mut impl Read, into: &mut [u8]) -> io::Result<(usize, Digest)> {
    if into.len() <= 2 * PIECE {
        let read = fill(source, into)?;
        return Ok((read, Digest::of(into.get(..read).unwrap_or_default())));
    }
    thread::scope(|scope| {
        let (sender, pieces) = channel::<&[u8]>();
        let hash = move || {
            let mut hasher = Hasher::default();
            pieces.into_iter().for_each(|piece| hasher.update(piece));
            hasher.finish().0
        };
        let hashing = thread::Builder::new().spawn_scoped(scope, hash)?;
        let mut total = 0_usize;
        for piece in into.chunks_mut(PIECE) {
            let wanted = piece.len();
            let read = fill(source, piece)?;
            total = total.saturating_add(read);
            // It listens until the sender is gone.
            let _ = sender.send(piece.get(..read).unwrap_or_default());
            if read < wanted {
                break;
            }
        }
        drop(sender);
        let digest = hashing.join().map_err(|_| io::Error::other("hashing panicked"))?;
        Ok((total, digest))
    })
}

/// Fills `into` as far as there are bytes.
fn fill(source: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0_usize;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(read) => filled = filled.saturating_add(read),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn bytes_and_digest_are_those_of_the_file_whatever_its_size() {
        let sizes = [0, 1, FileBytes::FIRST, PIECE, 2 * PIECE + 1, LARGE - 1, LARGE, LARGE + PIECE + 7];
        for size in sizes {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + (at >> 9)) as u8).collect();
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            let read = FileBytes::read(file.reopen().unwrap(), u64::MAX).unwrap();
            assert!(*read == *bytes, "{size}");
            assert_eq!(read.digest(), Digest::of(&bytes), "{size}");
            if size > 0 {
                let refused = FileBytes::read(file.reopen().unwrap(), size as u64 - 1);
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::FileTooLarge);
            }
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_taken_as_it_is() {
        for size in [1000, LARGE + 1] {
            let mut memory = Memory::of(size).unwrap();
            let source = vec![7; size / 2];
            let (read, digest) = fill_and_hash(&mut source.as_slice(), memory.as_mut()).unwrap();
            memory.truncate(read);
            let read = FileBytes { memory, digest };
            assert!(*read == *source && read.digest() == Digest::of(&source), "{size}");
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_read_any_further() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let refuse = |first: &[u8]| {
            assert_eq!(first.len(), FileBytes::FIRST);
            Err(ErrorKind::InvalidData.into())
        };
        let refused = FileBytes::read_if(file.reopen().unwrap(), u64::MAX, refuse);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
