//! What was taken down: nobody is given it and nobody may push it, while its tombstone stands.
//!
//! A tombstone is a note beside the facts of the repositories. What repositories say stays as it is, out of sight, so that a tombstone that is
//! lifted within the collector's grace period brings everything back; after that the collector forgets it for good, and the bytes go.

mod operator;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use symseal_seal::UtcSeconds;

use crate::blobs::{BlobDigest, BlobDirectory};
use crate::notes::{Note, Notes};
use crate::repositories::{Manifest, Repositories};

pub use operator::Tombstones;
pub(crate) use watch::{refresh, watch};

/// The folder of tombstones, and the beginning of their keys.
pub(crate) const TOMBSTONES: &str = "tombstones";

/// What is taken down, as this server knows it.
#[derive(Debug)]
pub(crate) struct TakenDown {
    notes: Notes,
    known: RwLock<Arc<BTreeMap<BlobDigest, Note>>>,
}

/// Something was taken down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{digest} was taken down on {at}: {reason}. Who runs the server may lift that (symseal store takedown --lift)", at = .note.at, reason = .note.reason)]
pub(crate) struct IsTakenDown {
    pub(crate) digest: BlobDigest,
    pub(crate) note: Note,
}

impl TakenDown {
    /// Reads the tombstones. Blocks.
    pub(crate) fn load(notes: Notes) -> io::Result<Self> {
        let known = RwLock::new(Arc::new(notes.all()?));
        Ok(Self { notes, known })
    }

    /// Every tombstone.
    pub(crate) fn all(&self) -> Arc<BTreeMap<BlobDigest, Note>> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The tombstone of a digest.
    pub(crate) fn get(&self, digest: &BlobDigest) -> Option<IsTakenDown> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).map(|note| IsTakenDown { digest: digest.clone(), note: note.clone() })
    }

    /// Whether a digest may come in.
    ///
    /// # Errors
    /// It was taken down.
    pub(crate) fn check(&self, digest: &BlobDigest) -> Result<(), IsTakenDown> {
        self.get(digest).map_or(Ok(()), Err)
    }

    /// Whether a manifest may come in, with everything that it names.
    ///
    /// # Errors
    /// Some of it was taken down.
    pub(crate) fn check_manifest(&self, digest: &BlobDigest, manifest: &Manifest) -> Result<(), IsTakenDown> {
        let mut digests = [digest].into_iter().chain(&manifest.subject).chain(manifest.child_digests());
        digests.find_map(|digest| self.get(digest)).map_or(Ok(()), Err)
    }

    /// Takes what is taken down out of the sight of repositories that were just read. Blocks.
    pub(crate) fn hide_in(&self, repositories: &Repositories, blobs: &BlobDirectory) {
        for digest in self.all().keys() {
            repositories.all().iter().for_each(|repository| drop(repository.hide(digest, blobs)));
        }
    }

    /// Those that were taken down before a time. One whose time cannot be read counts as old.
    pub(crate) fn before(&self, time: UtcSeconds) -> Vec<BlobDigest> {
        let is_old = |note: &Note| note.at.parse::<UtcSeconds>().map_or(true, |at| at < time);
        self.all().iter().filter(|(_, note)| is_old(note)).map(|(digest, _)| digest.clone()).collect()
    }
}
