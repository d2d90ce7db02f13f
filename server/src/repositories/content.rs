//! What a repository holds, in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use super::deleted::Deleted;
use super::folder::{FactKey, Folder, Said};
use super::hidden::Hidden;
use super::links::Links;
use super::manifest::{Child, MANIFEST_LIMIT, Manifest};
use super::name::{RepositoryName, Tag};
use crate::blobs::{BlobDigest, BlobDirectory, BlobNames, is_lasting};

#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) links: Links,
    /// Manifests whose bytes could not be read at the start: what they name is not known.
    pub(super) unreadable: Vec<BlobDigest>,
    /// Something that the repository says could not be read at all.
    pub(super) is_damaged: bool,
    /// What is out of sight, by what was taken down.
    pub(super) hidden: HashMap<BlobDigest, Hidden>,
    /// Something that was taken down could not be read: what it alone named is not out of sight yet.
    pub(super) is_hiding: bool,
    /// What a deletion left behind, with what it names: here until the collector takes it, and no longer counted.
    pub(super) left: HashMap<BlobDigest, Vec<Child>>,
    /// Manifests that were deleted, while something that they named is here.
    pub(super) deleted: HashMap<BlobDigest, Deleted>,
    pub(super) manifests: HashMap<BlobDigest, Arc<Manifest>>,
    /// The sizes of the manifests that count, together.
    pub(super) manifest_bytes: u64,
    /// How many of them are bundles.
    pub(super) bundles: u64,
    pub(super) tags: BTreeMap<Tag, BlobDigest>,
    /// Keys of what could not be read at the start, where another server may have written it: it is read again.
    pub(super) unread: Vec<String>,
    /// What may have been named by a manifest that is not here: nobody is given it, and its bytes stay.
    pub(super) kept: Vec<BlobDigest>,
    /// Tags that a start found to lead to manifests which are not here.
    pub(super) tags_ahead: Vec<(Tag, BlobDigest)>,
    /// Subject to its referrers; the subject need not be here.
    pub(super) referrers: HashMap<BlobDigest, BTreeSet<BlobDigest>>,
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
        let is_damaged = !said.damaged.is_empty();
        let mut content = Content { is_damaged, unread: said.unread, ..Content::default() };
        for fact in said.damaged {
            tracing::error!(repository = %name, fact, "a fact of the repository is damaged and left out: write it again by pushing what it is about; no blob of the repository is collected");
        }
        let orphans: HashSet<&BlobDigest> = said.orphans.iter().map(|(digest, _)| digest).collect();
        let mut named_by_orphans = HashMap::new();
        for (digest, media_type) in said.manifests {
            let parsed = match blobs.read(&digest, MANIFEST_LIMIT as u64) {
                Ok(bytes) => Manifest::parse(&bytes, Some(&media_type)).map_err(|error| error.to_string()),
                Err(error) if is_lasting(&error) => Err(error.to_string()),
                // Nothing is known of the manifest: a start that left it out would hide it until the next one.
                Err(error) => return Err(error),
            };
            match parsed {
                Ok(manifest) => {
                    if orphans.contains(&digest) {
                        named_by_orphans.insert(digest.clone(), manifest.children().cloned().collect());
                    }
                    content.insert_manifest(digest, manifest);
                }
                Err(error) => {
                    tracing::warn!(repository = %name, %digest, error, "the manifest is unreadable and no longer offered; no blob of the repository is collected");
                    content.unread.extend(folder.key_where_shared(name, FactKey::Manifest(digest.clone())));
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
            } else if let Some(key) = folder.key_where_shared(name, FactKey::Tag(tag.clone())) {
                content.unread.push(key);
            } else if !content.unreadable.contains(&digest) {
                content.tags_ahead.push((tag, digest));
            }
        }
        content.leave_all(named_by_orphans);
        content.recall_deleted(said.deleted, blobs)?;
        Ok(content)
    }

    pub(super) fn insert_manifest(&mut self, digest: BlobDigest, mut manifest: Manifest) {
        self.recover(&digest);
        self.deleted.remove(&digest);
        self.unreadable.retain(|unreadable| *unreadable != digest);
        if !self.manifests.contains_key(&digest) {
            self.links.name(manifest.children());
            self.manifest_bytes = self.manifest_bytes.saturating_add(manifest.size);
            self.bundles = self.bundles.saturating_add(u64::from(manifest.is_bundle()));
            let kept = self.orphans_of(&digest, manifest.child_digests());
            kept.iter().for_each(|kept| self.recover(kept));
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
    pub(super) fn orphans_of<'d>(
        &self,
        digest: &BlobDigest,
        children: impl Iterator<Item = &'d BlobDigest>,
    ) -> Vec<BlobDigest> {
        let children = children.filter(|child| self.manifests.contains_key(*child)).cloned();
        children.chain(self.referrers.get(digest).into_iter().flatten().cloned()).collect()
    }

    pub(super) fn has_tag_or_subject(&self, digest: &BlobDigest) -> bool {
        let subject = self.manifests.get(digest).and_then(|manifest| manifest.subject.as_ref());
        subject.is_some_and(|subject| self.manifests.contains_key(subject))
            || self.tags.values().any(|tagged| tagged == digest)
    }

    /// Forgets a manifest, but not what it names; whether it counted.
    pub(super) fn remove_manifest(&mut self, digest: &BlobDigest) -> bool {
        let counted = self.left.remove(digest).is_none();
        let Some(manifest) = self.manifests.remove(digest) else { return false };
        if counted {
            self.manifest_bytes = self.manifest_bytes.saturating_sub(manifest.size);
        }
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
        counted
    }

    /// Whether everything that the repository says is known: else what nothing seems to name may be named all the same.
    pub(super) fn is_whole(&self) -> bool {
        self.unreadable.is_empty() && !self.is_damaged
    }
}
