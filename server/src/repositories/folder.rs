//! A repository's folder: small files whose presence is the fact.
//!
//! ```text
//! repositories/<name>/_blobs/<algorithm>/<hex>      empty: the blob may be fetched here
//! repositories/<name>/_manifests/<algorithm>/<hex>  the media type
//! repositories/<name>/_orphans/<algorithm>/<hex>    empty: this manifest's index or subject was deleted
//! repositories/<name>/_tags/<tag>                   the digest
//! repositories/<name>/_uploads/<id>                 bytes of an upload session
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::name::{RepositoryName, Tag};
use crate::blobs::{Algorithm, BlobDigest, mark, sync_directory, write_file_atomically};

/// One repository's folder. Every method blocks.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// The folder of a name under the data directory's `repositories/`.
    pub(crate) fn new(root: &Path, name: &RepositoryName) -> Self {
        Self(root.join(name.as_str()))
    }

    /// Where the upload sessions are.
    pub(crate) fn uploads(&self) -> PathBuf {
        self.0.join("_uploads")
    }

    pub(super) fn link_blob(&self, digest: &BlobDigest) -> io::Result<()> {
        mark(&self.digest_path("_blobs", digest))
    }

    /// Takes blobs out; the folder is synced once, before anybody may take their bytes.
    pub(super) fn unlink_blobs(&self, digests: &[BlobDigest]) -> io::Result<()> {
        for digest in digests {
            unlink(&self.digest_path("_blobs", digest))?;
        }
        for algorithm in Algorithm::ALL {
            if digests.iter().any(|digest| digest.algorithm() == algorithm) {
                sync_directory(&self.0.join("_blobs").join(algorithm.name()))?;
            }
        }
        Ok(())
    }

    /// Since when a blob is offered, or when a client was last told so.
    pub(super) fn told_of_blob(&self, digest: &BlobDigest) -> io::Result<SystemTime> {
        fs::metadata(self.digest_path("_blobs", digest))?.modified()
    }

    /// Keeps that a client was told of a blob now. It need not survive a power cut, so nothing is synced.
    pub(super) fn tell_of_blob(&self, digest: &BlobDigest, now: SystemTime) -> io::Result<()> {
        tell(&self.digest_path("_blobs", digest), now)
    }

    /// Marks a manifest whose index or subject is deleted, as of now.
    pub(super) fn mark_orphan(&self, digest: &BlobDigest, now: SystemTime) -> io::Result<()> {
        mark(&self.digest_path("_orphans", digest))?;
        self.tell_of_orphan(digest, now)
    }

    pub(super) fn unmark_orphan(&self, digest: &BlobDigest) -> io::Result<()> {
        remove(&self.digest_path("_orphans", digest))
    }

    pub(super) fn orphans(&self) -> io::Result<Vec<(BlobDigest, SystemTime)>> {
        let with_time = |digest: BlobDigest| {
            let told = fs::metadata(self.digest_path("_orphans", &digest))?.modified()?;
            Ok((digest, told))
        };
        self.digests("_orphans")?.into_iter().map(with_time).collect()
    }

    /// [`Self::tell_of_blob`] for a manifest that is marked.
    pub(super) fn tell_of_orphan(&self, digest: &BlobDigest, now: SystemTime) -> io::Result<()> {
        tell(&self.digest_path("_orphans", digest), now)
    }

    pub(super) fn put_manifest(&self, digest: &BlobDigest, media_type: &str) -> io::Result<()> {
        write_file_atomically(&self.digest_path("_manifests", digest), media_type.as_bytes())
    }

    pub(super) fn remove_manifest(&self, digest: &BlobDigest) -> io::Result<()> {
        remove(&self.digest_path("_manifests", digest))
    }

    pub(super) fn put_tag(&self, tag: &Tag, digest: &BlobDigest) -> io::Result<()> {
        write_file_atomically(&self.0.join("_tags").join(tag.as_str()), digest.to_string().as_bytes())
    }

    pub(super) fn remove_tag(&self, tag: &Tag) -> io::Result<()> {
        remove(&self.0.join("_tags").join(tag.as_str()))
    }

    pub(super) fn blobs(&self) -> io::Result<Vec<BlobDigest>> {
        self.digests("_blobs")
    }

    pub(super) fn manifests(&self) -> io::Result<Vec<(BlobDigest, String)>> {
        let with_type = |digest: BlobDigest| {
            let media_type = fs::read_to_string(self.digest_path("_manifests", &digest))?;
            Ok((digest, media_type))
        };
        self.digests("_manifests")?.into_iter().map(with_type).collect()
    }

    pub(super) fn tags(&self) -> io::Result<Vec<(Tag, BlobDigest)>> {
        let mut tags = Vec::new();
        for name in file_names(&self.0.join("_tags"))? {
            let Ok(tag) = name.parse::<Tag>() else { continue };
            let text = fs::read_to_string(self.0.join("_tags").join(&name))?;
            let digest = text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            tags.push((tag, digest));
        }
        Ok(tags)
    }

    fn digests(&self, kind: &str) -> io::Result<Vec<BlobDigest>> {
        let mut digests = Vec::new();
        for algorithm in Algorithm::ALL {
            let names = file_names(&self.0.join(kind).join(algorithm.name()))?;
            // Other names are what a crash left before its rename.
            digests.extend(names.iter().filter_map(|hex| format!("{}:{hex}", algorithm.name()).parse().ok()));
        }
        Ok(digests)
    }

    fn digest_path(&self, kind: &str, digest: &BlobDigest) -> PathBuf {
        self.0.join(kind).join(digest.algorithm().name()).join(digest.hex())
    }
}

/// Every repository that has a folder.
pub(super) fn names(root: &Path) -> io::Result<Vec<RepositoryName>> {
    let (mut found, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(parent) = folders.pop() {
        let mut is_repository = false;
        for entry in fs::read_dir(root.join(&parent))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('_') {
                is_repository = true;
            } else if entry.file_type()?.is_dir() {
                folders.push(if parent.is_empty() { name } else { format!("{parent}/{name}") });
            }
        }
        if is_repository && let Ok(name) = parent.parse() {
            found.push(name);
        }
    }
    Ok(found)
}

fn file_names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose()).collect()
}

fn tell(path: &Path, now: SystemTime) -> io::Result<()> {
    match fs::File::open(path) {
        // Deleted meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.set_modified(now),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if unlink(path)? { path.parent().map_or(Ok(()), sync_directory) } else { Ok(()) }
}

/// Removes a file that may be gone already; whether it was there.
fn unlink(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}
