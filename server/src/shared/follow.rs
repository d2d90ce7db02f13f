//! One server sees what the others did.
//!
//! Each fact that a server writes is a row of the database's sequence of changes. A server reads what is new there when
//! PostgreSQL signals it, every [`POLL`] in any case, and before it says that something is not here. A row only says where to
//! look: what counts is what the object store says when the row is read, so that all servers come to the same, in whatever
//! order two of them wrote.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::facts::unreachable;
use super::reread::reread;
use crate::app::App;
use crate::repositories::{FactKey, MANIFEST_LIMIT, Manifest, Reference, Repository, RepositoryName, digest_of};
use crate::store::{ChangeRow, Changes};
use crate::takedown::{self, TOMBSTONES};
use crate::{notes, publish};

/// Changes that a server reads when no signal tells it to.
const POLL: Duration = Duration::from_secs(2);

/// From the beginning of one look before a "not here" to the next: a flood of them is at most fifty queries a second, and
/// each waits at most so much longer.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// After a look that failed nobody looks again for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// Rows in one query.
const ROWS: u32 = 1000;

/// How long changes are kept for servers that do not hear of them.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How often those that are older are deleted; each server does.
const PRUNE: Duration = Duration::from_secs(60 * 60);

/// How far a server has followed.
#[derive(Debug)]
pub(crate) struct Follower {
    state: Arc<Mutex<State>>,
    /// [`State::last`], for those who only want to know whether there was something new.
    learned: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// The number of the last change that was taken over.
    last: u64,
    /// When the last look began, and what went wrong in it.
    looked: Option<(Instant, Option<String>)>,
}

impl Follower {
    /// `last`: the number of the last change before the facts were read.
    pub(crate) fn new(last: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State { last, looked: None })), learned: AtomicU64::new(last) }
    }

    /// The number of the last change that was taken over.
    pub(crate) fn learned(&self) -> u64 {
        self.learned.load(Ordering::Acquire)
    }

    /// Takes over everything that other servers acknowledged before this call. One look serves all who wait for it.
    ///
    /// # Errors
    /// The database or the object store does not answer: what is not here may be elsewhere.
    pub(crate) async fn catch_up(&self, app: &Arc<App>) -> io::Result<()> {
        let asked = Instant::now();
        let mut state = Arc::clone(&self.state).lock_owned().await;
        if let Some((began, problem)) = &state.looked {
            let pause = if problem.is_some() { PAUSE } else { Duration::ZERO };
            if *began >= asked || began.elapsed() < pause {
                let failed = |problem: &String| io::Error::new(io::ErrorKind::HostUnreachable, problem.clone());
                return problem.as_ref().map_or(Ok(()), |problem| Err(failed(problem)));
            }
            tokio::time::sleep(LOOK_AGAIN.saturating_sub(began.elapsed())).await;
        }
        // A task of its own: who asked may go away, and half of a change must not be taken over.
        let app = Arc::clone(app);
        let look = tokio::spawn(async move {
            let began = Instant::now();
            let looked = look(&app, &mut state.last).await;
            if let Some(follower) = &app.follower {
                follower.learned.store(state.last, Ordering::Release);
            }
            state.looked = Some((began, looked.as_ref().err().map(ToString::to_string)));
            looked
        });
        look.await.map_err(io::Error::other)?
    }
}

