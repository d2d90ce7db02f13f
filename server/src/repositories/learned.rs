//! What other servers of a shared store changed: memory alone, as the objects say it already.

use std::io;
use std::time::SystemTime;

use super::changes::stored_manifest;
use super::deleted::Deleted;
use super::manifest::Manifest;
use super::name::Tag;
use super::repository::Repository;
use crate::blobs::{BlobDigest, BlobDirectory};

impl Repository {
    /// Takes over that another server offers a blob here, or no longer. Call it with [`Self::lock_changes`].
    pub(crate) fn learn_blob(&self, digest: &BlobDigest, is_offered: bool) {
        let mut content = self.write();
        if is_offered {
            content.links.offer(digest.clone(), None, SystemTime::now());
        } else {
            content.links.withdraw(digest);
        }
    }

    /// Takes over a manifest that another server published. Where it is taken down, or refers to something that is, nobody sees it: then the digest
    /// with which it must be hidden ([`Self::hide`]). Call it with [`Self::lock_changes`].
    pub(crate) fn learn_manifest(
        &self,
        digest: &BlobDigest,
        manifest: Manifest,
        is_taken_down: impl Fn(&BlobDigest) -> bool,
    ) -> Option<BlobDigest> {
        let mut content = self.write();
        let cause = if is_taken_down(digest) {
            Some(digest.clone())
        } else {
            content.hidden_subject(manifest.subject.as_ref(), is_taken_down)
        };
        content.links.adopt(digest);
        content.insert_manifest(digest.clone(), manifest);
        if let Some(cause) = &cause {
            content.withdraw(cause, vec![digest.clone()]);
        }
        cause
    }

    /// Takes over that a manifest that is here was pushed for its own sake. Call it with [`Self::lock_changes`].
    pub(crate) fn learn_adoption(&self, digest: &BlobDigest) {
        let mut content = self.write();
        content.links.adopt(digest);
        content.recover(digest);
    }

    /// Takes over that nothing keeps a manifest once its index or subject is deleted, which is under way, or done. Call it with [`Self::lock_changes`]. Blocks.
    ///
    /// # Errors
    /// What the manifest names cannot be read now: nothing has changed.
    pub(crate) fn learn_orphan(&self, digest: &BlobDigest, blobs: &BlobDirectory) -> io::Result<()> {
        let named = self.named_by(std::iter::once(digest.clone()), blobs)?;
        let mut content = self.write();
        if content.manifests.contains_key(digest) {
            content.links.orphan(digest.clone(), SystemTime::now());
            content.leave_all(named);
        }
        Ok(())
    }

    /// Takes over that another server deleted a manifest. Call it with [`Self::lock_changes`]. Blocks.
    ///
    /// # Errors
    /// What the manifest named is not known now: nothing has changed.
    pub(crate) fn learn_deletion(&self, digest: &BlobDigest, blobs: &BlobDirectory) -> io::Result<()> {
        let manifest = stored_manifest(digest, blobs)?;
        let orphans = self.orphans_of(digest, manifest.as_ref());
        let named = self.named_by(orphans.iter().cloned(), blobs)?;
        let mut content = self.write();
        if content.manifests.contains_key(digest) {
            let counted = content.remove_manifest(digest);
            content.remember_deleted(digest.clone(), manifest.as_ref().and_then(Deleted::of));
            manifest.map(|manifest| content.links.forget(manifest.child_digests(), counted));
            let now = SystemTime::now();
            orphans.into_iter().for_each(|orphan| content.links.orphan(orphan, now));
            content.leave_all(named);
        }
        Ok(())
    }

    /// Takes over where a tag leads. Call it with [`Self::lock_changes`]. Blocks.
    ///
    /// # Errors
    /// What it led to cannot be read now: nothing has changed.
    pub(crate) fn learn_tag(&self, tag: Tag, digest: Option<BlobDigest>, blobs: &BlobDirectory) -> io::Result<()> {
        let before = self.read().tags.get(&tag).cloned();
        let named = self.named_by_orphans(before.into_iter(), blobs)?;
        let mut content = self.write();
        match digest.filter(|digest| content.manifests.contains_key(digest)) {
            Some(digest) => {
                content.recover(&digest);
                content.tags.insert(tag, digest);
            }
            None => drop(content.tags.remove(&tag)),
        }
        content.leave_all(named);
        Ok(())
    }
}
