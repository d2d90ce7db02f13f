//! What one upload may take: by the limit of uploads, and by the quotas of its repository.

use super::{OverQuota, Reservation};
use crate::app::App;
use crate::limits::UploadTooLarge;
use crate::repositories::{Held, RepositoryName};

/// A place is kept in steps of so many bytes while an upload comes whose length is not known.
const STEP: u64 = 1 << 20;

/// The place of one upload.
pub(crate) struct Room<'a> {
    app: &'a App,
    /// `None` for what belongs to no repository, or is in it already.
    name: Option<&'a RepositoryName>,
    reservation: Option<Reservation>,
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
        Self { app, name, reservation: None }
    }

    /// Makes room for an upload of so many bytes in all.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Full> {
        self.app.limits.check_upload(bytes)?;
        let Some(name) = self.name else { return Ok(()) };
        let has = self.reservation.as_ref().map_or(0, |reservation| reservation.held().bytes);
        let Some(needed) = bytes.checked_sub(has).filter(|needed| *needed > 0) else { return Ok(()) };
        // Near the quota what is needed may fit where a whole step does not.
        let is_ahead = has > 0 && self.grow(name, needed.next_multiple_of(STEP)).is_ok();
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
    pub(crate) fn into_reservation(self) -> Option<Reservation> {
        self.reservation
    }
}
