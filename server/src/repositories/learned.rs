//! What other servers of a shared store changed: memory alone, as the objects say it already.

use std::io;
use std::time::SystemTime;

use super::changes::stored_manifest;
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

    /// Takes over a manifest that another server published. Call it with [`Self::lock_changes`].
    pub(crate) fn learn_manifest(&self, digest: BlobDigest, manifest: Manifest) {
        self.write().insert_manifest(digest, manifest);
    }

    /// Takes over that another server deleted a manifest. Call it with [`Self::lock_changes`]. Blocks.
    ///
    /// # Errors
    /// What the manifest named is not known now: nothing has changed.
    pub(crate) fn learn_deletion(&self, digest: &BlobDigest, blobs: &BlobDirectory) -> io::Result<()> {
        let manifest = stored_manifest(digest, blobs)?;
        let mut content = self.write();
        if content.manifests.contains_key(digest) {
            content.remove_manifest(digest);
            manifest.map(|manifest| content.links.forget(manifest.child_digests()));
        }
        Ok(())
    }

    /// Takes over where a tag leads. Call it with [`Self::lock_changes`].
    pub(crate) fn learn_tag(&self, tag: Tag, digest: Option<BlobDigest>) {
        let mut content = self.write();
        match digest.filter(|digest| content.manifests.contains_key(digest)) {
            Some(digest) => drop(content.tags.insert(tag, digest)),
            None => drop(content.tags.remove(&tag)),
        }
    }
}
