//! What a deletion left behind: manifests whose index or subject is gone and that nothing else keeps. They are here until the collector takes them, so
//! that whoever was just told of one may rely on it; but what only they refer to does not count against a quota any more.

use std::collections::{HashMap, HashSet};

use super::content::Content;
use super::manifest::{Child, Manifest};
use crate::blobs::BlobDigest;

impl Content {
    /// A manifest that a deletion may have left behind ceases to count, unless something keeps it; `children`: what it names.
    pub(super) fn leave(&mut self, digest: BlobDigest, children: Vec<Child>) {
        if !self.is_left(&digest) || self.left.contains_key(&digest) {
            return;
        }
        let Some(manifest) = self.manifests.get(&digest) else { return };
        self.manifest_bytes = self.manifest_bytes.saturating_sub(manifest.size);
        children.iter().for_each(|child| self.links.uncount(&child.digest));
        self.left.insert(digest, children);
    }

    /// [`Self::leave`] for many, in whatever order they name each other.
    pub(super) fn leave_all(&mut self, mut named_by: HashMap<BlobDigest, Vec<Child>>) {
        loop {
            let left: Vec<BlobDigest> = named_by.keys().filter(|digest| self.is_left(digest)).cloned().collect();
            if left.is_empty() {
                return;
            }
            for digest in left {
                let children = named_by.remove(&digest).unwrap_or_default();
                self.leave(digest, children);
            }
        }
    }

    /// Whether nothing keeps a manifest but that it is not collected yet.
    pub(super) fn is_left(&self, digest: &BlobDigest) -> bool {
        // What answers for debug ids stays until it is deleted by name.
        let may_go = |manifest: &Manifest| !manifest.is_bundle() && !manifest.is_loose();
        self.links.is_orphan(digest)
            && !self.links.is_counting(digest)
            && self.manifests.get(digest).is_some_and(|manifest| may_go(manifest))
            && !self.has_tag_or_subject(digest)
    }

    /// Something keeps a manifest again, and with it what it names.
    pub(super) fn recover(&mut self, digest: &BlobDigest) {
        let mut open = vec![digest.clone()];
        while let Some(next) = open.pop() {
            let Some(children) = self.left.remove(&next) else { continue };
            let size = self.manifests.get(&next).map_or(0, |manifest| manifest.size);
            self.manifest_bytes = self.manifest_bytes.saturating_add(size);
            for child in children {
                self.links.recount(&child.digest);
                open.push(child.digest);
            }
        }
    }

