//! `cache/`: files that can be had again, in a bounded directory: upstreams' files, compressed forms, generated files.
//!
//! A file of it is the content, then a note about it in JSON, then the note's length and a mark, so that one rename makes both visible.
//! What was not used for the longest time goes first.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::blobs::{BlobDigest, OpenBlob};
use crate::http::ByteRange;
use crate::origins::CACHE_BYTES;
use crate::pool::Pool;

/// The last bytes of a whole file.
const MARK: [u8; 4] = *b"SSC1";
/// Length of the note and mark, in bytes.
const TAIL: u64 = 8;
/// What the name of a file begins with that is not whole yet.
const UNFINISHED: &str = ".new";
/// The longest note, in bytes.
const NOTE_LIMIT: u64 = 64 << 10;

/// What is known of a file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// SHA-256 of the content, hex.
    pub(crate) sha256: String,
    /// Headers to be repeated with it.
    pub(crate) headers: Vec<(String, String)>,
}

/// The name of a file in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey(String);

impl CacheKey {
    /// By what makes the content: two texts are two files.
    pub(crate) fn of(what: &str) -> Self {
        Self(BlobDigest::of(what.as_bytes()).hex().to_owned())
    }

    /// Whether a file of this name may be one of the cache's.
    fn is_one(name: &str) -> bool {
        name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    }
}

/// A file of the cache that is open. It stays readable when it is taken out meanwhile.
#[derive(Debug)]
pub(crate) struct CachedFile {
    /// The file, which ends behind the content.
    pub(crate) blob: OpenBlob,
    /// Bytes of content, from the file's start.
    pub(crate) size: u64,
    /// What is known of it.
    pub(crate) note: Note,
}

impl CachedFile {
    /// Where the content is in the file.
    pub(crate) fn window(&self) -> ByteRange {
        ByteRange { start: 0, length: self.size }
    }
}

/// The directory. Its methods block: call them in a pool.
#[derive(Debug)]
pub(crate) struct FileCache {
    folder: PathBuf,
    capacity: AtomicU64,
    state: Mutex<State>,
    /// Who makes a file, and who waits for it.
    turns: Mutex<HashMap<CacheKey, Weak<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<CacheKey, Entry>,
    bytes: u64,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    used: u64,
}

