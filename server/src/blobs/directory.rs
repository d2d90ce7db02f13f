//! `blobs/<algorithm>/<two digits>/<hex>`: nothing in it is rewritten after its rename.
//!
//! Where an object store is the truth ([`Remote`]), the directory is a cache of it: what is adopted is put there before it
//! counts, and what is not here is fetched from there.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use memmap2::Mmap;

use super::mapped::MappedBlobs;
use super::pins::{Pin, Pins};
use super::remote::Remote;
use super::{Algorithm, BlobDigest, hash_file, unless_lost};
use crate::objects::Objects;
use crate::side_by_side::{side_by_side, waiting_side_by_side};

/// The blobs of a data directory. Every method blocks: call it in the pool.
#[derive(Debug)]
pub(crate) struct BlobDirectory {
    root: PathBuf,
    temporary: PathBuf,
    pins: Arc<Pins>,
    maps: MappedBlobs,
    taken_down: RwLock<HashSet<BlobDigest>>,
    may_map: bool,
    remote: Option<Remote>,
}

/// A blob is not given away, as it was taken down.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("it was taken down")]
pub(crate) struct NotGiven;

impl NotGiven {
    /// Whether this is why something was not opened.
    pub(crate) fn is_why(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// A blob as a walk of the directory finds it.
#[derive(Debug)]
pub(crate) struct StoredBlob {
    /// Its name.
    pub(crate) digest: BlobDigest,
    /// Bytes in the file.
    pub(crate) size: u64,
    /// When its last byte came in.
    pub(crate) modified: SystemTime,
}

/// The names of blobs, each by its first half of a sha256: nobody has two digests that begin alike.
#[derive(Debug)]
pub(crate) enum BlobNames {
    /// These are here: sorted, by the first byte of each.
    These(Vec<Vec<u128>>),
    /// The object store has what its repositories name, as it is put there first.
    All,
}

impl BlobNames {
    /// Whether a blob was here when the names were read.
    pub(crate) fn has(&self, digest: &BlobDigest) -> bool {
        match self {
            Self::These(names) => beginning(digest.hex()).is_some_and(|beginning| {
                let shard = names.get((beginning >> (u128::BITS - u8::BITS)) as usize);
                shard.is_some_and(|names| names.binary_search(&beginning).is_ok())
            }),
            Self::All => true,
        }
    }
}

fn beginning(hex: &str) -> Option<u128> {
    u128::from_str_radix(hex.get(..32)?, 16).ok()
}

/// A blob that is open for reading, with what its headers need.
#[derive(Debug)]
pub(crate) struct OpenBlob {
    /// Positioned at the start.
    pub(crate) file: File,
    /// Bytes in the file.
    pub(crate) size: u64,
    /// When the blob was stored.
    pub(crate) modified: Option<SystemTime>,
}

impl BlobDirectory {
    /// Creates the folders and removes what a crash left half-written.
    pub(crate) fn open(data: &Path) -> io::Result<Self> {
        let (root, temporary) = (data.join("blobs"), data.join("temporary"));
        for algorithm in Algorithm::ALL {
            fs::create_dir_all(root.join(algorithm.name()))?;
        }
        fs::create_dir_all(&temporary)?;
        for entry in fs::read_dir(&temporary)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(Self {
            root,
            temporary,
            pins: Arc::default(),
            maps: MappedBlobs::default(),
            taken_down: RwLock::default(),
            may_map: true,
            remote: None,
        })
    }

    /// The blobs of a directory that another process may use: nothing is created or removed.
    pub(crate) fn existing(data: &Path) -> Self {
        let (root, temporary) = (data.join("blobs"), data.join("temporary"));
        Self {
            root,
            temporary,
            pins: Arc::default(),
            maps: MappedBlobs::default(),
            taken_down: RwLock::default(),
            may_map: true,
            remote: None,
        }
    }

    /// Makes the directory a cache of an object store, of at most so many bytes.
    pub(crate) fn behind(mut self, objects: Arc<Objects>, cache_bytes: u64) -> io::Result<Self> {
        let mut found = Vec::new();
        for algorithm in Algorithm::ALL {
            for shard in 0..=u8::MAX {
                found.extend(self.shard(algorithm, shard)?);
            }
        }
        self.remote = Some(Remote::new(objects, cache_bytes, found));
        Ok(self)
    }

    /// The object store, where there is one.
    pub(crate) fn objects(&self) -> Option<&Arc<Objects>> {
        self.remote.as_ref().map(Remote::objects)
    }

    /// Does something with a blob's file, which is fetched first where it is in the object store alone.
    fn with_file<T>(&self, digest: &BlobDigest, act: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
        let path = self.path(digest);
        let Some(remote) = &self.remote else { return act(&path) };
        // What is fetched for us is not evicted before it is open, however small the cache is.
        let pin = self.pin(digest);
        let mut tries = 0;
        loop {
            match act(&path) {
                // A walk of ours that began before may have chosen it.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < FETCHES => {
                    tries += 1;
                    remote.fetch(self, digest)?;
                }
                Err(error) => return Err(error),
                Ok(done) => {
                    remote.used(digest);
                    drop(pin);
                    if tries > 0 {
                        // What others had pinned may go by now.
                        remote.make_room(self);
                    }
                    return Ok(done);
                }
            }
        }
    }

    /// Fetches a blob that is in the object store alone. Whoever awaits it before it goes to the pool holds no thread there meanwhile.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) async fn bring(self: &Arc<Self>, digest: &BlobDigest) -> io::Result<()> {
        let Some(remote) = &self.remote else { return Ok(()) };
        if remote.is_cached(digest) {
            return Ok(());
        }
        let flight = remote.flight(self, digest);
        flight.await.map_err(|(kind, problem)| io::Error::new(kind, problem))
    }

