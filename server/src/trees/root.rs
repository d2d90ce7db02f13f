//! One directory, opened once: every file is opened below that handle, so that no link and no `..` leads out.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirEntry, MetadataExt as _, OpenOptions, OpenOptionsExt as _};

use symseal_artifact::escaped;

use super::told::Told;
use crate::file_stamp::FileStamp;
use crate::withheld::{Identity, Withheld};

/// How deep folders are looked into.
const DEEPEST: usize = 64;

/// A directory that is served in place.
#[derive(Debug)]
pub(super) struct Root {
    dir: Dir,
    /// Its path, without links, with a slash at its end.
    place: String,
    /// Device and inode, which no other directory has while this one is open.
    identity: (u64, u64),
    /// Of files that were touched since they were read: whether they have the same bytes still.
    touched: Mutex<HashMap<Touched, bool>>,
    withheld: Arc<Withheld>,
}

/// A file below the root, or a member of one, with what is known of it now, and the digest that it had.
type Touched = (String, FileStamp, [u8; 32]);

/// Such files that are remembered.
const REMEMBERED: usize = 4096;

impl Root {
    pub(super) fn open(path: &Path, withheld: Arc<Withheld>) -> io::Result<Self> {
        let place = path.canonicalize()?;
        let place = place.to_str().ok_or_else(|| io::Error::other("its path is not UTF-8"))?;
        let dir = Dir::open_ambient_dir(place, ambient_authority())?;
        let metadata = dir.dir_metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        let place = format!("{}/", place.trim_end_matches('/'));
        Ok(Self { dir, place, identity, touched: Mutex::default(), withheld })
    }

    /// Whether this is that directory, under the same path.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.identity == other.identity && self.place == other.place
    }

    /// Its path, with a slash at its end.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// How a file below it is called in the index.
    pub(super) fn name_of(&self, path: &str) -> String {
        format!("{}{path}", self.place)
    }

    /// The path below it of a name in the index.
    pub(super) fn inside<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(self.place.as_str())
    }

    /// Whether a file that was touched has these bytes all the same; `None` where nobody has read it since.
    pub(super) fn is_same(&self, path: &str, stamp: FileStamp, sha256: &[u8; 32]) -> Option<bool> {
        self.touched().get(&(path.to_owned(), stamp, *sha256)).copied()
    }

    /// What was found, so that it is read once and not for everybody who asks.
    pub(super) fn note(&self, path: &str, stamp: FileStamp, sha256: &[u8; 32], is_same: bool) {
        let mut touched = self.touched();
        if touched.len() >= REMEMBERED {
            touched.clear();
        }
        touched.insert((path.to_owned(), stamp, *sha256), is_same);
    }

    fn touched(&self) -> MutexGuard<'_, HashMap<Touched, bool>> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a regular file. A pipe that nobody writes to would hold us for ever, so nothing waits.
    pub(super) fn open_file(&self, path: &str) -> io::Result<(File, FileStamp)> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = self.dir.open_with(path, &options)?.into_std();
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("no regular file"));
        }
        if self.withheld.has(&file, || Path::new(&self.place).join(path).canonicalize()) {
            return Err(io::Error::other("the server keeps it for itself"));
        }
        let stamp = FileStamp::of(&metadata)?;
        Ok((file, stamp))
    }

    /// What lies below it. Links are not followed; what has no UTF-8 name is left out.
    pub(super) fn look(&self, told: &Told) -> Look {
        let mut look = Look::default();
        if self.withheld.has_path(Path::new(&self.place)) {
            tracing::warn!(folder = %self.place, "not looked into: it lies in the server's own data directory");
            return look;
        }
        let withheld = self.withheld.identities();
        // Names alone: a handle for each folder that waits would be more than a process may have.
        let mut open = vec![String::new()];
        while let Some(folder) = open.pop() {
            if !folder.is_empty() && self.is_one_of(&folder, &withheld) {
                continue;
            }
            match self.entries(&folder, &mut look, told) {
                Ok(folders) => open.extend(folders),
                // Others may add and remove files meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.is_empty() => {}
                Err(error) => {
                    self.tell_unread(told, &folder, &error);
                    look.unread.push(folder);
                }
            }
        }
        look.files.sort();
        look
    }

    /// Whether a folder is the server's own: what is hidden or taken down there would be found by its files.
    fn is_one_of(&self, folder: &str, withheld: &[Identity]) -> bool {
        self.dir.metadata(folder).is_ok_and(|metadata| withheld.contains(&(metadata.dev(), metadata.ino())))
    }

    fn tell_unread(&self, told: &Told, path: &str, error: &io::Error) {
        let path = self.name_of(path);
        if told.is_news(&path, error.to_string()) {
            tracing::warn!(path, %error, "not read: what is known of it is kept");
        }
    }

    /// The folders in a folder; its files go to what is found.
    fn entries(&self, folder: &str, look: &mut Look, told: &Told) -> io::Result<Vec<String>> {
        let mut folders = Vec::new();
        let entries = if folder.is_empty() { self.dir.entries() } else { self.dir.open_dir(folder)?.entries() };
        for entry in entries? {
            let entry = entry?;
            let name = match entry.file_name().into_string() {
                Ok(name) => name,
                Err(name) => {
                    let path = self.name_of(&escaped(Path::new(&folder).join(name).as_os_str().as_bytes()));
                    if told.is_news(&path, "name") {
                        tracing::warn!(path, "passed over: its name is not UTF-8");
                    }
                    continue;
                }
            };
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            match file_or_folder(&entry) {
                Ok(Some(Entry::File(stamp))) => look.files.push((path, stamp)),
                Ok(Some(Entry::Folder)) if path.split('/').count() <= DEEPEST => folders.push(path),
                Ok(Some(Entry::Folder)) => {
                    look.too_deep = look.too_deep.saturating_add(1);
                    let path = self.name_of(&path);
                    if told.is_news(&path, "depth") {
                        tracing::warn!(path, "passed over: folders are looked into {DEEPEST} deep");
                    }
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.tell_unread(told, &path, &error);
                    look.unread.push(path);
                }
            }
        }
        Ok(folders)
    }
}

