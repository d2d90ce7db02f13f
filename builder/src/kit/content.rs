//! What belongs to a bundle in a layout: every blob that its image index, its referrers and its sources lead to.

use std::collections::BTreeMap;

use symseal_bundle::oci::{self, Descriptor, ImageIndex, Manifest};
use symseal_bundle::{BundleError, Digest, LayoutDir, LayoutError};

use super::KitError;

/// Image indexes inside image indexes that are followed.
const DEPTH_LIMIT: usize = 4;
/// More referrers of one bundle than anybody means.
const MAX_REFERRERS: usize = 1024;

/// Blobs by digest with their sizes in bytes, and what `index.json` lists.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) blobs: BTreeMap<Digest, u64>,
    pub(super) listed: Vec<Descriptor>,
    pub(super) referrers: u64,
}

/// The bundle `digest` and what refers to it. Referrers that are not whole are left out: anybody may add junk.
pub(super) fn of_bundle(layout: &LayoutDir, digest: &Digest) -> Result<Content, KitError> {
    let mut content = Content::default();
    content.listed.push(named(layout, digest)?);
    content.blobs = tree(layout, digest)?;
    for referrer in layout.referrers(digest)?.into_iter().take(MAX_REFERRERS) {
        match tree(layout, &referrer.digest) {
            Ok(blobs) => {
                content.blobs.extend(blobs);
                content.listed.push(Descriptor { annotations: BTreeMap::new(), ..referrer });
                content.referrers += 1;
            }
            Err(KitError::Layout(LayoutError::Missing { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(content)
}

/// Adds the sources, which are there as a whole.
pub(super) fn add_sources(content: &mut Content, layout: &LayoutDir, sources: &Digest) -> Result<(), KitError> {
    content.listed.push(named(layout, sources)?);
    content.blobs.extend(tree(layout, sources)?);
    Ok(())
}

/// The descriptor under which a layout lists a manifest; made from its bytes where it is not listed.
fn named(layout: &LayoutDir, digest: &Digest) -> Result<Descriptor, KitError> {
    if let Some(listed) = layout.manifests()?.into_iter().find(|listed| listed.digest == *digest) {
        return Ok(listed);
    }
    let bytes = layout.read_blob(digest, oci::MAX_MANIFEST_BYTES)?;
    let (media_type, artifact_type) = match read(digest, &bytes)? {
        Read::Index(index) => (oci::IMAGE_INDEX, index.artifact_type),
        Read::Manifest(manifest) => (oci::MANIFEST, manifest.artifact_type),
    };
    Ok(Descriptor { artifact_type, ..Descriptor::of(media_type, &bytes) })
}

enum Read {
    Index(Box<ImageIndex>),
    Manifest(Box<Manifest>),
}

/// A manifest has a configuration, and an image index has none.
fn read(digest: &Digest, bytes: &[u8]) -> Result<Read, KitError> {
    if let Ok(manifest) = Manifest::parse(bytes) {
        return Ok(Read::Manifest(Box::new(manifest)));
    }
    ImageIndex::parse(bytes)
        .map(|index| Read::Index(Box::new(index)))
        .map_err(|source| KitError::Oci { place: digest.to_string(), source })
}

/// A manifest and everything below it. Every blob is there; the bytes of manifests were checked.
fn tree(layout: &LayoutDir, root: &Digest) -> Result<BTreeMap<Digest, u64>, KitError> {
    let mut blobs = BTreeMap::new();
    let mut level = vec![*root];
    for _ in 0..=DEPTH_LIMIT {
        let mut below = Vec::new();
        for digest in std::mem::take(&mut level) {
            let bytes = layout.read_blob(&digest, oci::MAX_MANIFEST_BYTES)?;
            if blobs.insert(digest, bytes.len() as u64).is_some() {
                continue;
            }
            let manifest = match read(&digest, &bytes)? {
                Read::Manifest(manifest) => manifest,
                Read::Index(index) => {
                    below.extend(index.manifests.iter().map(|child| child.digest));
                    continue;
                }
            };
            for blob in std::iter::once(&manifest.config).chain(&manifest.layers) {
                let size = layout
                    .blob_size(&blob.digest)
                    .ok_or_else(|| LayoutError::Missing { path: layout.root().to_owned(), digest: blob.digest })?;
                blobs.insert(blob.digest, size);
            }
        }
        if below.is_empty() {
            return Ok(blobs);
        }
        level = below;
    }
    let problem = format!("{root}: image indexes are nested deeper than {DEPTH_LIMIT}");
    Err(BundleError::NotABundle { path: layout.root().to_owned(), problem }.into())
}
