//! A bundle comes in: manifests are read from the top, and stored from the bottom.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use oci_client::RegistryOperation;
use symseal_bundle::oci::Descriptor;
use symseal_bundle::{Digest, LayoutDir};

use crate::options::Progress;
use crate::resume::keep_right_pages;
use crate::session::Session;
use crate::transfer::pull_blob;
use crate::tree::{Bounds, Tree, is_bundle, referrer_tree};
use crate::{Options, Reference, RegistryError, manifests, referrers};

/// What a pull brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullReport {
    /// What the reference names.
    pub digest: Digest,
    /// Blobs below it and its referrers that the layout has now and had not, manifests left out.
    pub blobs_received: u64,
    /// Those that it had.
    pub blobs_existing: u64,
    /// Bytes of the received ones.
    pub bytes_received: u64,
}

impl PullReport {
    fn count(&mut self, tree: &Tree, sound: &BTreeSet<Digest>) {
        for blob in &tree.blobs {
            if sound.contains(&blob.digest) {
                self.blobs_existing += 1;
            } else {
                self.blobs_received += 1;
                self.bytes_received = self.bytes_received.saturating_add(blob.size);
            }
        }
    }
}

/// Brings what `reference` names, everything below it and its referrers into a layout.
///
/// Every byte is checked against its digest before it is seen in the layout; the digest that a tag resolves to is the
/// registry's word. What the layout has is not fetched again, unless its bytes are not those of its digest
/// ([`Progress::Damaged`]), and a large blob whose transfer broke off goes on where it
/// stopped. The layout's `index.json` lists the result, under the reference's tag if it has one, and the referrers.
///
/// Anybody may add referrers, so that one that is no manifest, not whole or too large is passed over, and
/// [`Progress::PassedOver`] says why.
///
/// # Errors
/// [`RegistryError`] names what could not be fetched. What was fetched stays.
pub async fn pull(reference: &Reference, layout: &LayoutDir, options: &Options) -> Result<PullReport, RegistryError> {
    let session = Session::new(reference, RegistryOperation::Pull, options)?;
    let root = manifests::fetch(&session, reference.target()).await?;
    let digest = root.descriptor.digest;
    let descriptor = root.descriptor.clone();
    let beside_bundle = is_bundle(&root);
    let mut report = PullReport { digest, blobs_received: 0, blobs_existing: 0, bytes_received: 0 };
    pull_tree(&session, layout, Tree::read(&session, root, Bounds::WIDE).await?, &mut report).await?;
    list(layout, descriptor, reference.tag()).await?;
    for referrer in referrers::list(&session, &digest).await? {
        let referrer_digest = referrer.digest;
        match pull_referrer(&session, layout, referrer, beside_bundle, &mut report).await {
            Err(error) if referrers::is_junk(&error) => {
                let reason = error.to_string();
                session.options.tell(Progress::PassedOver { referrer: referrer_digest, reason });
            }
            pulled => pulled?,
        }
    }
    Ok(report)
}

/// Brings one referrer, which anybody may have put there: it is bounded, and whole before the layout lists it.
async fn pull_referrer(
    session: &Session,
    layout: &LayoutDir,
    referrer: Descriptor,
    beside_bundle: bool,
    report: &mut PullReport,
) -> Result<(), RegistryError> {
    let (descriptor, tree) = referrer_tree(session, referrer, beside_bundle).await?;
    pull_tree(session, layout, tree, report).await?;
    list(layout, descriptor, None).await
}

async fn pull_tree(
    session: &Session,
    layout: &LayoutDir,
    tree: Tree,
    report: &mut PullReport,
) -> Result<(), RegistryError> {
    let sound = sound_blobs(session, layout, &tree.blobs).await?;
    let mut counted = *report;
    counted.count(&tree, &sound);
    let (blobs, at_once) = (&tree.blobs, session.options.concurrency.max(1));
    session.options.tell(Progress::Found { blobs: blobs.len() as u64, bytes: tree.blob_bytes() });
    keep_right_pages(session, layout, blobs).await?;
    // Futures of one named function: closures over borrowed items would not be `Send` for every caller.
    let pulls: Vec<_> = blobs.iter().map(|blob| pull_blob(session, layout, blob)).collect();
    stream::iter(pulls).buffer_unordered(at_once).try_collect::<()>().await?;
    tree.write_manifests(layout).await?;
    *report = counted;
    Ok(())
}

/// Those of the blobs that the layout has and that have their digests. Others of these names are removed, so that they are fetched.
async fn sound_blobs(
    session: &Session,
    layout: &LayoutDir,
    blobs: &[Descriptor],
) -> Result<BTreeSet<Digest>, RegistryError> {
    let at_once = session.options.concurrency.max(1);
    let looks: Vec<_> = blobs
        .iter()
        .map(|blob| blob.digest)
        .filter(|digest| layout.has(digest))
        .map(|digest| look(layout, digest))
        .collect();
    let looked: Vec<(Digest, bool)> = stream::iter(looks).buffer_unordered(at_once).try_collect().await?;
    let mut sound = BTreeSet::new();
    for (digest, is_sound) in looked {
        if is_sound {
            sound.insert(digest);
        } else {
            let path = layout.blob_path(&digest);
            session.options.tell(Progress::Damaged { digest });
            match tokio::fs::remove_file(&path).await {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(RegistryError::File { path, source });
                }
                _ => {}
            }
        }
    }
    Ok(sound)
}

/// Hashes a blob, on a thread that serves nobody else.
async fn look(layout: &LayoutDir, digest: Digest) -> Result<(Digest, bool), RegistryError> {
    let layout_there = layout.clone();
    let looked = tokio::task::spawn_blocking(move || layout_there.is_sound(&digest)).await;
    let failed = |error| RegistryError::File { path: layout.blob_path(&digest), source: std::io::Error::other(error) };
    Ok((digest, looked.map_err(failed)?))
}

/// Lists what is whole in a layout's `index.json`.
pub(crate) async fn list(layout: &LayoutDir, descriptor: Descriptor, tag: Option<&str>) -> Result<(), RegistryError> {
    let (layout, tag, digest) = (layout.clone(), tag.map(str::to_owned), descriptor.digest);
    let joined = tokio::task::spawn_blocking(move || layout.add_to_index(descriptor, tag.as_deref())).await;
    Ok(joined.map_err(|error| RegistryError::Manifest { digest, problem: error.to_string() })??)
}
