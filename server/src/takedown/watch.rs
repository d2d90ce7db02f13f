//! A server that runs takes over tombstones that an operator, or another server, set or lifted. What breaks off is done again until it is done: a disk that
//! is full, or an object store or a database that is away, only delays it, and a repository that could not hide everything gives nothing away meanwhile.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Work;
use crate::app::App;
use crate::blobs::{BlobDigest, is_lasting};
use crate::publish;

/// How often the folder of a data directory is looked at, and what broke off is tried again.
const LOOK: Duration = Duration::from_secs(1);

/// How often an object store is asked, where no sequence of changes tells of it.
const ASK: Duration = Duration::from_secs(30);

/// Looks at the tombstones until the server ends.
pub(crate) async fn watch(app: Arc<App>) {
    let pause = if app.repositories.facts().is_some() { ASK } else { LOOK };
    let mut looked = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        if looked.elapsed() < pause && app.taken_down.is_finished() {
            continue;
        }
        looked = Instant::now();
        if let Err(error) = refresh(&app).await {
            tracing::warn!(%error, "what was taken down cannot be read");
        }
    }
}

/// Takes over what the tombstones say now, and goes on where that broke off before. What breaks off again is logged, and [tried again](watch).
///
/// # Errors
/// The tombstones cannot be read; what is known stays.
pub(crate) async fn refresh(app: &Arc<App>) -> io::Result<()> {
    // One at a time: two that differ would undo each other.
    let _turn = app.takedowns.lock().await;
    let shared = Arc::clone(app);
    let looked = run(app, move || shared.taken_down.look()).await;
    // Taken out, so that what another one leaves unfinished meanwhile stays so.
    let work = std::mem::take(&mut *app.taken_down.unfinished());
    if work.is_empty() {
        return looked;
    }
    let all: Vec<BlobDigest> = app.taken_down.all().keys().cloned().collect();
    let (shared, digests) = (Arc::clone(app), all.clone());
    let gates = move || {
        shared.debug_files.take_down(&digests);
        shared.blobs.take_down(&digests);
        Ok(())
    };
    if let Err(error) = run(app, gates).await {
        work.into_iter().for_each(|(digest, work)| app.taken_down.leave_unfinished(&digest, work));
        return Err(error);
    }
    for (digest, work) in work {
        let (done, rest) = match work {
            Work::Hide => (hide(app, &digest).await, Work::Hide),
            Work::Show => (show_again(app, &digest, &all, false).await, Work::ShowAgain),
            Work::ShowAgain => (show_again(app, &digest, &all, true).await, Work::ShowAgain),
        };
        if let Err(error) = done {
            tracing::warn!(%digest, %error, "what was taken down, or lifted, is not taken over whole: it is tried again");
            app.taken_down.leave_unfinished(&digest, rest);
        }
    }
    looked
}

async fn hide(app: &Arc<App>, digest: &BlobDigest) -> io::Result<()> {
    let mut problem = None;
    for repository in app.repositories.all() {
        let hiding = {
            let _changes = repository.lock_changes().await;
            let (shared, blobs, wanted) = (Arc::clone(&repository), Arc::clone(&app.blobs), digest.clone());
            run(app, move || Ok(shared.hide(&wanted, &blobs))).await?
        };
        if let Some(error) = hiding.problem {
            problem.get_or_insert(error);
        }
        for (hidden, manifest) in hiding.gone {
            publish::unlearn(app, &hidden, &manifest).await?;
            if manifest.is_bundle()
                && app.debug_files.bundle(&hidden).is_none()
                && let Err(error) = app.store.remove_bundle(&hidden.to_string()).await
            {
                problem.get_or_insert(io::Error::other(error));
            }
        }
    }
    problem.map_or(Ok(()), Err)
}

/// Where it broke off before (`is_again`), debuggers are told of everything that they do not know.
async fn show_again(app: &Arc<App>, digest: &BlobDigest, still: &[BlobDigest], is_again: bool) -> io::Result<()> {
    let mut problem = None;
    for (name, repository) in app.repositories.named() {
        if repository.hides(digest) {
            let _changes = repository.lock_changes().await;
            let (shared, blobs, still, named) =
                (Arc::clone(&repository), Arc::clone(&app.blobs), still.to_vec(), name.clone());
            if let Err(error) = run(app, move || shared.show_again(&named, &blobs, &still)).await {
                problem.get_or_insert(error);
                continue;
            }
        } else if !is_again {
            continue;
        }
        for (shown, manifest) in repository.manifests() {
            let known = app.debug_files.bundle(&shown);
            let is_known = known.is_some_and(|known| known.standing.in_repository(&name).is_some());
            if is_known {
                continue;
            }
            let learned = match publish::learn(app, &shown, &manifest).await {
                Ok(()) => publish::record(app, &shown, &manifest).await.map_err(io::Error::other),
                Err(error) => Err(error),
            };
            match learned {
                Err(error) if !is_lasting(&error) => drop(problem.get_or_insert(error)),
                Err(error) => {
                    tracing::error!(repository = %name, digest = %shown, %error, "what is no longer taken down is not seen by debuggers");
                }
                Ok(()) => {}
            }
        }
    }
    problem.map_or(Ok(()), Err)
}

async fn run<T: Send + 'static>(app: &App, job: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    app.pool.run(job).await.map_err(io::Error::other)?
}
