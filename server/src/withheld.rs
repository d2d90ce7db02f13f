//! What the server keeps for itself, where a directory that it gives files from holds that too: its data directory, keys, its configuration.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Files, and folders with all that lies in them, that no directory gives, and what a folder of them has right in it, wherever a link there leads: blobs may
/// be on another disk. They are known by device and inode, so that links and mounts lead to them under no other name. A copy of a folder
/// is another one, and so is one of hard links but for the files right in the folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Withheld(Vec<PathBuf>);

impl Withheld {
    pub(crate) fn new(places: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(places.into_iter().collect())
    }

    /// Whether an open file is one of them or lies below one; `found_at` gives its path without links where the system does not tell it. What
    /// cannot be found out counts as withheld. Blocks.
    pub(crate) fn has(&self, file: &File, found_at: impl FnOnce() -> io::Result<PathBuf>) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Ok(metadata) = file.metadata() else { return true };
        let Ok(path) = path_of(file).or_else(|_| found_at()) else { return true };
        let identities = self.identities();
        identities.contains(&identity_of(&metadata)) || is_below(&path, &identities)
    }

    /// The same of a folder's path, without links in it.
    pub(crate) fn has_path(&self, path: &Path) -> bool {
        is_below(path, &self.identities())
    }

    /// What they are now. They are looked at anew each time: keys are replaced while a server runs. Blocks.
    pub(crate) fn identities(&self) -> Vec<Identity> {
        let inside = |place: &PathBuf| {
            let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let places = self.0.iter().flat_map(|place| std::iter::once(place.clone()).chain(inside(place)));
        places.filter_map(|place| place.metadata().ok()).map(|metadata| identity_of(&metadata)).collect()
    }
}

fn is_below(path: &Path, identities: &[Identity]) -> bool {
    let folders = path.ancestors().filter_map(|folder| folder.metadata().ok());
    folders.map(|metadata| identity_of(&metadata)).any(|identity| identities.contains(&identity))
}

/// Device and inode.
pub(crate) type Identity = (u64, u64);

fn identity_of(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Where an open file lies now.
fn path_of(file: &File) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd as _;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_withheld_is_so_under_every_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        std::fs::create_dir_all(at("data/blobs")).unwrap();
        for name in ["data/blobs/a", "key", "free"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::fs::hard_link(at("key"), at("copy")).unwrap();
        std::os::unix::fs::symlink(at("data"), at("link")).unwrap();
        // Blobs on another disk, and another name of the database.
        std::fs::create_dir(at("disk")).unwrap();
        std::os::unix::fs::symlink(at("disk"), at("data/traces")).unwrap();
        for name in ["disk/b", "data/database"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::fs::hard_link(at("data/database"), at("backup")).unwrap();
        let withheld = Withheld::new([at("link"), at("key"), at("none")]);
        let has = |name: &str| withheld.has(&File::open(at(name)).unwrap(), || panic!("the system tells"));
        let found: Vec<bool> =
            ["data/blobs/a", "link/blobs/a", "key", "copy", "disk/b", "backup", "free"].map(has).to_vec();
        assert_eq!(found, [true, true, true, true, true, true, false]);
        assert!(withheld.has_path(&at("data/blobs")) && !withheld.has_path(&at("")));
        // A key that is replaced is withheld as the one before.
        std::fs::write(at("new"), "new").unwrap();
        std::fs::rename(at("new"), at("key")).unwrap();
        assert!(has("key") && !has("copy"));
        assert!(!Withheld::default().has(&File::open(at("key")).unwrap(), || panic!("nobody asks")));
    }
}