    /// [`Self::bring`] for those who may block.
    pub(super) fn make_present(&self, digest: &BlobDigest) -> io::Result<()> {
        self.with_file(digest, |path| fs::metadata(path).map(drop))
    }

    /// Fetches blobs that are read soon side by side, where they are in the object store alone. What cannot be had is told of when it is read.
    ///
    /// # Errors
    /// The object store does not answer.
    pub(crate) fn bring_all(&self, digests: &[&BlobDigest]) -> io::Result<()> {
        if self.remote.is_none() {
            return Ok(());
        }
        waiting_side_by_side(digests, |digest| unless_lost(self.make_present(digest)).map(drop)).map(drop)
    }

    /// The object store behind the directory.
    pub(super) fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Removes a cached file that nobody relies on and the object store has; open ones go on being read.
    pub(super) fn evict(&self, digest: &BlobDigest) -> io::Result<bool> {
        let evicted = self.pins.unless_pinned_now(digest, || fs::remove_file(self.path(digest)));
        self.maps.forget(digest);
        match evicted {
            None => Ok(false),
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Some(_) => Ok(true),
        }
    }

    /// Where a blob is, or would be.
    pub(crate) fn path(&self, digest: &BlobDigest) -> PathBuf {
        self.root.join(digest.algorithm().name()).join(digest.shard()).join(digest.hex())
    }

    /// Answers no request out of a map.
    pub(crate) fn without_maps(self) -> Self {
        Self { may_map: false, ..self }
    }

    /// Whether requests are answered out of maps.
    pub(super) fn may_map(&self) -> bool {
        self.may_map
    }

    /// The blobs that stay mapped.
    pub(super) fn maps(&self) -> &MappedBlobs {
        &self.maps
    }

    /// A folder for files that are not whole yet, on the same file system.
    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// What keeps the collector from blobs.
    pub(crate) fn pins(&self) -> &Arc<Pins> {
        &self.pins
    }

