//! What a repository says: small facts whose presence is the fact, as files of the data directory or as objects.
//!
//! ```text
//! repositories/<name>/_blobs/<algorithm>/<hex>      empty: the blob may be fetched here
//! repositories/<name>/_manifests/<algorithm>/<hex>  the media type
//! repositories/<name>/_orphans/<algorithm>/<hex>    empty: this manifest's index or subject was deleted
//! repositories/<name>/_deleted/<algorithm>/<hex>    empty: this manifest was deleted, and something that it named is here yet
//! repositories/<name>/_tags/<tag>                   the digest
//! repositories/<name>/_uploads/<id>                 bytes of an upload session, always a file
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::name::{RepositoryName, Tag};
use crate::blobs::{Algorithm, BlobDigest, mark, sweep_unfinished, sync_directory, write_file_atomically};
use crate::shared::Facts;

/// The folder of all repositories in the data directory, and what the keys of their facts begin with.
pub(crate) const FOLDER: &str = "repositories";

/// One repository's folder. Every method blocks.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    key: String,
    /// Where facts are objects.
    facts: Option<Arc<Facts>>,
}

/// Everything that a repository says.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) blobs: Vec<BlobDigest>,
    /// With their media types.
    pub(super) manifests: Vec<(BlobDigest, String)>,
    /// With the time at which a client was last told of each.
    pub(super) orphans: Vec<(BlobDigest, SystemTime)>,
    /// Manifests that were deleted.
    pub(super) deleted: Vec<BlobDigest>,
    pub(super) tags: Vec<(Tag, BlobDigest)>,
    /// What cannot be read as what it is: its file or key, and why.
    pub(super) damaged: Vec<String>,
    /// Keys of that, and of what was listed and is not there.
    pub(super) unread: Vec<String>,
}

impl Folder {
    /// The folder of a name under the data directory's `repositories/`.
    pub(crate) fn new(root: &Path, name: &RepositoryName, facts: Option<&Arc<Facts>>) -> Self {
        Self { path: root.join(name.as_str()), key: format!("{FOLDER}/{name}"), facts: facts.cloned() }
    }

    /// What the files say.
    pub(super) fn said(&self) -> io::Result<Said> {
        let blobs = self.digests("_blobs")?;
        let mut said = Said { blobs, orphans: self.orphans()?, deleted: self.digests("_deleted")?, ..Said::default() };
        self.read_manifests(&mut said)?;
        self.read_tags(&mut said)?;
        Ok(said)
    }

    /// What the files, or the objects, say now.
    pub(super) fn said_now(&self, name: &RepositoryName) -> io::Result<Said> {
        match &self.facts {
            Some(facts) => Ok(said_below(facts, &self.key)?.remove(name).unwrap_or_default()),
            None => self.said(),
        }
    }

    /// Removes what a crash left half-written, before anybody writes here.
    pub(super) fn sweep(&self) -> io::Result<()> {
        for algorithm in Algorithm::ALL {
            sweep_unfinished(&self.path.join("_manifests").join(algorithm.name()))?;
        }
        sweep_unfinished(&self.path.join("_tags"))
    }

    /// Where the upload sessions are.
    pub(crate) fn uploads(&self) -> PathBuf {
        self.path.join("_uploads")
    }

    pub(super) fn link_blob(&self, digest: &BlobDigest) -> io::Result<()> {
        match &self.facts {
            Some(facts) => facts.write(&self.digest_key("_blobs", digest), ""),
            None => mark(&self.digest_path("_blobs", digest)),
        }
    }

    /// Takes blobs out; the folder is synced once, before anybody may take their bytes.
    pub(super) fn unlink_blobs(&self, digests: &[BlobDigest]) -> io::Result<()> {
        if let Some(facts) = &self.facts {
            let keys: Vec<String> = digests.iter().map(|digest| self.digest_key("_blobs", digest)).collect();
            return facts.remove_all(&keys);
        }
        for digest in digests {
            unlink(&self.digest_path("_blobs", digest))?;
        }
        for algorithm in Algorithm::ALL {
            if digests.iter().any(|digest| digest.algorithm() == algorithm) {
                sync_directory(&self.path.join("_blobs").join(algorithm.name()))?;
            }
        }
        Ok(())
    }

