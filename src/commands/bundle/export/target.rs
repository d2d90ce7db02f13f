//! The directory that a tree is written into. Others may have written there before: no link in it is followed, and nothing but files is read.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileType};
use symseal_bundle::Digest;
use tempfile::TempPath;

/// What is at a place.
pub(super) enum There {
    /// Nothing, and nothing keeps a file from being written there.
    Nothing,
    /// A file, with these bytes.
    File(Digest),
    /// Something at the place, or on the way to it, in which or over which nothing is written: where, and what it is.
    InTheWay(PathBuf, &'static str),
}

/// A tree's directory, which may not be there yet.
pub(super) struct Target {
    path: PathBuf,
    dir: Option<Dir>,
}

impl Target {
    /// Opens it as it is. That it is itself a link is its owner's affair.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let dir = match Dir::open_ambient_dir(path, ambient_authority()) {
            Ok(dir) => Some(dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                can_be_made(path)?;
                None
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        Ok(Self { path: path.to_owned(), dir })
    }

    /// What is at a place of the tree.
    pub(super) fn there(&self, path: &str) -> Result<There> {
        let Some(dir) = &self.dir else { return Ok(There::Nothing) };
        look(dir, &self.path, path).with_context(|| self.path.join(path).display().to_string())
    }

    /// The directory, made where it is not there.
    pub(super) fn made(&mut self) -> Result<&Dir> {
        if self.dir.is_none() {
            std::fs::create_dir_all(&self.path).with_context(|| self.path.display().to_string())?;
            let dir = Dir::open_ambient_dir(&self.path, ambient_authority());
            self.dir = Some(dir.with_context(|| self.path.display().to_string())?);
        }
        self.dir.as_ref().context("a directory that is open")
    }

    /// Gives a file of the tree another name, in the directory itself.
    pub(super) fn link(&self, path: &str, staged: &Path) -> io::Result<()> {
        let (Some(dir), Some(name)) = (&self.dir, staged.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        dir.hard_link(path, dir, name)
    }

    /// Moves a file that was staged in the directory itself to its place, whose folders are made; a file that came there meanwhile is not replaced.
    pub(super) fn place(&mut self, staged: TempPath, path: &str) -> Result<There> {
        let root = self.path.clone();
        let dir = self.made()?;
        let name = staged.file_name().context("a staged file without a name")?;
        let (folder, file) = match path.rsplit_once('/') {
            Some((folders, file)) => (made_below(dir, folders)?, file),
            None => (dir.try_clone()?, path),
        };
        match dir.hard_link(name, &folder, file) {
            // The staged name is removed.
            Ok(()) => return Ok(There::Nothing),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return look(dir, &root, path),
            // A file system without links.
            Err(_) => {}
        }
        match folder.symlink_metadata(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => dir.rename(name, &folder, file)?,
            Err(error) => return Err(error.into()),
            Ok(_) => return look(dir, &root, path),
        }
        // It has no other name any more.
        let _ = staged.keep();
        Ok(There::Nothing)
    }
}

/// Whether the directory can be made: what is there of the way to it is a directory, and no link to nothing.
fn can_be_made(path: &Path) -> Result<()> {
    for above in path.ancestors().filter(|above| !above.as_os_str().is_empty()) {
        match std::fs::symlink_metadata(above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| above.display().to_string()),
            Ok(found) if found.is_dir() || std::fs::metadata(above).is_ok_and(|found| found.is_dir()) => return Ok(()),
            Ok(found) => bail!(
                "{}: expected a directory, or nothing, found {}; nothing was written: remove it, or name another directory",
                above.display(),
                if found.is_symlink() { "a link that leads to nothing" } else { "a file" }
            ),
        }
    }
    Ok(())
}

/// Looks at a place below a directory, from the top. Where a folder becomes a link while it is looked at, what is read is still below the directory.
fn look(dir: &Dir, root: &Path, path: &str) -> Result<There> {
    let (mut folder, mut at) = (dir.try_clone()?, root.to_owned());
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        at.push(part);
        let found = match folder.symlink_metadata(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
            found => found?,
        };
        match (parts.peek().is_some(), kind(found.file_type())) {
            (true, Kind::Folder) => folder = folder.open_dir(part)?,
            (false, Kind::File) => {
                let file = folder.open(part)?;
                // A pipe may have come there meanwhile.
                if kind(file.metadata()?.file_type()) != Kind::File {
                    return Ok(There::InTheWay(at, Kind::Other.text()));
                }
                let (digest, _) = Digest::of_reader(file)?;
                return Ok(There::File(digest));
            }
            (_, other) => return Ok(There::InTheWay(at, other.text())),
        }
    }
    Ok(There::Nothing)
}

/// Makes folders below a directory, and opens the last one.
fn made_below(dir: &Dir, folders: &str) -> Result<Dir> {
    let mut folder = dir.try_clone()?;
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        match folder.create_dir(part) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("the folder {part}"));
            }
            _ => {}
        }
        let found = kind(folder.symlink_metadata(part)?.file_type());
        if found != Kind::Folder {
            bail!("the folder {part}: {} is there", found.text());
        }
        folder = folder.open_dir(part)?;
    }
    Ok(folder)
}

/// What may be somewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Link,
    Other,
}

fn kind(found: FileType) -> Kind {
    match found {
        found if found.is_file() => Kind::File,
        found if found.is_dir() => Kind::Folder,
        found if found.is_symlink() => Kind::Link,
        _ => Kind::Other,
    }
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Folder => "a folder",
            Self::Link => "a link, which is not followed,",
            Self::Other => "a pipe, a socket or a device",
        }
    }
}
