//! Files that become visible whole: temporary file, fsync, rename, fsync of the directory.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes files so that a crash at any step leaves the old bytes or the new ones under a name.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Tests let the disk fail after this many steps; later steps fail too, as after a crash.
    #[cfg(test)]
    pub(crate) steps_left: std::sync::Mutex<Option<u32>>,
    /// Tests that append thousands of entries do without durability.
    #[cfg(test)]
    pub(crate) unsynced: bool,
}

impl Disk {
    #[cfg(test)]
    fn step(&self) -> io::Result<()> {
        let mut steps_left = self.steps_left.lock().map_err(|error| io::Error::other(error.to_string()))?;
        match steps_left.as_mut() {
            Some(0) => Err(io::Error::other("the disk was made to fail here")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    fn step(&self) -> io::Result<()> {
        Ok(())
    }

    /// Puts `bytes` under `path`, replacing what is there. The caller is the only writer of the name.
    pub(crate) fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write_temporary(path, bytes)?;
        self.show(path)?;
        self.sync_directory(directory_of(path))
    }

    /// Puts several files in place in one round: all bytes are durable before the first name changes, and
    /// each directory is synced once. A crash leaves any of them old and any of them new, each whole.
    ///
    /// # Errors
    /// The file that failed, and why.
    pub(crate) fn replace_all(&self, files: &[(PathBuf, Vec<u8>)]) -> Result<(), (PathBuf, io::Error)> {
        let named = |path: &Path| {
            let path = path.to_owned();
            move |error| (path, error)
        };
        for (path, bytes) in files {
            self.write_temporary(path, bytes).map_err(named(path))?;
        }
        let mut directories = BTreeSet::new();
        for (path, _) in files {
            self.show(path).map_err(named(path))?;
            directories.insert(directory_of(path));
        }
        for directory in directories {
            self.sync_directory(directory).map_err(named(directory))?;
        }
        Ok(())
    }

    /// The bytes, durable, under the temporary name.
    fn write_temporary(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_directory(directory_of(path))?;
        self.step()?;
        let mut file = File::create(temporary_name(path))?;
        // Two writes, so that a test can stop between them and leave a torn temporary file.
        let (front, back) = bytes.split_at(bytes.len() / 2);
        file.write_all(front)?;
        self.step()?;
        file.write_all(back)?;
        self.step()?;
        self.sync(&file)
    }

    /// From the temporary name to the one that readers know.
    fn show(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        fs::rename(temporary_name(path), path)?;
        self.step()
    }

    #[cfg(test)]
    fn sync(&self, file: &File) -> io::Result<()> {
        if self.unsynced { Ok(()) } else { file.sync_all() }
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        #[cfg(test)]
        if self.unsynced {
            return Ok(());
        }
        sync_directory(path)
    }

    /// Makes a directory and its missing parents, each durable before the next is made in it.
    pub(crate) fn make_directory(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let parent = directory_of(path);
        self.make_directory(parent)?;
        self.step()?;
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.step()?;
        self.sync_directory(parent)
    }
}

/// The directory that holds a name; `.` for a bare one.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A fixed name beside the target: what a crash leaves is overwritten by the next attempt.
fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    path.with_file_name(name)
}

/// Makes renames in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    // Elsewhere a directory cannot be opened as a file, and the rename itself is what there is.
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}