    /// Pins a blob: hold it from before the bytes are looked for until what names them is written.
    pub(crate) fn pin(&self, digest: &BlobDigest) -> Pin {
        self.pins.pin(digest)
    }

    /// Which blobs are here: the names alone, in one walk, where asking for each would take a start most of its time.
    pub(crate) fn names(&self) -> io::Result<BlobNames> {
        if self.remote.is_some() {
            return Ok(BlobNames::All);
        }
        let shards: Vec<u8> = (0..=u8::MAX).collect();
        side_by_side(&shards, |shard| self.names_in(*shard)).map(BlobNames::These)
    }

    fn names_in(&self, shard: u8) -> io::Result<Vec<u128>> {
        let mut names = Vec::new();
        for algorithm in Algorithm::ALL {
            let entries = match fs::read_dir(self.root.join(algorithm.name()).join(format!("{shard:02x}"))) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            for entry in entries {
                names.extend(entry?.file_name().to_str().and_then(beginning));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The blobs whose hex begins with these two digits.
    pub(crate) fn shard(&self, algorithm: Algorithm, shard: u8) -> io::Result<Vec<StoredBlob>> {
        let entries = match fs::read_dir(self.root.join(algorithm.name()).join(format!("{shard:02x}"))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Some(hex) = entry.file_name().into_string().ok() else { continue };
            let Ok(digest) = format!("{}:{hex}", algorithm.name()).parse() else { continue };
            let metadata = match entry.metadata() {
                // Another walk took it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            found.push(StoredBlob { digest, size: metadata.len(), modified: metadata.modified()? });
        }
        Ok(found)
    }

    /// Takes a blob out of the directory; the file that is left to remove. A crash before that leaves it to the next start.
    pub(crate) fn take_away(&self, digest: &BlobDigest) -> io::Result<PathBuf> {
        let to = self.temporary.join(uuid::Uuid::new_v4().to_string());
        fs::rename(self.path(digest), &to)?;
        self.maps.forget(digest);
        Ok(to)
    }

    /// Bytes of a blob; `None` when it is not here.
    pub(crate) fn size(&self, digest: &BlobDigest) -> io::Result<Option<u64>> {
        match fs::metadata(self.path(digest)) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.remote.as_ref().map_or(Ok(None), |remote| remote.size(digest))
            }
            Err(error) => Err(error),
        }
    }

    /// Bytes of a blob where it is kept for good; `None` when it is not there. What the object store has lost, or has with another length, is put
    /// there again where the cache has the bytes, so that whoever is told of the blob may rely on it. Blocks.
    ///
    /// # Errors
    /// The object store does not answer, or the file cannot be read.
    pub(crate) fn stored_size(&self, digest: &BlobDigest) -> io::Result<Option<u64>> {
        let Some(remote) = &self.remote else { return self.size(digest) };
        let there = remote.size(digest)?;
        let _pin = self.pin(digest);
        let here = match fs::metadata(self.path(digest)) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(there),
            Err(error) => return Err(error),
        };
        if there == Some(here) {
            return Ok(there);
        }
        if !self.is_sound(digest)? {
            tracing::error!(%digest, "a cached file is not what its name says: it is removed");
            fs::remove_file(self.path(digest))?;
            self.maps.forget(digest);
            remote.forget(digest);
            return Ok(there);
        }
        remote.keep_as(self, digest, false)?;
        tracing::warn!(%digest, "the object store had lost a blob that is cached here: it is put there again");
        Ok(Some(here))
    }

    /// Whether the bytes in a blob's file have its digest.
    pub(crate) fn is_sound(&self, digest: &BlobDigest) -> io::Result<bool> {
        let (hasher, _) = hash_file(&mut File::open(self.path(digest))?, digest.algorithm())?;
        Ok(hasher.finish() == *digest)
    }

    /// [`Self::stored_size`] of many, of which an object store is asked side by side; in their order. Blocks.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn stored_sizes(&self, digests: &[&BlobDigest]) -> io::Result<Vec<Option<u64>>> {
        if self.remote.is_none() {
            return digests.iter().map(|digest| self.size(digest)).collect();
        }
        waiting_side_by_side(digests, |digest| self.stored_size(digest))
    }

