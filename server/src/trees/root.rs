//! One directory, opened once: every file is opened below that handle, so that no link and no `..` leads out.

use std::fs::File;
use std::io;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirEntry, OpenOptions, OpenOptionsExt as _};

use super::Stamp;

/// How deep folders are looked into.
const DEEPEST: usize = 64;

/// A directory that is served in place.
#[derive(Debug)]
pub(super) struct Root {
    dir: Dir,
    /// Its path, without links, with a slash at its end.
    place: String,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let place = path.canonicalize()?;
        let place = place.to_str().ok_or_else(|| io::Error::other("its path is not UTF-8"))?;
        let dir = Dir::open_ambient_dir(place, ambient_authority())?;
        Ok(Self { dir, place: format!("{}/", place.trim_end_matches('/')) })
    }

    /// How a file below it is called in the index.
    pub(super) fn name_of(&self, path: &str) -> String {
        format!("{}{path}", self.place)
    }

    /// The path below it of a name in the index.
    pub(super) fn inside<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(self.place.as_str())
    }

    /// Opens a regular file. A pipe that nobody writes to would hold us for ever, so nothing waits.
    pub(super) fn open_file(&self, path: &str) -> io::Result<(File, Stamp)> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = self.dir.open_with(path, &options)?.into_std();
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("no regular file"));
        }
        let stamp = Stamp::of(&metadata)?;
        Ok((file, stamp))
    }

    /// The regular files below it with what a change of them is known by. Links are not followed; what has no UTF-8 name is left out.
    pub(super) fn files(&self) -> io::Result<Vec<(String, Stamp)>> {
        let mut found = Vec::new();
        let mut open = vec![(String::new(), self.dir.try_clone()?)];
        while let Some((path, dir)) = open.pop() {
            for entry in dir.entries()? {
                let entry = entry?;
                match self.entry(&path, &entry) {
                    Ok(Some(Entry::File(file, stamp))) => found.push((file, stamp)),
                    Ok(Some(Entry::Folder(path, dir))) => open.push((path, dir)),
                    Ok(None) => {}
                    // Others may add and remove files meanwhile.
                    Err(error) => {
                        tracing::debug!(folder = %self.name_of(&path), name = ?entry.file_name(), %error, "passed over");
                    }
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn entry(&self, folder: &str, entry: &DirEntry) -> io::Result<Option<Entry>> {
        let Ok(name) = entry.file_name().into_string() else { return Ok(None) };
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && path.split('/').count() <= DEEPEST {
            return Ok(Some(Entry::Folder(path, entry.open_dir()?)));
        }
        if !kind.is_file() {
            return Ok(None);
        }
        let metadata = entry.metadata()?;
        let modified = metadata.modified()?.into_std().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Ok(Some(Entry::File(path, Stamp { modified: modified.as_nanos(), size: metadata.len() })))
    }
}

enum Entry {
    File(String, Stamp),
    Folder(String, Dir),
}
