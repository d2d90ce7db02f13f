//! The repositories in memory, each beside its folder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use super::folder::{self, FOLDER, Folder, Said};
use super::hidden::Hidden;
use super::links::Links;
use super::manifest::{MANIFEST_LIMIT, Manifest, Reference};
use super::name::{RepositoryName, Tag};
use super::prefix::Prefix;
use crate::blobs::{BlobDigest, BlobDirectory, BlobNames, Uploads, is_lasting, unless_lost};
use crate::shared::Facts;

/// Every repository of the data directory.
#[derive(Debug)]
pub(crate) struct Repositories {
    root: PathBuf,
    facts: Option<Arc<Facts>>,
    by_name: RwLock<BTreeMap<RepositoryName, Arc<Repository>>>,
}

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

#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) links: Links,
    /// Manifests whose bytes could not be read at the start: what they name is not known.
    unreadable: Vec<BlobDigest>,
    /// What is out of sight, by what was taken down.
    pub(super) hidden: HashMap<BlobDigest, Hidden>,
    pub(super) manifests: HashMap<BlobDigest, Arc<Manifest>>,
    /// The sizes of the manifests, together.
    manifest_bytes: u64,
    /// How many of them are bundles.
    bundles: u64,
    pub(super) tags: BTreeMap<Tag, BlobDigest>,
    /// Subject to its referrers; the subject need not be here.
    pub(super) referrers: HashMap<BlobDigest, BTreeSet<BlobDigest>>,
}

/// What a repository refers to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Bytes of its manifests, of the blobs that they name, and of those that were uploaded and that none names yet: each once.
    pub(crate) bytes: u64,
    /// Its bundles.
    pub(crate) bundles: u64,
}

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

impl Repositories {
    /// Reads what there is, in the data directory or in the object store. What a folder names and the blob directory lacks is
    /// left out and logged.
    pub(crate) fn load(data: &Path, blobs: &BlobDirectory, facts: Option<Arc<Facts>>) -> io::Result<Self> {
        std::fs::create_dir_all(data.join(FOLDER))?;
        let loaded = Self::read(data, blobs, facts)?;
        for repository in loaded.all() {
            Uploads::sweep(&repository.uploads_folder())?;
            repository.folder.sweep()?;
        }
        Ok(loaded)
    }

    /// [`Self::load`] for those who only look: nothing is changed.
    pub(crate) fn read(data: &Path, blobs: &BlobDirectory, facts: Option<Arc<Facts>>) -> io::Result<Self> {
        let root = data.join(FOLDER);
        let mut by_name = BTreeMap::new();
        let present = blobs.names()?;
        let mut add = |name: RepositoryName, folder: Folder, said: Said| -> io::Result<()> {
            let repository = Repository::load(folder, &name, said, blobs, &present)?;
            by_name.insert(name, Arc::new(repository));
            Ok(())
        };
        match &facts {
            Some(facts) => {
                for (name, said) in folder::said_by_objects(facts)? {
                    let folder = Folder::new(&root, &name, Some(facts));
                    add(name, folder, said)?;
                }
            }
            None if !root.is_dir() => {}
            None => {
                for name in folder::names(&root)? {
                    let folder = Folder::new(&root, &name, None);
                    let said = folder.said()?;
                    add(name, folder, said)?;
                }
            }
        }
        Ok(Self { root, facts, by_name: RwLock::new(by_name) })
    }

    /// Where facts are objects.
    pub(crate) fn facts(&self) -> Option<&Arc<Facts>> {
        self.facts.as_ref()
    }

    /// The repository of a name that something was pushed to.
    pub(crate) fn get(&self, name: &RepositoryName) -> Option<Arc<Repository>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The repository of a name, made in memory when it is new. The folder comes with the first file in it.
    pub(crate) fn get_or_create(&self, name: &RepositoryName) -> Arc<Repository> {
        if let Some(repository) = self.get(name) {
            return repository;
        }
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Repository::new(Folder::new(&self.root, name, self.facts.as_ref())));
        Arc::clone(by_name.entry(name.clone()).or_insert_with(new))
    }

    /// The repositories that have a manifest, in order.
    pub(crate) fn list(&self) -> Vec<(RepositoryName, Arc<Repository>)> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name
            .iter()
            .filter(|(_, repository)| !repository.read().manifests.is_empty())
            .map(|(name, repository)| (name.clone(), Arc::clone(repository)))
            .collect()
    }

    /// What the repositories refer to that a prefix holds: a blob counts once in each of them.
    pub(crate) fn held_below(&self, prefix: &Prefix) -> Held {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let below = by_name.iter().filter(|(name, _)| prefix.holds(name));
        below.fold(Held::default(), |sum, (_, repository)| {
            let held = repository.held();
            Held { bytes: sum.bytes.saturating_add(held.bytes), bundles: sum.bundles.saturating_add(held.bundles) }
        })
    }

    /// Every repository with its name, in order.
    pub(crate) fn named(&self) -> Vec<(RepositoryName, Arc<Repository>)> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.iter().map(|(name, repository)| (name.clone(), Arc::clone(repository))).collect()
    }

    /// Every repository, in order of names.
    pub(crate) fn all(&self) -> Vec<Arc<Repository>> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.values().cloned().collect()
    }

    /// Whether any repository that `may_read` allows offers a blob.
    pub(crate) fn any_has_blob(&self, digest: &BlobDigest, may_read: impl Fn(&RepositoryName) -> bool) -> bool {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.iter().any(|(name, repository)| repository.has_blob(digest) && may_read(name))
    }
}

