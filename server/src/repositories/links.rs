//! The blobs that a repository offers, and what keeps each of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::blobs::BlobDigest;

/// Clients that are told of a blob within so many milliseconds count as one.
const ONE_TELLING: u64 = 1000;

/// Blobs that may be fetched from a repository, and digests that its manifests name.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// When a client was last told that the blob is here, in milliseconds since 1970.
    offered: HashMap<BlobDigest, AtomicU64>,
    /// In how many manifests a digest stands, be it a blob's or a manifest's.
    named: HashMap<BlobDigest, u32>,
    /// Manifests whose index or subject was deleted, and when a client was last told of one.
    orphans: HashMap<BlobDigest, AtomicU64>,
}

/// What a client is told of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// No manifest keeps the blob, and the last telling is so old that this one must be kept on disk too.
    pub(super) to_keep: Option<SystemTime>,
}

impl Links {
    /// Offers a blob, since a time.
    pub(super) fn offer(&mut self, digest: BlobDigest, since: SystemTime) {
        self.offered.entry(digest).or_default().fetch_max(milliseconds(since), Ordering::AcqRel);
    }

    /// Whether a blob is offered.
    pub(super) fn has(&self, digest: &BlobDigest) -> bool {
        self.offered.contains_key(digest)
    }

    /// Nothing is offered.
    pub(super) fn is_empty(&self) -> bool {
        self.offered.is_empty()
    }

    /// Every blob that is offered.
    pub(super) fn offered(&self) -> impl Iterator<Item = &BlobDigest> {
        self.offered.keys()
    }

    /// Tells a client of a blob, if it is offered: from now on the grace period runs anew.
    pub(super) fn tell(&self, digest: &BlobDigest) -> Option<Told> {
        let now = SystemTime::now();
        let last = self.offered.get(digest)?.fetch_max(milliseconds(now), Ordering::AcqRel);
        let is_old = milliseconds(now) >= last.saturating_add(ONE_TELLING);
        Some(Told { to_keep: (is_old && !self.is_named(digest)).then_some(now) })
    }

    /// Ceases to offer a blob; whether it was.
    pub(super) fn withdraw(&mut self, digest: &BlobDigest) -> bool {
        self.offered.remove(digest).is_some()
    }

    /// At most `limit` blobs that no manifest names and no client was told of since `before`.
    pub(super) fn idle(&self, before: SystemTime, limit: usize) -> Vec<BlobDigest> {
        let before = milliseconds(before);
        let idle = |(digest, told): &(&BlobDigest, &AtomicU64)| {
            told.load(Ordering::Acquire) < before && !self.is_named(digest)
        };
        self.offered.iter().filter(idle).map(|(digest, _)| digest.clone()).take(limit).collect()
    }

    /// A manifest goes with its index or its subject, unless something else keeps it.
    pub(super) fn orphan(&mut self, digest: BlobDigest, since: SystemTime) {
        self.orphans.entry(digest).or_default().fetch_max(milliseconds(since), Ordering::AcqRel);
    }

    /// A manifest was sent for its own sake; whether it was an orphan.
    pub(super) fn adopt(&mut self, digest: &BlobDigest) -> bool {
        self.orphans.remove(digest).is_some()
    }

    /// Tells a client of a manifest; the time, if it is an orphan.
    pub(super) fn tell_of_orphan(&self, digest: &BlobDigest) -> Option<SystemTime> {
        let now = SystemTime::now();
        self.orphans.get(digest)?.fetch_max(milliseconds(now), Ordering::AcqRel);
        Some(now)
    }

    /// Whether a manifest is an orphan.
    pub(super) fn is_orphan(&self, digest: &BlobDigest) -> bool {
        self.orphans.contains_key(digest)
    }

    /// The orphans that no manifest names and no client was told of since `before`.
    pub(super) fn idle_orphans(&self, before: SystemTime) -> Vec<BlobDigest> {
        self.orphans.keys().filter(|digest| self.is_idle_orphan(digest, before)).cloned().collect()
    }

    /// Whether a manifest is one of [`Self::idle_orphans`].
    pub(super) fn is_idle_orphan(&self, digest: &BlobDigest, before: SystemTime) -> bool {
        let told = self.orphans.get(digest).map(|told| told.load(Ordering::Acquire));
        told.is_some_and(|told| told < milliseconds(before)) && !self.is_named(digest)
    }

    /// Whether a manifest names a digest.
    pub(super) fn is_named(&self, digest: &BlobDigest) -> bool {
        self.named.contains_key(digest)
    }

    /// A manifest names these.
    pub(super) fn name<'d>(&mut self, digests: impl Iterator<Item = &'d BlobDigest>) {
        for digest in digests {
            let count = self.named.entry(digest.clone()).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// A manifest that named these is gone; those that nothing names now.
    pub(super) fn forget<'d>(&mut self, digests: impl Iterator<Item = &'d BlobDigest>) -> Vec<BlobDigest> {
        let mut idle = Vec::new();
        for digest in digests {
            let Some(count) = self.named.get_mut(digest) else { continue };
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.named.remove(digest);
                idle.push(digest.clone());
            }
        }
        idle
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_idle_when_nothing_names_it_and_nobody_was_told_of_it() {
        let (mut links, blob) = (Links::default(), BlobDigest::of(b"blob"));
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let lately = SystemTime::now() - Duration::from_secs(60);
        assert_eq!(links.tell(&blob), None);
        links.offer(blob.clone(), long_ago);
        assert_eq!(links.idle(lately, 9), std::slice::from_ref(&blob));
        // Two manifests, one of which names it twice.
        links.name([&blob, &blob].into_iter());
        links.name([&blob].into_iter());
        assert_eq!(links.tell(&blob), Some(Told { to_keep: None }));
        assert!(links.idle(SystemTime::now() + Duration::from_secs(1), 9).is_empty());
        assert!(links.forget([&blob].into_iter()).is_empty());
        assert_eq!(links.forget([&blob, &blob].into_iter()), std::slice::from_ref(&blob));
        assert!(links.idle(lately, 9).is_empty());
        assert_eq!(links.idle(SystemTime::now() + Duration::from_secs(1), 9), [blob]);
    }
}
