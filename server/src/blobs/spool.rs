//! A body of unknown digest on its way to becoming a blob.

use std::io::{self, Write as _};
use std::path::Path;

use bytes::Bytes;
use tempfile::NamedTempFile;

use super::{Algorithm, BlobDigest, BlobDirectory, Hasher, Pin};

/// A temporary file and the digest of its bytes; removed when dropped. Every method blocks.
pub(crate) struct Spool {
    file: NamedTempFile,
    hasher: Hasher,
    size: u64,
}

impl Spool {
    /// An empty file on the blobs' file system.
    pub(crate) fn new(blobs: &BlobDirectory) -> io::Result<Self> {
        let file = NamedTempFile::new_in(blobs.temporary())?;
        Ok(Self { file, hasher: Hasher::new(Algorithm::Sha256), size: 0 })
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, chunks: &[Bytes]) -> io::Result<()> {
        for chunk in chunks {
            self.file.write_all(chunk)?;
            self.hasher.update(chunk);
            self.size += chunk.len() as u64;
        }
        Ok(())
    }

    /// Where the bytes are.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The digest of the bytes so far.
    pub(crate) fn digest(&self) -> BlobDigest {
        self.hasher.clone().finish()
    }

    /// Makes the bytes a blob, which is pinned until something names it.
    pub(crate) fn commit(self, blobs: &BlobDirectory) -> io::Result<(BlobDigest, Pin)> {
        let digest = self.hasher.finish();
        let pin = blobs.pin(&digest);
        self.file.as_file().sync_all()?;
        let path = self.file.into_temp_path();
        blobs.adopt(&path, &digest)?;
        // `adopt` has moved or removed the file.
        let _ = path.keep();
        Ok((digest, pin))
    }
}
