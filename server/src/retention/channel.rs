//! The channels that the seals of a bundle name.

use std::collections::BTreeSet;
use std::io;

use symseal_seal::{SigstoreBundle, Statement};

use super::Ground;
use crate::blobs::BlobDigest;
use crate::ids::BundleEntry;
use crate::repositories::{Reference, Repository};
use crate::seals::{Verdict, seals_in};

/// The channels of a bundle; `None` stands for no channel. A bundle whose seals the server does not believe has none. Blocks.
///
/// # Errors
/// A seal cannot be read now: nothing may go by what it does not say.
pub(super) fn channels_of(
    ground: &Ground<'_>,
    bundle: &BlobDigest,
    entry: &BundleEntry,
) -> io::Result<Vec<Option<String>>> {
    let wanted = Reference::Digest(bundle.clone());
    let holders: Vec<_> = ground
        .repositories
        .list()
        .into_iter()
        .filter(|(_, repository)| repository.manifest(&wanted).is_some())
        .map(|(_, repository)| repository)
        .collect();
    let seals = seals_in(holders.iter().map(|repository| -> &Repository { repository }), bundle, ground.blobs)?;
    let verdict = ground.seals.judge(entry, &seals);
    if !matches!(verdict, Verdict::Sealed(_) | Verdict::Unjudged) {
        return Ok(vec![None]);
    }
    // Of several seals that say different things each counts: a bundle goes only where all of its channels let it.
    let channels: BTreeSet<Option<String>> = seals.iter().filter_map(|seal| channel_in(seal, bundle)).collect();
    Ok(if channels.is_empty() { vec![None] } else { channels.into_iter().collect() })
}

/// What a seal of a bundle says of the channel; `None` where it is another's, or cannot be read.
fn channel_in(seal: &[u8], bundle: &BlobDigest) -> Option<Option<String>> {
    let seal = SigstoreBundle::parse(seal).ok()?;
    let statement = Statement::parse(&seal.envelope.payload).ok()?;
    let is_about_it = statement.subject.iter().any(|subject| subject.digest.sha256 == bundle.hex());
    is_about_it.then_some(statement.predicate.release.channel)
}
