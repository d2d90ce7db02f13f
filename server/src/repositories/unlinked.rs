//! What the manifests of a repository name and nobody can fetch there, though its bytes may be here: a copy that was made while the server ran can
//! have a manifest without the links, or the manifests, that came before it.
//!
//! A manifest was taken only when all that it names was here, and what a manifest names is not deleted before it. So to link that again gives the
//! repository nothing that it did not have. What was taken down, or goes with a deletion, is another thing, and stays away. An index says of a manifest
//! only that its bytes were here: whether what that one names was, too, is known where it is. A tag leads to manifests alone.

use std::collections::{HashMap, HashSet};
use std::io;

use super::changes::{PutManifest, stored_manifest};
use super::manifest::{Child, Manifest};
use super::name::Tag;
use super::repository::Repository;
use crate::blobs::{BlobDigest, BlobDirectory};

/// What was made again, and what could not be.
#[derive(Debug, Default)]
pub(crate) struct LinkedAgain {
    /// Blobs that the repository offers again.
    pub(crate) blobs: u64,
    /// Manifests that are here again, as an index names them or a tag leads to them.
    pub(crate) manifests: u64,
    /// What is not here with the size that is said of it.
    pub(crate) lost: Vec<BlobDigest>,
}

/// How something is named.
struct Named {
    is_manifest: bool,
    /// `None` for what a tag leads to.
    size: Option<u64>,
    tags: Vec<Tag>,
}

/// What is here of something that is named.
enum Found {
    /// Not its bytes.
    Nothing,
    Blob(u64),
    Manifest(Manifest, Vec<Tag>),
    /// A manifest that may have been here as a blob alone.
    Unproved(Manifest),
}

impl Repository {
    /// What manifests name, or a tag leads to, and is not here. By memory alone.
    pub(crate) fn unlinked(&self) -> Vec<BlobDigest> {
        let content = self.read();
        let ahead = content.tags_ahead.iter().map(|(_, digest)| digest);
        let is_away = |digest: &&BlobDigest| {
            let has_manifest = content.manifests.contains_key(*digest) || content.unreadable.contains(digest);
            !content.links.has(digest) && !has_manifest && !content.hidden.values().any(|hidden| hidden.has(digest))
        };
        content.links.named().chain(ahead).filter(is_away).cloned().collect()
    }

    /// Makes the links again of what is [unlinked](Self::unlinked) and has its bytes here. Call it with [`Self::lock_changes`]. Blocks.
    ///
    /// # Errors
    /// Something cannot be read now, or not be written.
    pub(crate) fn link_again(
        &self,
        blobs: &BlobDirectory,
        is_taken_down: impl Fn(&BlobDigest) -> bool,
    ) -> io::Result<LinkedAgain> {
        let (mut again, mut lost) = (LinkedAgain::default(), HashSet::new());
        loop {
            let away: HashSet<BlobDigest> = self.unlinked().into_iter().filter(|it| !lost.contains(it)).collect();
            if away.is_empty() {
                break;
            }
            let named = self.how_named(&away, blobs)?;
            let (mut unproved, before) = (Vec::new(), again.blobs + again.manifests);
            for digest in away {
                let named = named.get(&digest).filter(|_| !is_taken_down(&digest));
                match named.map_or(Ok(Found::Nothing), |named| self.found(&digest, named, blobs))? {
                    Found::Nothing => drop(lost.insert(digest)),
                    Found::Unproved(manifest) => unproved.push((digest, manifest)),
                    Found::Manifest(manifest, tags) => {
                        self.publish(PutManifest { digest, manifest, tags })?;
                        again.manifests += 1;
                    }
                    Found::Blob(size) => {
                        self.link_blob(&digest, size)?;
                        again.blobs += 1;
                    }
                }
            }
            // A manifest that came back may name more, and prove more.
            if before == again.blobs + again.manifests {
                for (digest, manifest) in unproved {
                    self.write().kept.extend(manifest.child_digests().cloned());
                    lost.insert(digest);
                }
            }
        }
        // What is taken down is away as it should be.
        again.lost = lost.into_iter().filter(|digest| !is_taken_down(digest)).collect();
        again.lost.sort();
        Ok(again)
    }

    fn found(&self, digest: &BlobDigest, named: &Named, blobs: &BlobDirectory) -> io::Result<Found> {
        let size = blobs.stored_size(digest)?.filter(|found| named.size.is_none_or(|size| size == *found));
        let Some(size) = size else { return Ok(Found::Nothing) };
        if !named.is_manifest {
            return Ok(Found::Blob(size));
        }
        if self.folder.is_deleted(digest)? {
            return Ok(Found::Nothing);
        }
        let Some(manifest) = stored_manifest(digest, blobs)? else { return Ok(Found::Nothing) };
        if named.tags.is_empty() && self.missing_child(&manifest, blobs)?.is_some() {
            return Ok(Found::Unproved(manifest));
        }
        Ok(Found::Manifest(manifest, named.tags.clone()))
    }

