//! Blobs that a request relies on while it makes a reference to them: the collector leaves them alone.
//!
//! Whoever makes a blob referenced (a finished upload, a mount, a manifest, a trace) pins it first, then looks whether
//! its bytes are there or puts them there, then writes the reference, and lets go. The collector takes bytes only while
//! nobody can pin, and only those that nobody has pinned since it began to look for references: a reference that it did
//! not see was either gone, or made under such a pin.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::BlobDigest;

/// What is pinned now, and since the collector began.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    now: HashMap<BlobDigest, usize>,
    since_watch: Option<HashSet<BlobDigest>>,
}

/// A blob stays where it is, or stays away, while this lives.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    digest: BlobDigest,
}

/// While it lives, whatever is pinned once counts as pinned.
#[derive(Debug)]
pub(crate) struct Watch {
    pins: Arc<Pins>,
}

impl Pins {
    /// Pins a blob, whether it is here or not.
    pub(crate) fn pin(self: &Arc<Self>, digest: &BlobDigest) -> Pin {
        let mut held = self.lock();
        *held.now.entry(digest.clone()).or_default() += 1;
        if let Some(since) = &mut held.since_watch {
            since.insert(digest.clone());
        }
        Pin { pins: Arc::clone(self), digest: digest.clone() }
    }

    /// Begins to remember pins; one watch at a time.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        let mut held = self.lock();
        held.since_watch = Some(held.now.keys().cloned().collect());
        Watch { pins: Arc::clone(self) }
    }

    /// Runs `take` while nobody can pin, unless the blob is pinned now. It must be quick.
    pub(super) fn unless_pinned_now<T>(&self, digest: &BlobDigest, take: impl FnOnce() -> T) -> Option<T> {
        let held = self.lock();
        (!held.now.contains_key(digest)).then(take)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Runs `take` while nobody can pin, unless the blob was pinned since the watch began. It must be quick.
    pub(crate) fn unless_pinned<T>(&self, digest: &BlobDigest, take: impl FnOnce() -> T) -> Option<T> {
        let held = self.pins.lock();
        let pinned = held.since_watch.as_ref().is_none_or(|since| since.contains(digest));
        (!pinned).then(take)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut held = self.pins.lock();
        if let Some(count) = held.now.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                held.now.remove(&self.digest);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.pins.lock().since_watch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_or_was_pinned_since_the_watch_began_is_not_taken() {
        let pins = Arc::<Pins>::default();
        let [before, during, gone, never] = [b"1", b"2", b"3", b"4"].map(|bytes| BlobDigest::of(bytes));
        let held = [pins.pin(&before), pins.pin(&before)];
        drop(pins.pin(&gone));
        let watch = pins.watch();
        drop(held);
        drop(pins.pin(&during));
        for (digest, taken) in [(&before, false), (&during, false), (&gone, true), (&never, true)] {
            assert_eq!(watch.unless_pinned(digest, || ()).is_some(), taken, "{digest}");
        }
        drop(watch);
        assert!(pins.watch().unless_pinned(&before, || ()).is_some());
    }
}
