//! Blobs that are asked for again and again stay mapped, so that a request opens, reads and copies nothing: its answer is the map itself.
//!
//! A page of a map that is not in memory is read by whoever touches it, and a disk that fails then ends the process. So the process touches none: it
//! gives them to the kernel as they are (`writev`, `sendfile`), for which such a page is an error (`EFAULT`) and no signal. What is not in memory
//! ([`MappedBlob::is_resident`]) is brought there before, in the pool, by a call that fails like a read ([`MappedBlob::bring`]); a page that the
//! system has taken away again before a slow client takes it is waited for by the thread that sends. Encryption happens in the process, which
//! would touch every page: a server that encrypts answers from files ([`BlobDirectory::without_maps`]).

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use memmap2::{Advice, Mmap, MmapMut};

use super::{BlobDigest, BlobDirectory, OpenBlob, map_own};

/// Blobs that stay mapped.
const MAPPED: usize = 256;

/// The largest blob that is mapped, in bytes: the pages of a map count as the process's memory while they are in it, and of what takes long to
/// send opening and reading are the smaller part.
const LARGEST: u64 = 16 << 20;

/// Bytes that stay mapped.
const MAPPED_BYTES: u64 = 512 << 20;

/// How long a map is used before its blob is looked at again: a cache learns by that what is in use.
const BELIEVED: Duration = Duration::from_secs(2);

/// Bytes of the machine's pages. A wrong guess costs nothing but a longer list.
const PAGE: usize = 4096;

/// A blob in the address space.
#[derive(Debug)]
pub(crate) struct MappedBlob {
    map: Mmap,
    file: File,
    /// When the file was changed last, its name included (`st_ctime`): one that is moved aside or removed since is no blob any more.
    changed: (i64, i64),
    /// When the blob was stored.
    pub(crate) modified: Option<SystemTime>,
}

/// The blobs that were asked for last.
#[derive(Debug, Default)]
pub(super) struct MappedBlobs {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    blobs: HashMap<BlobDigest, Entry>,
    /// Grows with each use.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    blob: Arc<MappedBlob>,
    used: u64,
    looked_at: Instant,
}

impl BlobDirectory {
    /// A blob that is mapped already, and was looked at a moment ago. Blocks nobody.
    pub(crate) fn mapped(&self, digest: &BlobDigest) -> Option<Arc<MappedBlob>> {
        // One that was being mapped while it was taken down may be here.
        self.check_given(digest).ok()?;
        let (blob, looked_at) = self.maps().get(digest)?;
        (looked_at.elapsed() < BELIEVED && blob.is_unchanged()).then_some(blob)
    }

    /// Maps a blob, for this request and those after it; `None` where that cannot be: an empty or a large blob, or a system that cannot bring pages into
    /// memory without risk. Blocks.
    pub(crate) fn map_for_requests(&self, digest: &BlobDigest) -> io::Result<Option<Arc<MappedBlob>>> {
        let blob = self.open_blob(digest)?;
        if !self.may_map() || blob.size == 0 || blob.size > LARGEST || !can_bring() {
            return Ok(None);
        }
        let known = self.maps().get(digest).map(|(known, _)| known);
        let mapped = match known {
            Some(known) if known.is_unchanged() && is_same(&known.file, &blob.file)? => known,
            _ => MappedBlob::new(blob)?,
        };
        self.maps().keep(digest, &mapped);
        Ok(Some(mapped))
    }
}

impl MappedBlobs {
    /// The map, and when its blob was looked at.
    fn get(&self, digest: &BlobDigest) -> Option<(Arc<MappedBlob>, Instant)> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses = kept.uses.wrapping_add(1);
        let now = kept.uses;
        let entry = kept.blobs.get_mut(digest)?;
        entry.used = now;
        Some((Arc::clone(&entry.blob), entry.looked_at))
    }

    fn keep(&self, digest: &BlobDigest, blob: &Arc<MappedBlob>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = |kept: &Kept| kept.blobs.values().map(|entry| entry.blob.size()).sum::<u64>();
        while !kept.blobs.contains_key(digest)
            && (kept.blobs.len() >= MAPPED || bytes(&kept).saturating_add(blob.size()) > MAPPED_BYTES)
            && let Some(oldest) =
                kept.blobs.iter().min_by_key(|(_, entry)| entry.used).map(|(digest, _)| digest.clone())
        {
            kept.blobs.remove(&oldest);
        }
        let entry = Entry { blob: Arc::clone(blob), used: kept.uses, looked_at: Instant::now() };
        kept.blobs.insert(digest.clone(), entry);
    }

    /// A blob that is taken away frees its place on the disk once the last answer has ended.
    pub(super) fn forget(&self, digest: &BlobDigest) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).blobs.remove(digest);
    }
}

