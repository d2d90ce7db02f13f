//! Where blocking work runs: apart from the serving threads, and bounded.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// File work under way at once; more waits in line. Enough to keep a disk busy, too little to exhaust threads.
const FILE_JOBS: usize = 32;

/// File work under way at once where some of it waits for an object store, so that what is local need not wait with it.
const OBJECT_JOBS: usize = 128;

/// Blobs that are fetched from an object store at once for those who hold no thread meanwhile.
const FETCHES: usize = 32;

/// Pages and searches made at once: each looks at every release, and names are not to wait for it.
const LOOKING_JOBS: usize = 2;

/// Requests for names under way at once. Each may hold its body, its answer and the tables' pages, and takes a processor all
/// the while.
const NAMING_JOBS: usize = 4;

/// Files made at once: compressed forms, generated files, tables of sources. Each takes a processor for a while, and nobody's answer waits for
/// the compressed ones.
pub(crate) const MAKING_JOBS: usize = 2;

/// A bounded pool over tokio's blocking threads.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    places: Arc<Semaphore>,
}

impl Pool {
    /// The pool for work on files.
    pub(crate) fn new() -> Self {
        Self::of(FILE_JOBS)
    }

    /// [`Self::new`], where files may have to come from an object store.
    pub(crate) fn for_objects() -> Self {
        Self::of(OBJECT_JOBS)
    }

    /// The pool for the naming of addresses, apart from the files, which must not wait for it.
    pub(crate) fn for_naming() -> Self {
        Self::of(NAMING_JOBS)
    }

    /// The pool for fetches from an object store, apart from what is served meanwhile.
    pub(crate) fn for_fetching() -> Self {
        Self::of(FETCHES)
    }

    /// The pool for pages and searches, apart from the naming of addresses.
    pub(crate) fn for_looking() -> Self {
        Self::of(LOOKING_JOBS)
    }

    /// The pool for the making of files that are kept, apart from the files that are served.
    pub(crate) fn for_making() -> Self {
        Self::of(MAKING_JOBS)
    }

    fn of(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)) }
    }

    /// Runs `job` on a blocking thread. It runs to its end even when the caller goes away.
    ///
    /// # Errors
    /// [`JobLost`] when the job panicked or the runtime ends.
    pub(crate) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, JobLost> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| JobLost)?;
        tokio::task::spawn_blocking(move || {
            let result = job();
            drop(place);
            result
        })
        .await
        .map_err(|_| JobLost)
    }
}

/// A job did not come to its end.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the work on this request was interrupted: try again")]
pub(crate) struct JobLost;
