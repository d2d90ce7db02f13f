//! What a repository does not show because something was taken down: what it says on disk stays, until the bytes go.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::DerefMut;
use std::sync::{Arc, PoisonError, RwLock};

use super::changes::stored_manifest;
use super::content::Content;
use super::manifest::{Manifest, Reference};
use super::name::{RepositoryName, Tag};
use super::repository::Repository;
use crate::blobs::{BlobDigest, BlobDirectory};

/// Subjects of subjects that are looked at.
const SUBJECTS: usize = 64;

/// Blobs that cease to be offered without another look at whether they may.
const LINKS_AT_ONCE: usize = 64;

/// What went out of sight with one thing that was taken down.
#[derive(Debug, Clone, Default)]
pub(super) struct Hidden {
    manifests: BTreeMap<BlobDigest, Arc<Manifest>>,
    /// Those of them that were not read yet, and whether they counted: what they alone name is in sight still.
    unread: BTreeMap<BlobDigest, bool>,
    /// With the bytes for which they counted.
    blobs: BTreeMap<BlobDigest, Option<u64>>,
    tags: BTreeSet<Tag>,
    /// Manifests that had been deleted.
    deleted: BTreeSet<BlobDigest>,
}

/// How far something is out of sight.
#[derive(Debug, Default)]
#[must_use = "what could not be hidden must be tried again"]
pub(crate) struct Hiding {
    /// The manifests that went, now or before.
    pub(crate) gone: Vec<(BlobDigest, Arc<Manifest>)>,
    /// Why what some of them alone named is in sight still. Until that is tried again with success the repository gives nothing away
    /// ([`Repository::is_hiding`]).
    pub(crate) problem: Option<io::Error>,
}

impl Hidden {
    /// Whether something is out of sight with it.
    pub(super) fn has(&self, digest: &BlobDigest) -> bool {
        self.manifests.contains_key(digest) || self.blobs.contains_key(digest) || self.deleted.contains(digest)
    }

    /// Everything whose bytes are kept for as long as this may be undone.
    pub(super) fn digests(&self) -> impl Iterator<Item = &BlobDigest> {
        self.manifests.keys().chain(self.blobs.keys()).chain(&self.deleted)
    }
}

impl Repository {
    /// Takes a manifest or blob out of sight, and with a manifest its referrers, theirs, and what they alone named. What other
    /// manifests name, or tags, stays. So it is with one that was deleted, for as long as anything of it is here. Done again it goes on where it
    /// broke off. Call it with [`Self::lock_changes`]. Blocks.
    pub(crate) fn hide(&self, digest: &BlobDigest, blobs: &BlobDirectory) -> Hiding {
        let _linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        hide(|| self.write(), digest, blobs)
    }

