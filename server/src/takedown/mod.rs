//! What was taken down: nobody is given it and nobody may push it, while its tombstone stands.
//!
//! A tombstone is a note beside the facts of the repositories. What repositories say stays as it is, out of sight, so that a tombstone that is
//! lifted within the collector's grace period brings everything back; after that the collector forgets it for good, and the bytes go.

mod lost;
mod operator;
mod told;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use symseal_seal::UtcSeconds;

use crate::blobs::{BlobDigest, BlobDirectory};
use crate::notes::{Note, Notes, Stamp};
use crate::repositories::{Manifest, Repositories, Repository};

pub(crate) use lost::tell_of_lost;
pub(crate) use operator::AUDIT_ID;
pub use operator::{TakenDownNow, Tombstones};
pub(crate) use told::gone;
pub(crate) use watch::{refresh, watch};

/// The folder of tombstones, and the beginning of their keys.
pub(crate) const TOMBSTONES: &str = "tombstones";

/// What is taken down, as this server knows it.
#[derive(Debug)]
pub(crate) struct TakenDown {
    notes: Notes,
    known: RwLock<Arc<BTreeMap<BlobDigest, Note>>>,
    /// By what the notes that are known would be seen to have changed.
    stamps: Mutex<BTreeMap<BlobDigest, Stamp>>,
    /// What is still to be done in the repositories. A start does all of it before it answers, so it need not be kept.
    unfinished: Mutex<BTreeMap<BlobDigest, Work>>,
    /// Whether the last look at a directory could not tell what is taken down.
    is_blind: AtomicBool,
}

/// What must be done in the repositories for a tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// It was set.
    Hide,
    /// It was lifted.
    Show,
    /// It was lifted, and that broke off: repositories may show what debuggers do not see yet.
    ShowAgain,
}

/// Something was taken down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{digest} was taken down{}. Who runs the server may lift that (symseal store takedown --lift)", .told.as_ref().map(|note| format!(" on {}: {}", note.at, note.reason)).unwrap_or_default())]
pub(crate) struct IsTakenDown {
    pub(crate) digest: BlobDigest,
    /// When and why, for those who may read a repository that had it: a reason may name what nobody else is to know.
    pub(crate) told: Option<Note>,
}

impl IsTakenDown {
    /// The same for whoever may read the repository: with the reason if that had it, and without one if not.
    pub(crate) fn told_in(mut self, repository: Option<&Repository>) -> Self {
        self.told = self.told.filter(|_| repository.is_some_and(|repository| repository.had(&self.digest)));
        self
    }

    /// Whether the reason may be told.
    pub(crate) fn is_told(&self) -> bool {
        self.told.is_some()
    }
}

impl TakenDown {
    /// Reads the tombstones. Blocks.
    pub(crate) fn load(notes: Notes) -> io::Result<Self> {
        // Before the notes: what is set meanwhile is read again.
        let stamps = Mutex::new(notes.stamps()?);
        let known = RwLock::new(Arc::new(notes.all()?));
        Ok(Self { notes, known, stamps, unfinished: Mutex::default(), is_blind: AtomicBool::new(false) })
    }

