//! The bytes of a file: held in memory, or mapped where the file is our own.

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// Files of ours up to this size are held in memory while they are worked on, and members of archives while they are read; larger ones lie
/// on the disk, where the kernel gives their memory back when it needs it. Few release files are larger.
pub(crate) const HELD_BYTES: u64 = 64 << 20;

/// All bytes of a file.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Held(Vec<u8>),
    Mapped(Mmap),
}

impl FileBytes {
    /// Those of a file in the spool, or of a blob in the layout that is written.
    pub(crate) fn of_own(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() <= HELD_BYTES {
            return fs::read(path).map(Self::Held);
        }
        // SAFETY: the file is our own; it is written once, renamed, and never changed in place.
        #[allow(unsafe_code, reason = "a map is unsafe to make, as nobody else may change the file")]
        let map = unsafe { Mmap::map(&file) };
        map.map(Self::Mapped)
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Held(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}
