//! What the manifests of repositories name, as a scrub looks for it.

use std::collections::{BTreeSet, HashSet};
use std::io;

use super::Missing;
use crate::blobs::BlobDigest;
use crate::repositories::{FactKey, Manifest, RepositoryName};

/// A store, as far as it is asked what manifests name.
pub(super) trait Names {
    /// The bytes of a manifest; `None` where they are not had.
    fn manifest(&self, digest: &BlobDigest) -> io::Result<Option<Vec<u8>>>;

    /// Whether a fact is there now.
    fn says(&self, name: &RepositoryName, fact: &FactKey) -> io::Result<bool>;
}

/// What was found by following manifests.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// Named, and not offered in the repository.
    pub(super) unlinked: Vec<Missing>,
    /// Named, and nowhere.
    pub(super) missing: Vec<Missing>,
}

/// Follows the manifests among facts. What was taken down is away as it should be.
///
/// # Errors
/// Something cannot be read now.
pub(super) fn follow(
    facts: &[(RepositoryName, FactKey)],
    store: &impl Names,
    taken_down: &BTreeSet<BlobDigest>,
    mut has: impl FnMut(&BlobDigest) -> io::Result<bool>,
) -> io::Result<Followed> {
    let here = |(name, fact)| match fact {
        &FactKey::Blob(ref digest) | &FactKey::Manifest(ref digest) => Some((name, digest)),
        _ => None,
    };
    let here: HashSet<(&RepositoryName, &BlobDigest)> =
        facts.iter().map(|(name, fact)| (name, fact)).filter_map(here).collect();
    let (mut seen, mut followed) = (HashSet::new(), Followed::default());
    for (name, fact) in facts {
        let FactKey::Manifest(digest) = fact else { continue };
        let Some(manifest) = store.manifest(digest)?.and_then(|bytes| Manifest::parse(&bytes, None).ok()) else {
            continue;
        };
        for child in manifest.child_digests() {
            if here.contains(&(name, child)) || taken_down.contains(child) || !seen.insert((name, child.clone())) {
                continue;
            }
            // It may have come, or what names it may have gone, since the facts were read.
            let came = [FactKey::Blob(child.clone()), FactKey::Manifest(child.clone())];
            if store.says(name, &came[0])? || store.says(name, &came[1])? || !store.says(name, fact)? {
                continue;
            }
            let found = || Missing { repository: name.to_string(), digest: child.to_string() };
            followed.unlinked.push(found());
            if !has(child)? {
                followed.missing.push(found());
            }
        }
    }
    followed.unlinked.sort();
    Ok(followed)
}
