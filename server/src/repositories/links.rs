//! The blobs that a repository offers, and what keeps each of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::manifest::Child;
use crate::blobs::BlobDigest;

/// Clients that are told of a blob within so many milliseconds count as one.
const ONE_TELLING: u64 = 1000;

/// Blobs that may be fetched from a repository, and digests that its manifests name.
#[derive(Debug, Default)]
pub(super) struct Links {
    offered: HashMap<BlobDigest, Offered>,
    /// In how many manifests a digest stands, be it a blob's or a manifest's, and the size that they say.
    named: HashMap<BlobDigest, Named>,
    /// The sizes of what is offered and counts, together.
    bytes: u64,
    /// Manifests whose index or subject was deleted, and when a client was last told of one.
    orphans: HashMap<BlobDigest, AtomicU64>,
}

#[derive(Debug)]
struct Offered {
    /// When a client was last told that the blob is here, in milliseconds since 1970.
    told: AtomicU64,
    /// Bytes in the blob, while they count: from its upload until the last manifest that counts and names it is gone. `None` also for one that
    /// came before this start, or to another server, and that no manifest names.
    size: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Named {
    count: u32,
    /// Those of the manifests that were not left behind by a deletion.
    counting: u32,
    size: u64,
}

/// What a client is told of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// No manifest keeps the blob, and the last telling is so old that this one must be kept on disk too.
    pub(super) to_keep: Option<SystemTime>,
}

impl Links {
    /// Offers a blob, since a time; with its size, where that is known.
    pub(super) fn offer(&mut self, digest: BlobDigest, size: Option<u64>, since: SystemTime) {
        let named = self.named.get(&digest).filter(|named| named.counting > 0);
        let size = size.or_else(|| named.map(|named| named.size));
        let new = || Offered { told: AtomicU64::new(0), size: None };
        self.offered.entry(digest.clone()).or_insert_with(new).told.fetch_max(milliseconds(since), Ordering::AcqRel);
        if let Some(size) = size {
            self.count(&digest, size);
        }
    }

    /// Bytes of everything that is offered and counts, each blob once.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a blob is offered and counts among the bytes.
    pub(super) fn counts(&self, digest: &BlobDigest) -> bool {
        self.offered.get(digest).is_some_and(|offered| offered.size.is_some())
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
        let last = self.offered.get(digest)?.told.fetch_max(milliseconds(now), Ordering::AcqRel);
        let is_old = milliseconds(now) >= last.saturating_add(ONE_TELLING);
        Some(Told { to_keep: (is_old && !self.is_named(digest)).then_some(now) })
    }

    /// Ceases to offer a blob; where it was, the bytes for which it counted.
    pub(super) fn withdraw(&mut self, digest: &BlobDigest) -> Option<Option<u64>> {
        let offered = self.offered.remove(digest)?;
        self.bytes = self.bytes.saturating_sub(offered.size.unwrap_or(0));
        Some(offered.size)
    }

    /// The blobs that count and that no manifest names, with their sizes: nothing but memory knows these.
    pub(super) fn uploaded(&self) -> impl Iterator<Item = (&BlobDigest, u64)> {
        let unnamed = self.offered.iter().filter(|(digest, _)| !self.is_named(digest));
        unnamed.filter_map(|(digest, offered)| Some((digest, offered.size?)))
    }

