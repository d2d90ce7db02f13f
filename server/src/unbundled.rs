//! Files that a table is made of, wherever they lie: uploaded or in a bundle, in a tree, or come from another server.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use memmap2::Mmap;

use crate::app::App;
use crate::blobs::{BlobDigest, BlobDirectory, map_own};
use crate::debug_files::{Candidate, FileKind, Key, Scope};
use crate::file_cache::{CacheKey, CachedFile};
use crate::trees::{Place, TreeError};

/// Where a file lies.
#[derive(Debug, Clone)]
pub(crate) enum Unbundled {
    /// A blob.
    Blob(Candidate),
    /// Served in place.
    Tree(Place),
    /// In the cache, whence another server brought it.
    Upstream {
        /// Its place there.
        key: CacheKey,
        /// SHA-256, in hex.
        sha256: String,
        /// As it was asked for.
        name: String,
    },
}

impl Unbundled {
    /// The best of those that this server has and the caller may read: a blob, else what lies in a tree, which is for those who may read
    /// everything.
    pub(crate) fn find(app: &App, scope: &Scope, key: &Key, kind: FileKind) -> Option<Self> {
        let blob = app.debug_files.find_in(scope, key, kind).map(Self::Blob);
        blob.or_else(|| Self::in_trees(app, scope, key, kind).next())
    }

    /// Those in trees.
    pub(crate) fn in_trees(app: &App, scope: &Scope, key: &Key, kind: FileKind) -> impl Iterator<Item = Self> {
        let trees = app.trees.get().filter(|_| scope.is_everything());
        trees.map(|trees| trees.find(key, kind)).into_iter().flatten().map(Self::Tree)
    }

    /// SHA-256, in hex.
    pub(crate) fn sha256(&self) -> String {
        match self {
            Self::Blob(file) => file.digest.hex().to_owned(),
            Self::Tree(place) => place.sha256(),
            Self::Upstream { sha256, .. } => sha256.clone(),
        }
    }

    /// What it is called; a file of a bundle as its module.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Blob(file) => &file.name,
            Self::Tree(place) => &place.file,
            Self::Upstream { name, .. } => name,
        }
    }

    /// Its bytes, as a file that can be mapped.
    pub(crate) async fn bytes(&self, app: &App) -> io::Result<FileBytes> {
        match self {
            Self::Blob(file) => Ok(FileBytes::Blob(file.digest.clone())),
            Self::Tree(place) => tree_copy(app, place).await.map(FileBytes::Copy),
            Self::Upstream { key, .. } => {
                let (cache, key) = (Arc::clone(&app.cache), key.clone());
                let found = app.pool.run(move || cache.find(&key)).await.map_err(io::Error::other)?;
                found.map(FileBytes::Copy).ok_or_else(|| io::Error::other("the cache let its file go"))
            }
        }
    }
}

/// A copy of a file of a tree that can be mapped.
async fn tree_copy(app: &App, place: &Place) -> io::Result<CachedFile> {
    let trees = app.trees.get().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    trees.cached((&app.pool, &app.making), place).await.map_err(|error| match error {
        TreeError::Unreadable { error, .. } => error,
        gone @ TreeError::Gone(_) => io::Error::other(gone),
    })
}

/// A whole file: a blob, or a file of the cache.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Blob(BlobDigest),
    Copy(CachedFile),
}

/// Its bytes.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: Mmap,
    size: usize,
}

impl FileBytes {
    /// Maps it. Blocks.
    pub(crate) fn map(self, blobs: &BlobDirectory) -> io::Result<MappedFile> {
        let map = match &self {
            Self::Blob(digest) => blobs.map(digest)?,
            // Files of the cache are never written to after their rename.
            Self::Copy(copy) => map_own(&copy.blob.file)?,
        };
        let size = match self {
            Self::Blob(_) => map.len(),
            Self::Copy(copy) => usize::try_from(copy.size).map_err(io::Error::other)?,
        };
        Ok(MappedFile { map, size })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.get(..self.size).unwrap_or_default()
    }
}
