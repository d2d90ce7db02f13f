//! The channels that the seals of a bundle name, and its places in them.

use std::collections::BTreeMap;
use std::io;

use symseal_seal::{SigstoreBundle, Statement};

use super::Ground;
use crate::blobs::BlobDigest;
use crate::ids::BundleEntry;
use crate::repositories::Repository;
use crate::seals::{Verdict, seals_in};

/// A channel of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Channel {
    /// `None` stands for no channel.
    pub(super) name: Option<String>,
    /// The release's sequence, where a seal says it: the larger one is the newer one.
    pub(super) sequence: Option<u64>,
}

/// The channels of a bundle by its seals in a repository, one at least. A bundle whose seals the server does not believe is in none. Blocks.
///
/// # Errors
/// A seal cannot be read now: nothing may go by what it does not say.
pub(super) fn channels_of(
    ground: &Ground<'_>,
    repository: &Repository,
    bundle: &BlobDigest,
    entry: &BundleEntry,
) -> io::Result<Vec<Channel>> {
    let none = || vec![Channel { name: None, sequence: None }];
    let seals = seals_in(repository, bundle, ground.blobs)?;
    let verdict = ground.seals.judge(entry, &seals);
    if !matches!(verdict, Verdict::Sealed(_) | Verdict::Unjudged) {
        return Ok(none());
    }
    // Of several seals that say different things each counts: a bundle goes only where all of its channels let it.
    let mut channels: BTreeMap<Option<String>, Option<u64>> = BTreeMap::new();
    for (name, sequence) in seals.iter().filter_map(|seal| channel_in(seal, bundle)) {
        let known = channels.entry(name).or_default();
        *known = sequence.max(*known);
    }
    let channels: Vec<Channel> = channels.into_iter().map(|(name, sequence)| Channel { name, sequence }).collect();
    Ok(if channels.is_empty() { none() } else { channels })
}

/// What a seal of a bundle says of the channel and the sequence; `None` where it is another's, or cannot be read.
fn channel_in(seal: &[u8], bundle: &BlobDigest) -> Option<(Option<String>, Option<u64>)> {
    let seal = SigstoreBundle::parse(seal).ok()?;
    let statement = Statement::parse(&seal.envelope.payload).ok()?;
    let is_about_it = statement.subject.iter().any(|subject| subject.digest.sha256 == bundle.hex());
    let release = statement.predicate.release;
    is_about_it.then_some((release.channel, release.sequence))
}