    /// Since when a blob is offered, or when a client was last told so.
    pub(super) fn told_of_blob(&self, digest: &BlobDigest) -> io::Result<SystemTime> {
        if self.facts.is_some() {
            return Ok(SystemTime::now());
        }
        fs::metadata(self.digest_path("_blobs", digest))?.modified()
    }

    /// Keeps that a client was told of a blob now. It need not survive a power cut, so nothing is synced.
    pub(super) fn tell_of_blob(&self, digest: &BlobDigest, now: SystemTime) -> io::Result<()> {
        tell(&self.digest_path("_blobs", digest), now)
    }

    /// Marks a manifest whose index or subject is deleted, as of now.
    pub(super) fn mark_orphan(&self, digest: &BlobDigest, now: SystemTime) -> io::Result<()> {
        if let Some(facts) = &self.facts {
            return facts.write(&self.digest_key("_orphans", digest), "");
        }
        mark(&self.digest_path("_orphans", digest))?;
        self.tell_of_orphan(digest, now)
    }

    pub(super) fn unmark_orphan(&self, digest: &BlobDigest) -> io::Result<()> {
        match &self.facts {
            Some(facts) => facts.remove(&self.digest_key("_orphans", digest)),
            None => remove(&self.digest_path("_orphans", digest)),
        }
    }

    /// Marks a manifest that is about to be deleted.
    pub(super) fn mark_deleted(&self, digest: &BlobDigest) -> io::Result<()> {
        match &self.facts {
            Some(facts) => facts.write(&self.digest_key("_deleted", digest), ""),
            None => mark(&self.digest_path("_deleted", digest)),
        }
    }

    pub(super) fn unmark_deleted(&self, digest: &BlobDigest) -> io::Result<()> {
        match &self.facts {
            Some(facts) => facts.remove(&self.digest_key("_deleted", digest)),
            None => remove(&self.digest_path("_deleted", digest)),
        }
    }

    /// Whether a manifest is marked as deleted.
    pub(super) fn is_deleted(&self, digest: &BlobDigest) -> io::Result<bool> {
        match &self.facts {
            Some(facts) => facts.has(&self.digest_key("_deleted", digest)),
            None => self.digest_path("_deleted", digest).try_exists(),
        }
    }

    /// The key of a fact that other servers may change.
    pub(super) fn key_where_shared(&self, name: &RepositoryName, fact: FactKey) -> Option<String> {
        self.facts.as_ref().map(|_| fact.key(name))
    }

    fn orphans(&self) -> io::Result<Vec<(BlobDigest, SystemTime)>> {
        let with_time = |digest: BlobDigest| {
            let told = fs::metadata(self.digest_path("_orphans", &digest))?.modified()?;
            Ok((digest, told))
        };
        self.digests("_orphans")?.into_iter().map(with_time).collect()
    }

    /// [`Self::tell_of_blob`] for a manifest that is marked.
    pub(super) fn tell_of_orphan(&self, digest: &BlobDigest, now: SystemTime) -> io::Result<()> {
        tell(&self.digest_path("_orphans", digest), now)
    }

    pub(super) fn put_manifest(&self, digest: &BlobDigest, media_type: &str) -> io::Result<()> {
        match &self.facts {
            Some(facts) => facts.write(&self.digest_key("_manifests", digest), media_type),
            None => write_file_atomically(&self.digest_path("_manifests", digest), media_type.as_bytes()),
        }
    }

