//! An unfinished bundle beside the layout that it will belong to: what comes to nothing leaves the layout as it was.

use std::fs;
use std::path::PathBuf;

use crate::durable::Unsynced;
use crate::layout::{LayoutDir, LayoutError, io_error};
use crate::scratch::Scratch;

/// A layout of its own in another one's `ingest/`, on the same file system, for a bundle in the making. Dropped before
/// [`Staging::commit`] it leaves nothing; what a dead process left there is removed when somebody opens the layout to write.
///
/// Its blobs are made durable together, before the first of them moves: until then a crash loses nothing that anybody was told of, and
/// a disk that is waited for once is waited for less than for each of thousands of files (`docs/performance.md`, "A release of 1,000 modules").
#[derive(Debug)]
pub struct Staging {
    target: LayoutDir,
    layout: LayoutDir,
    unsynced: Unsynced,
    _scratch: Scratch,
}

impl Staging {
    /// For a bundle that `target` will hold.
    ///
    /// # Errors
    /// [`LayoutError`] where the directory cannot be made.
    pub fn new(target: &LayoutDir) -> Result<Self, LayoutError> {
        let parent = target.ingest();
        fs::create_dir_all(&parent).map_err(io_error("create the directory", &parent))?;
        let scratch = Scratch::beside(&parent).map_err(io_error("create a directory in", &parent))?;
        let layout = LayoutDir::create(scratch.path().join("bundle"))?.staged_beside(target);
        let unsynced = Unsynced::since_now(&layout.blobs());
        Ok(Self { target: target.clone(), layout, unsynced, _scratch: scratch })
    }

    /// Where to write. A blob that the target has already, and sound, is not written again.
    pub fn layout(&self) -> &LayoutDir {
        &self.layout
    }

    /// Makes the blobs durable and moves them, then lists what `index.json` lists, under its tags. Blobs that the target has stay as
    /// they are.
    ///
    /// # Errors
    /// [`LayoutError`] where something cannot be written or moved: blobs that were moved before it stay, and are not listed.
    pub fn commit(self) -> Result<(), LayoutError> {
        let from = self.layout.blobs();
        let listed = fs::read_dir(&from).map_err(io_error("list", &from))?;
        let blobs: Result<Vec<PathBuf>, _> = listed.map(|entry| entry.map(|entry| entry.path())).collect();
        let blobs = blobs.map_err(io_error("list", &from))?;
        self.unsynced.sync(&blobs)?;
        self.target.create_blobs()?;
        for blob in &blobs {
            self.target.take_blob(blob)?;
        }
        for mut descriptor in self.layout.manifests()? {
            let tag = descriptor.annotations.remove(crate::oci::REF_NAME);
            self.target.add_to_index(descriptor, tag.as_deref())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::oci::{self, Descriptor, Manifest};

    fn blobs(layout: &LayoutDir) -> usize {
        fs::read_dir(layout.blobs()).unwrap().count()
    }

    #[test]
    fn what_is_not_committed_leaves_nothing_and_what_is_becomes_visible_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let target = LayoutDir::create(dir.path()).unwrap();
        let known = target.write_blob(b"known").unwrap();
        let manifest = Manifest::artifact("a/b", Vec::new()).to_bytes().unwrap();
        let write = |staging: &Staging| {
            assert_eq!(staging.layout().write_blob(b"known").unwrap(), known);
            staging.layout().write_blob(b"new").unwrap();
            staging.layout().write_blob(&manifest).unwrap();
            staging.layout().add_to_index(Descriptor::of(oci::MANIFEST, &manifest), Some("1.0")).unwrap();
            assert!(!staging.layout().has(&known), "it is in the target");
        };
        let staging = Staging::new(&target).unwrap();
        write(&staging);
        drop(staging);
        assert_eq!((blobs(&target), target.manifests().unwrap().len()), (1, 0));
        assert_eq!(fs::read_dir(target.ingest()).unwrap().count(), 0);

        let staging = Staging::new(&target).unwrap();
        write(&staging);
        staging.commit().unwrap();
        assert_eq!(target.read_blob(&Digest::of(b"new"), 10).unwrap(), b"new");
        assert_eq!(target.read_blob(&known, 10).unwrap(), b"known");
        let listed = target.manifests().unwrap();
        assert_eq!((listed.len(), listed[0].ref_name()), (1, Some("1.0")));
        assert_eq!(fs::read_dir(target.ingest()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_blob_of_the_target_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = LayoutDir::create(dir.path()).unwrap();
        let digest = target.write_blob(b"whole").unwrap();
        fs::write(target.blob_path(&digest), b"wrong").unwrap();
        let staging = Staging::new(&target).unwrap();
        staging.layout().write_blob(b"whole").unwrap();
        staging.commit().unwrap();
        assert_eq!(target.read_blob(&digest, 10).unwrap(), b"whole");
    }
}