    /// Opens and maps none of these any more, and others again.
    pub(crate) fn take_down(&self, digests: &[BlobDigest]) {
        *self.taken_down.write().unwrap_or_else(PoisonError::into_inner) = digests.iter().cloned().collect();
        digests.iter().for_each(|digest| self.maps.forget(digest));
    }

    pub(super) fn check_given(&self, digest: &BlobDigest) -> io::Result<()> {
        let is_taken_down = self.taken_down.read().unwrap_or_else(PoisonError::into_inner).contains(digest);
        if is_taken_down { Err(io::Error::new(io::ErrorKind::PermissionDenied, NotGiven)) } else { Ok(()) }
    }

    /// Opens a blob for reading.
    pub(crate) fn open_blob(&self, digest: &BlobDigest) -> io::Result<OpenBlob> {
        self.check_given(digest)?;
        let file = self.with_file(digest, |path| File::open(path))?;
        let metadata = file.metadata()?;
        Ok(OpenBlob { file, size: metadata.len(), modified: metadata.modified().ok() })
    }

    /// Maps a blob. An empty one cannot be mapped.
    pub(crate) fn map(&self, digest: &BlobDigest) -> io::Result<Mmap> {
        self.check_given(digest)?;
        map_own(&self.with_file(digest, |path| File::open(path))?)
    }

    /// A whole blob of at most `limit` bytes.
    pub(crate) fn read(&self, digest: &BlobDigest, limit: u64) -> io::Result<Vec<u8>> {
        let size = self.size(digest)?.ok_or(io::ErrorKind::NotFound)?;
        if size > limit {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{digest} has {size} bytes, expected at most {limit}"),
            ));
        }
        self.with_file(digest, |path| fs::read(path))
    }

    /// Makes a closed and synced file the blob of its digest. The caller has computed the digest from these bytes.
    pub(crate) fn adopt(&self, file: &Path, digest: &BlobDigest) -> io::Result<()> {
        // Pinned until the object store has it, as a cached file may be evicted.
        let _pin = self.pin(digest);
        let Some(remote) = &self.remote else { return self.place(file, digest) };
        let size = fs::metadata(file)?.len();
        let is_there = remote.size(digest)? == Some(size);
        if is_there {
            self.place(file, digest)?;
        } else {
            // The bytes that were just hashed, and not those of a file that has lain here since.
            self.place_anew(file, digest)?;
        }
        remote.keep_as(self, digest, is_there)
    }

    /// Puts a blob that is cached into the object store again, unless it is there.
    ///
    /// # Errors
    /// It is neither here nor there, or the object store does not answer.
    pub(crate) fn keep(&self, digest: &BlobDigest) -> io::Result<()> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let _pin = self.pin(digest);
        match remote.keep(self, digest) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && remote.size(digest)?.is_none() => {
                let problem = format!("{digest} was collected while it was referred to: push it again");
                Err(io::Error::new(io::ErrorKind::HostUnreachable, problem))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Forgets a cached file of what was collected from the object store.
    pub(crate) fn forget(&self, digest: &BlobDigest) -> io::Result<()> {
        let Some(remote) = &self.remote else { return Ok(()) };
        if self.evict(digest)? {
            remote.forget(digest);
        }
        Ok(())
    }

    /// [`Self::adopt`] for what the object store has.
    pub(super) fn place(&self, file: &Path, digest: &BlobDigest) -> io::Result<()> {
        let path = self.path(digest);
        if path.try_exists()? {
            // Same digest, same bytes: the first copy stays, so that open maps of it stay valid.
            return fs::remove_file(file);
        }
        self.place_anew(file, digest)
    }

    /// Puts a file in the place of what may be there; what is open goes on being read.
    fn place_anew(&self, file: &Path, digest: &BlobDigest) -> io::Result<()> {
        let folder = self.root.join(digest.algorithm().name()).join(digest.shard());
        create_folder(&folder)?;
        fs::rename(file, self.path(digest))?;
        self.maps.forget(digest);
        sync_directory(&folder)
    }

    /// Stores bytes that are in memory under the digest that the caller computed from them.
    pub(crate) fn write(&self, bytes: &[u8], digest: &BlobDigest) -> io::Result<()> {
        if self.remote.is_none() && self.size(digest)?.is_some() {
            return Ok(());
        }
        let mut file = tempfile::NamedTempFile::new_in(&self.temporary)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        let path = file.into_temp_path();
        self.adopt(&path, digest)?;
        // `adopt` has moved or removed the file.
        let _ = path.keep();
        Ok(())
    }
}

