//! Blobs in the object store, and the directory as a bounded cache of them.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

use super::directory::StoredBlob;
use super::{BlobDigest, BlobDirectory, Hasher, kind_of};
use crate::objects::Objects;
use crate::pool::Pool;

/// What is evicted beyond the bound, as a share of it, so that not every new file evicts one.
const SLACK: u64 = 16;

/// The object store behind a directory.
#[derive(Debug)]
pub(super) struct Remote {
    objects: Arc<Objects>,
    cache_bytes: u64,
    cached: Mutex<Cached>,
    /// Blobs that are fetched now, each once.
    turns: Mutex<HashMap<BlobDigest, Arc<Mutex<()>>>>,
    /// What those wait for who hold no thread meanwhile.
    flights: Mutex<HashMap<BlobDigest, Flight>>,
    /// Where such fetches run, apart from the work of requests.
    fetching: Pool,
}

/// A fetch that many wait for: what an error would be made of.
type Flight = Shared<BoxFuture<'static, Result<(), (io::ErrorKind, String)>>>;

/// The files of the directory.
#[derive(Debug, Default)]
struct Cached {
    /// Bytes, and when it was last used.
    files: HashMap<BlobDigest, (u64, u64)>,
    bytes: u64,
    clock: u64,
}

impl Cached {
    fn used(&mut self, digest: &BlobDigest) {
        self.clock += 1;
        if let Some((_, used)) = self.files.get_mut(digest) {
            *used = self.clock;
        }
    }

    fn insert(&mut self, digest: &BlobDigest, size: u64) {
        self.clock += 1;
        let before = self.files.insert(digest.clone(), (size, self.clock));
        self.bytes = self.bytes.saturating_add(size).saturating_sub(before.map_or(0, |(size, _)| size));
    }

    fn remove(&mut self, digest: &BlobDigest) {
        if let Some((size, _)) = self.files.remove(digest) {
            self.bytes = self.bytes.saturating_sub(size);
        }
    }

    /// What may go: all but what was used last, so that a blob that is larger than the cache is not fetched for each of its readers. What was not
    /// used for the longest comes first.
    fn by_use(&self) -> Vec<BlobDigest> {
        let mut by_use: Vec<_> = self.files.iter().map(|(digest, (_, used))| (*used, digest)).collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        by_use.pop();
        by_use.into_iter().map(|(_, digest)| digest.clone()).collect()
    }
}

impl Remote {
    pub(super) fn new(objects: Arc<Objects>, cache_bytes: u64, mut found: Vec<StoredBlob>) -> Self {
        found.sort_by_key(|blob| blob.modified);
        let mut cached = Cached::default();
        found.iter().for_each(|blob| cached.insert(&blob.digest, blob.size));
        let (turns, flights) = Default::default();
        Self { objects, cache_bytes, cached: Mutex::new(cached), turns, flights, fetching: Pool::for_fetching() }
    }

    pub(super) fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    /// Bytes of a blob in the object store.
    pub(super) fn size(&self, digest: &BlobDigest) -> io::Result<Option<u64>> {
        self.objects.size(&blob_key(digest))
    }

    /// A cached file was read.
    pub(super) fn used(&self, digest: &BlobDigest) {
        self.cached().used(digest);
    }

    /// A cached file is gone.
    pub(super) fn forget(&self, digest: &BlobDigest) {
        self.cached().remove(digest);
    }

    /// Puts a file of the directory into the object store, unless it is there.
    pub(super) fn keep(&self, directory: &BlobDirectory, digest: &BlobDigest) -> io::Result<()> {
        let size = std::fs::metadata(directory.path(digest))?.len();
        let is_there = self.size(digest)? == Some(size);
        self.keep_as(directory, digest, is_there)
    }

    /// [`Self::keep`] for one who knows whether the object store has it.
    pub(super) fn keep_as(&self, directory: &BlobDirectory, digest: &BlobDigest, is_there: bool) -> io::Result<()> {
        let path = directory.path(digest);
        let size = std::fs::metadata(&path)?.len();
        // Of a known one another part of the system may rely on the bytes: they are not written again.
        if !is_there {
            self.objects.put_file(&blob_key(digest), &path)?;
        }
        self.cached().insert(digest, size);
        self.make_room(directory);
        Ok(())
    }

