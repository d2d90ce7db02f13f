//! What changes a repository here: the folder first, and memory after it.

use std::collections::HashMap;
use std::io;
use std::sync::PoisonError;
use std::time::SystemTime;

use super::content::Content;
use super::deleted::Deleted;
use super::manifest::{Child, MANIFEST_LIMIT, Manifest, Reference};
use super::name::Tag;
use super::repository::Repository;
use crate::blobs::{BlobDigest, BlobDirectory, unless_lost};
use crate::objects::{Failure, Why};

/// A manifest on its way in: checked, not visible yet.
#[derive(Debug)]
pub(crate) struct PutManifest {
    /// Its digest, in the algorithm that the client named.
    pub(crate) digest: BlobDigest,
    /// What was read in it.
    pub(crate) manifest: Manifest,
    /// Tags to set to it.
    pub(crate) tags: Vec<Tag>,
}

/// What became of something that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is gone.
    Removed,
    /// It was not here.
    Missing,
    /// It stays: a manifest of the repository names it.
    Named,
    /// It stays: an operator pinned it.
    Pinned,
}

/// A child that a manifest names and the repository lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingChild {
    /// Its digest.
    pub(crate) digest: BlobDigest,
    /// Bytes that the manifest says.
    pub(crate) expected: u64,
    /// Bytes that are here; `None` when it is not.
    pub(crate) found: Option<u64>,
}

impl Repository {
    /// Makes a stored blob visible here; `size`: its bytes. Blocks.
    pub(crate) fn link_blob(&self, digest: &BlobDigest, size: u64) -> io::Result<()> {
        if self.tell_of_blob(digest)? {
            return Ok(());
        }
        let _linking = self.linking.read().unwrap_or_else(PoisonError::into_inner);
        self.folder.link_blob(digest)?;
        self.write().links.offer(digest.clone(), Some(size), SystemTime::now());
        Ok(())
    }

    /// Takes a blob out of this repository, unless a manifest names it. The bytes stay for the collector. Call it with
    /// [`Self::lock_changes`]. Blocks.
    pub(crate) fn unlink_blob(&self, digest: &BlobDigest) -> io::Result<Removal> {
        let _linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        let size = {
            let mut content = self.write();
            if content.links.is_named(digest) && content.links.has(digest) {
                return Ok(Removal::Named);
            }
            let Some(size) = content.links.withdraw(digest) else { return Ok(Removal::Missing) };
            size
        };
        if let Err(error) = self.folder.unlink_blobs(std::slice::from_ref(digest)) {
            // It is there again after the next start: so it is there now, and can be deleted once more.
            self.write().links.offer(digest.clone(), size, SystemTime::now());
            return Err(error);
        }
        Ok(Removal::Removed)
    }

    /// Takes out at most `limit` blobs that no manifest names and no client was told of since `before`; how many. Call
    /// it with [`Self::lock_changes`]. Blocks.
    pub(crate) fn unlink_idle(&self, before: SystemTime, limit: usize) -> io::Result<usize> {
        if self.read().links.idle(before, 1).is_empty() {
            return Ok(0);
        }
        let _linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        let idle = {
            let mut content = self.write();
            if !content.is_whole() {
                return Ok(0);
            }
            let idle = content.links.idle(before, limit);
            for digest in &idle {
                content.links.withdraw(digest);
            }
            idle
        };
        self.folder.unlink_blobs(&idle)?;
        Ok(idle.len())
    }

    /// The first child of a manifest that is not kept for good, or not of the size that the manifest says. Blocks.
    pub(crate) fn missing_child(&self, manifest: &Manifest, blobs: &BlobDirectory) -> io::Result<Option<MissingChild>> {
        // The sizes may be an object store's to say: nobody else waits for it.
        let children: Vec<_> = {
            let content = self.read();
            let linked_blobs = manifest.blobs.iter().map(|child| (child, content.links.has(&child.digest)));
            let linked_manifests = manifest.manifests.iter().map(|child| {
                (child, content.manifests.contains_key(&child.digest) || content.links.has(&child.digest))
            });
            linked_blobs.chain(linked_manifests).collect()
        };
        let linked: Vec<_> = children.iter().filter(|(_, linked)| *linked).map(|(child, _)| &child.digest).collect();
        let mut sizes = blobs.stored_sizes(&linked)?.into_iter();
        for (child, linked) in children {
            let found = if linked { sizes.next().flatten() } else { None };
            if found != Some(child.size) {
                return Ok(Some(MissingChild { digest: child.digest.clone(), expected: child.size, found }));
            }
        }
        Ok(None)
    }

