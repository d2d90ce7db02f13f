//! What a repository does not show because something was taken down: what it says on disk stays, until the bytes go.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, PoisonError};

use super::content::Content;
use super::manifest::{MANIFEST_LIMIT, Manifest};
use super::name::{RepositoryName, Tag};
use super::repository::Repository;
use crate::blobs::{BlobDigest, BlobDirectory};

/// What went out of sight with one thing that was taken down.
#[derive(Debug, Clone, Default)]
pub(super) struct Hidden {
    manifests: Vec<BlobDigest>,
    blobs: Vec<BlobDigest>,
    tags: Vec<Tag>,
}

impl Hidden {
    /// Everything whose bytes are kept for as long as this may be undone.
    pub(super) fn digests(&self) -> impl Iterator<Item = &BlobDigest> {
        self.manifests.iter().chain(&self.blobs)
    }
}

impl Repository {
    /// Takes a manifest or blob out of sight, and with a manifest its referrers and what it alone named; the manifests that went. What other
    /// manifests name, or tags, stays. Call it with [`Self::lock_changes`]. Blocks.
    pub(crate) fn hide(&self, digest: &BlobDigest, blobs: &BlobDirectory) -> Vec<(BlobDigest, Arc<Manifest>)> {
        let _linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        hide(&mut self.write(), digest, blobs)
    }

    /// Whether something of this digest is out of sight here.
    pub(crate) fn hides(&self, digest: &BlobDigest) -> bool {
        self.read().hidden.contains_key(digest)
    }

    /// Forgets for good what went out of sight with a digest: bytes that nothing else names may be collected. Call it with
    /// [`Self::lock_changes`]. Blocks.
    pub(crate) fn bury(&self, digest: &BlobDigest) -> io::Result<bool> {
        let _linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        let (hidden, blobs, manifests, tags) = {
            let content = self.read();
            let Some(hidden) = content.hidden.get(digest).cloned() else { return Ok(false) };
            // What was pushed again since is not hidden any more.
            let blobs: Vec<_> = hidden.blobs.iter().filter(|blob| !content.links.has(blob)).cloned().collect();
            let manifests: Vec<_> =
                hidden.manifests.iter().filter(|it| !content.manifests.contains_key(*it)).cloned().collect();
            let tags: Vec<_> = hidden.tags.iter().filter(|tag| !content.tags.contains_key(*tag)).cloned().collect();
            (digest.clone(), blobs, manifests, tags)
        };
        tags.iter().try_for_each(|tag| self.folder.remove_tag(tag))?;
        // The first one is what was taken down: after a crash before it goes the rest is found by it again.
        for manifest in manifests.iter().rev() {
            self.folder.unmark_orphan(manifest)?;
            self.folder.remove_manifest(manifest)?;
        }
        self.folder.unlink_blobs(&blobs)?;
        self.write().hidden.remove(&hidden);
        Ok(true)
    }

    /// Shows again what the folder says, but for what is still taken down. Call it with [`Self::lock_changes`]. Blocks.
    pub(crate) fn show_again(
        &self,
        name: &RepositoryName,
        blobs: &BlobDirectory,
        taken_down: &[BlobDigest],
    ) -> io::Result<()> {
        let present = blobs.names()?;
        let _linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        let said = self.folder.said_now(name)?;
        let mut content = Content::of(&self.folder, name, said, blobs, &present)?;
        for digest in taken_down {
            hide(&mut content, digest, blobs);
        }
        *self.write() = content;
        Ok(())
    }
}