/// Where the maps are, by their first address: so that a slice of one is known again.
static PLACES: RwLock<BTreeMap<usize, Weak<MappedBlob>>> = RwLock::new(BTreeMap::new());

/// The blob in whose map some bytes lie, and where in its file.
pub(crate) fn mapped_blob_of(bytes: &[u8]) -> Option<(Arc<MappedBlob>, u64)> {
    let address = bytes.as_ptr() as usize;
    // Let go before the blob is held: whoever drops it last asks for the places.
    let (start, blob) = {
        let places = PLACES.read().unwrap_or_else(PoisonError::into_inner);
        let (start, blob) = places.range(..=address).next_back()?;
        (*start, Weak::clone(blob))
    };
    let (at, blob) = (address.checked_sub(start)?, blob.upgrade()?);
    (at.checked_add(bytes.len())? <= blob.map.len()).then_some((blob, at as u64))
}

impl Drop for MappedBlob {
    /// Before the map goes: its address may be another one's right after.
    fn drop(&mut self) {
        PLACES.write().unwrap_or_else(PoisonError::into_inner).remove(&(self.map.as_ptr() as usize));
    }
}

impl MappedBlob {
    fn new(blob: OpenBlob) -> io::Result<Arc<Self>> {
        let changed = changed(&blob.file.metadata()?);
        let mapped = Arc::new(Self { map: map_own(&blob.file)?, file: blob.file, changed, modified: blob.modified });
        let mut places = PLACES.write().unwrap_or_else(PoisonError::into_inner);
        places.insert(mapped.map.as_ptr() as usize, Arc::downgrade(&mapped));
        Ok(mapped)
    }

    /// Whether nobody has touched the file since it was mapped. Asks the open file alone, so it waits for no disk.
    fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0 && changed(&metadata) == self.changed)
    }

    /// The blob's file, which the map is of.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Bytes in the blob.
    pub(crate) fn size(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether every page of a part is in memory.
    pub(crate) fn is_resident(&self, part: &Range<usize>) -> bool {
        let Some(bytes) = self.map.get(part.clone()) else { return false };
        let start = part.start & !(PAGE - 1);
        let Some(length) = part.end.checked_sub(start) else { return false };
        if bytes.is_empty() {
            return true;
        }
        let mut pages = vec![0_u8; length.div_ceil(PAGE)];
        // SAFETY: `start..start + length` lies in the map, which begins at a page and outlives the call; `pages` has a byte for each page of it.
        #[allow(unsafe_code, reason = "memmap2 does not tell which pages are in memory")]
        let status =
            unsafe { libc::mincore(self.map.as_ptr().add(start).cast_mut().cast(), length, pages.as_mut_ptr().cast()) };
        status == 0 && pages.iter().all(|page| page & 1 == 1)
    }

    /// Brings a part into memory. Blocks.
    ///
    /// # Errors
    /// What reading it would give.
    pub(crate) fn bring(&self, part: &Range<usize>) -> io::Result<()> {
        let length = part.end.saturating_sub(part.start);
        self.map.advise_range(Advice::PopulateRead, part.start, length)
    }

    /// A part of the map as bytes, which keep it.
    pub(crate) fn bytes(self: &Arc<Self>, part: Range<usize>) -> Bytes {
        Bytes::from_owner(Part { blob: Arc::clone(self), part })
    }
}

struct Part {
    blob: Arc<MappedBlob>,
    part: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.blob.map.get(self.part.clone()).unwrap_or_default()
    }
}

fn changed(metadata: &std::fs::Metadata) -> (i64, i64) {
    (metadata.ctime(), metadata.ctime_nsec())
}