    /// Makes a checked and stored manifest, and its tags, visible. Blocks.
    pub(crate) fn publish(&self, put: PutManifest) -> io::Result<()> {
        self.folder.put_manifest(&put.digest, &put.manifest.media_type)?;
        if self.write().links.adopt(&put.digest) {
            self.folder.unmark_orphan(&put.digest)?;
        }
        if self.write().deleted.remove(&put.digest).is_some() {
            self.folder.unmark_deleted(&put.digest)?;
        }
        self.write().insert_manifest(put.digest.clone(), put.manifest);
        for tag in put.tags {
            self.folder.put_tag(&tag, &put.digest)?;
            self.write().tags.insert(tag, put.digest.clone());
        }
        Ok(())
    }

    /// Removes a tag, or a manifest with its tags, unless another manifest names it. Call it with
    /// [`Self::lock_changes`]. Blocks.
    pub(crate) fn remove(&self, reference: &Reference, blobs: &BlobDirectory) -> io::Result<Removal> {
        self.remove_unless(|_| Ok(false), reference, blobs)
    }

    /// [`Self::remove`], but for a manifest that `is_pinned`, its last tag, and what refers to it, such as its seal: whoever pins it before it is gone wins.
    pub(crate) fn remove_unless(
        &self,
        is_pinned: impl Fn(&BlobDigest) -> io::Result<bool>,
        reference: &Reference,
        blobs: &BlobDirectory,
    ) -> io::Result<Removal> {
        match reference {
            Reference::Tag(tag) => {
                let Some(digest) = self.read().tags.get(tag).cloned() else { return Ok(Removal::Missing) };
                let is_last = self.read().tags.values().filter(|to| **to == digest).count() == 1;
                if is_last && is_pinned(&digest)? {
                    return Ok(Removal::Pinned);
                }
                let named = self.named_by_orphans(std::iter::once(digest.clone()), blobs)?;
                self.folder.remove_tag(tag)?;
                {
                    let mut content = self.write();
                    content.tags.remove(tag);
                    content.leave_all(named);
                }
                self.tell_of_manifest(&digest)?;
                Ok(Removal::Removed)
            }
            Reference::Digest(digest) => {
                {
                    let content = self.read();
                    if !content.manifests.contains_key(digest) {
                        return Ok(Removal::Missing);
                    }
                    if content.links.is_named(digest) {
                        return Ok(Removal::Named);
                    }
                }
                // What it named is no longer in memory.
                let manifest = stored_manifest(digest, blobs)?;
                let now = SystemTime::now();
                // Asked last, as all before it takes its time.
                let subject = manifest.as_ref().and_then(|manifest| manifest.subject.as_ref());
                for digest in [digest].into_iter().chain(subject) {
                    if is_pinned(digest)? {
                        return Ok(Removal::Pinned);
                    }
                }
                // Before the manifest goes, so that a crash between the two leaves nothing that is never taken.
                let orphans = self.orphans_of(digest, manifest.as_ref());
                let named = self.named_by(orphans.iter().cloned(), blobs)?;
                for orphan in orphans {
                    self.folder.mark_orphan(&orphan, now)?;
                    self.write().links.orphan(orphan, now);
                }
                let tags: Vec<Tag> = {
                    let content = self.read();
                    content.tags.iter().filter(|(_, to)| *to == digest).map(|(tag, _)| tag.clone()).collect()
                };
                for tag in &tags {
                    self.folder.remove_tag(tag)?;
                }
                let deleted = manifest.as_ref().and_then(Deleted::of);
                if deleted.is_some() {
                    self.folder.mark_deleted(digest)?;
                }
                self.folder.remove_manifest(digest)?;
                // And once more, as an operator takes no lock of this server.
                match is_pinned(digest) {
                    Ok(false) => {}
                    pinned => {
                        self.put_back(digest, &tags)?;
                        return pinned.map(|_| Removal::Pinned);
                    }
                }
                let (idle, was_orphan) = {
                    let mut content = self.write();
                    let counted = content.remove_manifest(digest);
                    content.remember_deleted(digest.clone(), deleted);
                    let was_orphan = content.links.adopt(digest);
                    let forgotten = manifest.map(|manifest| content.links.forget(manifest.child_digests(), counted));
                    let idle = forgotten.unwrap_or_default();
                    content.leave_all(named);
                    // Whoever was told of them while the manifest kept them has the grace period from now on.
                    let linked = idle.into_iter().filter(|digest| content.links.tell(digest).is_some());
                    (linked.collect::<Vec<_>>(), was_orphan)
                };
                if was_orphan {
                    self.folder.unmark_orphan(digest)?;
                }
                idle.iter().try_for_each(|digest| self.folder.tell_of_blob(digest, now))?;
                Ok(Removal::Removed)
            }
        }
    }

