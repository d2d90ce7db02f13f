//! What a request relies on is not collected meanwhile.
//!
//! Whoever makes a reference to something, or tells a client that it is here, strikes it out of the table of what is condemned first, waits until
//! nobody has it taken, and follows the other servers; then it looks whether it is here. From then on nothing of it is taken for [`HOLDS`] at
//! least, as what is taken was condemned longer ago than that (`collection`). A reference that is whole by then is seen by whoever takes it
//! later. One that took longer is [made good](made_good): what it relies on is looked for again, now that others can see the reference.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::collection::release;
use super::facts::unreachable;
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::clock::Moment;
use crate::repositories::RepositoryName;

/// How long nothing is taken of what was struck out.
pub(super) const HOLDS: Duration = Duration::from_secs(3);

/// How long a request waits for what is on its way out. That takes a moment, but where a server was killed over it.
const PATIENCE: Duration = Duration::from_secs(5);

/// From one look at what is taken to the next.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How often something is made good.
const TRIES: usize = 4;

/// Something was struck out.
#[derive(Debug, Clone, Copy)]
#[must_use = "a reference that took too long must be made good"]
pub(crate) struct Promise {
    /// `None` where there are no other servers.
    since: Option<Moment>,
}

impl Promise {
    /// Whether nothing can have been taken since.
    pub(crate) fn holds(&self) -> bool {
        self.since.is_none_or(|since| since.elapsed() < HOLDS)
    }
}

impl App {
    /// Strikes out what a repository, or something else, comes to rely on, and follows the other servers.
    ///
    /// # Errors
    /// The database or the object store does not answer, or what was taken is not gone yet: it may be so soon.
    pub(crate) async fn promise<'d>(
        self: &Arc<Self>,
        name: Option<&RepositoryName>,
        digests: impl IntoIterator<Item = &'d BlobDigest> + Send,
    ) -> io::Result<Promise> {
        let promise = self.reprieve(name, digests).await?;
        self.catch_up_repositories().await?;
        Ok(promise)
    }

    /// [`Self::promise`] for those who follow the other servers after it themselves.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn reprieve<'d>(
        self: &Arc<Self>,
        name: Option<&RepositoryName>,
        digests: impl IntoIterator<Item = &'d BlobDigest> + Send,
    ) -> io::Result<Promise> {
        if self.follower.is_none() {
            return Ok(Promise { since: None });
        }
        let digests: Vec<String> = digests.into_iter().map(ToString::to_string).collect();
        let (name, asked) = (name.map_or("", RepositoryName::as_str), Instant::now());
        loop {
            // Before the database is asked: it answers later than it strikes out.
            let since = Some(Moment::now());
            if self.store.reprieve(name, &digests).await.map_err(unreachable)? {
                return Ok(Promise { since });
            }
            if asked.elapsed() > PATIENCE {
                release(self).await?;
                let problem =
                    "what is asked for is being collected by a server that does not come to an end: try again";
                return Err(io::Error::new(io::ErrorKind::HostUnreachable, problem));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Sees to it that blobs that were just linked in a repository, or named by something else, are in the object store, where that took so long that they
/// may have been collected before anybody saw the reference.
///
/// # Errors
/// They are gone, or it takes too long again: nothing may be acknowledged.
pub(crate) async fn made_good(
    app: &Arc<App>,
    name: Option<&RepositoryName>,
    mut promise: Promise,
    blobs: &[(BlobDigest, u64)],
) -> io::Result<()> {
    for _ in 0..TRIES {
        if promise.holds() {
            return Ok(());
        }
        promise = app.promise(name, blobs.iter().map(|(digest, _)| digest)).await?;
        let repository = name.map(|name| app.repositories.get_or_create(name));
        let (directory, again) = (Arc::clone(&app.blobs), blobs.to_vec());
        let _changes = match &repository {
            Some(repository) => Some(repository.lock_changes().await),
            None => None,
        };
        let shared = repository.clone();
        let look = move || -> io::Result<()> {
            for (digest, size) in &again {
                if let Err(error) = directory.keep(digest) {
                    // Nobody is to be told of it.
                    shared.as_ref().map_or(Ok(()), |repository| repository.unlink_blob(digest).map(drop))?;
                    return Err(error);
                }
                shared.as_ref().map_or(Ok(()), |repository| repository.link_blob(digest, *size))?;
            }
            Ok(())
        };
        app.pool.run(look).await.map_err(io::Error::other)??;
    }
    if promise.holds() {
        return Ok(());
    }
    let problem = "the object store took so long that what was stored may be gone again: try again";
    Err(io::Error::new(io::ErrorKind::HostUnreachable, problem))
}
