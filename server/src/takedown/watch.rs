//! A server that runs takes over tombstones that an operator, or another server, set or lifted.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::app::App;
use crate::blobs::BlobDigest;
use crate::publish;

/// How often the folder of a data directory is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How often an object store is asked, where no sequence of changes tells of it.
const ASK: Duration = Duration::from_secs(30);

/// Looks at the tombstones until the server ends.
pub(crate) async fn watch(app: Arc<App>) {
    let pause = if app.repositories.facts().is_some() { ASK } else { LOOK };
    loop {
        tokio::time::sleep(pause).await;
        if let Err(error) = refresh(&app).await {
            tracing::warn!(%error, "what was taken down cannot be read");
        }
    }
}

/// Takes over what the tombstones say now.
///
/// # Errors
/// They cannot be read, or a repository; what is known stays.
pub(crate) async fn refresh(app: &Arc<App>) -> io::Result<()> {
    // One at a time: two that differ would undo each other.
    let _turn = app.takedowns.lock().await;
    let before = app.taken_down.all();
    let (shared, known) = (Arc::clone(app), Arc::clone(&before));
    let read = move || {
        let notes = &shared.taken_down.notes;
        // Mostly nothing has changed, and the names alone say so.
        if notes.digests()?.iter().eq(known.keys()) { Ok(None) } else { notes.all().map(Some) }
    };
    let Some(now) = run(app, read).await? else { return Ok(()) };
    let new: Vec<BlobDigest> = now.keys().filter(|digest| !before.contains_key(*digest)).cloned().collect();
    let lifted: Vec<BlobDigest> = before.keys().filter(|digest| !now.contains_key(*digest)).cloned().collect();
    let all: Vec<BlobDigest> = now.keys().cloned().collect();
    // First nobody may push it any more.
    *app.taken_down.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
    let (shared, digests) = (Arc::clone(app), all.clone());
    run(app, move || {
        shared.debug_files.take_down(&digests);
        shared.blobs.take_down(&digests);
        Ok(())
    })
    .await?;
    for digest in new {
        tracing::info!(%digest, "taken down");
        hide(app, &digest).await?;
    }
    for digest in lifted {
        tracing::info!(%digest, "no longer taken down");
        show_again(app, &digest, &all).await?;
    }
    Ok(())
}

async fn hide(app: &Arc<App>, digest: &BlobDigest) -> io::Result<()> {
    for repository in app.repositories.all() {
        let gone = {
            let _changes = repository.lock_changes().await;
            let (shared, blobs, wanted) = (Arc::clone(&repository), Arc::clone(&app.blobs), digest.clone());
            run(app, move || Ok(shared.hide(&wanted, &blobs))).await?
        };
        for (hidden, manifest) in gone {
            publish::unlearn(app, &hidden, &manifest).await?;
            if manifest.is_bundle() && app.debug_files.bundle(&hidden).is_none() {
                app.store.remove_bundle(&hidden.to_string()).await.map_err(io::Error::other)?;
            }
        }
    }
    Ok(())
}

async fn show_again(app: &Arc<App>, digest: &BlobDigest, still: &[BlobDigest]) -> io::Result<()> {
    for (name, repository) in app.repositories.named() {
        if !repository.hides(digest) {
            continue;
        }
        let manifests = {
            let _changes = repository.lock_changes().await;
            let (shared, blobs, still, named) =
                (Arc::clone(&repository), Arc::clone(&app.blobs), still.to_vec(), name.clone());
            run(app, move || {
                shared.show_again(&named, &blobs, &still)?;
                Ok(shared.manifests())
            })
            .await?
        };
        for (shown, manifest) in manifests {
            let is_known = app.debug_files.bundle(&shown).is_some_and(|known| known.repositories.contains(&name));
            if !is_known {
                let learned = match publish::learn(app, &shown, &manifest).await {
                    Ok(()) => publish::record(app, &shown, &manifest).await.map_err(io::Error::other),
                    Err(error) => Err(error),
                };
                if let Err(error) = learned {
                    tracing::error!(repository = %name, digest = %shown, %error, "what is no longer taken down is not seen before the next start");
                }
            }
        }
    }
    Ok(())
}

async fn run<T: Send + 'static>(app: &App, job: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    app.pool.run(job).await.map_err(io::Error::other)?
}