    /// Writes a manifest again that memory still has.
    fn put_back(&self, digest: &BlobDigest, tags: &[Tag]) -> io::Result<()> {
        let media_type = self.read().manifests.get(digest).map(|manifest| manifest.media_type.clone());
        self.folder.put_manifest(digest, &media_type.unwrap_or_default())?;
        self.folder.unmark_deleted(digest)?;
        tags.iter().try_for_each(|tag| self.folder.put_tag(tag, digest))
    }

    /// Removes the manifests whose index or subject was deleted, that nothing else names, by tag or digest, and that no
    /// client was told of since `before`, but for those that `keep` says; how many. Call it with [`Self::lock_changes`].
    /// Blocks.
    pub(crate) fn remove_orphans(
        &self,
        before: SystemTime,
        blobs: &BlobDirectory,
        keep: impl Fn(&Manifest) -> bool,
    ) -> io::Result<usize> {
        let is_garbage = |content: &Content, digest: &BlobDigest| {
            let manifest = content.manifests.get(digest);
            !content.has_tag_or_subject(digest) && manifest.is_some_and(|manifest| !keep(manifest))
        };
        let idle = {
            let content = self.read();
            if !content.is_whole() {
                return Ok(0);
            }
            let mut idle = content.links.idle_orphans(before);
            idle.retain(|digest| is_garbage(&content, digest));
            idle
        };
        let mut removed = 0;
        for digest in &idle {
            // A client may have been told of it since.
            let _linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
            let is_idle = {
                let content = self.read();
                content.links.is_idle_orphan(digest, before) && is_garbage(&content, digest)
            };
            if is_idle {
                self.remove(&Reference::Digest(digest.clone()), blobs)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

impl Repository {
    /// The manifests that came with one.
    pub(super) fn orphans_of(&self, digest: &BlobDigest, manifest: Option<&Manifest>) -> Vec<BlobDigest> {
        let children = manifest.into_iter().flat_map(|manifest| &manifest.manifests).map(|child| &child.digest);
        self.read().orphans_of(digest, children)
    }

    /// What manifests name that may be left behind and still count. Blocks.
    ///
    /// # Errors
    /// One of them cannot be read now.
    pub(super) fn named_by(
        &self,
        digests: impl Iterator<Item = BlobDigest>,
        blobs: &BlobDirectory,
    ) -> io::Result<HashMap<BlobDigest, Vec<Child>>> {
        let mut named = HashMap::new();
        for digest in digests {
            let may_be_left = {
                let content = self.read();
                let manifest = content.manifests.get(&digest);
                let stays = |manifest: &Manifest| manifest.is_bundle() || manifest.is_loose();
                !content.left.contains_key(&digest) && manifest.is_some_and(|manifest| !stays(manifest))
            };
            if may_be_left && let Some(manifest) = stored_manifest(&digest, blobs)? {
                named.insert(digest, manifest.children().cloned().collect());
            }
        }
        Ok(named)
    }

    /// [`Self::named_by`] of those that are orphans already.
    pub(super) fn named_by_orphans(
        &self,
        digests: impl Iterator<Item = BlobDigest>,
        blobs: &BlobDirectory,
    ) -> io::Result<HashMap<BlobDigest, Vec<Child>>> {
        let orphans: Vec<BlobDigest> = {
            let content = self.read();
            digests.filter(|digest| content.links.is_orphan(digest)).collect()
        };
        self.named_by(orphans.into_iter(), blobs)
    }
}

/// A manifest as it was sent. Bytes that are lost keep what they named until the next start. Blocks.
pub(super) fn stored_manifest(digest: &BlobDigest, blobs: &BlobDirectory) -> io::Result<Option<Manifest>> {
    let bytes = match blobs.read(digest, MANIFEST_LIMIT as u64) {
        // Withheld is not lost: whoever hides or deletes it has to know what it names.
        Err(error) if Failure::why(&error) == Some(Why::OneObject) => return Err(error),
        read => unless_lost(read)?,
    };
    Ok(bytes.and_then(|bytes| Manifest::parse(&bytes, None).ok()))
}

#[cfg(test)]
mod tests {
    use super::super::registry::Repositories;
    use super::*;

    #[test]
    fn a_child_that_is_missing_or_of_another_size_is_named() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let repository = Repositories::load(data.path(), &blobs, None).unwrap().get_or_create(&"r".parse().unwrap());
        let config = BlobDigest::of(b"{}");
        let of_size = |size: u64| {
            let text = format!(r#"{{"schemaVersion":2,"config":{{"digest":"{config}","size":{size}}}}}"#);
            Manifest::parse(text.as_bytes(), None).unwrap()
        };
        blobs.write(b"{}", &config).unwrap();
        let missing = repository.missing_child(&of_size(2), &blobs).unwrap().unwrap();
        assert_eq!((missing.digest, missing.found), (config.clone(), None));
        repository.link_blob(&config, 2).unwrap();
        assert_eq!(repository.missing_child(&of_size(2), &blobs).unwrap(), None);
        assert_eq!(repository.missing_child(&of_size(3), &blobs).unwrap().unwrap().found, Some(2));
    }

    #[test]
    fn the_last_tag_and_the_seal_of_what_is_pinned_stay_as_well() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let repository = Repositories::load(data.path(), &blobs, None).unwrap().get_or_create(&"r".parse().unwrap());
        let publish = |text: &str, tags: &[&str]| {
            let digest = BlobDigest::of(text.as_bytes());
            blobs.write(text.as_bytes(), &digest).unwrap();
            let manifest = Manifest::parse(text.as_bytes(), None).unwrap();
            let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
            repository.publish(PutManifest { digest: digest.clone(), manifest, tags }).unwrap();
            digest
        };
        let bundle = publish(r#"{"schemaVersion":2,"layers":[]}"#, &["v1", "latest"]);
        let size = blobs.stored_size(&bundle).unwrap().unwrap();
        let subject = format!(
            r#"{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{bundle}","size":{size}}}"#
        );
        let seal = publish(&format!(r#"{{"schemaVersion":2,"layers":[],"subject":{subject}}}"#), &[]);
        let is_pinned = |digest: &BlobDigest| Ok(*digest == bundle);
        let remove = |reference: &Reference| repository.remove_unless(is_pinned, reference, &blobs).unwrap();
        let tag = |tag: &str| Reference::Tag(tag.parse().unwrap());
        assert_eq!(remove(&tag("latest")), Removal::Removed, "another one leads there");
        assert_eq!(remove(&tag("v1")), Removal::Pinned);
        assert_eq!(remove(&Reference::Digest(seal.clone())), Removal::Pinned);
        assert_eq!(repository.remove(&Reference::Digest(seal), &blobs).unwrap(), Removal::Removed);
        assert_eq!(repository.remove(&tag("v1"), &blobs).unwrap(), Removal::Removed);
    }

    #[test]
    fn a_pin_that_is_set_while_a_manifest_goes_wins() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let load = || Repositories::load(data.path(), &blobs, None).unwrap().get_or_create(&"r".parse().unwrap());
        let repository = load();
        let text = br#"{"schemaVersion":2,"layers":[]}"#;
        let digest = BlobDigest::of(text);
        blobs.write(text, &digest).unwrap();
        let manifest = Manifest::parse(text, None).unwrap();
        let put = PutManifest { digest: digest.clone(), manifest, tags: vec!["v1".parse().unwrap()] };
        repository.publish(put).unwrap();
        let (wanted, tag) = (Reference::Digest(digest.clone()), Reference::Tag("v1".parse().unwrap()));
        // At the first look, at the second, and one that cannot be told.
        for pinned_from in [0, 1] {
            let looks = std::cell::Cell::new(0);
            let is_pinned = |_: &BlobDigest| Ok(looks.replace(looks.get() + 1) >= pinned_from);
            assert_eq!(repository.remove_unless(is_pinned, &wanted, &blobs).unwrap(), Removal::Pinned);
            assert!([&repository, &load()].iter().all(|repository| repository.manifest(&tag).is_some()));
        }
        let looks = std::cell::Cell::new(0);
        let fails = |_: &BlobDigest| match looks.replace(1) {
            0 => Ok(false),
            _ => Err(io::ErrorKind::HostUnreachable.into()),
        };
        repository.remove_unless(fails, &wanted, &blobs).unwrap_err();
        assert!([&repository, &load()].iter().all(|repository| repository.manifest(&tag).is_some()));
        assert_eq!(repository.remove_unless(|_| Ok(false), &wanted, &blobs).unwrap(), Removal::Removed);
        assert!([&repository, &load()].iter().all(|repository| repository.manifest(&wanted).is_none()));
    }
}