    /// How manifests that are not deleted name these, and which tags lead to them.
    fn how_named(&self, away: &HashSet<BlobDigest>, blobs: &BlobDirectory) -> io::Result<HashMap<BlobDigest, Named>> {
        let mut found = HashMap::new();
        for (digest, _) in self.manifests() {
            let Some(manifest) = stored_manifest(&digest, blobs)? else { continue };
            let is_away = |child: &&Child| away.contains(&child.digest);
            if !manifest.children().any(|child| is_away(&child)) || self.folder.is_deleted(&digest)? {
                continue;
            }
            for (children, is_manifest) in [(&manifest.blobs, false), (&manifest.manifests, true)] {
                for child in children.iter().filter(is_away) {
                    let named = Named { is_manifest, size: Some(child.size), tags: Vec::new() };
                    found.entry(child.digest.clone()).or_insert(named);
                }
            }
        }
        let ahead = self.read().tags_ahead.clone();
        for (tag, digest) in ahead.into_iter().filter(|(_, digest)| away.contains(digest)) {
            let named = found.entry(digest).or_insert(Named { is_manifest: true, size: None, tags: Vec::new() });
            named.tags.push(tag);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    use super::super::scene::Scene;
    use super::*;

    impl Scene {
        fn file(&self, kind: &str, digest: &BlobDigest) -> PathBuf {
            self.data.path().join("repositories/r").join(kind).join("sha256").join(digest.hex())
        }

        /// As a start finds it, and mends it.
        fn start(&mut self, taken_down: &[&BlobDigest]) -> LinkedAgain {
            self.repository = Self::load(&self.data, &self.blobs);
            self.repository.link_again(&self.blobs, |digest| taken_down.contains(&digest)).unwrap()
        }

        fn needed(&self) -> HashSet<BlobDigest> {
            let mut needed = HashSet::new();
            self.repository.each_offered(|digest| needed.extend([digest.clone()]));
            needed
        }
    }

    #[test]
    fn what_a_copy_lacks_is_linked_again_where_its_bytes_are_here() {
        let mut scene = Scene::new();
        let child = scene.manifest(&["own", "more"], None, &[]);
        let size = scene.blobs.stored_size(&child).unwrap().unwrap();
        let index =
            serde_json::json!({ "schemaVersion": 2, "manifests": [{ "digest": child.to_string(), "size": size }] });
        let index = scene.publish(&index.to_string(), &["v1"]);
        let (own, more) = (BlobDigest::of(b"own"), BlobDigest::of(b"more"));
        // Nobody else says where these are.
        fs::remove_file(scene.file("_blobs", &own)).unwrap();
        scene.repository = Scene::load(&scene.data, &scene.blobs);
        assert!(!scene.has(&own) && scene.needed().contains(&own), "its bytes stay before that");
        for (kind, digest) in [("_blobs", &more), ("_manifests", &index)] {
            fs::remove_file(scene.file(kind, digest)).unwrap();
        }
        let again = scene.start(&[]);
        assert_eq!((again.blobs, again.manifests, again.lost.len()), (2, 1, 0));
        assert_eq!(scene.repository.tags(None, 9).0, ["v1".parse().unwrap()]);
        fs::remove_file(scene.file("_manifests", &child)).unwrap();
        let again = scene.start(&[]);
        assert_eq!((again.blobs, again.manifests, again.lost.len()), (0, 1, 0));
        for digest in [&own, &more, &child, &index] {
            assert!(scene.has(digest) && scene.needed().contains(digest), "{digest}");
        }
        let held = scene.repository.held();
        assert_eq!(scene.start(&[]).blobs, 0, "it is on the disk");
        assert_eq!(scene.repository.held(), held);

        fs::remove_file(scene.file("_blobs", &own)).unwrap();
        fs::write(scene.blobs.path(&own), b"ow").unwrap();
        let again = scene.start(&[]);
        assert_eq!((again.blobs, again.lost), (0, vec![own]));
    }

    /// The index took it as a blob, which names blobs of others.
    #[test]
    fn an_index_gives_nobody_what_its_manifests_name() {
        let mut scene = Scene::new();
        let foreign = BlobDigest::of(b"foreign");
        scene.blobs.write(b"foreign", &foreign).unwrap();
        let text = super::super::scene::manifest_of(&["foreign"], None);
        let child = scene.upload(&text);
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": [{ "digest": child.to_string(), "size": text.len() }] });
        scene.publish(&index.to_string(), &["v1"]);
        fs::remove_file(scene.file("_blobs", &child)).unwrap();
        for _ in 0..2 {
            let again = scene.start(&[]);
            assert_eq!((again.blobs, again.manifests, again.lost), (0, 0, vec![child.clone()]));
            assert!(!scene.has(&foreign) && !scene.has(&child));
            assert!(scene.needed().contains(&foreign), "it may have been here");
        }
    }

    #[test]
    fn what_was_taken_down_or_deleted_stays_away() {
        let mut scene = Scene::new();
        let manifest = scene.manifest(&["own", "more"], None, &["v1"]);
        let own = BlobDigest::of(b"own");
        fs::remove_file(scene.file("_blobs", &own)).unwrap();
        let again = scene.start(&[&own]);
        assert!(!scene.has(&own) && again.blobs == 0 && again.lost.is_empty());
        // The copy has the mark of a deletion that its manifests do not show yet.
        fs::create_dir_all(scene.file("_deleted", &manifest).parent().unwrap()).unwrap();
        fs::write(scene.file("_deleted", &manifest), "").unwrap();
        let again = scene.start(&[]);
        assert_eq!((again.blobs, again.lost), (0, vec![own.clone()]));
        fs::remove_file(scene.file("_deleted", &manifest)).unwrap();
        assert_eq!(scene.start(&[]).blobs, 1);
        scene.repository.remove(&super::super::Reference::Digest(manifest), &scene.blobs).unwrap();
        scene.repository.unlink_idle(SystemTime::now() + Duration::from_secs(60), 9).unwrap();
        scene.start(&[]);
        assert!(!scene.has(&own));
    }
}
