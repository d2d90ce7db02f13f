//! The repositories in memory, each beside its folder.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use super::folder::{self, FOLDER, Folder, Said};
use super::name::RepositoryName;
use super::prefix::Prefix;
use super::repository::{Held, Repository};
use crate::blobs::{BlobDigest, BlobDirectory, Uploads};
use crate::shared::Facts;
use crate::side_by_side::side_by_side;

/// Every repository of the data directory.
#[derive(Debug)]
pub(crate) struct Repositories {
    root: PathBuf,
    facts: Option<Arc<Facts>>,
    by_name: RwLock<BTreeMap<RepositoryName, Arc<Repository>>>,
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
        let present = blobs.names()?;
        let load = |name: &RepositoryName, folder: Folder, said: Said| -> io::Result<_> {
            Ok((name.clone(), Arc::new(Repository::load(folder, name, said, blobs, &present)?)))
        };
        let loaded = match &facts {
            Some(facts) => {
                let said = folder::said_by_objects(facts)?;
                let manifests: Vec<&BlobDigest> = said
                    .values()
                    .flat_map(|said| said.manifests.iter().map(|(digest, _)| digest).chain(&said.deleted))
                    .collect();
                blobs.bring_all(&manifests)?;
                let said = said.into_iter();
                let loaded = said.map(|(name, said)| load(&name, Folder::new(&root, &name, Some(facts)), said));
                loaded.collect::<io::Result<Vec<_>>>()?
            }
            None if !root.is_dir() => Vec::new(),
            None => side_by_side(&folder::names(&root)?, |name| {
                let folder = Folder::new(&root, name, None);
                let said = folder.said()?;
                load(name, folder, said)
            })?,
        };
        Ok(Self { root, facts, by_name: RwLock::new(loaded.into_iter().collect()) })
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

    /// Whether any repository that `may_read` allows gives a blob away.
    pub(crate) fn any_has_blob(&self, digest: &BlobDigest, may_read: impl Fn(&RepositoryName) -> bool) -> bool {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.iter().any(|(name, repository)| repository.gives_blob(digest) && may_read(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::changes::{PutManifest, Removal};
    use super::super::manifest::{Manifest, Reference};
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
    fn nothing_is_collected_where_a_fact_is_damaged() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let (name, digest): (RepositoryName, _) = ("r".parse().unwrap(), BlobDigest::of(b"bytes"));
        let load = || Repositories::load(data.path(), &blobs, None).unwrap().get_or_create(&name);
        blobs.write(b"bytes", &digest).unwrap();
        load().link_blob(&digest, 5).unwrap();
        let tags = data.path().join("repositories/r/_tags");
        std::fs::create_dir_all(&tags).unwrap();
        std::fs::write(tags.join("v1"), "sha256:no").unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        let damaged = load();
        assert!(damaged.has_blob(&digest));
        assert_eq!(damaged.unlink_idle(later, 9).unwrap(), 0);
        std::fs::remove_file(tags.join("v1")).unwrap();
        assert_eq!(load().unlink_idle(later, 9).unwrap(), 1);
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
}