    /// Bytes that do not count yet and would with a manifest that comes, or comes back.
    pub(super) fn cost(&self, digest: &BlobDigest, manifest: &Manifest) -> u64 {
        let mut bytes = manifest.size;
        let (mut seen, mut open) = (HashSet::new(), self.orphans_of(digest, manifest.child_digests()));
        let mut blobs: Vec<&Child> = manifest.blobs.iter().collect();
        while let Some(next) = open.pop() {
            let Some(children) = self.left.get(&next).filter(|_| seen.insert(next.clone())) else { continue };
            bytes = bytes.saturating_add(self.manifests.get(&next).map_or(0, |manifest| manifest.size));
            blobs.extend(children.iter().filter(|child| !self.manifests.contains_key(&child.digest)));
            open.extend(children.iter().map(|child| child.digest.clone()));
        }
        for child in blobs {
            if !self.links.counts(&child.digest) && seen.insert(child.digest.clone()) {
                bytes = bytes.saturating_add(child.size);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reference;
    use super::super::changes::{PutManifest, Removal};
    use super::super::scene::{Scene, manifest_of as of};
    use super::*;
    use crate::blobs::BlobDirectory;
    use std::time::{Duration, SystemTime};

    impl Scene {
        fn remove(&self, digest: &BlobDigest) {
            let removed = self.repository.remove(&Reference::Digest(digest.clone()), &self.blobs).unwrap();
            assert_eq!(removed, Removal::Removed);
        }

        fn bytes(&self) -> u64 {
            self.repository.held().bytes
        }
    }

    fn parsed(text: &str) -> Manifest {
        Manifest::parse(text.as_bytes(), None).unwrap()
    }

    fn index(children: &[&str]) -> String {
        let child = |text: &&str| serde_json::json!({ "digest": BlobDigest::of(text.as_bytes()).to_string(), "size": text.len() });
        let children: Vec<_> = children.iter().map(child).collect();
        serde_json::json!({ "schemaVersion": 2, "manifests": children }).to_string()
    }

    #[test]
    fn a_manifest_whose_index_went_before_this_server_knew_of_it_is_left_and_idle() {
        let scene = Scene::new();
        drop(scene.upload("own"));
        let child = of(&["own"], None);
        let digest = scene.publish(&child, &[]);
        assert_eq!((scene.bytes(), scene.repository.idle()), (("own".len() + child.len()) as u64, Vec::new()));
        scene.repository.learn_orphan(&digest, &scene.blobs).unwrap();
        assert_eq!((scene.bytes(), scene.repository.idle()), (0, vec![digest.clone()]));
        // While something names it the mark says nothing.
        scene.publish(&index(&[&child]), &[]);
        scene.repository.learn_orphan(&digest, &scene.blobs).unwrap();
        assert!(scene.bytes() > 0 && scene.repository.idle().is_empty());
    }

    #[test]
    fn what_an_index_alone_kept_counts_until_the_index_is_deleted_and_again_from_when_it_is_back() {
        let scene = Scene::new();
        ["own", "shared!", "kept"].iter().for_each(|text| drop(scene.upload(text)));
        let (first, second) = (of(&["own", "shared!"], None), of(&["shared!", "kept"], None));
        let both = index(&[&first, &second]);
        let only = index(&[&second]);
        [&first, &second].iter().for_each(|text| drop(scene.publish(text, &[])));
        let all = scene.publish(&both, &[]);
        let manifest = parsed(&both);
        let seal = scene.publish(&of(&[], Some(&all)), &[]);
        let kept = scene.publish(&only, &[]);
        let size = |texts: &[&str]| texts.iter().map(|text| text.len() as u64).sum::<u64>();
        let seal_size = of(&[], Some(&all)).len() as u64;
        let whole = size(&["own", "shared!", "kept", &first, &second, &both, &only]) + seal_size;
        assert_eq!(scene.bytes(), whole);

        scene.remove(&all);
        let rest = size(&["shared!", "kept", &second, &only]);
        assert_eq!(scene.bytes(), rest);
        // It is all here yet, for whoever was told of it.
        assert!(scene.repository.has_blob(&BlobDigest::of(b"own")));
        assert!(scene.repository.manifest(&Reference::Digest(seal.clone())).is_some());
        assert_eq!(Scene::load(&scene.data, &scene.blobs).held().bytes, rest, "so it is after a start");
        // And would cost what it gave.
        assert_eq!(scene.repository.would_add(&all, &manifest).bytes, whole - rest);
        scene.publish(&both, &[]);
        assert_eq!((scene.bytes(), scene.repository.would_add(&all, &manifest).bytes), (whole, 0));

        scene.remove(&kept);
        scene.remove(&all);
        assert_eq!(scene.bytes(), 0);
        // Pushed for its own sake: it alone comes back.
        let (first_digest, first_manifest) = (BlobDigest::of(first.as_bytes()), parsed(&first));
        let own = size(&["own", "shared!", &first]);
        assert_eq!(scene.repository.would_add(&first_digest, &first_manifest).bytes, own);
        scene.publish(&first, &[]);
        assert_eq!(scene.bytes(), own);
        // The collector takes what counts no more, and nothing changes for that.
        let later = SystemTime::now() + Duration::from_secs(60);
        while scene.repository.remove_orphans(later, &scene.blobs, |_| false).unwrap() > 0 {}
        scene.repository.unlink_idle(later, 99).unwrap();
        assert_eq!(scene.bytes(), own);
        assert!(!scene.repository.has_blob(&BlobDigest::of(b"kept")));
        assert_eq!(Scene::load(&scene.data, &scene.blobs).held().bytes, own);
    }

    #[test]
    fn other_servers_count_the_same() {
        let scene = Scene::new();
        ["own", "more"].iter().for_each(|text| drop(scene.upload(text)));
        let child = of(&["own"], None);
        let child_digest = scene.publish(&child, &[]);
        let all = index(&[&child]);
        let digest = scene.publish(&all, &[]);
        scene.publish(&of(&["more"], None), &[]);
        let other = Scene { repository: Scene::load(&scene.data, &scene.blobs), ..Scene::new() };
        let other = Scene { blobs: BlobDirectory::open(scene.data.path()).unwrap(), ..other };
        assert_eq!(other.bytes(), scene.bytes());
        scene.remove(&digest);
        other.repository.learn_deletion(&digest, &other.blobs).unwrap();
        assert_eq!(other.bytes(), scene.bytes());
        scene.publish(&child, &[]);
        other.repository.learn_adoption(&child_digest);
        assert_eq!(other.bytes(), scene.bytes());
        assert_eq!(scene.bytes(), (of(&["more"], None).len() + "ownmore".len() + child.len()) as u64);
    }

    #[test]
    fn a_tag_keeps_what_its_index_left_and_counts() {
        let scene = Scene::new();
        scene.upload("own");
        let child = of(&["own"], None);
        let (digest, manifest) = (scene.publish(&child, &[]), parsed(&child));
        let all = scene.publish(&index(&[&child]), &[]);
        scene.remove(&all);
        assert_eq!(scene.bytes(), 0);
        let put = PutManifest { digest, manifest, tags: vec!["v1".parse().unwrap()] };
        scene.repository.publish(put).unwrap();
        assert_eq!(scene.bytes(), child.len() as u64 + 3);
    }
}