/// Follows until the server ends.
pub(crate) async fn follow(app: Arc<App>) {
    let Some(follower) = &app.follower else { return };
    let mut signal = None;
    loop {
        if signal.is_none() {
            signal = app.store.change_signal().await.ok().flatten();
        }
        let heard = async {
            match &mut signal {
                Some(signal) => signal.heard().await,
                None => std::future::pending().await,
            }
        };
        let holds = tokio::time::timeout(POLL, heard).await.unwrap_or(true);
        if !holds {
            signal = None;
        }
        if let Err(error) = follower.catch_up(&app).await {
            tracing::warn!(%error, "what other servers did is not taken over");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Deletes changes that are older than [`KEPT`], until the server ends.
pub(crate) async fn prune(app: Arc<App>) {
    loop {
        match app.store.prune_changes(KEPT).await {
            Ok(0) => {}
            Ok(pruned) => tracing::info!(pruned, "old changes are deleted"),
            Err(error) => tracing::warn!(%error, "old changes are not deleted"),
        }
        tokio::time::sleep(PRUNE).await;
    }
}

async fn look(app: &Arc<App>, last: &mut u64) -> io::Result<()> {
    loop {
        let Changes { pruned, rows } = app.store.changes(*last, ROWS).await.map_err(unreachable)?;
        if pruned > *last {
            tracing::warn!(
                last,
                pruned,
                "changes that this server has not read are no longer there: it reads everything again"
            );
            // Before the facts are read, so that nothing that comes meanwhile is missed.
            let newest = app.store.last_change().await.map_err(unreachable)?;
            reread(app).await?;
            *last = newest;
            continue;
        }
        let is_all = rows.len() < ROWS as usize;
        for (number, change) in rows {
            match learn(app, &change).await {
                // Tried again with the next look.
                Err(error) if error.kind() == io::ErrorKind::HostUnreachable => return Err(error),
                Err(error) => tracing::error!(key = change.key, %error, "a change of another server is not taken over"),
                Ok(()) => {}
            }
            *last = number;
        }
        if is_all {
            return Ok(());
        }
    }
}

pub(super) async fn learn(app: &Arc<App>, change: &ChangeRow) -> io::Result<()> {
    if let Some(id) = change.key.strip_prefix("traces/") {
        let Ok(id) = uuid::Uuid::try_parse(id) else { return Ok(()) };
        let (shared, key) = (Arc::clone(app), change.key.clone());
        return run(app, move || {
            let Some(content) = read(&shared, &key)? else { return Ok(()) };
            shared.traces.learn(id, digest_of(&content)?);
            Ok(())
        })
        .await;
    }
    if notes::digest_of(TOMBSTONES, &change.key).is_some() {
        return takedown::refresh(app).await;
    }
    let Some((name, fact)) = FactKey::parse(&change.key) else { return Ok(()) };
    let repository = app.repositories.get_or_create(&name);
    match fact {
        FactKey::Blob(digest) => {
            let (shared, change) = (Arc::clone(app), change.clone());
            run(app, move || {
                // One that was removed may have come again.
                let is_offered = !change.is_removed || has(&shared, &change.key)?;
                repository.learn_blob(&digest, is_offered);
                Ok(())
            })
            .await
        }
        FactKey::Tag(tag) => {
            let (shared, key) = (Arc::clone(app), change.key.clone());
            run(app, move || {
                let digest = read(&shared, &key)?.map(|content| digest_of(&content)).transpose()?;
                repository.learn_tag(tag, digest);
                Ok(())
            })
            .await
        }
        FactKey::Manifest(digest) => {
            let _changes = repository.lock_changes().await;
            let known = repository.manifest(&Reference::Digest(digest.clone()));
            if let (false, Some((_, manifest))) = (change.is_removed, &known) {
                // Our own, or one of which debuggers could not be told before.
                return publish::learn(app, &digest, manifest).await;
            }
            let (shared, key, wanted, here) = (Arc::clone(app), change.key.clone(), digest.clone(), name.clone());
            let arrived = run(app, move || {
                let Some(media_type) = read(&shared, &key)? else {
                    return Ok(None);
                };
                let bytes = shared.blobs.read(&wanted, MANIFEST_LIMIT as u64)?;
                let manifest = Manifest::parse(&bytes, Some(&media_type)).map_err(io::Error::other)?;
                learn_manifest(&shared, &here, &wanted, manifest.clone());
                // It may have come to another server before that one heard that it is taken down.
                if shared.taken_down.get(&wanted).is_some() {
                    repository_of(&shared, &here).hide(&wanted, &shared.blobs);
                    return Ok(None);
                }
                Ok(Some(manifest))
            })
            .await?;
            match (arrived, known) {
                (Some(manifest), _) => publish::learn(app, &digest, &manifest).await,
                (None, Some((_, manifest))) => {
                    let (shared, wanted) = (Arc::clone(app), digest.clone());
                    run(app, move || {
                        repository_of(&shared, &name).learn_deletion(&wanted, &shared.blobs);
                        Ok(())
                    })
                    .await?;
                    publish::unlearn(app, &digest, &manifest).await
                }
                (None, None) => Ok(()),
            }
        }
        // They matter to the collector alone.
        FactKey::Orphan(_) => Ok(()),
    }
}

fn repository_of(app: &App, name: &RepositoryName) -> Arc<Repository> {
    app.repositories.get_or_create(name)
}

fn learn_manifest(app: &App, name: &RepositoryName, digest: &crate::blobs::BlobDigest, manifest: Manifest) {
    repository_of(app, name).learn_manifest(digest.clone(), manifest);
}

fn read(app: &App, key: &str) -> io::Result<Option<String>> {
    app.repositories.facts().map_or(Ok(None), |facts| facts.read(key))
}

fn has(app: &App, key: &str) -> io::Result<bool> {
    app.repositories.facts().map_or(Ok(false), |facts| facts.has(key))
}

pub(super) async fn run<T: Send + 'static>(
    app: &App,
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    app.pool.run(job).await.map_err(io::Error::other)?
}
