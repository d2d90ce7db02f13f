//! What a repository ceases to offer where it shares an object store: whether it may is for all of its servers to say, so nothing here knows of time.

use std::collections::BTreeSet;
use std::io;
use std::sync::PoisonError;

use super::content::Content;
use super::manifest::{Manifest, Reference};
use super::repository::Repository;
use crate::blobs::{BlobDigest, BlobDirectory};

/// What a repository ceased to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ceased {
    /// A manifest that a deletion left behind.
    Manifest,
    /// A blob that no manifest names.
    Blob,
    /// Nothing: something keeps it again.
    Nothing,
}

impl Repository {
    /// The blobs that no manifest names, and the manifests that came with one that was deleted and that nothing else keeps.
    pub(crate) fn idle(&self) -> Vec<BlobDigest> {
        let content = self.read();
        if !content.is_whole() {
            return Vec::new();
        }
        let blobs = content.links.offered().filter(|digest| !content.links.is_named(digest));
        let orphans = content.links.orphans().filter(|digest| content.is_idle_orphan(digest));
        blobs.chain(orphans).cloned().collect()
    }

    /// The blobs that no manifest names, also where some manifest cannot be read.
    pub(crate) fn unnamed_blobs(&self) -> Vec<BlobDigest> {
        let content = self.read();
        content.links.offered().filter(|digest| !content.links.is_named(digest)).cloned().collect()
    }

    /// Whether nothing keeps a manifest.
    pub(crate) fn is_idle_manifest(&self, digest: &BlobDigest) -> bool {
        self.read().is_idle_orphan(digest)
    }

    /// Whether this repository needs the bytes of a digest.
    pub(crate) fn needs(&self, digest: &BlobDigest) -> bool {
        let content = self.read();
        content.links.has(digest)
            || content.links.is_named(digest)
            || content.has_manifest(digest)
            || content.deleted.contains_key(digest)
            || content.kept.contains(digest)
            || content.hides(digest)
    }

    /// Whether a manifest's fact is known, be it out of sight or unreadable.
    pub(crate) fn knows_manifest(&self, digest: &BlobDigest) -> bool {
        let content = self.read();
        content.has_manifest(digest) || content.hides(digest)
    }

    /// Whether it is known that a blob is offered here, be it out of sight.
    pub(crate) fn knows_blob(&self, digest: &BlobDigest) -> bool {
        let content = self.read();
        content.links.has(digest) || content.hides(digest)
    }

    /// Ceases to offer something that is [idle](Self::idle) still. Call it with [`Self::lock_changes`]. Blocks.
    pub(crate) fn cease(&self, digest: &BlobDigest, blobs: &BlobDirectory) -> io::Result<Ceased> {
        let _linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        let (is_orphan, is_idle, was_offered) = {
            let content = self.read();
            let is_idle = content.is_whole() && !content.links.is_named(digest) && !content.hides(digest);
            (content.is_idle_orphan(digest), is_idle, content.links.has(digest))
        };
        if !is_idle {
            return Ok(Ceased::Nothing);
        }
        if is_orphan {
            self.remove(&Reference::Digest(digest.clone()), blobs)?;
        }
        // What broke off between the object store and memory is done again.
        let size = self.write().links.withdraw(digest);
        if let Err(error) = self.folder.unlink_blobs(std::slice::from_ref(digest)) {
            if let Some(size) = size {
                self.write().links.offer(digest.clone(), size, std::time::SystemTime::now());
            }
            return Err(error);
        }
        Ok(match (is_orphan, was_offered) {
            (true, _) => Ceased::Manifest,
            (false, true) => Ceased::Blob,
            (false, false) => Ceased::Nothing,
        })
    }

    /// What went out of sight with each of those that are old: the causes, and everything that goes with them.
    pub(crate) fn hidden_with(&self, old: &BTreeSet<BlobDigest>) -> Vec<BlobDigest> {
        let content = self.read();
        let hidden = content.hidden.iter().filter(|(cause, _)| old.contains(*cause));
        hidden.flat_map(|(cause, hidden)| std::iter::once(cause).chain(hidden.digests())).cloned().collect()
    }
}

impl Content {
    /// A bundle or loose file answers for debug ids until it is deleted by name.
    fn is_idle_orphan(&self, digest: &BlobDigest) -> bool {
        let goes = |manifest: &Manifest| !manifest.is_bundle() && !manifest.is_loose();
        self.links.is_orphan(digest)
            && !self.links.is_named(digest)
            && !self.has_tag_or_subject(digest)
            && self.manifests.get(digest).is_some_and(|manifest| goes(manifest))
    }

    fn has_manifest(&self, digest: &BlobDigest) -> bool {
        self.manifests.contains_key(digest) || self.unreadable.contains(digest)
    }

    fn hides(&self, digest: &BlobDigest) -> bool {
        self.hidden.values().any(|hidden| hidden.has(digest))
    }
}
