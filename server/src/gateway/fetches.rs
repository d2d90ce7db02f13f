//! Fetches of files from one place: how many there are at once, and how they went of late, for the status page.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::lock;
use crate::clock::now;

/// Characters of a reason that are kept: it may be an upstream's own text.
const TEXT: usize = 300;

/// Files that come from one place at once; more wait. Another place's are not kept waiting by them.
const AT_ONCE: usize = 16;

/// Those from one place.
#[derive(Debug)]
pub(super) struct Fetches {
    places: Semaphore,
    /// Since the last one that brought a whole file.
    failed: Mutex<Option<Failed>>,
}

impl Default for Fetches {
    fn default() -> Self {
        Self { places: Semaphore::new(AT_ONCE), failed: Mutex::default() }
    }
}

#[derive(Debug)]
struct Failed {
    /// When the last one failed (UTC), and why.
    at: String,
    why: String,
    times: u64,
}

impl Fetches {
    /// Waits so long for one of the places.
    ///
    /// # Errors
    /// There was none.
    pub(super) async fn place(&self, patience: Duration) -> Result<SemaphorePermit<'_>, String> {
        let place = tokio::time::timeout(patience, self.places.acquire()).await;
        place.ok().and_then(Result::ok).ok_or_else(|| "too many files are on their way from there".to_owned())
    }

    /// A file did not come.
    pub(super) fn failed(&self, why: &str) {
        let mut failed = lock(&self.failed);
        let times = failed.as_ref().map_or(0, |before| before.times).saturating_add(1);
        *failed = Some(Failed { at: now().to_string(), why: why.chars().take(TEXT).collect(), times });
    }

    /// A file came whole.
    pub(super) fn succeeded(&self) {
        *lock(&self.failed) = None;
    }

    /// What is wrong with an upstream, where that is `other` beside this.
    pub(super) fn beside(&self, other: Option<String>) -> Option<String> {
        let failed = lock(&self.failed).as_ref().map(|failed| match failed.times {
            1 => format!("a file could not be fetched ({}): {}", failed.at, failed.why),
            times => format!("files could not be fetched ({times} times, the last one {}): {}", failed.at, failed.why),
        });
        match (other, failed) {
            (Some(other), Some(failed)) => Some(format!("{other}; {failed}")),
            (other, failed) => other.or(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_fetches_are_told_with_their_number_until_one_succeeds() {
        let fetches = Fetches::default();
        assert_eq!(fetches.beside(None), None);
        assert_eq!(fetches.beside(Some("a".to_owned())).as_deref(), Some("a"));
        fetches.failed("it answered 500");
        let told = fetches.beside(None).unwrap();
        assert!(told.starts_with("a file could not be fetched (2") && told.ends_with("): it answered 500"), "{told}");
        fetches.failed(&"x".repeat(10_000));
        let told = fetches.beside(Some("a".to_owned())).unwrap();
        assert!(
            told.starts_with("a; files could not be fetched (2 times, the last one 2") && told.len() < 500,
            "{told}"
        );
        fetches.succeeded();
        assert_eq!(fetches.beside(None), None);
    }
}