impl Repository {
    fn new(folder: Folder) -> Self {
        let (content, changes, linking) = Default::default();
        Self { folder, content, changes, linking }
    }

    fn load(
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
            if !content.unreadable.is_empty() {
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

    /// Everything whose bytes this repository needs.
    pub(crate) fn each_offered(&self, mut each: impl FnMut(&BlobDigest)) {
        let content = self.read();
        let hidden = content.hidden.values().flat_map(Hidden::digests);
        content
            .links
            .offered()
            .chain(content.manifests.keys())
            .chain(&content.unreadable)
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

    /// What would come to it with a manifest whose blobs are here: nothing for one that is here.
    pub(crate) fn would_add(&self, digest: &BlobDigest, manifest: &Manifest) -> Held {
        let content = self.read();
        if content.manifests.contains_key(digest) {
            return Held::default();
        }
        let mut seen = BTreeSet::new();
        let new =
            manifest.blobs.iter().filter(|child| !content.links.counts(&child.digest) && seen.insert(&child.digest));
        let bytes = new.fold(manifest.size, |sum, child| sum.saturating_add(child.size));
        Held { bytes, bundles: u64::from(manifest.is_bundle()) }
    }

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
        {
            let mut content = self.write();
            if content.links.is_named(digest) && content.links.has(digest) {
                return Ok(Removal::Named);
            }
            if !content.links.withdraw(digest) {
                return Ok(Removal::Missing);
            }
        }
        if let Err(error) = self.folder.unlink_blobs(std::slice::from_ref(digest)) {
            // It is there again after the next start: so it is there now, and can be deleted once more.
            self.write().links.offer(digest.clone(), None, SystemTime::now());
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
            if !content.unreadable.is_empty() {
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

    /// The first child of a manifest that is not here, or not of the size that the manifest says. Blocks.
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
        for (child, linked) in children {
            let found = if linked { blobs.size(&child.digest)? } else { None };
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
        match reference {
            Reference::Tag(tag) => {
                if !self.read().tags.contains_key(tag) {
                    return Ok(Removal::Missing);
                }
                self.folder.remove_tag(tag)?;
                let Some(digest) = self.write().tags.remove(tag) else { return Ok(Removal::Missing) };
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
                // Before the manifest goes, so that a crash between the two leaves nothing that is never taken.
                let children = manifest.iter().flat_map(|manifest| &manifest.manifests).map(|child| &child.digest);
                let orphans = self.read().orphans_of(digest, children);
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
                self.folder.remove_manifest(digest)?;
                let (idle, was_orphan) = {
                    let mut content = self.write();
                    content.remove_manifest(digest);
                    let was_orphan = content.links.adopt(digest);
                    let idle =
                        manifest.map(|manifest| content.links.forget(manifest.child_digests())).unwrap_or_default();
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

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Content> {
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Content> {
        self.content.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A manifest as it was sent. Bytes that are lost keep what they named until the next start. Blocks.
fn stored_manifest(digest: &BlobDigest, blobs: &BlobDirectory) -> io::Result<Option<Manifest>> {
    let bytes = unless_lost(blobs.read(digest, MANIFEST_LIMIT as u64))?;
    Ok(bytes.and_then(|bytes| Manifest::parse(&bytes, None).ok()))
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

impl Content {
    /// What a folder says, as far as its bytes are here.
    pub(super) fn of(
        folder: &Folder,
        name: &RepositoryName,
        said: Said,
        blobs: &BlobDirectory,
        present: &BlobNames,
    ) -> io::Result<Self> {
        let mut content = Content::default();
        for (digest, media_type) in said.manifests {
            let parsed = match blobs.read(&digest, MANIFEST_LIMIT as u64) {
                Ok(bytes) => Manifest::parse(&bytes, Some(&media_type)).map_err(|error| error.to_string()),
                Err(error) if is_lasting(&error) => Err(error.to_string()),
                // Nothing is known of the manifest: a start that left it out would hide it until the next one.
                Err(error) => return Err(error),
            };
            match parsed {
                Ok(manifest) => content.insert_manifest(digest, manifest),
                Err(error) => {
                    tracing::warn!(repository = %name, %digest, error, "the manifest is unreadable and no longer offered; no blob of the repository is collected");
                    content.unreadable.push(digest);
                }
            }
        }
        for digest in said.blobs {
            if present.has(&digest) {
                // While a manifest names a blob nobody asks when a client was told of it, and when none does any more it is told anew.
                let is_named = content.links.is_named(&digest);
                let told = if is_named { SystemTime::UNIX_EPOCH } else { folder.told_of_blob(&digest)? };
                content.links.offer(digest, None, told);
            } else {
                tracing::warn!(repository = %name, %digest, "the blob is missing and no longer offered");
            }
        }
        for (digest, told) in said.orphans {
            if content.manifests.contains_key(&digest) {
                content.links.orphan(digest, told);
            }
        }
        for (tag, digest) in said.tags {
            if content.manifests.contains_key(&digest) {
                content.tags.insert(tag, digest);
            }
        }
        Ok(content)
    }

    fn insert_manifest(&mut self, digest: BlobDigest, mut manifest: Manifest) {
        if !self.manifests.contains_key(&digest) {
            self.links.name(manifest.children());
            self.manifest_bytes = self.manifest_bytes.saturating_add(manifest.size);
            self.bundles = self.bundles.saturating_add(u64::from(manifest.is_bundle()));
        }
        // Checked already; a large bundle's list of layers need not stay in memory.
        manifest.blobs = Vec::new();
        manifest.manifests = Vec::new();
        if let Some(subject) = &manifest.subject {
            self.referrers.entry(subject.clone()).or_default().insert(digest.clone());
        }
        self.manifests.insert(digest, Arc::new(manifest));
    }

    /// The manifests that came with one: what it names as an index, and its referrers.
    fn orphans_of<'d>(&self, digest: &BlobDigest, children: impl Iterator<Item = &'d BlobDigest>) -> Vec<BlobDigest> {
        let children = children.filter(|child| self.manifests.contains_key(*child)).cloned();
        children.chain(self.referrers.get(digest).into_iter().flatten().cloned()).collect()
    }

    pub(super) fn has_tag_or_subject(&self, digest: &BlobDigest) -> bool {
        let subject = self.manifests.get(digest).and_then(|manifest| manifest.subject.as_ref());
        subject.is_some_and(|subject| self.manifests.contains_key(subject))
            || self.tags.values().any(|tagged| tagged == digest)
    }

    pub(super) fn remove_manifest(&mut self, digest: &BlobDigest) {
        let Some(manifest) = self.manifests.remove(digest) else { return };
        self.manifest_bytes = self.manifest_bytes.saturating_sub(manifest.size);
        self.bundles = self.bundles.saturating_sub(u64::from(manifest.is_bundle()));
        self.tags.retain(|_, to| to != digest);
        if let Some(subject) = &manifest.subject
            && let Some(referrers) = self.referrers.get_mut(subject)
        {
            referrers.remove(digest);
            if referrers.is_empty() {
                self.referrers.remove(subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(digest: &BlobDigest, bytes: &[u8], tags: &[&str]) -> PutManifest {
        PutManifest {
            digest: digest.clone(),
            manifest: Manifest::parse(bytes, None).unwrap(),
            tags: tags.iter().map(|tag| tag.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn everything_visible_is_there_again_after_a_restart() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let name: RepositoryName = "team/app".parse().unwrap();
        let subject = BlobDigest::of(b"subject");
        let bytes = format!(
            r#"{{"schemaVersion":2,"manifests":[],"artifactType":"a/b","subject":{{"digest":"{subject}","size":7}}}}"#
        );
        let digest = BlobDigest::of(bytes.as_bytes());
        {
            let repositories = Repositories::load(data.path(), &blobs, None).unwrap();
            let repository = repositories.get_or_create(&name);
            assert!(repository.is_empty());
            blobs.write(b"subject", &subject).unwrap();
            repository.link_blob(&subject, 7).unwrap();
            blobs.write(bytes.as_bytes(), &digest).unwrap();
            repository.publish(put(&digest, bytes.as_bytes(), &["v1", "v2"])).unwrap();
        }
        let repositories = Repositories::load(data.path(), &blobs, None).unwrap();
        assert_eq!(repositories.list().len(), 1);
        let repository = repositories.get(&name).unwrap();
        assert!(repository.has_blob(&subject));
        assert_eq!(repository.tags(None, 1), (vec!["v1".parse().unwrap()], true));
        assert_eq!(repository.tags(Some("v1"), 9), (vec!["v2".parse().unwrap()], false));
        assert_eq!(repository.manifest(&Reference::Tag("v1".parse().unwrap())).unwrap().0, digest);
        assert_eq!(repository.referrers(&subject).len(), 1);

        let gone = repository.remove(&Reference::Digest(digest.clone()), &blobs).unwrap();
        assert_eq!(gone, Removal::Removed);
        assert!(repository.referrers(&subject).is_empty());
        let repositories = Repositories::load(data.path(), &blobs, None).unwrap();
        assert!(repositories.get(&name).unwrap().manifest(&Reference::Digest(digest)).is_none());
    }

    #[test]
    fn a_blob_that_vanished_from_the_directory_is_not_offered() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let name: RepositoryName = "r".parse().unwrap();
        let digest = BlobDigest::of(b"gone");
        Repositories::load(data.path(), &blobs, None).unwrap().get_or_create(&name).link_blob(&digest, 4).unwrap();
        let repositories = Repositories::load(data.path(), &blobs, None).unwrap();
        assert!(!repositories.get(&name).unwrap().has_blob(&digest));
    }

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
}
