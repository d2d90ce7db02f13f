//! What is still known of manifests that were deleted: what they named, until the collector has taken the last of it.
//!
//! Whoever takes down what was deleted a moment ago means what it named too, which is here for the grace period and longer. So the bytes of a deleted
//! manifest stay, given to nobody, for as long as something that it named is here and nothing else keeps that.

use std::io;

use super::changes::stored_manifest;
use super::content::Content;
use super::manifest::Manifest;
use super::repository::Repository;
use crate::blobs::{BlobDigest, BlobDirectory};

/// A manifest that was deleted.
#[derive(Debug, Clone)]
pub(super) struct Deleted {
    children: Vec<BlobDigest>,
    subject: Option<BlobDigest>,
}

impl Deleted {
    /// What is kept of a manifest; `None` where it names nothing that could stay behind.
    pub(super) fn of(manifest: &Manifest) -> Option<Self> {
        let children: Vec<BlobDigest> = manifest.child_digests().cloned().collect();
        (!children.is_empty()).then(|| Self { children, subject: manifest.subject.clone() })
    }
}

impl Content {
    /// Reads again what a start finds of deleted manifests.
    ///
    /// # Errors
    /// One of them cannot be read now: what would go with it is not known.
    pub(super) fn recall_deleted(&mut self, digests: Vec<BlobDigest>, blobs: &BlobDirectory) -> io::Result<()> {
        for digest in digests {
            // A crash may have come between the mark and the deletion, or between a push and the mark's end.
            if self.manifests.contains_key(&digest) || self.unreadable.contains(&digest) {
                continue;
            }
            match stored_manifest(&digest, blobs)? {
                Some(manifest) => self.remember_deleted(digest, Deleted::of(&manifest)),
                None => {
                    tracing::warn!(%digest, "a deleted manifest is lost: a takedown of it does not find what it alone named");
                }
            }
        }
        Ok(())
    }

    pub(super) fn remember_deleted(&mut self, digest: BlobDigest, deleted: Option<Deleted>) {
        if let Some(deleted) = deleted {
            self.deleted.insert(digest, deleted);
        }
    }

    /// Forgets that a manifest was deleted; what it named and nothing keeps.
    pub(super) fn forget_deletion(&mut self, digest: &BlobDigest) -> Option<Vec<BlobDigest>> {
        let Deleted { children, .. } = self.deleted.remove(digest)?;
        Some(children.into_iter().filter(|child| !self.is_kept(child)).collect())
    }

    /// The deleted manifests that referred to a digest as their subject.
    pub(super) fn deleted_referrers(&self, subject: &BlobDigest) -> impl Iterator<Item = &BlobDigest> {
        let refers = move |(_, deleted): &(&BlobDigest, &Deleted)| deleted.subject.as_ref() == Some(subject);
        self.deleted.iter().filter(refers).map(|(digest, _)| digest)
    }

    fn is_kept(&self, digest: &BlobDigest) -> bool {
        self.links.is_named(digest) || self.has_tag_or_subject(digest)
    }

    /// Whether something is here yet that a deleted manifest named, and nothing keeps.
    fn left_something(&self, deleted: &Deleted) -> bool {
        deleted.children.iter().any(|child| {
            let is_left = self.links.has(child) || self.links.is_orphan(child) || self.deleted.contains_key(child);
            is_left && !self.is_kept(child)
        })
    }
}

impl Repository {
    /// Forgets the deleted manifests of which nothing is left; how many. Call it with [`Self::lock_changes`]. Blocks.
    pub(crate) fn forget_deleted(&self) -> io::Result<usize> {
        let mut forgotten = 0;
        loop {
            let gone: Vec<BlobDigest> = {
                let content = self.read();
                // Of what cannot be read nobody knows what it keeps.
                if !content.is_whole() {
                    return Ok(forgotten);
                }
                let gone = content.deleted.iter().filter(|(_, deleted)| !content.left_something(deleted));
                gone.map(|(digest, _)| digest.clone()).collect()
            };
            if gone.is_empty() {
                return Ok(forgotten);
            }
            // With an index's manifest the index may have nothing left.
            for digest in gone {
                self.folder.unmark_deleted(&digest)?;
                self.write().deleted.remove(&digest);
                forgotten += 1;
            }
        }
    }

    /// Takes over that another server deleted a manifest which this one never had. Call it with [`Self::lock_changes`].
    pub(crate) fn learn_of_deleted(&self, digest: &BlobDigest, manifest: &Manifest) {
        let mut content = self.write();
        if !content.manifests.contains_key(digest) {
            content.remember_deleted(digest.clone(), Deleted::of(manifest));
        }
    }

