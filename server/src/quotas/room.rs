//! What one upload may take: by the limit of uploads, and by the quotas of its repository.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{OverQuota, Reservation};
use crate::app::App;
use crate::blobs::Upload;
use crate::limits::UploadTooLarge;
use crate::repositories::{Held, RepositoryName};

/// A place is kept in steps of so many bytes while an upload comes whose length is not known.
const STEP: u64 = 1 << 20;

/// The place of an upload between its requests: what came of it counts until it ends.
#[derive(Debug, Default)]
pub(crate) struct Place(Mutex<Option<Reservation>>);

impl Place {
    fn lock(&self) -> MutexGuard<'_, Option<Reservation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a place. Another request may have left a larger one, which then stays: one that hangs ends after those that came later and brought more.
    fn keep(&self, reservation: Reservation) {
        let mut kept = self.lock();
        let is_larger = kept.as_ref().is_none_or(|kept| kept.held().bytes < reservation.held().bytes);
        let given_back = if is_larger { kept.replace(reservation) } else { Some(reservation) };
        drop(kept);
        drop(given_back);
    }

    /// Gives the place back.
    pub(crate) fn leave(&self) {
        let left = self.lock().take();
        drop(left);
    }
}

/// The place of one upload.
pub(crate) struct Room<'a> {
    app: &'a App,
    /// `None` for what belongs to no repository.
    name: Option<&'a RepositoryName>,
    /// Bytes that take no room, as the repository has them already.
    free: u64,
    reservation: Option<Reservation>,
    /// Whose place it is after this request.
    upload: Option<Arc<Upload>>,
}

/// There is no room.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Full {
    /// The upload is too large by itself.
    #[error(transparent)]
    TooLarge(#[from] UploadTooLarge),
    /// It is too large for its repository.
    #[error(transparent)]
    Quota(#[from] OverQuota),
}

impl<'a> Room<'a> {
    /// For what comes to a repository.
    pub(crate) fn new(app: &'a App, name: Option<&'a RepositoryName>) -> Self {
        Self { app, name, free: 0, reservation: None, upload: None }
    }

    /// For what comes to an upload, which keeps its place for its next request.
    pub(crate) fn of_upload(app: &'a App, name: &'a RepositoryName, upload: &Arc<Upload>) -> Self {
        let reservation = upload.place().lock().take();
        Self { app, name: Some(name), free: 0, reservation, upload: Some(Arc::clone(upload)) }
    }

    /// The first so many bytes take no room. Where what has them comes to nothing it must not stay: nothing counts it.
    pub(crate) fn with_free(mut self, free: u64) -> Self {
        self.free = free;
        self
    }

    /// Makes room for an upload of so many bytes in all.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Full> {
        self.app.limits.check_upload(bytes)?;
        let Some(name) = self.name else { return Ok(()) };
        let has = self.reservation.as_ref().map_or(0, |reservation| reservation.held().bytes).saturating_add(self.free);
        let Some(needed) = bytes.checked_sub(has).filter(|needed| *needed > 0) else { return Ok(()) };
        // Near the quota what is needed may fit where a whole step does not.
        let is_ahead = self.reservation.is_some() && self.grow(name, needed.next_multiple_of(STEP)).is_ok();
        let grown = if is_ahead { Ok(()) } else { self.grow(name, needed) };
        grown.map_err(|over| {
            self.app.quotas.count_refusal();
            over.into()
        })
    }

    fn grow(&mut self, name: &RepositoryName, bytes: u64) -> Result<(), OverQuota> {
        let more = Held { bytes, bundles: 0 };
        match &mut self.reservation {
            Some(reservation) => reservation.grow(&self.app.repositories, more),
            None => {
                self.reservation = self.app.quotas.reserve(&self.app.repositories, name, more)?;
                if self.reservation.is_none() {
                    // No quota holds here.
                    self.name = None;
                }
                Ok(())
            }
        }
    }

    /// The place, to be kept until what came is counted.
    pub(crate) fn into_reservation(mut self) -> Option<Reservation> {
        self.upload = None;
        self.reservation.take()
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let (Some(upload), Some(mut reservation)) = (&self.upload, self.reservation.take()) {
            // More was announced, perhaps, than came.
            reservation.shrink(upload.offset());
            // Of one that has ended meanwhile it goes with the session.
            upload.place().keep(reservation);
        }
    }
}
