//! Files that came, on the disk: shared by processes, bounded in bytes, and never half-written.
//!
//! ```text
//! <cache>/files/<kind>/<id>        the file
//! <cache>/files/<kind>/<id>.from   its SHA-256, and where it came from: a line each
//! <cache>/absent/<hex>             empty: the URL of this SHA-256 was answered 404, at the file's time (`absent.rs`)
//! <cache>/parts/<hex>              what came of a URL so far; whoever fetches it holds its lock
//! <cache>/parts/<hex>.etag         the ETag of these bytes
//! ```

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use reqwest::Url;
use reqwest::header::HeaderValue;
use symseal_bundle::Digest;

use super::absent::Absent;
use crate::{CheckFile, FetchedFile, ModuleFiles as _, ThisMachine, WantedFile, WantedKind};

/// How often a part that another process has is looked at.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// The most that is read of a file of libdebuginfod's cache, in bytes; and of a note beside a file of ours.
const THEIR_BYTES: u64 = 4 << 30;
const NOTE_BYTES: u64 = 64 << 10;
/// What a try left behind goes after that.
const PARTS_FOR: Duration = Duration::from_secs(24 * 3600);

/// The cache.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
    bytes: u64,
    elfutils: Option<PathBuf>,
    absent: Absent,
}

/// A file on its way. Other processes wait while this one is held.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
    /// Whether nobody else finds it, so that what is left of it is of no use.
    is_own: bool,
}

impl Cache {
    pub(super) fn open(root: &Path, bytes: u64, elfutils: Option<PathBuf>) -> io::Result<Self> {
        for folder in ["files/debug-file", "files/executable", "absent", "parts"] {
            fs::create_dir_all(root.join(folder))?;
            // A folder may be another user's, and a disk full: nothing could be kept then.
            tempfile::NamedTempFile::new_in(root.join(folder))?.write_all(&[0; 4096])?;
        }
        let absent = Absent::open(root.join("absent"));
        let this = Self { root: root.to_owned(), bytes, elfutils, absent };
        this.sweep("parts", PARTS_FOR);
        // A run that was ended may have left more than there is room for.
        let _ = this.make_room(None);
        Ok(this)
    }

    /// A file that lies here and passes the check.
    pub(super) fn find(&self, wanted: &WantedFile<'_>, check: CheckFile<'_>) -> Option<FetchedFile> {
        self.find_or(wanted, check, &mut None)
    }

    /// The same. One that does not pass is fetched again: why it did not is told, as nobody may have it.
    pub(super) fn find_or(
        &self,
        wanted: &WantedFile<'_>,
        check: CheckFile<'_>,
        refused: &mut Option<String>,
    ) -> Option<FetchedFile> {
        let path = self.path(wanted);
        if let Ok(bytes) = read_regular(&path, self.bytes) {
            match as_it_came(&path, &bytes).and_then(|from| check(&bytes).map(|()| from).map_err(|(_, why)| why)) {
                Ok(from) => {
                    // What is used stays.
                    let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                    return Some(FetchedFile { bytes, from });
                }
                Err(why) => *refused = Some(format!("{}: {why}", path.display())),
            }
        }
        // libdebuginfod's own: an empty file there is its memory of a miss, which says nothing here.
        let theirs = self.elfutils.as_ref().zip(wanted.id.build_id())?;
        let name = match wanted.kind {
            WantedKind::DebugFile => "debuginfo",
            WantedKind::Executable => "executable",
        };
        let path = theirs.0.join(wanted.id.to_string()).join(name);
        let bytes = read_regular(&path, THEIR_BYTES).ok().filter(|bytes| !bytes.is_empty() && check(bytes).is_ok())?;
        Some(FetchedFile { bytes, from: path.display().to_string() })
    }

    /// Keeps a part that has these bytes for later: it is the file from then on, and takes the disk once. [`Self::make_room`] is to follow.
    pub(super) fn keep(&self, wanted: &WantedFile<'_>, part: Part, bytes: &[u8], from: &str) -> io::Result<()> {
        if bytes.len() as u64 > self.bytes {
            return part.finish();
        }
        let path = self.path(wanted);
        let noted = format!("{}\n{from}\n", Digest::of(bytes));
        let is_noted = write_whole(&self.root.join("parts"), &from_of(&path), noted.as_bytes());
        match is_noted.and_then(|()| fs::rename(&part.path, &path)) {
            Ok(()) => remove(&part.etag_path()),
            Err(error) => part.finish().and(Err(error)),
        }
    }