fn hide(content: &mut Content, digest: &BlobDigest, blobs: &BlobDirectory) -> Vec<(BlobDigest, Arc<Manifest>)> {
    let (mut hidden, mut gone, mut open) = (Hidden::default(), Vec::new(), vec![digest.clone()]);
    let mut seen = HashSet::new();
    while let Some(next) = open.pop() {
        if !seen.insert(next.clone()) {
            continue;
        }
        if content.links.withdraw(&next) {
            hidden.blobs.push(next.clone());
        }
        let Some(manifest) = content.manifests.get(&next).cloned() else { continue };
        let referrers: Vec<BlobDigest> = content.referrers.get(&next).into_iter().flatten().cloned().collect();
        hidden.tags.extend(content.tags.iter().filter(|(_, to)| **to == next).map(|(tag, _)| tag.clone()));
        content.remove_manifest(&next);
        content.links.adopt(&next);
        // What it named is no longer in memory.
        let bytes = blobs.read(&next, MANIFEST_LIMIT as u64).ok();
        if let Some(parsed) = bytes.and_then(|bytes| Manifest::parse(&bytes, None).ok()) {
            let alone = content.links.forget(parsed.child_digests());
            open.extend(alone.into_iter().filter(|child| !content.has_tag_or_subject(child)));
        }
        open.extend(referrers);
        hidden.manifests.push(next.clone());
        gone.push((next, manifest));
    }
    let is_unknown = hidden.manifests.is_empty() && hidden.blobs.is_empty();
    if !is_unknown {
        let known = content.hidden.entry(digest.clone()).or_default();
        known.manifests.extend(hidden.manifests);
        known.blobs.extend(hidden.blobs);
        known.tags.extend(hidden.tags);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::super::changes::PutManifest;
    use super::super::folder::Folder;
    use super::super::{Reference, Repositories};
    use super::*;

    struct Scene {
        data: tempfile::TempDir,
        blobs: BlobDirectory,
        repository: Arc<Repository>,
    }

    impl Scene {
        fn new() -> Self {
            let data = tempfile::tempdir().unwrap();
            let blobs = BlobDirectory::open(data.path()).unwrap();
            let repositories = Repositories::load(data.path(), &blobs, None).unwrap();
            Self { repository: repositories.get_or_create(&"r".parse().unwrap()), blobs, data }
        }

        fn manifest(&self, layers: &[&str], tags: &[&str]) -> BlobDigest {
            let layers: Vec<String> = layers
                .iter()
                .map(|text| {
                    let digest = BlobDigest::of(text.as_bytes());
                    self.blobs.write(text.as_bytes(), &digest).unwrap();
                    self.repository.link_blob(&digest, text.len() as u64).unwrap();
                    format!(r#"{{"mediaType":"a/b","digest":"{digest}","size":{}}}"#, text.len())
                })
                .collect();
            self.publish(&format!(r#"{{"schemaVersion":2,"layers":[{}]}}"#, layers.join(",")), tags)
        }

        fn index(&self, children: &[&BlobDigest], tags: &[&str]) -> BlobDigest {
            let children: Vec<String> =
                children.iter().map(|digest| format!(r#"{{"digest":"{digest}","size":1}}"#)).collect();
            self.publish(&format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, children.join(",")), tags)
        }

        fn publish(&self, text: &str, tags: &[&str]) -> BlobDigest {
            let digest = BlobDigest::of(text.as_bytes());
            self.blobs.write(text.as_bytes(), &digest).unwrap();
            let manifest = Manifest::parse(text.as_bytes(), None).unwrap();
            let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
            self.repository.publish(PutManifest { digest: digest.clone(), manifest, tags }).unwrap();
            digest
        }

        fn has(&self, digest: &BlobDigest) -> bool {
            self.repository.manifest(&Reference::Digest(digest.clone())).is_some() || self.repository.has_blob(digest)
        }

        /// What a start would find.
        fn said(&self) -> (usize, usize, usize) {
            let folder = Folder::new(&self.data.path().join("repositories"), &"r".parse().unwrap(), None);
            let said = folder.said().unwrap();
            (said.manifests.len(), said.blobs.len(), said.tags.len())
        }
    }

    #[test]
    fn what_only_the_hidden_one_named_goes_with_it_comes_back_and_is_buried() {
        let scene = Scene::new();
        let [own, shared, kept] = ["own", "shared", "kept"].map(|text| BlobDigest::of(text.as_bytes()));
        let first = scene.manifest(&["own", "shared"], &[]);
        let second = scene.manifest(&["shared", "kept"], &["v2"]);
        let both = scene.index(&[&first, &second], &["all"]);
        let before = scene.repository.held();
        let gone = scene.repository.hide(&both, &scene.blobs);
        assert_eq!(gone.len(), 2);
        let seen = [&both, &first, &own, &second, &shared, &kept].map(|digest| scene.has(digest));
        assert_eq!(seen, [false, false, false, true, true, true]);
        assert_eq!(scene.repository.tags(None, 9).0, ["v2".parse().unwrap()]);
        assert!(scene.repository.hides(&both) && scene.repository.held().bytes < before.bytes);
        // Its bytes stay while it may come back.
        let mut needed = HashSet::new();
        scene.repository.each_offered(|digest| needed.extend([digest.clone()]));
        assert!([&both, &first, &own].iter().all(|digest| needed.contains(*digest)));

        let name = "r".parse().unwrap();
        scene.repository.show_again(&name, &scene.blobs, &[]).unwrap();
        assert!([&both, &first, &own, &second].iter().all(|digest| scene.has(digest)));
        assert_eq!(scene.repository.tags(None, 9).0.len(), 2);
        assert_eq!(scene.repository.held(), before);

        scene.repository.hide(&both, &scene.blobs);
        assert_eq!(scene.said(), (3, 3, 2));
        // One of its blobs was pushed again meanwhile.
        scene.repository.link_blob(&own, 3).unwrap();
        assert!(scene.repository.bury(&both).unwrap() && !scene.repository.bury(&both).unwrap());
        assert_eq!(scene.said(), (1, 3, 1));
        assert!(scene.has(&own) && !scene.has(&first));
    }

    #[test]
    fn a_blob_is_hidden_from_manifests_that_stay_and_overlaps_are_hidden_still() {
        let scene = Scene::new();
        let own = BlobDigest::of(b"own");
        let manifest = scene.manifest(&["own"], &["v1"]);
        assert!(scene.repository.hide(&own, &scene.blobs).is_empty());
        assert!(!scene.has(&own) && scene.has(&manifest));
        scene.repository.hide(&manifest, &scene.blobs);
        scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, std::slice::from_ref(&own)).unwrap();
        assert!(!scene.has(&own) && scene.has(&manifest));
        scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, &[]).unwrap();
        assert!(scene.has(&own));
        // What is nowhere is no record.
        let nowhere = BlobDigest::of(b"nowhere");
        scene.repository.hide(&nowhere, &scene.blobs);
        assert!(!scene.repository.hides(&nowhere));
    }
}