    /// Takes over that nothing is left of a deleted manifest, or that it was pushed again. Call it with [`Self::lock_changes`].
    pub(crate) fn unlearn_deleted(&self, digest: &BlobDigest) {
        self.write().deleted.remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::Reference;
    use super::super::scene::Scene;
    use super::*;

    impl Scene {
        fn start_again(&mut self) {
            self.repository = Self::load(&self.data, &self.blobs);
        }

        fn delete(&self, digest: &BlobDigest) {
            self.repository.remove(&Reference::Digest(digest.clone()), &self.blobs).unwrap();
        }

        /// A round of the collector that nothing was told of.
        fn collect(&self) {
            let later = SystemTime::now() + Duration::from_secs(60);
            self.repository.remove_orphans(later, &self.blobs, |_| false).unwrap();
            self.repository.forget_deleted().unwrap();
        }

        fn seen(&self, digests: &[&BlobDigest]) -> Vec<bool> {
            digests.iter().map(|digest| self.has(digest)).collect()
        }

        fn is_kept(&self, digest: &BlobDigest) -> bool {
            let mut found = false;
            self.repository.each_offered(|offered| found |= offered == digest);
            found
        }
    }

    #[test]
    fn what_a_deleted_index_alone_named_goes_with_its_takedown_and_comes_back_with_its_end() {
        let mut scene = Scene::new();
        let [own, shared, kept, noted] = ["own", "shared", "kept", "noted"].map(|text| BlobDigest::of(text.as_bytes()));
        let (first, second) = (scene.manifest(&["own", "shared"], None, &[]), scene.manifest(&["kept"], None, &["v2"]));
        let third = scene.manifest(&["shared"], None, &["v3"]);
        let all = scene.index(&[&first, &second], &["all"]);
        let note = scene.manifest(&["noted"], Some(&all), &[]);
        scene.delete(&all);
        let digests = [&first, &own, &note, &noted, &second, &kept, &third, &shared];
        assert_eq!(scene.seen(&digests), [true; 8]);
        let gone = [false, false, false, false, true, true, true, true];
        // At once, and as a start finds it.
        for is_new in [false, true] {
            if is_new {
                scene.start_again();
            }
            scene.hide(&all);
            assert_eq!(scene.seen(&digests), gone, "{is_new}");
            assert!(scene.is_kept(&all) && scene.repository.hides(&all));
            scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, &[]).unwrap();
            assert_eq!(scene.seen(&digests), [true; 8], "{is_new}");
        }
        // When the collector took the manifests, the files in them are found through both, and those of referrers.
        scene.collect();
        assert_eq!(scene.seen(&[&first, &note, &own, &noted]), [false, false, true, true]);
        scene.start_again();
        scene.hide(&all);
        assert_eq!(scene.seen(&digests), [false, false, false, false, true, true, true, true]);
        let old = std::collections::BTreeSet::from([all.clone()]);
        assert_eq!(scene.repository.bury(&old).unwrap(), 1);
        scene.start_again();
        assert_eq!(scene.seen(&digests), gone);
        assert!(![&all, &first, &note, &own].iter().any(|digest| scene.is_kept(digest)));
    }

    #[test]
    fn a_deleted_manifest_is_forgotten_with_the_last_of_what_it_named_and_when_it_is_pushed_again() {
        let mut scene = Scene::new();
        let first = scene.manifest(&["own"], None, &[]);
        let all = scene.index(&[&first], &["all"]);
        scene.delete(&all);
        scene.collect();
        assert!(scene.is_kept(&all) && scene.is_kept(&first));
        scene.start_again();
        assert!(scene.is_kept(&all) && scene.is_kept(&first));
        let later = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(scene.repository.unlink_idle(later, 9).unwrap(), 1);
        assert_eq!(scene.repository.forget_deleted().unwrap(), 2);
        assert!(!scene.is_kept(&all) && !scene.is_kept(&first));
        scene.start_again();
        assert!(!scene.is_kept(&all) && !scene.is_kept(&first));

        let first = scene.manifest(&["own"], None, &[]);
        scene.delete(&first);
        scene.manifest(&["own"], None, &["v1"]);
        scene.hide(&first);
        assert_eq!(scene.seen(&[&first, &BlobDigest::of(b"own")]), [false, false]);
        scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, &[]).unwrap();
        assert_eq!(scene.repository.tags(None, 9).0, ["v1".parse().unwrap()]);
        assert_eq!(scene.repository.forget_deleted().unwrap(), 0, "it is no deleted one any more");
    }
}