    /// Whether a URL was answered 404 a short while ago.
    pub(super) fn is_absent(&self, url: &Url) -> bool {
        self.absent.contains(&name_of(url))
    }

    /// Notes that a URL was answered 404.
    pub(super) fn note_absent(&self, url: &Url) {
        self.absent.note(&name_of(url));
    }

    /// What came of a URL so far, and for how long it was waited for without the server saying anything. Waits for another process that fetches the
    /// same, as long as it gets on.
    ///
    /// One that heard something and then does not get on in that time, as it was stopped, is left alone, as is a part that cannot be used: the file comes in one
    /// of our own then.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] where another process heard nothing of the server in the time of `patience`.
    pub(super) fn part(&self, url: &Url, patience: Duration) -> io::Result<(Part, Duration)> {
        let path = self.root.join("parts").join(name_of(url));
        // The file is kept open, so that none that is made in its place has its number.
        let (mut since, mut last): (_, Option<(File, Metadata)>) = (Instant::now(), None);
        loop {
            let file = match OpenOptions::new().read(true).append(true).create(true).open(&path) {
                Ok(file) if file.metadata()?.is_file() => file,
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                // Another user's, or what can hold no bytes.
                _ => return Ok((self.own_part()?, Duration::ZERO)),
            };
            match file.try_lock() {
                // The one before may have finished, and removed it.
                Ok(()) if is_at(&file, &path)? => {
                    let waited = last.as_ref().is_some_and(|(_, before)| before.len() == 0);
                    let idle = if waited { since.elapsed() } else { Duration::ZERO };
                    return Ok((Part { file, path, is_own: false }, idle));
                }
                Ok(()) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
            let found = file.metadata()?;
            if last.as_ref().is_some_and(|(_, before)| gets_on(before, &found)) {
                since = Instant::now();
            }
            // What came has to be looked at as well, which is no fault of the server.
            let heard = found.len() > 0;
            last = Some((file, found));
            // Whoever has it takes no longer for any step.
            match (since.elapsed() > patience, heard) {
                (true, false) => return Err(io::ErrorKind::TimedOut.into()),
                (true, true) => return Ok((self.own_part()?, Duration::ZERO)),
                (false, _) => {}
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }

    fn own_part(&self) -> io::Result<Part> {
        let (file, path) = tempfile::NamedTempFile::new_in(self.root.join("parts"))?.keep()?;
        Ok(Part { file, path, is_own: true })
    }

    fn path(&self, wanted: &WantedFile<'_>) -> PathBuf {
        let kind = match wanted.kind {
            WantedKind::DebugFile => "files/debug-file",
            WantedKind::Executable => "files/executable",
        };
        // An id's text has letters, digits, `-` and `:` alone.
        self.root.join(kind).join(wanted.id.to_string().replace(':', "-"))
    }

    /// Removes what was not used the longest until the rest fits, and a tenth more, so that this is not for every file. What came of downloads that broke off counts too.
    /// What was just kept stays.
    pub(super) fn make_room(&self, kept: Option<&WantedFile<'_>>) -> io::Result<()> {
        let kept = kept.map(|kept| self.path(kept));
        let mut files = Vec::new();
        for kind in ["files/debug-file", "files/executable", "parts"] {
            for entry in fs::read_dir(self.root.join(kind))? {
                let (entry, path) = entry.map(|entry| (entry.metadata(), entry.path()))?;
                // Another process may have removed it.
                let Ok(found) = entry else { continue };
                files.push((found.modified().unwrap_or(SystemTime::UNIX_EPOCH), found.len(), path));
            }
        }
        let mut sum: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if sum <= self.bytes {
            return Ok(());
        }
        files.sort();
        let goal = self.bytes - self.bytes / 10;
        for (_, bytes, path) in files {
            if sum <= goal {
                break;
            }
            // Files that are just being written, and what is known of parts, go with what they belong to.
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if name.starts_with(b".")
                || name.ends_with(b".etag")
                || name.ends_with(b".from")
                || Some(&path) == kept.as_ref()
            {
                continue;
            }
            // A part on its way is somebody's; one that is removed under its lock is begun anew by who waited for it.
            let locked = File::open(&path).and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from));
            let Ok(_locked) = locked else { continue };
            let _ = (fs::remove_file(etag_of(&path)), fs::remove_file(from_of(&path)));
            if fs::remove_file(&path).is_ok() {
                sum = sum.saturating_sub(bytes);
            }
        }
        Ok(())
    }

    /// Removes what is older than `age`.
    fn sweep(&self, folder: &str, age: Duration) {
        for entry in fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|found| found.modified());
            if modified.is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed > age)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Part {
    /// Bytes so far.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The ETag under which they came.
    pub(super) fn etag(&self) -> Option<String> {
        let etag = read_regular(&self.etag_path(), NOTE_BYTES).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        etag.filter(|etag| !etag.is_empty() && !etag.starts_with("W/"))
    }

    pub(super) fn set_etag(&self, etag: Option<&HeaderValue>) -> io::Result<()> {
        match etag.and_then(|etag| etag.to_str().ok()) {
            Some(etag) => fs::write(self.etag_path(), etag),
            None => remove(&self.etag_path()),
        }
    }

    /// Forgets what came.
    pub(super) fn begin_anew(&mut self) -> io::Result<()> {
        remove(&self.etag_path())?;
        self.file.set_len(0)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(bytes)
    }

    /// Holds these bytes in the place of what came.
    pub(super) fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.begin_anew()?;
        self.append(bytes)
    }

