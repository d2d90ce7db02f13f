//! One repository: what is offered in it, and what a client may rely on.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use super::content::Content;
use super::folder::{Folder, Said};
use super::hidden::Hidden;
use super::manifest::{Manifest, Reference};
use super::name::{RepositoryName, Tag};
use crate::blobs::{BlobDigest, BlobDirectory, BlobNames};

/// One repository.
#[derive(Debug)]
pub(crate) struct Repository {
    pub(super) folder: Folder,
    content: RwLock<Content>,
    /// Held while a manifest or a deletion is checked and made visible, so that one does not pull the ground from under
    /// the other.
    changes: tokio::sync::Mutex<()>,
    /// Held for writing while blobs cease to be offered, for reading while one comes: folder and memory agree.
    pub(super) linking: RwLock<()>,
}

/// What a repository refers to. What a deletion left to the collector is no part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Bytes of its manifests, of the blobs that they name, and of those that were uploaded and that none named yet: each once.
    pub(crate) bytes: u64,
    /// Its bundles.
    pub(crate) bundles: u64,
}

impl Repository {
    pub(super) fn new(folder: Folder) -> Self {
        let (content, changes, linking) = Default::default();
        Self { folder, content, changes, linking }
    }

    pub(super) fn load(
        folder: Folder,
        name: &RepositoryName,
        said: Said,
        blobs: &BlobDirectory,
        present: &BlobNames,
    ) -> io::Result<Self> {
        let content = Content::of(&folder, name, said, blobs, present)?;
        Ok(Self { content: RwLock::new(content), ..Self::new(folder) })
    }

    /// Where upload sessions of this repository are.
    pub(crate) fn uploads_folder(&self) -> PathBuf {
        self.folder.uploads()
    }

    /// Waits for other changes of manifests, and keeps them out while the guard lives.
    pub(crate) async fn lock_changes(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changes.lock().await
    }

    /// Nothing was ever finished here, or all of it was deleted.
    pub(crate) fn is_empty(&self) -> bool {
        let content = self.read();
        content.links.is_empty() && content.manifests.is_empty()
    }

    /// Whether a blob may be fetched here.
    pub(crate) fn has_blob(&self, digest: &BlobDigest) -> bool {
        self.read().links.has(digest)
    }

    /// [`Self::has_blob`] for a client that may rely on the answer: the grace period runs anew. Blocks.
    pub(crate) fn tell_of_blob(&self, digest: &BlobDigest) -> io::Result<bool> {
        let Some(told) = self.read().links.tell(digest) else { return Ok(false) };
        if let Some(now) = told.to_keep {
            self.folder.tell_of_blob(digest, now)?;
        }
        Ok(true)
    }

    /// Tells a client of a manifest that it may rely on, if it is here. Blocks.
    pub(crate) fn tell_of_manifest(&self, digest: &BlobDigest) -> io::Result<bool> {
        let told = |content: &Content| {
            let is_here = content.manifests.contains_key(digest);
            is_here.then(|| content.links.is_orphan(digest))
        };
        match told(&self.read()) {
            None => return Ok(false),
            Some(false) => return Ok(true),
            Some(true) => {}
        }
        // The collector may be about to take it: then it was here a moment ago, and is not told of.
        let _linking = self.linking.read().unwrap_or_else(PoisonError::into_inner);
        let now = {
            let content = self.read();
            if told(&content).is_none() {
                return Ok(false);
            }
            content.links.tell_of_orphan(digest)
        };
        now.map_or(Ok(()), |now| self.folder.tell_of_orphan(digest, now))?;
        Ok(true)
    }

    /// Everything whose bytes this repository needs.
    pub(crate) fn each_offered(&self, mut each: impl FnMut(&BlobDigest)) {
        let content = self.read();
        let hidden = content.hidden.values().flat_map(Hidden::digests);
        content
            .links
            .offered()
            // What a manifest names is kept also where it is not offered.
            .chain(content.links.named())
            .chain(content.tags_ahead.iter().map(|(_, digest)| digest))
            .chain(&content.kept)
            .chain(content.manifests.keys())
            .chain(&content.unreadable)
            .chain(content.deleted.keys())
            .chain(hidden)
            .for_each(&mut each);
    }

    /// A manifest and the digest that it is known by.
    pub(crate) fn manifest(&self, reference: &Reference) -> Option<(BlobDigest, Arc<Manifest>)> {
        let content = self.read();
        let digest = match reference {
            Reference::Tag(tag) => content.tags.get(tag)?,
            Reference::Digest(digest) => digest,
        };
        content.manifests.get(digest).map(|manifest| (digest.clone(), Arc::clone(manifest)))
    }

    /// Bytes of what a manifest of the repository names, as that says.
    pub(crate) fn named_size(&self, digest: &BlobDigest) -> Option<u64> {
        self.read().links.named_size(digest)
    }

    /// Keys of what could not be read at the start, each once.
    pub(crate) fn take_unread(&self) -> Vec<String> {
        std::mem::take(&mut self.write().unread)
    }

    /// Whether a manifest of the repository names a digest.
    pub(crate) fn is_named(&self, digest: &BlobDigest) -> bool {
        self.read().links.is_named(digest)
    }

    /// When a manifest was last pushed here, by the file or object that says that it is here. Blocks.
    pub(crate) fn arrived(&self, digest: &BlobDigest) -> io::Result<SystemTime> {
        self.folder.manifest_written(digest)
    }

    /// Every manifest.
    pub(crate) fn manifests(&self) -> Vec<(BlobDigest, Arc<Manifest>)> {
        self.read().manifests.iter().map(|(digest, manifest)| (digest.clone(), Arc::clone(manifest))).collect()
    }

    /// At most `limit` tags after `last`, in ASCII order, and whether more follow.
    pub(crate) fn tags(&self, last: Option<&str>, limit: usize) -> (Vec<Tag>, bool) {
        let content = self.read();
        let mut tags = content.tags.keys().filter(|tag| last.is_none_or(|last| tag.as_str() > last));
        let page = tags.by_ref().take(limit).cloned().collect();
        (page, tags.next().is_some())
    }

    /// The manifests whose subject is `subject`, ordered by digest.
    pub(crate) fn referrers(&self, subject: &BlobDigest) -> Vec<(BlobDigest, Arc<Manifest>)> {
        let content = self.read();
        let digests = content.referrers.get(subject).into_iter().flatten();
        digests.filter_map(|digest| Some((digest.clone(), Arc::clone(content.manifests.get(digest)?)))).collect()
    }

    /// What it refers to.
    pub(crate) fn held(&self) -> Held {
        let content = self.read();
        Held { bytes: content.links.bytes().saturating_add(content.manifest_bytes), bundles: content.bundles }
    }

    /// What would come to it with a manifest whose blobs are here: nothing for one that is here and counts.
    pub(crate) fn would_add(&self, digest: &BlobDigest, manifest: &Manifest) -> Held {
        let content = self.read();
        let is_here = content.manifests.contains_key(digest);
        if is_here && !content.left.contains_key(digest) {
            return Held::default();
        }
        let bundles = u64::from(manifest.is_bundle() && !is_here);
        Held { bytes: content.cost(digest, manifest), bundles }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Content> {
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Content> {
        self.content.write().unwrap_or_else(PoisonError::into_inner)
    }
}
