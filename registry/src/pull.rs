//! A bundle comes in: manifests are read from the top, and stored from the bottom.

use std::collections::HashSet;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use oci_client::RegistryOperation;
use symseal_bundle::oci::{self, Descriptor, ImageIndex};
use symseal_bundle::{Digest, LayoutDir};

use crate::manifests::{self, Fetched};
use crate::options::Progress;
use crate::push::DEPTH_LIMIT;
use crate::resume::keep_right_pages;
use crate::session::Session;
use crate::transfer::{pull_blob, write};
use crate::{Options, Reference, RegistryError, Target, referrers};

/// Manifests of one pull.
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
struct Bounds {
    manifests: usize,
    bytes: u64,
}

impl Bounds {
    /// Of what was asked for by name, and of bundles.
    const WIDE: Self = Self { manifests: MANIFESTS_LIMIT, bytes: u64::MAX };
    /// Of what anybody may have put beside it.
    const REFERRER: Self = Self { manifests: REFERRER_MANIFESTS_LIMIT, bytes: REFERRER_BYTES_LIMIT };
}

/// Brings what `reference` names, everything below it and its referrers into a layout, and gives its digest.
///
/// Every byte is checked against its digest before it is seen in the layout; the digest that a tag resolves to is the
/// registry's word. What the layout has is not fetched again, and a large blob whose transfer broke off goes on where it
/// stopped. The layout's `index.json` lists the result, under the reference's tag if it has one, and the referrers.
///
/// Anybody may add referrers, so that one that is no manifest, not whole or too large is passed over, and
/// [`Progress::PassedOver`] says why.
///
/// # Errors
/// [`RegistryError`] names what could not be fetched. What was fetched stays.
pub async fn pull(reference: &Reference, layout: &LayoutDir, options: &Options) -> Result<Digest, RegistryError> {
    let session = Session::new(reference, RegistryOperation::Pull, options)?;
    let root = manifests::fetch(&session, reference.target()).await?;
    let digest = root.descriptor.digest;
    let descriptor = root.descriptor.clone();
    let beside_bundle = is_bundle(&root);
    pull_tree(&session, layout, root, Bounds::WIDE).await?;
    list(layout, descriptor, reference.tag()).await?;
    for referrer in referrers::list(&session, &digest).await? {
        let referrer_digest = referrer.digest;
        match pull_referrer(&session, layout, referrer, beside_bundle).await {
            Err(error) if referrers::is_junk(&error) => {
                let reason = error.to_string();
                session.options.tell(Progress::PassedOver { referrer: referrer_digest, reason });
            }
            pulled => pulled?,
        }
    }
    Ok(digest)
}

/// Brings one referrer, which anybody may have put there: it is bounded, and whole before the layout lists it.
async fn pull_referrer(
    session: &Session,
    layout: &LayoutDir,
    referrer: Descriptor,
    beside_bundle: bool,
) -> Result<(), RegistryError> {
    let long = referrer.artifact_type.as_ref().map(String::len).filter(|bytes| *bytes > ARTIFACT_TYPE_LIMIT);
    if let Some(bytes) = long {
        let problem = format!("an artifact type of {bytes} bytes; media types have at most {ARTIFACT_TYPE_LIMIT}");
        return Err(RegistryError::Manifest { digest: referrer.digest, problem });
    }
    let fetched = manifests::fetch(session, &Target::Digest(referrer.digest)).await?;
    // Of an image, but of nothing else: what is beside a bundle is never one.
    let bounds = if !beside_bundle && is_bundle(&fetched) { Bounds::WIDE } else { Bounds::REFERRER };
    let descriptor = Descriptor { artifact_type: referrer.artifact_type, ..fetched.descriptor.clone() };
    pull_tree(session, layout, fetched, bounds).await?;
    list(layout, descriptor, None).await
}

fn is_bundle(fetched: &Fetched) -> bool {
    ImageIndex::parse(&fetched.bytes).is_ok_and(|index| index.artifact_type.as_deref() == Some(oci::BUNDLE))
}

async fn pull_tree(session: &Session, layout: &LayoutDir, root: Fetched, bounds: Bounds) -> Result<(), RegistryError> {
    let top = root.descriptor.digest;
    let (mut blobs, mut seen) = (Vec::new(), HashSet::from([root.descriptor.digest]));
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
    let bytes = blobs.iter().fold(0_u64, |sum, blob| sum.saturating_add(blob.size));
    if bytes > bounds.bytes {
        let problem = format!("blobs of {bytes} bytes; of a referrer at most {} are taken", bounds.bytes);
        return Err(RegistryError::Manifest { digest: top, problem });
    }
    session.options.tell(Progress::Found { blobs: blobs.len() as u64, bytes });
    keep_right_pages(session, layout, &blobs).await?;
    // Futures of one named function: closures over borrowed items would not be `Send` for every caller.
    let pulls: Vec<_> = blobs.iter().map(|blob| pull_blob(session, layout, blob)).collect();
    stream::iter(pulls).buffer_unordered(at_once).try_collect::<()>().await?;
    // Children come before what names them, so that a layout never names what it lacks.
    for level in levels.into_iter().rev() {
        for manifest in level {
            write(layout, manifest.bytes).await?;
        }
    }
    Ok(())
}

async fn fetch_one(session: &Session, child: Digest) -> Result<Fetched, RegistryError> {
    manifests::fetch(session, &Target::Digest(child)).await
}

async fn list(layout: &LayoutDir, descriptor: Descriptor, tag: Option<&str>) -> Result<(), RegistryError> {
    let (layout, tag, digest) = (layout.clone(), tag.map(str::to_owned), descriptor.digest);
    let joined = tokio::task::spawn_blocking(move || layout.add_to_index(descriptor, tag.as_deref())).await;
    Ok(joined.map_err(|error| RegistryError::Manifest { digest, problem: error.to_string() })??)
}