    /// What came, from its start.
    pub(super) fn bytes(&mut self) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Shows who waits for it that this one gets on.
    pub(super) fn touch(&self) -> io::Result<()> {
        self.file.set_modified(SystemTime::now())
    }

    /// Leaves what came for another try, and nothing where nothing came. Says whether anything is left.
    pub(super) fn give_up(self) -> bool {
        let is_left = !self.is_own && self.length().map_or(true, |bytes| bytes > 0);
        if !is_left {
            let _ = self.finish();
        }
        is_left
    }

    /// It is no part any more. Who waited for it looks into the cache next.
    pub(super) fn finish(self) -> io::Result<()> {
        remove(&self.etag_path())?;
        remove(&self.path)
    }

    fn etag_path(&self) -> PathBuf {
        etag_of(&self.path)
    }
}

/// Where the ETag of a part is.
fn etag_of(path: &Path) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(".etag");
    path.into()
}

/// Where it is noted where a file came from.
fn from_of(path: &Path) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(".from");
    path.into()
}

/// Where a file came from, if it has the bytes that came.
///
/// # Errors
/// What is wrong, for people; the file is fetched again.
fn as_it_came(path: &Path, bytes: &[u8]) -> Result<String, String> {
    let noted = read_regular(&from_of(path), NOTE_BYTES).unwrap_or_default();
    let noted = String::from_utf8_lossy(&noted);
    let Some((digest, from)) = noted.split_once('\n') else {
        return Err("nothing is noted of where it came from".to_owned());
    };
    let found = Digest::of(bytes).to_string();
    if found != digest {
        return Err(format!("expected the {digest} that came, found {found}"));
    }
    Ok(from.trim_end().to_owned())
}

fn name_of(url: &Url) -> String {
    Digest::of(url.as_str().as_bytes()).hex()
}

/// Whether whoever has a part got on with it. One who begins it again, after another gave up, has not got on.
fn gets_on(before: &Metadata, now: &Metadata) -> bool {
    let state = |found: &Metadata| (found.len(), found.modified().ok());
    is_same(before, now) && state(before) != state(now)
}

/// Whether these are of one file.
#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// What is open cannot be replaced there.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

/// Whether the open file is the one at this path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        let here = file.metadata()?;
        Ok(fs::metadata(path).is_ok_and(|there| is_same(&there, &here)))
    }
    #[cfg(not(unix))]
    {
        // What is open cannot be removed there; what was renamed is found in the cache.
        let _ = file;
        Ok(path.exists())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The bytes of a regular file of at most so many: a pipe could block for ever, and a device has no end.
pub(super) fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = ThisMachine.open_path(path)?;
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    if file.take(most.saturating_add(1)).read_to_end(&mut bytes)? as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("expected at most {most} bytes")));
    }
    Ok(bytes)
}

/// Writes a file that is seen whole or not at all.
pub(super) fn write_whole(beside: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(beside)?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}