    /// [`Self::hide`] for a repository that was just read.
    ///
    /// # Errors
    /// Something cannot be read now, so that it is not known what must be hidden.
    pub(crate) fn hide_all<'d>(
        &self,
        digests: impl IntoIterator<Item = &'d BlobDigest>,
        blobs: &BlobDirectory,
    ) -> io::Result<()> {
        digests.into_iter().try_for_each(|digest| self.hide(digest, blobs).problem.map_or(Ok(()), Err))
    }

    /// Whether something of this digest is out of sight here.
    pub(crate) fn hides(&self, digest: &BlobDigest) -> bool {
        self.read().hidden.contains_key(digest)
    }

    /// Whether this repository had it before it was taken down, by itself or with what it belongs to.
    pub(crate) fn had(&self, digest: &BlobDigest) -> bool {
        let content = self.read();
        content.hidden.contains_key(digest) || content.hidden.values().any(|hidden| hidden.has(digest))
    }

    /// What was taken down, that a reference leads to nothing.
    pub(crate) fn hidden_behind(&self, reference: &Reference) -> Option<BlobDigest> {
        let content = self.read();
        let goes_with = |hidden: &Hidden| match reference {
            Reference::Tag(tag) => !content.tags.contains_key(tag) && hidden.tags.contains(tag),
            Reference::Digest(digest) => hidden.manifests.contains_key(digest),
        };
        content.hidden.iter().find(|(_, hidden)| goes_with(hidden)).map(|(cause, _)| cause.clone())
    }

    /// Whether anything is out of sight here.
    pub(crate) fn hides_any(&self) -> bool {
        !self.read().hidden.is_empty()
    }

    /// Whether something that was taken down could not be hidden whole: nobody knows which of the others belong to it.
    pub(crate) fn is_hiding(&self) -> bool {
        self.read().is_hiding
    }

    /// Whether a blob may be fetched here, and taken to another repository.
    pub(crate) fn gives_blob(&self, digest: &BlobDigest) -> bool {
        let content = self.read();
        content.links.has(digest) && !content.is_hiding
    }

    /// What was taken down that a manifest refers to as its subject, be it through others.
    pub(crate) fn hidden_subject(
        &self,
        manifest: &Manifest,
        is_taken_down: impl Fn(&BlobDigest) -> bool,
    ) -> Option<BlobDigest> {
        self.read().hidden_subject(manifest.subject.as_ref(), is_taken_down)
    }

    /// Forgets for good what went out of sight with those that are old: bytes that nothing else names may be collected; how many of them there
    /// were. Call it with [`Self::lock_changes`]. Blocks.
    pub(crate) fn bury(&self, old: &BTreeSet<BlobDigest>) -> io::Result<usize> {
        self.bury_while(old, || Ok(()))
    }

    /// [`Self::bury`], where something `may_go` on before each removal.
    pub(crate) fn bury_while(
        &self,
        old: &BTreeSet<BlobDigest>,
        mut may_go: impl FnMut() -> io::Result<()>,
    ) -> io::Result<usize> {
        let buried: Vec<BlobDigest> = {
            let content = self.read();
            // Of one that is not hidden whole it is not known what goes with it.
            let whole =
                content.hidden.iter().filter(|(digest, hidden)| hidden.unread.is_empty() && old.contains(*digest));
            whole.map(|(digest, _)| digest.clone()).collect()
        };
        if buried.is_empty() {
            return Ok(0);
        }
        let _linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        buried.iter().try_for_each(|digest| self.bury_one(digest, &mut may_go))?;
        Ok(buried.len())
    }

    fn bury_one(&self, digest: &BlobDigest, may_go: &mut impl FnMut() -> io::Result<()>) -> io::Result<()> {
        let (blobs, manifests, deleted, tags) = {
            let content = self.read();
            let Some(hidden) = content.hidden.get(digest) else { return Ok(()) };
            // What was pushed again since is not hidden any more.
            let blobs: Vec<_> = hidden.blobs.keys().filter(|blob| !content.links.has(blob)).cloned().collect();
            let manifests: Vec<_> =
                hidden.manifests.keys().filter(|it| !content.manifests.contains_key(*it)).cloned().collect();
            let tags: Vec<_> = hidden.tags.iter().filter(|tag| !content.tags.contains_key(*tag)).cloned().collect();
            let deleted: Vec<_> =
                hidden.deleted.iter().filter(|it| !content.deleted.contains_key(*it)).cloned().collect();
            (blobs, manifests, deleted, tags)
        };
        for tag in &tags {
            may_go()?;
            // Another server may have set it a moment ago.
            if self.folder.tag(tag)?.is_none_or(|digest| manifests.contains(&digest)) {
                self.folder.remove_tag(tag)?;
            }
        }
        // What was taken down goes last: after a crash before that the rest is found by it again.
        let (own, others): (Vec<_>, Vec<_>) = manifests.iter().partition(|manifest| *manifest == digest);
        let remove = |manifest: &BlobDigest, may_go: &mut dyn FnMut() -> io::Result<()>| {
            may_go()?;
            self.folder.unmark_orphan(manifest)?;
            self.folder.remove_manifest(manifest)
        };
        others.into_iter().try_for_each(|manifest| remove(manifest, may_go))?;
        for blobs in blobs.chunks(LINKS_AT_ONCE) {
            may_go()?;
            self.folder.unlink_blobs(blobs)?;
        }
        own.into_iter().try_for_each(|manifest| remove(manifest, may_go))?;
        let (own, others): (Vec<_>, Vec<_>) = deleted.iter().partition(|deleted| *deleted == digest);
        for deleted in others.into_iter().chain(own) {
            may_go()?;
            self.folder.unmark_deleted(deleted)?;
        }
        self.write().hidden.remove(digest);
        Ok(())
    }

    /// Shows again what the folder says, but for what is still taken down. Call it with [`Self::lock_changes`]. Blocks.
    ///
    /// # Errors
    /// Something cannot be read now: nothing has changed.
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
        content.count_again(self.read().uploaded());
        let content = RwLock::new(content);
        for digest in taken_down {
            let hiding = hide(|| content.write().unwrap_or_else(PoisonError::into_inner), digest, blobs);
            hiding.problem.map_or(Ok(()), Err)?;
        }
        *self.write() = content.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(())
    }
}

