//! A tree of manifests at a registry: read from the top, bounded, and written from the bottom.

use std::collections::HashSet;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use symseal_bundle::oci::{self, Descriptor, ImageIndex};
use symseal_bundle::{Digest, LayoutDir};

use crate::manifests::{self, Fetched};
use crate::push::DEPTH_LIMIT;
use crate::session::Session;
use crate::transfer::write;
use crate::{RegistryError, Target};

/// Manifests of one tree.
const MANIFESTS_LIMIT: usize = 100_000;
/// The longest artifact type of a referrer that is taken, in bytes: two names of 127 and a slash (RFC 6838, section 4.2).
const ARTIFACT_TYPE_LIMIT: usize = 255;
/// The most bytes that the blobs of one referrer may have: a seal or a piece of evidence has some kilobytes. A bundle, which is a referrer
/// of its product's image, may have more.
const REFERRER_BYTES_LIMIT: u64 = 64 << 20;
/// The most manifests of such a referrer.
const REFERRER_MANIFESTS_LIMIT: usize = 1000;

/// What a tree of manifests may ask for.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    manifests: usize,
    bytes: u64,
}

impl Bounds {
    /// Of what was asked for by name, and of bundles.
    pub(crate) const WIDE: Self = Self { manifests: MANIFESTS_LIMIT, bytes: u64::MAX };
    /// Of what anybody may have put beside it.
    const REFERRER: Self = Self { manifests: REFERRER_MANIFESTS_LIMIT, bytes: REFERRER_BYTES_LIMIT };
}

/// Manifests by their depth, and the blobs that they name.
pub(crate) struct Tree {
    levels: Vec<Vec<Fetched>>,
    /// Each once.
    pub(crate) blobs: Vec<Descriptor>,
}

impl Tree {
    /// Reads everything below a manifest that was fetched.
    pub(crate) async fn read(session: &Session, root: Fetched, bounds: Bounds) -> Result<Self, RegistryError> {
        let top = root.descriptor.digest;
        let (mut blobs, mut seen) = (Vec::new(), HashSet::from([top]));
        let (mut levels, mut level) = (Vec::new(), vec![root]);
        let at_once = session.options.concurrency.max(1);
        while !level.is_empty() {
            let mut below = Vec::new();
            for manifest in &level {
                let named = manifests::children(manifest.descriptor.digest, &manifest.bytes)?;
                blobs.extend(named.blobs.into_iter().filter(|blob| seen.insert(blob.digest)));
                below.extend(named.manifests.into_iter().map(|child| child.digest).filter(|child| seen.insert(*child)));
            }
            if levels.len() > DEPTH_LIMIT
                || seen.len() > bounds.manifests.saturating_mul(16)
                || below.len() > bounds.manifests
            {
                let problem =
                    format!("it names more than {} manifests, or nests deeper than {DEPTH_LIMIT}", bounds.manifests);
                return Err(RegistryError::Manifest { digest: top, problem });
            }
            levels.push(level);
            let fetches: Vec<_> = below.into_iter().map(|child| fetch_one(session, child)).collect();
            level = stream::iter(fetches).buffered(at_once).try_collect().await?;
        }
        let tree = Self { levels, blobs };
        let bytes = tree.blob_bytes();
        if bytes > bounds.bytes {
            let problem = format!("blobs of {bytes} bytes; of a referrer at most {} are taken", bounds.bytes);
            return Err(RegistryError::Manifest { digest: top, problem });
        }
        Ok(tree)
    }

    /// Bytes of all blobs, as the manifests say.
    pub(crate) fn blob_bytes(&self) -> u64 {
        self.blobs.iter().fold(0_u64, |sum, blob| sum.saturating_add(blob.size))
    }

    /// Writes the manifests: children come before what names them, so that a layout never names what it lacks.
    pub(crate) async fn write_manifests(self, layout: &LayoutDir) -> Result<(), RegistryError> {
        for level in self.levels.into_iter().rev() {
            for manifest in level {
                write(layout, manifest.bytes).await?;
            }
        }
        Ok(())
    }
}

/// Reads the tree of a referrer, which anybody may have put there: it is bounded. With it the descriptor as a layout lists it.
pub(crate) async fn referrer_tree(
    session: &Session,
    referrer: Descriptor,
    beside_bundle: bool,
) -> Result<(Descriptor, Tree), RegistryError> {
    let long = referrer.artifact_type.as_ref().map(String::len).filter(|bytes| *bytes > ARTIFACT_TYPE_LIMIT);
    if let Some(bytes) = long {
        let problem = format!("an artifact type of {bytes} bytes; media types have at most {ARTIFACT_TYPE_LIMIT}");
        return Err(RegistryError::Manifest { digest: referrer.digest, problem });
    }
    let fetched = manifests::fetch(session, &Target::Digest(referrer.digest)).await?;
    // Of an image, but of nothing else: what is beside a bundle is never one.
    let bounds = if !beside_bundle && is_bundle(&fetched) { Bounds::WIDE } else { Bounds::REFERRER };
    let descriptor = Descriptor { artifact_type: referrer.artifact_type, ..fetched.descriptor.clone() };
    Ok((descriptor, Tree::read(session, fetched, bounds).await?))
}

/// Whether a manifest is that of a bundle.
pub(crate) fn is_bundle(fetched: &Fetched) -> bool {
    ImageIndex::parse(&fetched.bytes).is_ok_and(|index| index.artifact_type.as_deref() == Some(oci::BUNDLE))
}

async fn fetch_one(session: &Session, child: Digest) -> Result<Fetched, RegistryError> {
    manifests::fetch(session, &Target::Digest(child)).await
}