/// Whether two open files are one.
fn is_same(a: &File, b: &File) -> io::Result<bool> {
    let (a, b) = (a.metadata()?, b.metadata()?);
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// Whether the system can bring pages of a map into memory with an error for an answer (Linux 5.14, `MADV_POPULATE_READ`).
fn can_bring() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| MmapMut::map_anon(PAGE).is_ok_and(|map| map.advise(Advice::PopulateRead).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_has_the_blobs_bytes_and_ends_with_the_blob() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let bytes: Vec<u8> = (0..PAGE * 3 + 7).map(|at| at as u8).collect();
        let digest = BlobDigest::of(&bytes);
        blobs.write(&bytes, &digest).unwrap();
        assert!(blobs.mapped(&digest).is_none());
        let Some(mapped) = blobs.map_for_requests(&digest).unwrap() else {
            println!("SKIP maps: this system has no MADV_POPULATE_READ");
            return;
        };
        assert_eq!(mapped.size(), bytes.len() as u64);
        for part in [0..bytes.len(), PAGE - 1..PAGE + 1, PAGE * 3..PAGE * 3 + 7, 5..5] {
            mapped.bring(&part).unwrap();
            assert!(mapped.is_resident(&part));
            assert_eq!(mapped.bytes(part.clone()), bytes[part]);
        }
        assert!(!mapped.is_resident(&(0..bytes.len() + 1)));
        assert!(blobs.mapped(&digest).is_some());
        let moved = blobs.take_away(&digest).unwrap();
        assert!(blobs.mapped(&digest).is_none() && moved.exists());
        let (found, at) = mapped_blob_of(&mapped.bytes(9..PAGE)).unwrap();
        assert!(Arc::ptr_eq(&found, &mapped) && at == 9);
        assert!(mapped_blob_of(&bytes).is_none());
        assert_eq!(mapped.bytes(0..7), bytes[..7], "an answer that is under way goes on");
    }

    #[test]
    fn a_blob_that_is_moved_aside_is_not_answered_out_of_its_map() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let digest = BlobDigest::of(b"bytes");
        blobs.write(b"bytes", &digest).unwrap();
        let Some(first) = blobs.map_for_requests(&digest).unwrap() else { return };
        let look_again = || blobs.maps().kept.lock().unwrap().blobs.get_mut(&digest).unwrap().looked_at -= BELIEVED;
        look_again();
        assert!(blobs.mapped(&digest).is_none());
        assert!(Arc::ptr_eq(&blobs.map_for_requests(&digest).unwrap().unwrap(), &first), "it is the same still");
        assert!(blobs.mapped(&digest).is_some());
        // Times of change count in ticks of the system's clock.
        std::thread::sleep(Duration::from_millis(50));
        std::fs::rename(blobs.path(&digest), data.path().join("aside")).unwrap();
        assert!(blobs.mapped(&digest).is_none(), "at once");
        assert_eq!(blobs.map_for_requests(&digest).unwrap_err().kind(), io::ErrorKind::NotFound);
        blobs.write(b"bytes", &digest).unwrap();
        assert!(!Arc::ptr_eq(&blobs.map_for_requests(&digest).unwrap().unwrap(), &first), "another file");
    }

    #[test]
    fn the_blob_that_was_used_longest_ago_goes_first_and_empty_ones_are_not_mapped() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let digests: Vec<BlobDigest> = (0..=MAPPED)
            .map(|number| {
                let bytes = format!("blob {number}");
                let digest = BlobDigest::of(bytes.as_bytes());
                blobs.write(bytes.as_bytes(), &digest).unwrap();
                digest
            })
            .collect();
        if !can_bring() {
            return;
        }
        for digest in &digests {
            blobs.map_for_requests(digest).unwrap().unwrap();
            // Used all the time.
            assert!(blobs.mapped(&digests[0]).is_some());
        }
        assert!(blobs.mapped(&digests[1]).is_none() && blobs.mapped(&digests[2]).is_some());
        let unmapped = BlobDirectory::open(data.path()).unwrap().without_maps();
        assert!(unmapped.map_for_requests(&digests[0]).unwrap().is_none() && unmapped.mapped(&digests[0]).is_none());
        let empty = BlobDigest::of(b"");
        blobs.write(b"", &empty).unwrap();
        assert!(blobs.map_for_requests(&empty).unwrap().is_none());
    }
}