impl Content {
    /// What was taken down that a subject leads to.
    pub(super) fn hidden_subject(
        &self,
        subject: Option<&BlobDigest>,
        is_taken_down: impl Fn(&BlobDigest) -> bool,
    ) -> Option<BlobDigest> {
        let mut next = subject?.clone();
        for _ in 0..SUBJECTS {
            if is_taken_down(&next) {
                return Some(next);
            }
            let Some(manifest) = self.manifests.get(&next) else {
                let cause = self.hidden.iter().find(|(_, hidden)| hidden.manifests.contains_key(&next));
                return cause.map(|(cause, _)| cause.clone());
            };
            next = manifest.subject.clone()?;
        }
        None
    }

    /// Takes these out of sight, with the referrers of all that is hidden for the same cause: all that needs no reading.
    pub(super) fn withdraw(&mut self, cause: &BlobDigest, digests: Vec<BlobDigest>) {
        let mut hidden = self.hidden.remove(cause).unwrap_or_default();
        let mut open = digests;
        let unseen = hidden.manifests.keys().chain([cause]).filter(|digest| !self.manifests.contains_key(*digest));
        open.extend(unseen.flat_map(|digest| self.referrers.get(digest).into_iter().flatten().cloned()));
        while let Some(next) = open.pop() {
            if let Some(size) = self.links.withdraw(&next) {
                hidden.blobs.insert(next.clone(), size);
            }
            if next == *cause || self.manifests.contains_key(&next) || self.deleted.contains_key(&next) {
                open.extend(self.deleted_referrers(&next).cloned());
            }
            if let Some(left) = self.forget_deletion(&next) {
                open.extend(left);
                hidden.deleted.insert(next.clone());
            }
            let Some(manifest) = self.manifests.get(&next).cloned() else { continue };
            open.extend(self.referrers.get(&next).into_iter().flatten().cloned());
            hidden.tags.extend(self.tags.iter().filter(|(_, to)| **to == next).map(|(tag, _)| tag.clone()));
            let counted = self.remove_manifest(&next);
            self.links.adopt(&next);
            hidden.unread.insert(next.clone(), counted);
            hidden.manifests.insert(next, manifest);
        }
        if hidden.digests().next().is_some() {
            self.hidden.insert(cause.clone(), hidden);
        }
    }

    /// Whether something would go with a digest.
    fn concerns(&self, digest: &BlobDigest) -> bool {
        self.manifests.contains_key(digest)
            || self.links.has(digest)
            || self.hidden.contains_key(digest)
            || self.referrers.contains_key(digest)
            || self.deleted.contains_key(digest)
            || self.deleted_referrers(digest).next().is_some()
    }

    /// What was uploaded and no manifest names, in sight or not, with the bytes for which it counts.
    fn uploaded(&self) -> HashMap<BlobDigest, u64> {
        let hidden = self.hidden.values().flat_map(|hidden| &hidden.blobs);
        let hidden = hidden.filter_map(|(digest, size)| Some((digest.clone(), (*size)?)));
        hidden.chain(self.links.uploaded().map(|(digest, size)| (digest.clone(), size))).collect()
    }

    /// Counts what was [uploaded](Self::uploaded), as far as it is offered.
    fn count_again(&mut self, uploaded: HashMap<BlobDigest, u64>) {
        for (digest, size) in uploaded {
            if self.links.has(&digest) && !self.links.is_named(&digest) {
                self.links.offer(digest, Some(size), std::time::SystemTime::UNIX_EPOCH);
            }
        }
    }
}