    /// When a manifest was last pushed.
    pub(super) fn manifest_written(&self, digest: &BlobDigest) -> io::Result<SystemTime> {
        match &self.facts {
            Some(facts) => {
                facts.written(&self.digest_key("_manifests", digest))?.ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            None => fs::metadata(self.digest_path("_manifests", digest))?.modified(),
        }
    }

    pub(super) fn remove_manifest(&self, digest: &BlobDigest) -> io::Result<()> {
        match &self.facts {
            Some(facts) => facts.remove(&self.digest_key("_manifests", digest)),
            None => remove(&self.digest_path("_manifests", digest)),
        }
    }

    pub(super) fn put_tag(&self, tag: &Tag, digest: &BlobDigest) -> io::Result<()> {
        match &self.facts {
            Some(facts) => facts.write(&self.tag_key(tag), &digest.to_string()),
            None => write_file_atomically(&self.tag_path(tag), digest.to_string().as_bytes()),
        }
    }

    /// Where a tag leads now; one that is damaged leads nowhere.
    pub(super) fn tag(&self, tag: &Tag) -> io::Result<Option<BlobDigest>> {
        let content = match &self.facts {
            Some(facts) => facts.read(&self.tag_key(tag))?,
            None => match fs::read_to_string(self.tag_path(tag)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                read => Some(read?),
            },
        };
        Ok(content.and_then(|content| digest_of(&content).ok()))
    }

    pub(super) fn remove_tag(&self, tag: &Tag) -> io::Result<()> {
        match &self.facts {
            Some(facts) => facts.remove(&self.tag_key(tag)),
            None => remove(&self.tag_path(tag)),
        }
    }

    fn read_manifests(&self, said: &mut Said) -> io::Result<()> {
        for digest in self.digests("_manifests")? {
            let path = self.digest_path("_manifests", &digest);
            match String::from_utf8(fs::read(&path)?) {
                Ok(media_type) => said.manifests.push((digest, media_type)),
                Err(error) => said.damaged.push(format!("{}: {error}", path.display())),
            }
        }
        Ok(())
    }

    fn read_tags(&self, said: &mut Said) -> io::Result<()> {
        for name in file_names(&self.path.join("_tags"))? {
            let Ok(tag) = name.parse::<Tag>() else { continue };
            let path = self.tag_path(&tag);
            match digest_of(&String::from_utf8_lossy(&fs::read(&path)?)) {
                Ok(digest) => said.tags.push((tag, digest)),
                Err(error) => said.damaged.push(format!("{}: {error}", path.display())),
            }
        }
        Ok(())
    }

    fn digests(&self, kind: &str) -> io::Result<Vec<BlobDigest>> {
        let mut digests = Vec::new();
        for algorithm in Algorithm::ALL {
            let names = file_names(&self.path.join(kind).join(algorithm.name()))?;
            // Other names are what a crash left before its rename.
            digests.extend(names.iter().filter_map(|hex| BlobDigest::from_hex(algorithm, hex).ok()));
        }
        Ok(digests)
    }

    fn digest_path(&self, kind: &str, digest: &BlobDigest) -> PathBuf {
        self.path.join(kind).join(digest.algorithm().name()).join(digest.hex())
    }

    fn digest_key(&self, kind: &str, digest: &BlobDigest) -> String {
        format!("{}/{kind}/{}", self.key, in_folder(digest))
    }

    fn tag_path(&self, tag: &Tag) -> PathBuf {
        self.path.join("_tags").join(tag.as_str())
    }

    fn tag_key(&self, tag: &Tag) -> String {
        format!("{}/_tags/{tag}", self.key)
    }
}

/// A fact as its key names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FactKey {
    /// A blob is offered.
    Blob(BlobDigest),
    /// A manifest is here.
    Manifest(BlobDigest),
    /// A manifest is an orphan.
    Orphan(BlobDigest),
    /// A manifest was deleted.
    Deleted(BlobDigest),
    /// Where a tag leads.
    Tag(Tag),
}

impl FactKey {
    /// The key of a fact.
    pub(crate) fn key(&self, name: &RepositoryName) -> String {
        let (kind, rest) = match self {
            Self::Blob(digest) => ("_blobs", in_folder(digest)),
            Self::Manifest(digest) => ("_manifests", in_folder(digest)),
            Self::Orphan(digest) => ("_orphans", in_folder(digest)),
            Self::Deleted(digest) => ("_deleted", in_folder(digest)),
            Self::Tag(tag) => ("_tags", tag.to_string()),
        };
        format!("{FOLDER}/{name}/{kind}/{rest}")
    }