/// What was found below a root.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The regular files with what a change of them is known by, in order.
    pub(super) files: Vec<(String, FileStamp)>,
    /// What could not be looked at, files and folders; of these nothing is known. The root itself is the empty name.
    unread: Vec<String>,
    /// Folders that lie too deep.
    pub(super) too_deep: u64,
}

impl Look {
    /// Of a root that cannot be looked at.
    pub(super) fn in_vain() -> Self {
        Self { unread: vec![String::new()], ..Self::default() }
    }

    /// Whether a file may be there although it was not found.
    pub(super) fn may_have(&self, path: &str) -> bool {
        self.unread.iter().any(|unread| {
            unread.is_empty()
                || path.strip_prefix(unread.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

enum Entry {
    File(FileStamp),
    Folder,
}

fn file_or_folder(entry: &DirEntry) -> io::Result<Option<Entry>> {
    let kind = entry.file_type()?;
    if kind.is_dir() {
        return Ok(Some(Entry::Folder));
    }
    if !kind.is_file() {
        return Ok(None);
    }
    let metadata = entry.metadata()?;
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    Ok(Some(Entry::File(FileStamp::new(metadata.modified()?.into_std(), metadata.len(), changed))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_folder_that_was_not_read_may_be_there() {
        let look = Look { unread: vec!["a/b".into(), "c".into()], ..Look::default() };
        for (path, expected) in
            [("a/b/x", true), ("a/b", true), ("a/bc", false), ("a/x", false), ("c/d/e", true), ("x/c/d", false)]
        {
            assert_eq!(look.may_have(path), expected, "{path}");
        }
        assert!(Look::in_vain().may_have("x"));
        assert!(!Look::default().may_have("x"));
    }
}