fn hide<G: DerefMut<Target = Content>>(content: impl Fn() -> G, cause: &BlobDigest, blobs: &BlobDirectory) -> Hiding {
    if !content().concerns(cause) {
        return Hiding::default();
    }
    content().withdraw(cause, vec![cause.clone()]);
    let (mut problem, mut tried) = (None, HashSet::new());
    loop {
        let unread = content().hidden.get(cause).and_then(|hidden| {
            let mut unread = hidden.unread.iter().filter(|(digest, _)| !tried.contains(*digest));
            unread.next().map(|(digest, counted)| (digest.clone(), *counted))
        });
        let Some((digest, counted)) = unread else { break };
        tried.insert(digest.clone());
        // What it named is no longer in memory. Nobody waits for the reading who asks for something else.
        let named = match stored_manifest(&digest, blobs) {
            Ok(Some(manifest)) => manifest.child_digests().cloned().collect(),
            Ok(None) => {
                tracing::error!(%digest, "a manifest that is taken down is lost: what it alone named stays in sight, take that down by its own digests");
                Vec::new()
            }
            Err(error) => {
                problem.get_or_insert(error);
                continue;
            }
        };
        let mut content = content();
        let alone = content.links.forget(named.iter(), counted);
        let alone = alone.into_iter().filter(|child| !content.has_tag_or_subject(child)).collect();
        if let Some(hidden) = content.hidden.get_mut(cause) {
            hidden.unread.remove(&digest);
        }
        content.withdraw(cause, alone);
    }
    let mut content = content();
    content.is_hiding = content.hidden.values().any(|hidden| !hidden.unread.is_empty());
    let manifests = content.hidden.get(cause).map(|hidden| hidden.manifests.clone()).unwrap_or_default();
    Hiding { gone: manifests.into_iter().collect(), problem }
}

#[cfg(test)]
mod tests {
    use super::super::folder::Folder;
    use super::super::scene::Scene;
    use super::*;

    impl Scene {
        fn referrer(&self, subject: &BlobDigest, text: &str) -> (BlobDigest, Manifest) {
            let text = format!(
                r#"{{"schemaVersion":2,"layers":[],"artifactType":"{text}","subject":{{"digest":"{subject}","size":1}}}}"#
            );
            let digest = BlobDigest::of(text.as_bytes());
            self.blobs.write(text.as_bytes(), &digest).unwrap();
            (digest, Manifest::parse(text.as_bytes(), None).unwrap())
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
        let first = scene.manifest(&["own", "shared"], None, &[]);
        let second = scene.manifest(&["shared", "kept"], None, &["v2"]);
        let both = scene.index(&[&first, &second], &["all"]);
        let before = scene.repository.held();
        assert_eq!(scene.hide(&both), 2);
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

        scene.hide(&both);
        assert_eq!(scene.said(), (3, 3, 2));
        // One of its blobs was pushed again meanwhile.
        scene.repository.link_blob(&own, 3).unwrap();
        let old = BTreeSet::from([both.clone(), first.clone()]);
        assert_eq!([scene.repository.bury(&old).unwrap(), scene.repository.bury(&old).unwrap()], [1, 0]);
        assert_eq!(scene.said(), (1, 3, 1));
        assert!(scene.has(&own) && !scene.has(&first));
    }