impl FileCache {
    /// Opens the directory; what a crash left half-written is removed. What is none of the cache's stays: somebody may have named a folder that has other
    /// things in it.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut found: Vec<(SystemTime, CacheKey, u64)> = Vec::new();
        let mut strange: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            match entry.file_name().into_string() {
                Ok(name) if CacheKey::is_one(&name) && metadata.is_file() => {
                    found.push((metadata.modified()?, CacheKey(name), metadata.len()));
                }
                Ok(name) if name.starts_with(UNFINISHED) && metadata.is_file() => fs::remove_file(entry.path())?,
                _ => strange.push(entry.path()),
            }
        }
        if let Some(first) = strange.first() {
            let (first, others) = (first.display(), strange.len() - 1);
            tracing::warn!(%first, others, "the folder of cached files has something in it that is none, and that is left alone");
        }
        found.sort_by_key(|(modified, ..)| *modified);
        let mut state = State::default();
        for (_, key, bytes) in found {
            state.clock += 1;
            state.bytes = state.bytes.saturating_add(bytes);
            state.files.insert(key, Entry { bytes, used: state.clock });
        }
        Ok(Self {
            folder: folder.to_owned(),
            capacity: AtomicU64::new(CACHE_BYTES),
            state: Mutex::new(state),
            turns: Mutex::default(),
        })
    }

    /// Bounds the cache anew.
    pub(crate) fn bound(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that the cache may fill.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// How many files there are, and their bytes.
    pub(crate) fn filled(&self) -> (u64, u64) {
        let state = self.lock();
        (state.files.len() as u64, state.bytes)
    }

    /// Whether a file is there, by memory alone.
    pub(crate) fn has(&self, key: &CacheKey) -> bool {
        self.lock().files.contains_key(key)
    }

    /// Opens a file. One that is damaged is taken out.
    pub(crate) fn find(&self, key: &CacheKey) -> Option<CachedFile> {
        {
            let mut state = self.lock();
            state.clock += 1;
            let now = state.clock;
            state.files.get_mut(key)?.used = now;
        }
        match open(&self.folder.join(&key.0)) {
            Ok(file) => Some(file),
            Err(error) => {
                tracing::warn!(key = key.0, %error, "a file of the cache is damaged: it is made again");
                self.forget(key);
                None
            }
        }
    }

    /// A file to fill, in the cache's directory.
    pub(crate) fn begin(&self) -> io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)
    }

    /// The file of this name; where there is none it is made, once for all who ask. `job` fills it and says what is known of it.
    pub(crate) async fn make(
        self: &Arc<Self>,
        (pool, slow): (&Pool, &Pool),
        key: CacheKey,
        job: impl FnOnce(&mut NamedTempFile) -> io::Result<Note> + Send + 'static,
    ) -> io::Result<CachedFile> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            // Those whom nobody waits for any more.
            turns.retain(|_, turn| turn.strong_count() > 0);
            match turns.get(&key).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    let turn = Arc::<tokio::sync::Mutex<()>>::default();
                    turns.insert(key.clone(), Arc::downgrade(&turn));
                    turn
                }
            }
        };
        let _turn = turn.lock().await;
        let (this, wanted) = (Arc::clone(self), key.clone());
        if self.has(&key)
            && let Some(found) = pool.run(move || this.find(&wanted)).await.map_err(io::Error::other)?
        {
            return Ok(found);
        }
        let this = Arc::clone(self);
        let made = slow.run(move || {
            let mut file = this.begin()?;
            let note = job(&mut file)?;
            this.keep(&key, file, &note)?;
            this.find(&key).ok_or_else(|| io::Error::other("the cache has no room for it"))
        });
        made.await.map_err(io::Error::other)?
    }

    /// Makes a filled file visible, and takes out what has no room beside it.
    pub(crate) fn keep(&self, key: &CacheKey, mut file: NamedTempFile, note: &Note) -> io::Result<()> {
        let note = serde_json::to_vec(note)?;
        let length = u32::try_from(note.len()).map_err(io::Error::other)?;
        file.write_all(&note)?;
        file.write_all(&length.to_le_bytes())?;
        file.write_all(&MARK)?;
        file.as_file().sync_all()?;
        let bytes = file.as_file().metadata()?.len();
        let removed = {
            let mut state = self.lock();
            file.persist(self.folder.join(&key.0)).map_err(|error| error.error)?;
            state.clock += 1;
            let used = state.clock;
            let before = state.files.insert(key.clone(), Entry { bytes, used }).map_or(0, |before| before.bytes);
            state.bytes = state.bytes.saturating_sub(before).saturating_add(bytes);
            state.make_room(self.capacity())
        };
        for key in removed {
            // Taken by another, or by hand.
            let _ = fs::remove_file(self.folder.join(key.0));
        }
        Ok(())
    }

    /// Takes a file out.
    pub(crate) fn forget(&self, key: &CacheKey) {
        let mut state = self.lock();
        if let Some(entry) = state.files.remove(key) {
            state.bytes = state.bytes.saturating_sub(entry.bytes);
        }
        let _ = fs::remove_file(self.folder.join(&key.0));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets the files that were used the longest ago until the rest fits, and a tenth more: sorting is not for every file.
    fn make_room(&mut self, capacity: u64) -> Vec<CacheKey> {
        if self.bytes <= capacity {
            return Vec::new();
        }
        let mut by_use: Vec<(u64, CacheKey)> =
            self.files.iter().map(|(key, entry)| (entry.used, key.clone())).collect();
        by_use.sort_by_key(|(used, _)| *used);
        let goal = capacity - capacity / 10;
        let mut removed = Vec::new();
        for (_, key) in by_use {
            if self.bytes <= goal {
                break;
            }
            if let Some(entry) = self.files.remove(&key) {
                self.bytes = self.bytes.saturating_sub(entry.bytes);
                removed.push(key);
            }
        }
        removed
    }
}

