//! Whether the object store takes what is written: known by what servers write anyway, and where that is long ago, by writing something.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Failure;

/// What was taken so long ago says nothing of now.
const FRESH: Duration = Duration::from_secs(60);

/// After a refusal nobody tries by way of trial for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// When something was last written, and what went wrong with it.
#[derive(Debug, Default)]
pub(super) struct Writing {
    tried: Mutex<Option<(Instant, Option<Failure>)>>,
}

impl Writing {
    /// Something was written, or not.
    pub(super) fn tried(&self, error: Option<&io::Error>) {
        let failure = error.and_then(|error| error.get_ref()?.downcast_ref::<Failure>().cloned());
        // What is no answer of the object store says nothing of it.
        if error.is_none() || failure.is_some() {
            *self.last() = Some((Instant::now(), failure));
        }
    }

    /// Whether something is taken: as it was the last time, or as `write` finds it now.
    pub(super) fn look(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // Let go before something is written, which is noted.
        let last = self.last().clone();
        match last {
            Some((at, None)) if at.elapsed() < FRESH => Ok(()),
            Some((at, Some(failure))) if at.elapsed() < PAUSE => Err(failure.into()),
            _ => write(),
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<(Instant, Option<Failure>)>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Why;

    #[test]
    fn what_was_refused_is_tried_again_and_what_was_taken_is_not() {
        let writing = Writing::default();
        let failure = Failure { problem: "refused".to_owned(), why: Why::CredentialsRefused };
        assert!(writing.look(|| Err(failure.clone().into())).is_err(), "nothing is known");
        writing.tried(None);
        writing.tried(Some(&io::ErrorKind::Other.into()));
        assert!(writing.look(|| Err(failure.clone().into())).is_ok());
        writing.tried(Some(&failure.clone().into()));
        assert!(writing.look(|| Ok(())).is_err(), "not a moment later");
        writing.last().as_mut().unwrap().0 = Instant::now().checked_sub(PAUSE).unwrap();
        let write = || {
            writing.tried(None);
            Ok(())
        };
        assert!(writing.look(write).is_ok());
    }
}