    /// Brings a blob into the directory; those who want the same one wait for it.
    pub(super) fn fetch(&self, directory: &BlobDirectory, digest: &BlobDigest) -> io::Result<()> {
        let turn = Arc::clone(self.turns().entry(digest.clone()).or_default());
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let fetched = if directory.path(digest).try_exists()? {
            Ok(())
        } else {
            match self.download(directory, digest) {
                // One answer proves nothing of the object.
                Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound) => {
                    self.download(directory, digest)
                }
                downloaded => downloaded,
            }
        };
        self.turns().remove(digest);
        fetched
    }

    /// Whether a blob is in the directory, by memory alone.
    pub(super) fn is_cached(&self, digest: &BlobDigest) -> bool {
        self.cached().files.contains_key(digest)
    }

    /// The fetch of a blob that is under way; where there is none, one that begins now.
    pub(super) fn flight(&self, directory: &Arc<BlobDirectory>, digest: &BlobDigest) -> Flight {
        let mut flights = self.flights();
        if let Some(flight) = flights.get(digest) {
            return flight.clone();
        }
        let (directory, wanted, pool) = (Arc::clone(directory), digest.clone(), self.fetching.clone());
        // A task of its own: the one who asked first may go away.
        let task = tokio::spawn(async move {
            let (shared, blob) = (Arc::clone(&directory), wanted.clone());
            let fetched = pool.run(move || shared.make_present(&blob)).await;
            if let Some(remote) = directory.remote() {
                remote.flights().remove(&wanted);
            }
            match fetched {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err((kind_of(&error), error.to_string())),
                Err(lost) => Err((io::ErrorKind::Other, lost.to_string())),
            }
        });
        let flight = async move { task.await.unwrap_or_else(|lost| Err((io::ErrorKind::Other, lost.to_string()))) };
        let flight = flight.boxed().shared();
        flights.insert(digest.clone(), flight.clone());
        flight
    }

    fn download(&self, directory: &BlobDirectory, digest: &BlobDigest) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(directory.temporary())?;
        let (mut hasher, mut size) = (Hasher::new(digest.algorithm()), 0_u64);
        let found = self.objects.read(&blob_key(digest), |chunk| {
            hasher.update(chunk);
            size += chunk.len() as u64;
            file.write_all(chunk)
        })?;
        if !found {
            let problem = format!("the object store {} has no {}", self.objects.url(), blob_key(digest));
            return Err(io::Error::new(io::ErrorKind::NotFound, problem));
        }
        let computed = hasher.finish();
        if computed != *digest {
            let problem = format!(
                "the object store {} holds bytes with the digest {computed} under {}: nothing of them is used; symseal store scrub moves them aside",
                self.objects.url(),
                blob_key(digest)
            );
            tracing::error!(problem);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        // As the cache outlives a power cut, what is in it must too.
        file.as_file().sync_all()?;
        let path = file.into_temp_path();
        directory.place(&path, digest)?;
        // `place` has moved or removed the file.
        let _ = path.keep();
        self.cached().insert(digest, size);
        self.make_room(directory);
        Ok(())
    }

    /// Evicts what was not used for the longest where there is more than the bound allows.
    pub(super) fn make_room(&self, directory: &BlobDirectory) {
        let by_use = {
            let cached = self.cached();
            if cached.bytes <= self.cache_bytes {
                return;
            }
            cached.by_use()
        };
        let goal = self.cache_bytes.saturating_sub(self.cache_bytes.div_ceil(SLACK));
        for digest in by_use {
            if self.cached().bytes <= goal {
                return;
            }
            match directory.evict(&digest) {
                Ok(true) => self.cached().remove(&digest),
                Ok(false) => {}
                Err(error) => tracing::warn!(%digest, %error, "a cached blob could not be evicted"),
            }
        }
    }

    fn cached(&self) -> MutexGuard<'_, Cached> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<BlobDigest, Arc<Mutex<()>>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<BlobDigest, Flight>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a blob's object.
pub(crate) fn blob_key(digest: &BlobDigest) -> String {
    format!("blobs/{}/{}/{}", digest.algorithm().name(), digest.shard(), digest.hex())
}

/// The blob of an object's key.
pub(crate) fn blob_of_key(key: &str) -> Option<BlobDigest> {
    let mut parts = key.strip_prefix("blobs/")?.split('/');
    let (algorithm, _, hex) = (parts.next()?, parts.next()?, parts.next()?);
    format!("{algorithm}:{hex}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_the_longest_goes_first() {
        let mut cached = Cached::default();
        let [one, two, three] = [b"1", b"2", b"3"].map(|bytes| BlobDigest::of(bytes));
        for digest in [&one, &two, &three] {
            cached.insert(digest, 10);
        }
        cached.used(&one);
        assert_eq!(cached.by_use(), [two.clone(), three], "what was used last stays");
        cached.insert(&two, 4);
        cached.remove(&two);
        assert_eq!(cached.bytes, 20);
    }
}