fn open(path: &Path) -> io::Result<CachedFile> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "its end is not that of a file of the cache");
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let before_tail = metadata.len().checked_sub(TAIL).ok_or_else(damaged)?;
    let (mut length, mut mark) = ([0; 4], [0; 4]);
    file.read_exact_at(&mut length, before_tail)?;
    file.read_exact_at(&mut mark, before_tail + 4)?;
    let length = u64::from(u32::from_le_bytes(length));
    let size = before_tail.checked_sub(length).filter(|_| mark == MARK && length <= NOTE_LIMIT).ok_or_else(damaged)?;
    let mut note = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut note, size)?;
    let note = serde_json::from_slice(&note)?;
    let blob = OpenBlob { file, size: metadata.len(), modified: metadata.modified().ok() };
    Ok(CachedFile { blob, size, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(cache: &FileCache, key: &str, content: &[u8]) {
        let mut file = cache.begin().unwrap();
        file.write_all(content).unwrap();
        let note = Note { sha256: key.into(), headers: vec![("a".into(), "b".into())] };
        cache.keep(&CacheKey::of(key), file, &note).unwrap();
    }

    fn content(cache: &FileCache, key: &str) -> Option<Vec<u8>> {
        let found = cache.find(&CacheKey::of(key))?;
        let mut bytes = vec![0; found.size as usize];
        found.blob.file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(found.note.sha256, key);
        Some(bytes)
    }

    #[test]
    fn a_file_comes_back_after_a_restart_and_what_is_damaged_is_taken_out() {
        let folder = tempfile::tempdir().unwrap();
        let cache = FileCache::open(folder.path()).unwrap();
        keep(&cache, "one", b"content");
        keep(&cache, "empty", b"");
        std::fs::write(folder.path().join(".new-half"), b"ha").unwrap();
        // Somebody's own.
        let own = ["thesis.txt", ".hidden", &"X".repeat(64)].map(|name| folder.path().join(name));
        own.iter().for_each(|path| std::fs::write(path, b"precious").unwrap());
        let folders = ["folder", &CacheKey::of("folder").0].map(|name| folder.path().join(name));
        folders.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let cache = FileCache::open(folder.path()).unwrap();
        assert!(own.iter().chain(&folders).all(|path| path.exists()) && cache.filled().0 == 2);
        assert_eq!(content(&cache, "one").unwrap(), b"content");
        assert_eq!(content(&cache, "empty").unwrap(), b"");
        assert_eq!(content(&cache, "two"), None);
        assert!(!folder.path().join(".new-half").exists());
        let path = folder.path().join(CacheKey::of("one").0);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let cache = FileCache::open(folder.path()).unwrap();
            assert!(cache.find(&CacheKey::of("one")).is_none(), "{cut}");
            assert!(!path.exists());
        }
        assert_eq!(content(&cache, "empty").unwrap(), b"");
    }

    #[test]
    fn what_was_used_last_stays_when_there_is_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let cache = FileCache::open(folder.path()).unwrap();
        cache.bound(4000);
        for at in 0..3 {
            keep(&cache, &at.to_string(), &[at; 1000]);
        }
        let oldest = cache.find(&CacheKey::of("0")).unwrap();
        keep(&cache, "3", &[3; 1000]);
        assert!(content(&cache, "1").is_none(), "used the longest ago");
        assert_eq!(content(&cache, "0").unwrap(), [0; 1000]);
        assert_eq!(content(&cache, "3").unwrap(), [3; 1000]);
        for at in 4..9 {
            keep(&cache, &at.to_string(), &[at; 1000]);
        }
        assert!(content(&cache, "0").is_none());
        let mut still = vec![9; 1000];
        oldest.blob.file.read_exact_at(&mut still, 0).unwrap();
        assert_eq!(still, [0; 1000], "an open file stays readable");
        let on_disk: u64 =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(on_disk <= 4000, "{on_disk}");
    }
}
