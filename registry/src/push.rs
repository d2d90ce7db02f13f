//! A bundle goes out: blobs, then the manifests that name them, then what the reference names, then its referrers.

use std::collections::HashSet;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use oci_client::RegistryOperation;
use symseal_bundle::oci::Descriptor;
use symseal_bundle::{Digest, LayoutDir};

use crate::manifests::{self, Children};
use crate::options::Progress;
use crate::session::Session;
use crate::upload::push_blob;
use crate::{Options, PushReport, Reference, RegistryError, Target, referrers};

/// Image indexes inside image indexes that are followed.
pub(crate) const DEPTH_LIMIT: usize = 4;

/// Sends the image index or manifest `digest` of a layout, everything below it and its referrers to `reference`.
///
/// What the registry has is not sent again. A reference with a digest must name `digest`; one with a tag sets the tag.
/// The tag, or the digest, becomes visible after everything below it, and each referrer after its subject.
///
/// # Errors
/// [`RegistryError`] names what could not be sent. What was sent stays, and a second push goes on from there.
pub async fn push(
    layout: &LayoutDir,
    digest: &Digest,
    reference: &Reference,
    options: &Options,
) -> Result<PushReport, RegistryError> {
    if let Target::Digest(wanted) = reference.target()
        && wanted != digest
    {
        let problem = format!("the reference {reference} asks for another digest: give it a tag, or push {wanted}");
        return Err(RegistryError::Manifest { digest: *digest, problem });
    }
    let session = Session::new(reference, RegistryOperation::Push, options)?;
    let mut report = PushReport { digest: Some(*digest), referrers_api: true, ..PushReport::default() };
    push_tree(&session, layout, *digest, reference.target(), &mut report).await?;

    let listed = {
        let layout = layout.clone();
        let digest = *digest;
        move || layout.referrers(&digest)
    };
    let joined = tokio::task::spawn_blocking(listed).await;
    let listed = joined.map_err(|error| RegistryError::Manifest { digest: *digest, problem: error.to_string() })??;
    for referrer in listed {
        let named = Target::Digest(referrer.digest);
        let knows_subject = push_tree(&session, layout, referrer.digest, &named, &mut report).await?;
        if !knows_subject {
            report.referrers_api = false;
            referrers::add_by_tag(&session, digest, referrer).await?;
        }
        report.referrers += 1;
    }
    Ok(report)
}

/// Sends one manifest with everything below it; whether the registry said that it keeps its subject.
async fn push_tree(
    session: &Session,
    layout: &LayoutDir,
    root: Digest,
    target: &Target,
    report: &mut PushReport,
) -> Result<bool, RegistryError> {
    let tree = Tree::read(layout, root).await?;
    let bytes = tree.blobs.iter().map(|blob| blob.size).sum();
    session.options.tell(Progress::Found { blobs: tree.blobs.len() as u64, bytes });
    let at_once = session.options.concurrency.max(1);
    // Futures of one named function: closures over borrowed items would not be `Send` for every caller.
    let pushes: Vec<_> = tree.blobs.iter().map(|blob| push_one(session, layout, blob.digest, blob.size)).collect();
    let sent: Vec<(bool, u64)> = stream::iter(pushes).buffer_unordered(at_once).try_collect().await?;
    for (sent, bytes) in sent {
        match sent {
            true => {
                report.blobs_sent += 1;
                report.bytes_sent += bytes;
            }
            false => report.blobs_existing += 1,
        }
    }
    // Children come before what names them: a level is sent when the one below it is there.
    for level in tree.levels.iter().rev() {
        let puts: Vec<_> = level.iter().map(|digest| put_one(session, layout, *digest)).collect();
        stream::iter(puts).buffer_unordered(at_once).try_collect::<()>().await?;
        report.manifests += level.len() as u64;
    }
    let bytes = manifests::read(layout, root).await?;
    let answer = manifests::put(session, target, &bytes).await?;
    report.manifests += 1;
    Ok(answer.headers().contains_key("oci-subject"))
}

async fn push_one(
    session: &Session,
    layout: &LayoutDir,
    digest: Digest,
    size: u64,
) -> Result<(bool, u64), RegistryError> {
    Ok((push_blob(session, layout, &digest).await?, size))
}

async fn put_one(session: &Session, layout: &LayoutDir, digest: Digest) -> Result<(), RegistryError> {
    let bytes = manifests::read(layout, digest).await?;
    manifests::put(session, &Target::Digest(digest), &bytes).await.map(drop)
}

/// Everything below a manifest.
struct Tree {
    blobs: Vec<Descriptor>,
    /// Manifests below the root, by depth.
    levels: Vec<Vec<Digest>>,
}

impl Tree {
    async fn read(layout: &LayoutDir, root: Digest) -> Result<Self, RegistryError> {
        let (mut blobs, mut levels, mut seen) = (Vec::new(), Vec::new(), HashSet::from([root]));
        let mut level = vec![root];
        for _ in 0..=DEPTH_LIMIT {
            let mut below = Vec::new();
            for digest in level {
                let bytes = manifests::read(layout, digest).await?;
                let Children { blobs: named, manifests } = manifests::children(digest, &bytes)?;
                blobs.extend(named.into_iter().filter(|blob| seen.insert(blob.digest)));
                below.extend(manifests.into_iter().map(|child| child.digest).filter(|child| seen.insert(*child)));
            }
            if below.is_empty() {
                return Ok(Self { blobs, levels });
            }
            levels.push(below.clone());
            level = below;
        }
        let problem = format!("image indexes are nested deeper than {DEPTH_LIMIT}");
        Err(RegistryError::Manifest { digest: root, problem })
    }
}
