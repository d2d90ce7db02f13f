//! A bundle goes out: blobs, then the manifests that name them, then what the reference names, then its referrers.

use std::collections::HashSet;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use oci_client::RegistryOperation;
use symseal_bundle::oci::Descriptor;
use symseal_bundle::{Digest, LayoutDir};

use crate::elsewhere::{Carrier, Elsewhere, Outcome};
use crate::manifests::{self, Children};
use crate::options::{Progress, PushPlan};
use crate::session::Session;
use crate::upload::exists;
use crate::{Options, PushReport, Reference, RegistryError, Target, referrers};

/// Image indexes inside image indexes that are followed.
pub(crate) const DEPTH_LIMIT: usize = 4;

/// Sends the image index or manifest `digest` of a layout, everything below it and its referrers to `reference`.
///
/// What the registry has is not sent again. A reference with a digest must name `digest`; one with a tag sets the tag.
/// The tag, or the digest, becomes visible after everything below it, and each referrer after its subject. Where the registry keeps no
/// referrers, the tag for them is written, for the bundle's own subject as well.
///
/// # Errors
/// [`RegistryError`] names what could not be sent. What was sent stays, and a second push goes on from there.
pub async fn push(
    layout: &LayoutDir,
    digest: &Digest,
    reference: &Reference,
    options: &Options,
) -> Result<PushReport, RegistryError> {
    push_with(layout, digest, reference, &Elsewhere::default(), options).await
}

/// The same for a layout that lacks blobs: these are at the destination already, are mounted there, or are copied from
/// another registry, as `elsewhere` says. The layout must be one that nobody else uses: copied blobs pass through it.
///
/// # Errors
/// As [`push`].
pub async fn push_with(
    layout: &LayoutDir,
    digest: &Digest,
    reference: &Reference,
    elsewhere: &Elsewhere,
    options: &Options,
) -> Result<PushReport, RegistryError> {
    check_target(digest, reference)?;
    let session = Session::new(reference, RegistryOperation::Push, options)?;
    let session = session.and_pull_from(elsewhere.mountable(reference));
    let carrier = Carrier::new(&session, layout, elsewhere);
    let mut report = PushReport { digest: Some(*digest), referrers_api: true, ..PushReport::default() };
    push_tree(&carrier, *digest, reference.target(), &mut report).await?;
    for referrer in listed_referrers(layout, *digest).await? {
        let referrer = referrer.digest;
        match push_tree(&carrier, referrer, &Target::Digest(referrer), &mut report).await {
            Ok(()) => report.referrers += 1,
            // Anybody may add referrers: one whose blobs are not where they come from keeps back nothing else.
            Err(error) if elsewhere.leaves_out && error.is_of_one_object() => {
                report.referrers_passed_over += 1;
                session.options.tell(Progress::PassedOver { referrer, reason: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(report)
}

/// What [`push`] would do: the registry is asked which blobs it has, and nothing is sent.
///
/// # Errors
/// As [`push`].
pub async fn plan(
    layout: &LayoutDir,
    digest: &Digest,
    reference: &Reference,
    options: &Options,
) -> Result<PushPlan, RegistryError> {
    check_target(digest, reference)?;
    let session = Session::new(reference, RegistryOperation::Pull, options)?;
    let mut plan = PushPlan::default();
    let mut seen = HashSet::new();
    let referrers = listed_referrers(layout, *digest).await?;
    for root in std::iter::once(*digest).chain(referrers.into_iter().map(|referrer| referrer.digest)) {
        let tree = Tree::read(layout, root).await?;
        plan.manifests += 1 + tree.levels.iter().map(|level| level.len() as u64).sum::<u64>();
        let blobs: Vec<Descriptor> = tree.blobs.into_iter().filter(|blob| seen.insert(blob.digest)).collect();
        let asked: Vec<_> = blobs.iter().map(|blob| exists_one(&session, blob)).collect();
        let at_once = session.options.concurrency.max(1);
        let known: Vec<(bool, u64)> = stream::iter(asked).buffer_unordered(at_once).try_collect().await?;
        for (exists, bytes) in known {
            match exists {
                true => plan.blobs_existing += 1,
                false => {
                    plan.blobs_missing += 1;
                    plan.bytes_missing = plan.bytes_missing.saturating_add(bytes);
                }
            }
        }
    }
    Ok(plan)
}

async fn exists_one(session: &Session, blob: &Descriptor) -> Result<(bool, u64), RegistryError> {
    Ok((exists(session, &blob.digest).await?, blob.size))
}

fn check_target(digest: &Digest, reference: &Reference) -> Result<(), RegistryError> {
    match reference.target() {
        Target::Digest(wanted) if wanted != digest => {
            let problem = format!("the reference {reference} asks for another digest: give it a tag, or push {wanted}");
            Err(RegistryError::Manifest { digest: *digest, problem })
        }
        _ => Ok(()),
    }
}

async fn listed_referrers(layout: &LayoutDir, digest: Digest) -> Result<Vec<Descriptor>, RegistryError> {
    let layout = layout.clone();
    let joined = tokio::task::spawn_blocking(move || layout.referrers(&digest)).await;
    Ok(joined.map_err(|error| RegistryError::Manifest { digest, problem: error.to_string() })??)
}

/// Sends one manifest with everything below it, and lists it by tag under its subject where the registry did not say that it
/// keeps referrers.
async fn push_tree(
    carrier: &Carrier<'_>,
    root: Digest,
    target: &Target,
    report: &mut PushReport,
) -> Result<(), RegistryError> {
    let (session, layout) = (carrier.session, carrier.layout);
    let tree = Tree::read(layout, root).await?;
    let bytes = tree.blobs.iter().map(|blob| blob.size).sum();
    session.options.tell(Progress::Found { blobs: tree.blobs.len() as u64, bytes });
    let at_once = session.options.concurrency.max(1);
    // Futures of one named function: closures over borrowed items would not be `Send` for every caller.
    let pushes: Vec<_> = tree.blobs.iter().map(|blob| push_one(carrier, blob)).collect();
    let done: Vec<(Outcome, u64)> = stream::iter(pushes).buffer_unordered(at_once).try_collect().await?;
    for (outcome, bytes) in done {
        report.count(outcome, bytes);
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
    if let Some((subject, referrer)) = manifests::as_referrer(root, &bytes)?
        && !answer.headers().contains_key("oci-subject")
    {
        report.referrers_api = false;
        referrers::add_by_tag(session, &subject, referrer).await?;
    }
    Ok(())
}

async fn push_one(carrier: &Carrier<'_>, blob: &Descriptor) -> Result<(Outcome, u64), RegistryError> {
    Ok((carrier.bring(blob).await?, blob.size))
}

impl PushReport {
    fn count(&mut self, outcome: Outcome, bytes: u64) {
        match outcome {
            Outcome::Existed => self.blobs_existing += 1,
            Outcome::Mounted => self.blobs_mounted += 1,
            Outcome::Sent | Outcome::Copied => {
                self.blobs_sent += 1;
                self.bytes_sent = self.bytes_sent.saturating_add(bytes);
            }
        }
        if outcome == Outcome::Copied {
            self.blobs_copied += 1;
            self.bytes_fetched = self.bytes_fetched.saturating_add(bytes);
        }
    }
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
