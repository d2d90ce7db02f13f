//! A repository in a data directory of its own, for tests: what is published there, and what is seen of it.

use std::sync::Arc;

use super::changes::PutManifest;
use super::{Manifest, Reference, Repositories, Repository};
use crate::blobs::{BlobDigest, BlobDirectory};

pub(super) struct Scene {
    pub(super) data: tempfile::TempDir,
    pub(super) blobs: BlobDirectory,
    pub(super) repository: Arc<Repository>,
}

impl Scene {
    pub(super) fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let repository = Self::load(&data, &blobs);
        Self { data, blobs, repository }
    }

    /// As a start finds it.
    pub(super) fn load(data: &tempfile::TempDir, blobs: &BlobDirectory) -> Arc<Repository> {
        Repositories::load(data.path(), blobs, None).unwrap().get_or_create(&"r".parse().unwrap())
    }

    /// A blob of this text.
    pub(super) fn upload(&self, text: &str) -> BlobDigest {
        let digest = BlobDigest::of(text.as_bytes());
        self.blobs.write(text.as_bytes(), &digest).unwrap();
        self.repository.link_blob(&digest, text.len() as u64).unwrap();
        digest
    }

    /// A manifest of this text.
    pub(super) fn publish(&self, text: &str, tags: &[&str]) -> BlobDigest {
        let digest = BlobDigest::of(text.as_bytes());
        self.blobs.write(text.as_bytes(), &digest).unwrap();
        let manifest = Manifest::parse(text.as_bytes(), None).unwrap();
        let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
        self.repository.publish(PutManifest { digest: digest.clone(), manifest, tags }).unwrap();
        digest
    }

    /// A manifest of blobs with these texts.
    pub(super) fn manifest(&self, layers: &[&str], subject: Option<&BlobDigest>, tags: &[&str]) -> BlobDigest {
        layers.iter().for_each(|text| drop(self.upload(text)));
        self.publish(&manifest_of(layers, subject), tags)
    }

    /// An index of manifests.
    pub(super) fn index(&self, children: &[&BlobDigest], tags: &[&str]) -> BlobDigest {
        let child = |digest: &&BlobDigest| serde_json::json!({ "digest": digest.to_string(), "size": 1 });
        let children: Vec<_> = children.iter().map(child).collect();
        self.publish(&serde_json::json!({ "schemaVersion": 2, "manifests": children }).to_string(), tags)
    }

    /// How many manifests a takedown hides, where nothing is in the way.
    pub(super) fn hide(&self, digest: &BlobDigest) -> usize {
        let hiding = self.repository.hide(digest, &self.blobs);
        assert!(hiding.problem.is_none() && !self.repository.is_hiding());
        hiding.gone.len()
    }

    /// Whether a manifest or a blob is given to those who ask.
    pub(super) fn has(&self, digest: &BlobDigest) -> bool {
        self.repository.manifest(&Reference::Digest(digest.clone())).is_some() || self.repository.has_blob(digest)
    }
}

/// The text of a manifest of blobs with these texts.
pub(super) fn manifest_of(layers: &[&str], subject: Option<&BlobDigest>) -> String {
    let layer =
        |text: &&str| serde_json::json!({ "digest": BlobDigest::of(text.as_bytes()).to_string(), "size": text.len() });
    let layers: Vec<_> = layers.iter().map(layer).collect();
    let subject = subject.map(|digest| serde_json::json!({ "digest": digest.to_string(), "size": 1 }));
    serde_json::json!({ "schemaVersion": 2, "layers": layers, "subject": subject }).to_string()
}