    /// The repository and the fact of a key; `None` for a key of another form.
    pub(crate) fn parse(key: &str) -> Option<(RepositoryName, Self)> {
        // No part of a name begins with an underscore.
        let (name, rest) = key.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once("/_")?;
        let (kind, rest) = rest.split_once('/')?;
        let digest = || rest.replacen('/', ":", 1).parse::<BlobDigest>().ok();
        let fact = match kind {
            "blobs" => Self::Blob(digest()?),
            "manifests" => Self::Manifest(digest()?),
            "orphans" => Self::Orphan(digest()?),
            "deleted" => Self::Deleted(digest()?),
            "tags" => Self::Tag(rest.parse().ok()?),
            _ => return None,
        };
        Some((name.parse().ok()?, fact))
    }
}

fn in_folder(digest: &BlobDigest) -> String {
    format!("{}/{}", digest.algorithm().name(), digest.hex())
}

/// Everything that the objects say, by repository.
pub(super) fn said_by_objects(facts: &Facts) -> io::Result<BTreeMap<RepositoryName, Said>> {
    said_below(facts, FOLDER)
}

fn said_below(facts: &Facts, key: &str) -> io::Result<BTreeMap<RepositoryName, Said>> {
    let mut said = BTreeMap::<RepositoryName, Said>::new();
    let mut with_content = Vec::new();
    for key in facts.keys(key)? {
        let Some((name, fact)) = FactKey::parse(&key) else { continue };
        let said = said.entry(name).or_default();
        match fact {
            FactKey::Blob(digest) => said.blobs.push(digest),
            FactKey::Orphan(digest) => said.orphans.push((digest, SystemTime::now())),
            FactKey::Deleted(digest) => said.deleted.push(digest),
            FactKey::Manifest(_) | FactKey::Tag(_) => with_content.push(key),
        }
    }
    let mut unread: BTreeSet<String> = with_content.iter().cloned().collect();
    for (key, read) in facts.read_all(with_content)? {
        let Some((name, fact)) = FactKey::parse(&key) else { continue };
        let said = said.entry(name).or_default();
        if read.as_ref().is_ok_and(|text| !matches!(fact, FactKey::Tag(_)) || digest_of(text).is_ok()) {
            unread.remove(&key);
        }
        match (fact, read) {
            (FactKey::Manifest(digest), Ok(media_type)) => said.manifests.push((digest, media_type)),
            (FactKey::Tag(tag), Ok(content)) => match digest_of(&content) {
                Ok(digest) => said.tags.push((tag, digest)),
                Err(error) => said.damaged.push(format!("{key}: {error}")),
            },
            (FactKey::Manifest(_) | FactKey::Tag(_), Err(error)) => said.damaged.push(format!("{key}: {error}")),
            (FactKey::Blob(_) | FactKey::Orphan(_) | FactKey::Deleted(_), _) => {}
        }
    }
    for key in unread {
        if let Some((name, _)) = FactKey::parse(&key) {
            said.entry(name).or_default().unread.push(key);
        }
    }
    Ok(said)
}

/// The digest that a tag's fact holds.
pub(crate) fn digest_of(content: &str) -> io::Result<BlobDigest> {
    content.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The blobs that the files of a data directory offer, and the manifests.
pub(crate) fn fact_files(data: &Path) -> io::Result<Vec<(RepositoryName, FactKey)>> {
    let root = data.join(FOLDER);
    let mut found = Vec::new();
    if !root.is_dir() {
        return Ok(found);
    }
    for name in names(&root)? {
        let folder = Folder::new(&root, &name, None);
        found.extend(folder.digests("_blobs")?.into_iter().map(|digest| (name.clone(), FactKey::Blob(digest))));
        found.extend(folder.digests("_manifests")?.into_iter().map(|digest| (name.clone(), FactKey::Manifest(digest))));
    }
    Ok(found)
}

/// Every repository that has a folder.
pub(super) fn names(root: &Path) -> io::Result<Vec<RepositoryName>> {
    let (mut found, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(parent) = folders.pop() {
        let mut is_repository = false;
        for entry in fs::read_dir(root.join(&parent))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('_') {
                is_repository = true;
            } else if entry.file_type()?.is_dir() {
                folders.push(if parent.is_empty() { name } else { format!("{parent}/{name}") });
            }
        }
        if is_repository && let Ok(name) = parent.parse() {
            found.push(name);
        }
    }
    Ok(found)
}

fn file_names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose()).collect()
}

