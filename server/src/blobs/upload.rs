//! Upload sessions: bytes arrive in order, are hashed on the way, and become a blob in one rename.
//!
//! A session is one file, `_uploads/<id>` in its repository's folder, so it outlives the connection and the server. What
//! is kept in memory is the running digest; after a restart it is computed again from the file.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use uuid::Uuid;

use super::{Algorithm, BlobDigest, BlobDirectory, Hasher};
use crate::quotas::Place;

/// A session that nobody touched for this long is removed, by the collector and at the next start.
pub(crate) const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes read at once when a digest is computed again.
const REHASH_BLOCK: usize = 1 << 20;

/// The sessions of all repositories.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    sessions: Mutex<HashMap<Uuid, Arc<Upload>>>,
}

/// One session. Every method but [`Upload::offset`] and [`Upload::place`] blocks: call it in the pool.
#[derive(Debug)]
pub(crate) struct Upload {
    id: Uuid,
    path: PathBuf,
    /// A copy of the state's offset that is read without waiting for a writer.
    offset: AtomicU64,
    state: Mutex<State>,
    /// What counts for it in the quotas of its repository.
    place: Place,
}

struct State {
    algorithm: Algorithm,
    hasher: Hasher,
    offset: u64,
    writer: u64,
    ended: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("offset", &self.offset).field("writer", &self.writer).finish_non_exhaustive()
    }
}

/// One request's right to append. A later request takes it over: a connection that hangs does not lock the session.
#[derive(Clone)]
pub(crate) struct Writer {
    number: u64,
    start: u64,
    hasher: Hasher,
}

/// What a finished upload is.
#[derive(Debug)]
pub(crate) struct Commit {
    /// Bytes in the blob.
    pub(crate) size: u64,
}

