//! The bytes of a file of a tree.

use std::fs::File;
use std::io;

use super::read::{copy, extract};
use super::{Place, Trees};
use crate::blobs::{BlobDigest, OpenBlob};
use crate::file_cache::{CacheKey, CachedFile, Note};
use crate::pool::Pool;

/// Why a file of a tree is not had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// It was removed, or is another one now: the next scan will say which.
    #[error("{0} is not what it was when it was read")]
    Changed(String),
    /// It cannot be read at this moment.
    #[error("{name}: {error}")]
    Unreadable {
        /// The file.
        name: String,
        /// Why.
        error: io::Error,
    },
}

impl Place {
    /// SHA-256 of the file, in hex.
    pub(crate) fn sha256(&self) -> String {
        BlobDigest::from_sha256(self.sha256).hex().to_owned()
    }

    /// Whether it lies there by itself.
    pub(crate) fn is_plain(&self) -> bool {
        self.member.is_empty()
    }

    fn name(&self) -> String {
        self.root.name_of(&self.path)
    }

    /// Opens what it lies in, or is. Blocks.
    fn container(&self) -> Result<File, TreeError> {
        let unreadable = |error| TreeError::Unreadable { name: self.name(), error };
        match self.root.open_file(&self.path) {
            Ok((file, stamp)) if stamp == self.stamp => Ok(file),
            Ok(_) => Err(TreeError::Changed(self.name())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(TreeError::Changed(self.name())),
            Err(error) => Err(unreadable(error)),
        }
    }

    /// Opens a file that lies there by itself. Blocks.
    pub(crate) fn open(&self) -> Result<OpenBlob, TreeError> {
        let file = self.container()?;
        let modified = file.metadata().ok().and_then(|metadata| metadata.modified().ok());
        Ok(OpenBlob { file, size: self.size, modified })
    }

    /// Copies it. Blocks.
    fn write(&self, to: &mut File) -> io::Result<Note> {
        let mut container = self.container().map_err(io::Error::other)?;
        let copied =
            if self.is_plain() { Some(copy(&mut container, to)?) } else { extract(&mut container, &self.member, to)? };
        let same = copied.is_some_and(|(sha256, size)| sha256 == self.sha256 && size == self.size);
        if !same {
            return Err(io::Error::other(TreeError::Changed(self.name())));
        }
        Ok(Note { sha256: self.sha256(), headers: Vec::new() })
    }
}

impl Trees {
    /// A copy in the cache, made once for all who ask at the same time: what comes out of an archive, and what is to be mapped.
    pub(crate) async fn cached(&self, pools: (&Pool, &Pool), place: &Place) -> Result<CachedFile, TreeError> {
        let (name, wanted) = (place.name(), place.clone());
        // By its content: packages of two releases often hold the same file.
        let key = CacheKey::of(&format!("tree:{}", place.sha256()));
        let made = self.cache.make(pools, key, move |file| wanted.write(file.as_file_mut())).await;
        made.map_err(|error| match error.downcast::<TreeError>() {
            Ok(error) => error,
            Err(error) => TreeError::Unreadable { name, error },
        })
    }
}