    /// At most `limit` blobs that no manifest names and no client was told of since `before`.
    pub(super) fn idle(&self, before: SystemTime, limit: usize) -> Vec<BlobDigest> {
        let before = milliseconds(before);
        let idle = |(digest, offered): &(&BlobDigest, &Offered)| {
            offered.told.load(Ordering::Acquire) < before && !self.is_named(digest)
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

    /// Every orphan.
    pub(super) fn orphans(&self) -> impl Iterator<Item = &BlobDigest> {
        self.orphans.keys()
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

    /// Bytes of what a manifest names, as that says.
    pub(super) fn named_size(&self, digest: &BlobDigest) -> Option<u64> {
        self.named.get(digest).map(|named| named.size)
    }

    /// Everything that manifests name.
    pub(super) fn named(&self) -> impl Iterator<Item = &BlobDigest> {
        self.named.keys()
    }

    /// Whether a manifest that counts names a digest.
    pub(super) fn is_counting(&self, digest: &BlobDigest) -> bool {
        self.named.get(digest).is_some_and(|named| named.counting > 0)
    }

    /// A manifest names these, and counts.
    pub(super) fn name<'d>(&mut self, children: impl Iterator<Item = &'d Child>) {
        for Child { digest, size } in children {
            let new = Named { count: 0, counting: 0, size: *size };
            let named = self.named.entry(digest.clone()).or_insert(new);
            named.count = named.count.saturating_add(1);
            named.counting = named.counting.saturating_add(1);
            self.count(digest, *size);
        }
    }

    /// A manifest that named these and counted, or did not any more, is gone; those that nothing names now.
    pub(super) fn forget<'d>(
        &mut self,
        digests: impl Iterator<Item = &'d BlobDigest>,
        counted: bool,
    ) -> Vec<BlobDigest> {
        let mut idle = Vec::new();
        for digest in digests {
            if counted {
                self.uncount(digest);
            }
            let Some(named) = self.named.get_mut(digest) else { continue };
            named.count = named.count.saturating_sub(1);
            if named.count == 0 {
                self.named.remove(digest);
                idle.push(digest.clone());
            }
        }
        idle
    }

    /// A manifest that names a digest ceases to count.
    pub(super) fn uncount(&mut self, digest: &BlobDigest) {
        let Some(named) = self.named.get_mut(digest) else { return };
        named.counting = named.counting.saturating_sub(1);
        if named.counting == 0
            && let Some(offered) = self.offered.get_mut(digest)
        {
            self.bytes = self.bytes.saturating_sub(offered.size.take().unwrap_or(0));
        }
    }

    /// A manifest that names a digest counts again.
    pub(super) fn recount(&mut self, digest: &BlobDigest) {
        let Some(named) = self.named.get_mut(digest) else { return };
        named.counting = named.counting.saturating_add(1);
        let size = named.size;
        self.count(digest, size);
    }

    fn count(&mut self, digest: &BlobDigest, size: u64) {
        if let Some(offered) = self.offered.get_mut(digest)
            && offered.size.is_none()
        {
            offered.size = Some(size);
            self.bytes = self.bytes.saturating_add(size);
        }
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
        links.offer(blob.clone(), None, long_ago);
        assert_eq!(links.idle(lately, 9), std::slice::from_ref(&blob));
        // Two manifests, one of which names it twice.
        let child = Child { digest: blob.clone(), size: 4 };
        links.name([&child, &child].into_iter());
        links.name([&child].into_iter());
        assert_eq!(links.tell(&blob), Some(Told { to_keep: None }));
        assert!(links.idle(SystemTime::now() + Duration::from_secs(1), 9).is_empty());
        assert!(links.forget([&blob].into_iter(), true).is_empty());
        assert_eq!(links.forget([&blob, &blob].into_iter(), true), std::slice::from_ref(&blob));
        assert!(links.idle(lately, 9).is_empty());
        assert_eq!(links.idle(SystemTime::now() + Duration::from_secs(1), 9), [blob]);
    }

    #[test]
    fn a_blob_counts_once_from_when_its_size_is_known_until_it_is_no_longer_offered() {
        let (mut links, now) = (Links::default(), SystemTime::now());
        let [uploaded, found, named] = [b"1", b"2", b"3"].map(|bytes| BlobDigest::of(bytes));
        links.offer(uploaded.clone(), Some(100), now);
        links.offer(uploaded.clone(), Some(100), now);
        links.offer(found.clone(), None, now);
        assert_eq!((links.bytes(), links.counts(&uploaded), links.counts(&found)), (100, true, false));
        let children =
            [(&uploaded, 100), (&found, 20), (&named, 3)].map(|(digest, size)| Child { digest: digest.clone(), size });
        links.name(children.iter());
        assert_eq!(links.bytes(), 120);
        // As at a start, where manifests are read first.
        links.offer(named.clone(), None, now);
        assert_eq!(links.bytes(), 123);
        // Nothing names it any more: it can be had until the collector comes, and counts no longer.
        assert_eq!(links.forget([&found].into_iter(), true), std::slice::from_ref(&found));
        assert!(links.has(&found) && !links.counts(&found));
        assert_eq!(links.bytes(), 103);
        assert_eq!((links.withdraw(&found), links.withdraw(&found)), (Some(None), None));
        assert_eq!(links.withdraw(&uploaded), Some(Some(100)));
        assert_eq!(links.bytes(), 3);
    }

    #[test]
    fn a_blob_counts_while_a_manifest_that_counts_names_it() {
        let (mut links, blob) = (Links::default(), BlobDigest::of(b"blob"));
        let child = Child { digest: blob.clone(), size: 4 };
        links.offer(blob.clone(), Some(4), SystemTime::now());
        assert_eq!(links.uploaded().collect::<Vec<_>>(), [(&blob, 4)]);
        links.name([&child].into_iter());
        links.name([&child].into_iter());
        assert_eq!(links.uploaded().count(), 0);
        links.uncount(&blob);
        assert_eq!((links.bytes(), links.is_counting(&blob)), (4, true));
        links.uncount(&blob);
        assert_eq!((links.bytes(), links.is_counting(&blob), links.is_named(&blob)), (0, false, true));
        links.recount(&blob);
        assert_eq!(links.bytes(), 4);
        // The one that does not count goes.
        assert!(links.forget([&blob].into_iter(), false).is_empty());
        assert_eq!(links.bytes(), 4);
        assert_eq!(links.forget([&blob].into_iter(), true), [blob]);
        assert_eq!(links.bytes(), 0);
    }
}