/// Why bytes were not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    /// The chunk does not start where the last one ended.
    #[error("the chunk starts at {found}, expected {expected}: ask for the upload's status and send the rest")]
    OutOfOrder {
        /// The next byte wanted.
        expected: u64,
        /// What the request said.
        found: u64,
    },
    /// Another request writes to the session, or it has ended.
    #[error("another request took this upload over or ended it: ask for its status")]
    TakenOver,
    /// The bytes are not what their name says.
    #[error("the bytes have the digest {found}, expected {expected}: nothing was stored, upload it again")]
    Digest {
        /// The digest in the request.
        expected: BlobDigest,
        /// The digest of the bytes.
        found: BlobDigest,
    },
    /// The disk said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Uploads {
    /// Starts a session in a repository's folder of sessions.
    /// `algorithm` is that of the digest that the client will name, where it says so: another is computed from the file
    /// in the end.
    pub(crate) fn create(&self, folder: &Path, algorithm: Algorithm) -> io::Result<Arc<Upload>> {
        let id = Uuid::new_v4();
        let path = folder.join(id.to_string());
        let create = || OpenOptions::new().create_new(true).write(true).open(&path);
        match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder)?;
                create()?;
            }
            other => drop(other?),
        }
        let state = State { algorithm, hasher: Hasher::new(algorithm), offset: 0, writer: 0, ended: false };
        let upload =
            Arc::new(Upload { id, path, offset: AtomicU64::new(0), state: Mutex::new(state), place: Place::default() });
        self.lock().insert(id, Arc::clone(&upload));
        Ok(upload)
    }

    /// Finds a session, also one from before a restart.
    pub(crate) fn find(&self, folder: &Path, id: Uuid) -> io::Result<Option<Arc<Upload>>> {
        let path = folder.join(id.to_string());
        if let Some(upload) = self.lock().get(&id) {
            return Ok((upload.path == path).then(|| Arc::clone(upload)));
        }
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (hasher, offset) = hash_file(&mut file, Algorithm::Sha256)?;
        let state = State { algorithm: Algorithm::Sha256, hasher, offset, writer: 0, ended: false };
        let (offset, state, place) = (AtomicU64::new(offset), Mutex::new(state), Place::default());
        let upload = Arc::new(Upload { id, path, offset, state, place });
        // Two requests may have come here at once: the first one's session holds.
        Ok(Some(Arc::clone(self.lock().entry(id).or_insert(upload))))
    }

    /// Ends a session and removes its bytes.
    pub(crate) fn cancel(&self, upload: &Upload) -> io::Result<()> {
        upload.end(&mut upload.lock());
        self.lock().remove(&upload.id);
        match fs::remove_file(&upload.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the session's bytes the blob `expected`, or removes them.
    pub(crate) fn commit(
        &self,
        upload: &Upload,
        writer: &Writer,
        expected: &BlobDigest,
        blobs: &BlobDirectory,
    ) -> Result<Commit, UploadError> {
        let committed = upload.commit(writer, expected, blobs);
        match &committed {
            Ok(_) => drop(self.lock().remove(&upload.id)),
            // The bytes are wrong for good: a retry must start anew.
            Err(UploadError::Digest { .. }) => self.cancel(upload)?,
            Err(_) => {}
        }
        committed
    }

    /// Removes what was abandoned in one repository's folder of sessions, before any session is open.
    pub(crate) fn sweep(folder: &Path) -> io::Result<()> {
        abandoned(folder)?.iter().try_for_each(fs::remove_file)
    }

    /// Bytes in one repository's folder of sessions.
    pub(crate) fn unfinished(folder: &Path) -> io::Result<u64> {
        Ok(sessions(folder)?.iter().map(|(_, metadata)| metadata.len()).sum())
    }

    /// Ends the sessions of one repository that were abandoned; how many.
    pub(crate) fn expire(&self, folder: &Path) -> io::Result<u64> {
        let mut ended = 0;
        for path in abandoned(folder)? {
            let id = path.file_name().and_then(|name| Uuid::try_parse(name.to_str()?).ok());
            let open = id.and_then(|id| self.lock().get(&id).cloned());
            match open {
                Some(upload) => self.cancel(&upload)?,
                None => fs::remove_file(&path)?,
            }
            ended += 1;
        }
        Ok(ended)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Upload>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    /// The name in the session's location.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Where its bytes are.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What counts for it between two requests.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    fn end(&self, state: &mut State) {
        state.ended = true;
        self.place.leave();
    }

    /// Bytes taken so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset.load(Ordering::Acquire)
    }

    /// Takes the right to append, at `start` where the request named one.
    pub(crate) fn begin(&self, start: Option<u64>) -> Result<Writer, UploadError> {
        let mut state = self.lock();
        if state.ended {
            return Err(UploadError::TakenOver);
        }
        if let Some(found) = start
            && found != state.offset
        {
            return Err(UploadError::OutOfOrder { expected: state.offset, found });
        }
        state.writer += 1;
        Ok(Writer { number: state.writer, start: state.offset, hasher: state.hasher.clone() })
    }

    /// Appends bytes; the session's new length.
    pub(crate) fn append(&self, writer: &Writer, chunks: &[Bytes]) -> Result<u64, UploadError> {
        let mut state = self.writable(writer)?;
        if chunks.iter().all(Bytes::is_empty) {
            return Ok(state.offset);
        }
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        for chunk in chunks {
            if let Err(error) = file.write_all(chunk) {
                // A full disk may have taken a part: the file must not be longer than what was hashed.
                file.set_len(state.offset)?;
                return Err(error.into());
            }
            state.hasher.update(chunk);
            state.offset += chunk.len() as u64;
        }
        self.offset.store(state.offset, Ordering::Release);
        Ok(state.offset)
    }

    /// Forgets what this request appended: its length was not what it announced.
    pub(crate) fn rewind(&self, writer: &Writer) -> Result<(), UploadError> {
        let mut state = self.writable(writer)?;
        OpenOptions::new().write(true).open(&self.path)?.set_len(writer.start)?;
        state.hasher = writer.hasher.clone();
        state.offset = writer.start;
        self.offset.store(state.offset, Ordering::Release);
        Ok(())
    }

    fn commit(&self, writer: &Writer, expected: &BlobDigest, blobs: &BlobDirectory) -> Result<Commit, UploadError> {
        let mut state = self.writable(writer)?;
        let mut file = File::open(&self.path)?;
        let found = match expected.algorithm() {
            algorithm if algorithm == state.algorithm => state.hasher.clone().finish(),
            algorithm => hash_file(&mut file, algorithm)?.0.finish(),
        };
        if found != *expected {
            return Err(UploadError::Digest { expected: expected.clone(), found });
        }
        file.sync_all()?;
        blobs.adopt(&self.path, expected)?;
        self.end(&mut state);
        Ok(Commit { size: state.offset })
    }

    fn writable(&self, writer: &Writer) -> Result<MutexGuard<'_, State>, UploadError> {
        let state = self.lock();
        if state.ended || state.writer != writer.number { Err(UploadError::TakenOver) } else { Ok(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions in a folder that nobody touched for [`ABANDONED_AFTER`].
fn abandoned(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for (path, metadata) in sessions(folder)? {
        if SystemTime::now().duration_since(metadata.modified()?).is_ok_and(|age| age > ABANDONED_AFTER) {
            found.push(path);
        }
    }
    Ok(found)
}

/// The sessions in a folder.
fn sessions(folder: &Path) -> io::Result<Vec<(PathBuf, fs::Metadata)>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        match entry.metadata() {
            // It became a blob meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            metadata => found.push((entry.path(), metadata?)),
        }
    }
    Ok(found)
}

/// The digest of a file from where it stands, and its bytes.
pub(crate) fn hash_file(file: &mut File, algorithm: Algorithm) -> io::Result<(Hasher, u64)> {
    let (mut hasher, mut size) = (Hasher::new(algorithm), 0);
    let mut block = vec![0; REHASH_BLOCK];
    loop {
        let read = file.read(&mut block)?;
        let Some(bytes) = block.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok((hasher, size));
        };
        hasher.update(bytes);
        size += bytes.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        data: tempfile::TempDir,
        blobs: BlobDirectory,
        uploads: Uploads,
    }

    impl Fixture {
        fn new() -> Self {
            let data = tempfile::tempdir().unwrap();
            let blobs = BlobDirectory::open(data.path()).unwrap();
            Self { data, blobs, uploads: Uploads::default() }
        }

        fn folder(&self) -> PathBuf {
            self.data.path().join("repositories/r/_uploads")
        }
    }

    fn part(text: &'static str) -> [Bytes; 1] {
        [Bytes::from_static(text.as_bytes())]
    }

    #[test]
    fn a_session_goes_on_after_a_restart_and_becomes_a_blob() {
        let fixture = Fixture::new();
        let upload = fixture.uploads.create(&fixture.folder(), Algorithm::Sha256).unwrap();
        let writer = upload.begin(Some(0)).unwrap();
        assert_eq!(upload.append(&writer, &part("one ")).unwrap(), 4);

        let restarted = Uploads::default();
        let upload = restarted.find(&fixture.folder(), upload.id()).unwrap().unwrap();
        assert_eq!(upload.offset(), 4);
        let writer = upload.begin(Some(4)).unwrap();
        upload.append(&writer, &part("two")).unwrap();
        for algorithm in Algorithm::ALL.into_iter().take(1) {
            let digest = BlobDigest::compute(algorithm, b"one two");
            assert_eq!(restarted.commit(&upload, &writer, &digest, &fixture.blobs).unwrap().size, 7);
            assert_eq!(fixture.blobs.read(&digest, 100).unwrap(), b"one two");
        }
        assert!(restarted.find(&fixture.folder(), upload.id()).unwrap().is_none());
    }

    #[test]
    fn a_chunk_out_of_order_is_refused_and_names_the_next_byte() {
        let fixture = Fixture::new();
        let upload = fixture.uploads.create(&fixture.folder(), Algorithm::Sha256).unwrap();
        let writer = upload.begin(None).unwrap();
        upload.append(&writer, &part("12345")).unwrap();
        assert!(matches!(upload.begin(Some(3)), Err(UploadError::OutOfOrder { expected: 5, found: 3 })));
    }

    #[test]
    fn a_hanging_request_loses_the_session_to_the_next_one() {
        let fixture = Fixture::new();
        let upload = fixture.uploads.create(&fixture.folder(), Algorithm::Sha256).unwrap();
        let hanging = upload.begin(None).unwrap();
        let next = upload.begin(None).unwrap();
        assert!(matches!(upload.append(&hanging, &part("late")), Err(UploadError::TakenOver)));
        assert_eq!(upload.append(&next, &part("good")).unwrap(), 4);
    }

    #[test]
    fn a_wrong_digest_stores_nothing_and_ends_the_session() {
        let fixture = Fixture::new();
        let upload = fixture.uploads.create(&fixture.folder(), Algorithm::Sha256).unwrap();
        let writer = upload.begin(None).unwrap();
        upload.append(&writer, &part("bytes")).unwrap();
        let wrong = BlobDigest::of(b"other");
        let refused = fixture.uploads.commit(&upload, &writer, &wrong, &fixture.blobs);
        assert!(matches!(refused, Err(UploadError::Digest { .. })));
        assert_eq!(fixture.blobs.size(&wrong).unwrap(), None);
        assert_eq!(fs::read_dir(fixture.folder()).unwrap().count(), 0);
    }

    #[test]
    fn a_rewound_chunk_leaves_no_trace_in_bytes_or_digest() {
        let fixture = Fixture::new();
        let upload = fixture.uploads.create(&fixture.folder(), Algorithm::Sha256).unwrap();
        let writer = upload.begin(None).unwrap();
        upload.append(&writer, &part("keep")).unwrap();
        let writer = upload.begin(Some(4)).unwrap();
        upload.append(&writer, &part("drop this")).unwrap();
        upload.rewind(&writer).unwrap();
        let writer = upload.begin(Some(4)).unwrap();
        let digest = BlobDigest::of(b"keep");
        assert_eq!(fixture.uploads.commit(&upload, &writer, &digest, &fixture.blobs).unwrap().size, 4);
    }

    #[test]
    fn a_digest_is_computed_on_the_way_or_from_the_stored_bytes() {
        let fixture = Fixture::new();
        for announced in Algorithm::ALL {
            for named in Algorithm::ALL {
                let upload = fixture.uploads.create(&fixture.folder(), announced).unwrap();
                let writer = upload.begin(None).unwrap();
                upload.append(&writer, &part("bytes")).unwrap();
                let digest = BlobDigest::compute(named, b"bytes");
                fixture.uploads.commit(&upload, &writer, &digest, &fixture.blobs).unwrap();
                assert_eq!(fixture.blobs.size(&digest).unwrap(), Some(5));
            }
        }
    }

    #[test]
    fn a_session_that_nobody_touched_for_a_day_ends_and_others_go_on() {
        let fixture = Fixture::new();
        let [old, new] = [(); 2].map(|()| fixture.uploads.create(&fixture.folder(), Algorithm::Sha256).unwrap());
        let long_ago = SystemTime::now() - 2 * ABANDONED_AFTER;
        File::options().write(true).open(&old.path).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(fixture.uploads.expire(&fixture.folder()).unwrap(), 1);
        assert!(fixture.uploads.find(&fixture.folder(), old.id()).unwrap().is_none());
        assert!(matches!(old.begin(None), Err(UploadError::TakenOver)));
        assert!(fixture.uploads.find(&fixture.folder(), new.id()).unwrap().is_some());
    }
}