    /// Every tombstone.
    pub(crate) fn all(&self) -> Arc<BTreeMap<BlobDigest, Note>> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The tombstone of a digest, with its reason.
    pub(crate) fn get(&self, digest: &BlobDigest) -> Option<IsTakenDown> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).map(|note| IsTakenDown { digest: digest.clone(), told: Some(note.clone()) })
    }

    /// Whether a digest is taken down.
    pub(crate) fn has(&self, digest: &BlobDigest) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(digest)
    }

    /// Whether the file with this SHA-256, in hex, is taken down.
    pub(crate) fn has_sha256(&self, hex: &str) -> bool {
        format!("sha256:{hex}").parse().is_ok_and(|digest| self.has(&digest))
    }

    /// Whether a digest may come into a repository.
    ///
    /// # Errors
    /// It was taken down.
    pub(crate) fn check(&self, digest: &BlobDigest, into: Option<&Repository>) -> Result<(), IsTakenDown> {
        self.get(digest).map_or(Ok(()), |gone| Err(gone.told_in(into)))
    }

    /// Whether a manifest may come in, with everything that it names.
    ///
    /// # Errors
    /// Some of it was taken down.
    pub(crate) fn check_manifest(
        &self,
        digest: &BlobDigest,
        manifest: &Manifest,
        into: &Repository,
    ) -> Result<(), IsTakenDown> {
        let mut digests = [digest].into_iter().chain(&manifest.subject).chain(manifest.child_digests());
        digests.find_map(|digest| self.check(digest, Some(into)).err()).map_or(Ok(()), Err)
    }

    /// Takes what is taken down out of the sight of repositories that were just read. Blocks.
    ///
    /// # Errors
    /// Something cannot be read now, so that it is not known what must be hidden.
    pub(crate) fn hide_in(&self, repositories: &Repositories, blobs: &BlobDirectory) -> io::Result<()> {
        let all = self.all();
        repositories.all().iter().try_for_each(|repository| repository.hide_all(all.keys(), blobs))
    }

    /// Those that were taken down before a time. One whose time cannot be read counts as old.
    pub(crate) fn before(&self, time: UtcSeconds) -> BTreeSet<BlobDigest> {
        let is_old = |note: &Note| note.at.parse::<UtcSeconds>().map_or(true, |at| at < time);
        self.all().iter().filter(|(_, note)| is_old(note)).map(|(digest, _)| digest.clone()).collect()
    }

    /// Hides something in a repository whose changes are locked; what cannot be read now is tried again later. Blocks.
    pub(crate) fn hide_in_one(&self, repository: &Repository, digest: &BlobDigest, blobs: &BlobDirectory) {
        if let Some(error) = repository.hide(digest, blobs).problem {
            tracing::warn!(%digest, %error, "what is taken down is not hidden whole: it is tried again");
            self.leave_unfinished(digest, Work::Hide);
        }
    }

    fn leave_unfinished(&self, digest: &BlobDigest, work: Work) {
        self.unfinished().entry(digest.clone()).or_insert(work);
    }

    /// Whether every repository shows what the tombstones that are known let it show.
    fn is_finished(&self) -> bool {
        self.unfinished().is_empty()
    }

    /// Reads the tombstones where they have changed; what follows for the repositories is [unfinished](Self::unfinished). Blocks.
    fn look(&self) -> io::Result<()> {
        let looked = self.take_over();
        // Whether an object store answers is asked for by itself, and this is not looked at by the second there.
        self.is_blind.store(looked.is_err() && !self.notes.are_objects(), Ordering::Relaxed);
        looked
    }

    /// Whether what is taken down could not be read when that was tried last: what was known then is hidden, and what came since is not.
    pub(crate) fn is_blind(&self) -> bool {
        self.is_blind.load(Ordering::Relaxed)
    }

    fn take_over(&self) -> io::Result<()> {
        let stamps = self.notes.stamps()?;
        // Mostly nothing has changed.
        if *self.stamps() == stamps {
            return Ok(());
        }
        let now = self.notes.all()?;
        let before = self.all();
        {
            let mut unfinished = self.unfinished();
            for new in now.keys().filter(|digest| !before.contains_key(*digest)) {
                tracing::info!(digest = %new, "taken down");
                unfinished.insert(new.clone(), Work::Hide);
            }
            for lifted in before.keys().filter(|digest| !now.contains_key(*digest)) {
                tracing::info!(digest = %lifted, "no longer taken down");
                unfinished.insert(lifted.clone(), Work::Show);
            }
        }
        // From here on nobody may push it any more.
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
        *self.stamps() = stamps;
        Ok(())
    }

    fn stamps(&self) -> MutexGuard<'_, BTreeMap<BlobDigest, Stamp>> {
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unfinished(&self) -> MutexGuard<'_, BTreeMap<BlobDigest, Work>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