fn tell(path: &Path, now: SystemTime) -> io::Result<()> {
    match fs::File::open(path) {
        // Deleted meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.set_modified(now),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if unlink(path)? { path.parent().map_or(Ok(()), sync_directory) } else { Ok(()) }
}

/// Removes a file that may be gone already; whether it was there.
fn unlink(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_names_its_repository_and_its_fact() {
        let digest = BlobDigest::of(b"x");
        let name: RepositoryName = "team/app".parse().unwrap();
        let tag: Tag = "v1_a.b-c".parse().unwrap();
        let folder = Folder::new(Path::new("unused"), &name, None);
        for (key, fact) in [
            (folder.digest_key("_blobs", &digest), FactKey::Blob(digest.clone())),
            (folder.digest_key("_manifests", &digest), FactKey::Manifest(digest.clone())),
            (folder.digest_key("_orphans", &digest), FactKey::Orphan(digest.clone())),
            (folder.tag_key(&tag), FactKey::Tag(tag)),
        ] {
            assert_eq!(fact.key(&name), key);
            assert_eq!(FactKey::parse(&key), Some((name.clone(), fact)), "{key}");
        }
        for key in [
            "",
            "repositories",
            "repositories/",
            "repositories/app",
            "repositories/app/_tags/",
            "repositories/app/_tags/a/b",
            "repositories/app/_tags/../x",
            "repositories/../app/_tags/v1",
            "repositories//_tags/v1",
            "repositories/app/_blobs/sha256",
            "repositories/app/_blobs/sha256/../../x",
            "repositories/app/_blobs/md5/00",
            "repositories/app/_uploads/1",
            "blobs/sha256/aa",
        ] {
            assert_eq!(FactKey::parse(key), None, "{key}");
        }
    }

    #[test]
    fn a_damaged_fact_is_named_and_hides_no_other() {
        let data = tempfile::tempdir().unwrap();
        let name: RepositoryName = "team/app".parse().unwrap();
        let folder = Folder::new(data.path(), &name, None);
        let (kept, damaged) = (BlobDigest::of(b"kept"), BlobDigest::of(b"damaged"));
        folder.put_manifest(&kept, "a/b").unwrap();
        folder.put_tag(&"kept".parse().unwrap(), &kept).unwrap();
        folder.link_blob(&kept).unwrap();
        folder.put_manifest(&damaged, "a/b").unwrap();
        fs::write(folder.digest_path("_manifests", &damaged), [0xff, b'a']).unwrap();
        for (tag, content) in [("no-digest", b"sha256:no".as_slice()), ("no-text", &[0xff]), ("empty", b"")] {
            folder.put_tag(&tag.parse().unwrap(), &kept).unwrap();
            fs::write(folder.tag_path(&tag.parse().unwrap()), content).unwrap();
        }
        let said = folder.said().unwrap();
        assert_eq!(said.manifests, [(kept.clone(), "a/b".to_owned())]);
        assert_eq!(said.tags, [("kept".parse().unwrap(), kept.clone())]);
        assert_eq!(said.blobs, [kept]);
        assert_eq!(said.damaged.len(), 4);
        for part in ["_tags/no-digest", "_tags/no-text", "_tags/empty", damaged.hex()] {
            assert!(said.damaged.iter().any(|damaged| damaged.contains(part)), "{part}: {:?}", said.damaged);
        }
    }

    proptest! {
        #[test]
        fn no_key_breaks_the_reader(key in ".{0,40}", rest in "[a-z_/.:0-9]{0,80}") {
            let _ = FactKey::parse(&key);
            let _ = FactKey::parse(&format!("repositories/{rest}"));
        }
    }
}