/// Refuses a file that has not the bytes which are said of its blob: a crash, or a copy that broke off, may have cut it off.
///
/// # Errors
/// It has not.
pub(crate) fn check_size(digest: &BlobDigest, found: u64, said: u64) -> io::Result<()> {
    if found == said {
        return Ok(());
    }
    let problem = format!("{digest} has {found} bytes here, expected {said}: symseal store scrub moves it aside");
    tracing::error!(problem, "a blob is cut off, or damaged, and is given to nobody");
    Err(io::Error::new(io::ErrorKind::InvalidData, problem))
}

/// Maps a file of the data directory: nothing in it is rewritten or shortened once it is whole. An empty one cannot be mapped.
pub(crate) fn map_own(file: &File) -> io::Result<Mmap> {
    // SAFETY: the file is our own; what it holds is replaced by rename, and never changed in place.
    #[allow(unsafe_code, reason = "a map is unsafe to make, as nobody else may change the file")]
    unsafe {
        Mmap::map(file)
    }
}

/// A file that is evicted between being fetched and being opened is fetched so often.
const FETCHES: u32 = 3;

/// Makes a rename or a new entry in a folder survive a power cut.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Creates a folder with those above it, so that a power cut does not take them with what is in them.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    missing.iter().rev().filter_map(|created| created.parent()).try_for_each(sync_directory)
}

/// What the name of a file begins with that is not whole yet.
const UNFINISHED: &str = ".new";

/// Removes what a crash left of [`write_file_atomically`] in a folder, which need not be there. Call it before anybody writes.
pub(crate) fn sweep_unfinished(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes a small file so that it is seen whole or not at all.
pub(crate) fn write_file_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    create_folder(folder)?;
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    sync_directory(folder)
}

/// Creates an empty file that marks something; it may be there already.
pub(crate) fn mark(path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let open = || OpenOptions::new().create(true).truncate(false).write(true).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(folder)?;
            open()?;
        }
        other => drop(other?),
    }
    sync_directory(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_read_back_and_a_second_copy_changes_nothing() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let digest = BlobDigest::of(b"bytes");
        assert_eq!(blobs.size(&digest).unwrap(), None);
        blobs.write(b"bytes", &digest).unwrap();
        blobs.write(b"bytes", &digest).unwrap();
        assert_eq!(blobs.read(&digest, 5).unwrap(), b"bytes");
        assert_eq!(blobs.read(&digest, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fs::read_dir(blobs.temporary()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_crash_left_is_removed_at_the_next_start() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        fs::write(blobs.temporary().join("half"), b"ha").unwrap();
        BlobDirectory::open(data.path()).unwrap();
        assert_eq!(fs::read_dir(blobs.temporary()).unwrap().count(), 0);
        let folder = data.path().join("facts");
        sweep_unfinished(&folder).unwrap();
        write_file_atomically(&folder.join("tag"), b"whole").unwrap();
        fs::write(folder.join(".newA1b2"), b"ha").unwrap();
        sweep_unfinished(&folder).unwrap();
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["tag"]);
    }
}
