//! Where a bundle's bytes are: a repository of a registry, or a layout on this machine. What comes from there is checked by whoever asks.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use symseal_bundle::oci;
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::{RegistryError, Repository};

use crate::pool::Pool;

/// Bytes of a layout's blob that are read at once.
const READ_BLOCK: u64 = 256 << 10;

/// A place that has a bundle.
#[derive(Clone)]
pub(super) enum Home {
    /// A repository.
    Registry {
        /// What to call it.
        name: Arc<str>,
        /// Its client.
        repository: Arc<Repository>,
    },
    /// A layout on this machine.
    Layout(LayoutDir),
}

/// Why something did not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is not there.
    Absent(String),
    /// Whether it is there cannot be told at this moment.
    Down(String),
    /// What came is not what it should be.
    Wrong(String),
}

/// Bytes on their way in. Nothing of them is checked.
pub(super) type Incoming = BoxStream<'static, Result<Bytes, Trouble>>;

impl Trouble {
    /// What is to be said.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Absent(text) | Self::Down(text) | Self::Wrong(text) => text,
        }
    }
}

impl From<RegistryError> for Trouble {
    fn from(error: RegistryError) -> Self {
        let text = error.to_string();
        match error {
            RegistryError::NotFound { .. } | RegistryError::Refused { status: 404 | 410, .. } => Self::Absent(text),
            RegistryError::Digest { .. }
            | RegistryError::Size { .. }
            | RegistryError::Protocol { .. }
            | RegistryError::Manifest { .. } => Self::Wrong(text),
            _ => Self::Down(text),
        }
    }
}

impl Home {
    /// What to call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Registry { name, .. } => name.to_string(),
            Self::Layout(layout) => layout.root().display().to_string(),
        }
    }

    /// The registry's host, where it is one.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Registry { name, .. } => name.split('/').next(),
            Self::Layout(_) => None,
        }
    }

    /// Whether the other one is the same place.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.name() == other.name()
    }

    /// The bytes of a manifest, which are those of its digest.
    pub(super) async fn manifest(&self, pool: &Pool, digest: &Digest) -> Result<Vec<u8>, Trouble> {
        match self {
            Self::Registry { repository, name } => {
                let absent = || Trouble::Absent(format!("{name} has no manifest {digest}"));
                repository.manifest(digest).await?.ok_or_else(absent)
            }
            Self::Layout(layout) => read(pool, layout, digest, oci::MAX_MANIFEST_BYTES).await,
        }
    }

    /// The bytes of a small blob, which are those of its digest.
    pub(super) async fn blob(&self, pool: &Pool, digest: &Digest, size: u64) -> Result<Vec<u8>, Trouble> {
        match self {
            Self::Registry { repository, .. } => Ok(repository.blob(digest, size).await?),
            Self::Layout(layout) => read(pool, layout, digest, size).await,
        }
    }

    /// A part of a blob, unchecked.
    pub(super) async fn part(&self, pool: &Pool, digest: &Digest, range: Range<u64>) -> Result<Vec<u8>, Trouble> {
        match self {
            Self::Registry { repository, .. } => Ok(repository.part(digest, range).await?),
            Self::Layout(layout) => {
                let path = layout.blob_path(digest);
                blocking(pool, path, move |file| block(file, range.start, range.end.saturating_sub(range.start))).await
            }
        }
    }

    /// A blob's bytes from `offset` on, unchecked.
    pub(super) async fn stream(&self, pool: &Pool, digest: &Digest, offset: u64) -> Result<Incoming, Trouble> {
        match self {
            Self::Registry { repository, .. } => {
                let opened = repository.stream(digest, offset).await?;
                let rest = stream::unfold(opened, |mut opened| async move {
                    let next = opened.next().await.map_err(Trouble::from).transpose()?;
                    Some((next, opened))
                });
                Ok(rest.boxed())
            }
            Self::Layout(layout) => {
                let (pool, path) = (pool.clone(), layout.blob_path(digest));
                if !layout.has(digest) {
                    return Err(Trouble::Absent(format!("{} has no blob {digest}", layout.root().display())));
                }
                let state = (pool, path, offset);
                let blocks = stream::try_unfold(state, |(pool, path, at)| async move {
                    let read = move |file: &File| {
                        let left = file.metadata()?.len().saturating_sub(at);
                        block(file, at, left.min(READ_BLOCK))
                    };
                    let bytes = blocking(&pool, path.clone(), read).await?;
                    let length = bytes.len() as u64;
                    Ok((length > 0).then(|| (Bytes::from(bytes), (pool, path, at.saturating_add(length)))))
                });
                Ok(blocks.boxed())
            }
        }
    }
}

fn block(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    // A range of outside numbers must not make a large buffer for nothing.
    let there = file.metadata()?.len().saturating_sub(at);
    let mut bytes = vec![0; usize::try_from(length.min(there)).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

async fn blocking<T: Send + 'static>(
    pool: &Pool,
    path: PathBuf,
    job: impl FnOnce(&File) -> io::Result<T> + Send + 'static,
) -> Result<T, Trouble> {
    let told = path.clone();
    let ran = pool.run(move || File::open(path).and_then(|file| job(&file))).await;
    let failed = |error: &dyn std::fmt::Display| Trouble::Down(format!("{}: {error}", told.display()));
    ran.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

async fn read(pool: &Pool, layout: &LayoutDir, digest: &Digest, limit: u64) -> Result<Vec<u8>, Trouble> {
    let (layout, digest) = (layout.clone(), *digest);
    let ran = pool.run(move || layout.read_blob(&digest, limit)).await;
    ran.map_err(|error| Trouble::Down(error.to_string()))?.map_err(|error| Trouble::Wrong(error.to_string()))
}