    #[test]
    fn a_blob_is_hidden_from_manifests_that_stay_and_overlaps_are_hidden_still() {
        let scene = Scene::new();
        let own = BlobDigest::of(b"own");
        let manifest = scene.manifest(&["own"], None, &["v1"]);
        assert_eq!(scene.hide(&own), 0);
        assert!(!scene.has(&own) && scene.has(&manifest));
        scene.hide(&manifest);
        scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, std::slice::from_ref(&own)).unwrap();
        assert!(!scene.has(&own) && scene.has(&manifest));
        scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, &[]).unwrap();
        assert!(scene.has(&own));
        // What is nowhere is no record.
        let nowhere = BlobDigest::of(b"nowhere");
        scene.hide(&nowhere);
        assert!(!scene.repository.hides(&nowhere));
    }

    #[test]
    fn what_cannot_be_read_is_hidden_all_the_same_and_read_the_next_time() {
        let scene = Scene::new();
        let (own, other) = (BlobDigest::of(b"own"), BlobDigest::of(b"other"));
        let manifest = scene.manifest(&["own"], None, &["v1"]);
        scene.manifest(&["other"], None, &["v2"]);
        // No folder any more, so that nothing in it can be told.
        let shard = scene.blobs.path(&manifest).parent().unwrap().to_owned();
        let aside = scene.data.path().join("aside");
        std::fs::rename(&shard, &aside).unwrap();
        std::fs::write(&shard, "").unwrap();
        for _ in 0..2 {
            let Hiding { gone, problem } = scene.repository.hide(&manifest, &scene.blobs);
            assert!(gone.len() == 1 && problem.is_some());
            // Nobody knows yet that the one blob goes with it, and the other does not.
            assert!(scene.repository.is_hiding() && !scene.has(&manifest));
            assert!(![&own, &other].iter().any(|blob| scene.repository.gives_blob(blob)));
            assert_eq!(scene.repository.bury(&BTreeSet::from([manifest.clone()])).unwrap(), 0);
        }
        assert!(scene.repository.hide_all([&manifest], &scene.blobs).is_err());
        std::fs::remove_file(&shard).unwrap();
        std::fs::rename(&aside, &shard).unwrap();
        assert_eq!(scene.hide(&manifest), 1);
        assert!(!scene.has(&own) && scene.repository.gives_blob(&other));
        scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, &[]).unwrap();
        assert!(scene.has(&own) && scene.has(&manifest));
    }

    #[test]
    fn what_refers_to_what_is_taken_down_is_not_learned_from_other_servers() {
        let scene = Scene::new();
        let subject = scene.manifest(&["own"], None, &[]);
        let (seal, sealed) = scene.referrer(&subject, "a/seal");
        let (note, noted) = scene.referrer(&seal, "a/note");
        scene.hide(&subject);
        let is_taken_down = |digest: &BlobDigest| *digest == subject;
        for (digest, manifest) in [(&seal, &sealed), (&note, &noted)] {
            assert_eq!(scene.repository.hidden_subject(manifest, is_taken_down), Some(subject.clone()));
            let cause = scene.repository.learn_manifest(digest, manifest.clone(), is_taken_down);
            assert!(cause == Some(subject.clone()) && !scene.has(digest));
            assert!(scene.repository.referrers(&subject).is_empty());
        }
        assert_eq!(scene.hide(&subject), 3);
        // Where the subject never was it is the same; and what refers to anything else is seen.
        let elsewhere = BlobDigest::of(b"elsewhere");
        let (seal, manifest) = scene.referrer(&elsewhere, "a/seal");
        assert_eq!(
            scene.repository.learn_manifest(&seal, manifest.clone(), |digest| *digest == elsewhere),
            Some(elsewhere.clone())
        );
        assert!(!scene.has(&seal));
        assert_eq!(scene.repository.learn_manifest(&seal, manifest, |_| false), None);
        assert!(scene.has(&seal));
        // As a start finds it.
        assert_eq!(scene.hide(&elsewhere), 1);
    }

    #[test]
    fn what_was_uploaded_and_is_named_by_nothing_counts_as_before_when_something_is_shown_again() {
        let scene = Scene::new();
        let (own, uploaded, down) =
            (scene.manifest(&["own"], None, &[]), BlobDigest::of(b"up"), BlobDigest::of(b"down"));
        for (digest, text) in [(&uploaded, "up"), (&down, "down")] {
            scene.blobs.write(text.as_bytes(), digest).unwrap();
            scene.repository.link_blob(digest, text.len() as u64).unwrap();
        }
        let before = scene.repository.held();
        scene.hide(&own);
        scene.hide(&down);
        assert_eq!(scene.repository.held().bytes, 2);
        scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, std::slice::from_ref(&down)).unwrap();
        assert_eq!(scene.repository.held().bytes, before.bytes - 4);
        scene.repository.show_again(&"r".parse().unwrap(), &scene.blobs, &[]).unwrap();
        assert_eq!(scene.repository.held(), before);
    }
}
