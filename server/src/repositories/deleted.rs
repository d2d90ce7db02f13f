//! What is still known of manifests that were deleted: what they named, until the collector has taken the last of it.
//!
//! Whoever takes down what was deleted a moment ago means what it named too, which is here for the grace period and longer. So the bytes of a deleted
//! manifest stay, given to nobody, for as long as something that it named is here and nothing else keeps that.
//!
//! What others keep may be left by them too, one day, and then belongs to all that named it. So a deleted manifest stays known while others keep what it
//! named; of those that only wait for that there are no more than what is kept justifies, and the oldest are forgotten first.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::changes::stored_manifest;
use super::content::Content;
use super::manifest::Manifest;
use super::repository::Repository;
use crate::blobs::{BlobDigest, BlobDirectory};

/// The SHA-256 of `{}` (OCI image specification, "Guidance for an Empty Descriptor").
const EMPTY_CONFIG: &str = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

/// Digests that deleted manifests may name, of which nothing but what others keep is here, beyond as many as those others name.
const WAITING: usize = 4096;

/// Counts what is deleted, of all repositories.
static TURNS: AtomicU64 = AtomicU64::new(0);

/// A manifest that was deleted.
#[derive(Debug, Clone)]
pub(super) struct Deleted {
    children: Vec<BlobDigest>,
    subject: Option<BlobDigest>,
    /// The later it was deleted, or found at a start, the higher.
    turn: u64,
}

/// What is here of that which a deleted manifest named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Something that nothing keeps.
    Left,
    /// Something that others keep, and nothing else.
    Kept,
    /// Nothing.
    Gone,
}

impl Deleted {
    /// What is kept of a manifest; `None` where it names nothing that could stay behind.
    pub(super) fn of(manifest: &Manifest) -> Option<Self> {
        let children: Vec<BlobDigest> = manifest.child_digests().cloned().collect();
        (!children.is_empty()).then(|| Self { children, subject: manifest.subject.clone(), turn: 0 })
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
            self.deleted.insert(digest, Deleted { turn: TURNS.fetch_add(1, Ordering::Relaxed), ..deleted });
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

    /// What is here yet of that which a deleted manifest named.
    fn rest_of(&self, deleted: &Deleted) -> Rest {
        let mut rest = Rest::Gone;
        for child in &deleted.children {
            let is_deleted = self.deleted.contains_key(child);
            let is_here = self.links.has(child) || self.links.is_orphan(child) || self.manifests.contains_key(child);
            if (is_here || is_deleted) && !self.is_kept(child) {
                return Rest::Left;
            }
            // Every manifest names the empty configuration, and nobody takes it down.
            if is_here && child.hex() != EMPTY_CONFIG {
                rest = Rest::Kept;
            }
        }
        rest
    }

    /// The deleted manifests of which nothing is left, and those that wait for what others keep beyond `waiting` digests more than are named.
    fn forgettable(&self, waiting: usize) -> Vec<BlobDigest> {
        let (mut gone, mut kept) = (Vec::new(), Vec::new());
        for (digest, deleted) in &self.deleted {
            match self.rest_of(deleted) {
                Rest::Left => {}
                Rest::Kept => kept.push((deleted.turn, digest, deleted.children.len())),
                Rest::Gone => gone.push(digest.clone()),
            }
        }
        kept.sort_unstable_by(|one, other| other.cmp(one));
        let mut room = self.links.named_count().saturating_add(waiting);
        for (_, digest, children) in kept {
            match room.checked_sub(children) {
                Some(left) => room = left,
                None => {
                    room = 0;
                    gone.push(digest.clone());
                }
            }
        }
        gone
    }
}

impl Repository {
    /// Forgets the deleted manifests of which nothing is left, and the oldest of too many that wait; how many. Call it with
    /// [`Self::lock_changes`]. Blocks.
    pub(crate) fn forget_deleted(&self) -> io::Result<usize> {
        self.forget_deleted_beyond(WAITING)
    }

    fn forget_deleted_beyond(&self, waiting: usize) -> io::Result<usize> {
        let mut forgotten = 0;
        loop {
            let gone: Vec<BlobDigest> = {
                let content = self.read();
                // Of what cannot be read nobody knows what it keeps.
                if !content.is_whole() {
                    return Ok(forgotten);
                }
                content.forgettable(waiting)
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
    fn what_another_deleted_manifest_kept_meanwhile_goes_with_a_takedown_of_the_first() {
        let mut scene = Scene::new();
        let [own, shared, other, late] = ["own", "shared", "other", "late"].map(|text| BlobDigest::of(text.as_bytes()));
        let first = scene.manifest(&["own", "shared"], None, &["v1"]);
        let second = scene.manifest(&["shared", "other"], None, &["v2"]);
        let third = scene.manifest(&["other", "late"], None, &["v3"]);
        let later = || SystemTime::now() + Duration::from_secs(60);
        scene.delete(&first);
        // Nothing is left of it but what the second keeps.
        scene.repository.unlink_idle(later(), 9).unwrap();
        assert_eq!(scene.repository.forget_deleted().unwrap(), 0);
        scene.start_again();
        scene.delete(&second);
        for is_new in [false, true] {
            if is_new {
                scene.start_again();
            }
            scene.hide(&first);
            assert_eq!(
                scene.seen(&[&own, &shared, &other, &late, &third]),
                [false, false, true, true, true],
                "{is_new}"
            );
            scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, &[]).unwrap();
            assert_eq!(scene.seen(&[&shared]), [true]);
        }
        // With the last of it both are forgotten, but for what the third keeps of the second.
        scene.repository.unlink_idle(later(), 9).unwrap();
        assert_eq!(scene.repository.forget_deleted().unwrap(), 1);
        assert!(!scene.is_kept(&first) && scene.is_kept(&second));
    }

    #[test]
    fn no_more_deleted_manifests_wait_than_what_is_kept_justifies() {
        let scene = Scene::new();
        scene.manifest(&["shared", "one"], None, &["kept"]);
        let deleted: Vec<BlobDigest> = (0..9_u8)
            .map(|turn| {
                let digest = scene.manifest(&["shared", &format!("own {turn}")], None, &[]);
                scene.delete(&digest);
                digest
            })
            .collect();
        scene.repository.unlink_idle(SystemTime::now() + Duration::from_secs(60), 99).unwrap();
        // Each names two; what is kept names as many, and a little more is allowed.
        let named = scene.repository.read().links.named_count();
        let beyond = 6 - named;
        assert_eq!(scene.repository.forget_deleted_beyond(beyond).unwrap(), 6);
        let kept: Vec<bool> = deleted.iter().map(|digest| scene.is_kept(digest)).collect();
        assert_eq!(kept, [false, false, false, false, false, false, true, true, true]);
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
