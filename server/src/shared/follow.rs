//! One server sees what the others did.
//!
//! Each fact that a server writes is a row of the database's sequence of changes. A server reads what is new there when
//! PostgreSQL signals it, every [`POLL`] in any case, and before it says that something is not here. A row only says where to
//! look: what counts is what the object store says when the row is read, so that all servers come to the same, in whatever
//! order two of them wrote.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::facts::unreachable;
use super::intents::tell_of_intents;
use super::pending::Pending;
use super::reread::reread;
use crate::app::App;
use crate::blobs::{ABANDONED_AFTER, BlobDigest, blob_of_key, is_lasting, unless_lost};
use crate::ingest::{RefusedBundle, restore_traces};
use crate::publish::PublishError;
use crate::repositories::{FactKey, MANIFEST_LIMIT, Manifest, Reference, RepositoryName, digest_of};
use crate::store::{ChangeRow, Changes};
use crate::takedown::{self, TOMBSTONES};
use crate::{notes, publish};

/// Changes that a server reads when no signal tells it to.
const POLL: Duration = Duration::from_secs(2);

/// From the beginning of one look before a "not here" to the next: a flood of them is at most fifty queries a second, and
/// each waits at most so much longer.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long somebody waits for a look who can be answered without it.
const PATIENCE: Duration = Duration::from_secs(10);

/// After a look that failed nobody looks again for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause of the server that follows while something could not be read: whoever asks for what may come of it is not answered.
const SOON: Duration = Duration::from_millis(250);

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
    /// Whether the last look came to nothing.
    is_blind: AtomicBool,
    /// Grows with each change that is taken over, for those who only want to know whether there was something new.
    learned: AtomicU64,
    /// What repositories have, or have no longer, and debuggers are not told of yet: a file may have to be fetched and read for it, for which
    /// nobody waits who asks for something else.
    untold: std::sync::Mutex<VecDeque<News>>,
    /// Held while debuggers are told; when that failed the last time, and why.
    telling: Mutex<Option<(Instant, String)>>,
    /// Bundles of which the database may not say what the repositories do, as whoever changed these did not come to it.
    unrecorded: std::sync::Mutex<BTreeSet<BlobDigest>>,
    /// Whether the same is so of traces.
    lacks_traces: AtomicBool,
    /// Facts that could not be read.
    unread: Pending<()>,
    /// What repositories have, and could not be read so that debuggers could be told of it.
    unopened: Pending<News>,
}

#[derive(Debug)]
struct State {
    /// The number of the last change that was taken over.
    last: u64,
    /// When that was made, as the database says; `None` where it was not asked yet.
    last_at: Option<String>,
    /// When the last look began, and what went wrong in it.
    looked: Option<(Instant, Option<String>)>,
}

/// A manifest that another server published, or deleted.
#[derive(Debug, Clone)]
pub(super) struct News {
    digest: BlobDigest,
    manifest: Arc<Manifest>,
    is_removed: bool,
}

impl Follower {
    /// `last`: the number of the last change before the facts were read.
    pub(crate) fn new(last: u64) -> Self {
        let (is_blind, untold, telling, unrecorded, lacks_traces) = Default::default();
        let (unread, unopened) = Default::default();
        let state = Arc::new(Mutex::new(State { last, last_at: None, looked: None }));
        Self {
            state,
            is_blind,
            learned: AtomicU64::new(0),
            untold,
            telling,
            unrecorded,
            lacks_traces,
            unread,
            unopened,
        }
    }

    /// Whether something was not read yet of which a debugger might be told.
    pub(crate) fn doubts_ids(&self) -> bool {
        self.unopened.doubted() > 0 || self.doubts_one_of(|_, fact| matches!(fact, FactKey::Manifest(_)))
    }

    /// Whether one of these facts was not read yet.
    pub(crate) fn doubts_one_of(&self, is_it: impl Fn(&RepositoryName, &FactKey) -> bool) -> bool {
        self.unread.facts(false).iter().any(|(name, fact)| is_it(name, fact))
    }

    /// Whether a fact was not read yet, so that nobody knows what is kept.
    pub(crate) fn doubts_facts(&self) -> bool {
        self.unread.doubted() > 0
    }

    /// The repositories of which something cannot be read.
    pub(crate) fn not_whole(&self) -> Vec<RepositoryName> {
        self.unread.facts(true).into_iter().map(|(name, _)| name).collect()
    }

    /// How much is not read, and how often that was believed.
    pub(crate) fn unread(&self) -> (u64, u64) {
        let (facts, files) = (self.unread.counts(), self.unopened.counts());
        (facts.0 + files.0, facts.1 + files.1)
    }

    /// Reads again what could not be read when everything was read.
    pub(crate) fn doubt(&self, app: &App) {
        for repository in app.repositories.all() {
            repository.take_unread().iter().for_each(|key| self.unread.add(key, ()));
            for (digest, manifest) in repository.manifests() {
                if (manifest.is_bundle() || manifest.is_loose()) && app.debug_files.bundle(&digest).is_none() {
                    self.unopened.add(&digest.to_string(), News { digest, manifest, is_removed: false });
                }
            }
        }
    }

    /// How many changes were taken over.
    pub(crate) fn learned(&self) -> u64 {
        self.learned.load(Ordering::Acquire)
    }

    /// Has the record of bundles looked at.
    pub(crate) fn may_be_recorded_wrongly(&self, bundles: impl IntoIterator<Item = BlobDigest>) {
        self.unrecorded().extend(bundles);
    }

    /// Takes over what repositories offer by what other servers acknowledged before this call. One look serves all who wait for it.
    ///
    /// # Errors
    /// The database or the object store does not answer: what is not here may be elsewhere.
    pub(crate) async fn catch_up(&self, app: &Arc<App>) -> io::Result<()> {
        let asked = Instant::now();
        let mut state = Arc::clone(&self.state).lock_owned().await;
        if let Some((began, problem)) = &state.looked {
            let pause = if problem.is_some() { PAUSE } else { Duration::ZERO };
            if *began >= asked || began.elapsed() < pause {
                return problem.as_ref().map_or(Ok(()), |problem| Err(failed(problem)));
            }
            tokio::time::sleep(LOOK_AGAIN.saturating_sub(began.elapsed())).await;
        }
        // A task of its own: who asked may go away, and half of a change must not be taken over.
        let app = Arc::clone(app);
        let look = tokio::spawn(async move {
            let began = Instant::now();
            let Some(follower) = &app.follower else { return Ok(()) };
            let looked = follower.look(&app, &mut state).await;
            follower.is_blind.store(looked.is_err(), Ordering::Release);
            state.looked = Some((began, looked.as_ref().err().map(ToString::to_string)));
            looked
        });
        look.await.map_err(io::Error::other)?
    }

    /// [`Self::catch_up`] for those who are answered from what is known where nothing can be learned. Who finds that it was so the last time waits for
    /// nothing: the server looks again by itself.
    pub(crate) async fn catch_up_if_it_can(&self, app: &Arc<App>) {
        if self.is_blind.load(Ordering::Acquire) {
            return;
        }
        // A look that fails is told by whoever follows.
        drop(tokio::time::timeout(PATIENCE, self.catch_up(app)).await);
    }

    /// Tells debuggers of everything that [`Self::catch_up`] took over.
    ///
    /// # Errors
    /// Something cannot be read now: it is tried again.
    pub(crate) async fn tell(&self, app: &Arc<App>) -> io::Result<()> {
        if self.untold().is_empty() && self.unopened.due().is_empty() {
            return Ok(());
        }
        let app = Arc::clone(app);
        // As above.
        let tell = tokio::spawn(async move {
            let Some(follower) = &app.follower else { return Ok(()) };
            let mut problem = follower.telling.lock().await;
            if let Some((at, problem)) = &*problem
                && at.elapsed() < PAUSE
            {
                return Err(failed(problem));
            }
            let told = follower.tell_all(&app).await;
            *problem = told.as_ref().err().map(|error| (Instant::now(), error.to_string()));
            told
        });
        tell.await.map_err(io::Error::other)?
    }

    async fn tell_all(&self, app: &Arc<App>) -> io::Result<()> {
        loop {
            // In order: a bundle comes before its seal, and both before their deletion.
            let Some(news) = self.untold().front().cloned() else { return self.tell_again(app).await };
            let key = news.digest.to_string();
            let told = if news.is_removed {
                publish::unlearn(app, &news.digest, &news.manifest).await
            } else {
                publish::learn(app, &news.digest, &news.manifest).await
            };
            match told {
                Err(error) if !is_lasting(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!(digest = %news.digest, %error, "debuggers are not told what another server published: it is tried again");
                    self.unopened.add(&key, news.clone());
                }
                Ok(()) => self.unopened.done(&key),
            }
            self.may_be_recorded_wrongly(publish::concerned(&news.digest, &news.manifest));
            self.untold().pop_front();
            self.learned.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Tells debuggers of what could not be read before.
    async fn tell_again(&self, app: &Arc<App>) -> io::Result<()> {
        for (key, News { digest, manifest, is_removed }) in self.unopened.due() {
            let wanted = Reference::Digest(digest.clone());
            let is_here = app.repositories.all().iter().any(|repository| repository.manifest(&wanted).is_some());
            let told = match (is_removed, is_here) {
                (true, _) => publish::unlearn(app, &digest, &manifest).await,
                (false, true) => publish::learn(app, &digest, &manifest).await,
                (false, false) => Ok(()),
            };
            match told {
                Err(error) if !is_lasting(&error) => return Err(error),
                Err(error) if self.unopened.failed_again(&key) => {
                    tracing::error!(%digest, %error, "what was published cannot be read: debuggers are told that it is not here; push it again, or look at its object");
                }
                Err(_) => {}
                Ok(()) => {
                    tracing::info!(%digest, "what could not be read is read, and debuggers are told of it");
                    self.unopened.done(&key);
                    self.may_be_recorded_wrongly(publish::concerned(&digest, &manifest));
                    self.learned.fetch_add(1, Ordering::AcqRel);
                }
            }
        }
        Ok(())
    }

    /// Reads facts again that could not be read before.
    async fn look_again(&self, app: &Arc<App>) -> io::Result<()> {
        for (key, ()) in self.unread.due() {
            let change = ChangeRow { key: key.clone(), is_removed: false };
            let there = there(app, &[(0, change.clone())]).await?;
            let mut learned = learn(app, &change, &there).await;
            match &learned {
                Err(error) if !is_lasting(error) => return learned.map(drop),
                Err(error) if self.unread.failed_again(&key) => {
                    tracing::error!(key, %error, "what another server changed cannot be read: it is taken for gone or damaged; push it again, or look at its object");
                    // What is not there is gone.
                    learned = learn(app, &ChangeRow { is_removed: true, ..change }, &there).await;
                    let (shared, wanted) = (Arc::clone(app), key.clone());
                    let is_there =
                        run(app, move || shared.repositories.facts().map_or(Ok(false), |it| it.has(&wanted)));
                    if is_there.await.unwrap_or(true) {
                        // A tag whose manifest may come yet.
                        continue;
                    }
                }
                Err(_) => continue,
                Ok(_) => tracing::info!(key, "what could not be read is read"),
            }
            if let Ok(news) = learned {
                self.unread.done(&key);
                self.untold().extend(news);
                self.learned.fetch_add(1, Ordering::AcqRel);
            }
        }
        Ok(())
    }

    /// Looks whether the database says of the bundles that changed what the repositories say. Nobody who asks for something waits for it.
    async fn mend_records(&self, app: &Arc<App>) -> io::Result<()> {
        let mut refused = Ok(());
        if self.lacks_traces.swap(false, Ordering::AcqRel)
            && let Err(error) = restore_traces(app).await
        {
            self.lacks_traces.store(true, Ordering::Release);
            refused = Err(unreachable(error));
        }
        let unrecorded = std::mem::take(&mut *self.unrecorded());
        for bundle in unrecorded {
            let error = match publish::mend(app, &bundle).await {
                Ok(()) => continue,
                Err(PublishError::Io(error) | PublishError::Bundle(RefusedBundle::Io(error))) => error,
                Err(PublishError::Store(error)) => unreachable(error),
                Err(error) => io::Error::new(io::ErrorKind::InvalidData, error),
            };
            if is_lasting(&error) {
                tracing::error!(digest = %bundle, %error, "a bundle that another server published is not recorded");
                continue;
            }
            self.unrecorded().insert(bundle);
            refused = Err(error);
        }
        refused
    }

    async fn look(&self, app: &Arc<App>, state: &mut State) -> io::Result<()> {
        loop {
            let changes = app.store.changes(state.last, ROWS).await.map_err(unreachable)?;
            if changes.pruned > state.last {
                tracing::warn!(
                    last = state.last,
                    pruned = changes.pruned,
                    "changes that this server has not read are no longer there: it reads everything again"
                );
                self.read_everything(app, state).await?;
                continue;
            }
            if state.is_of_before(&changes) {
                tracing::warn!(last = state.last, "the database was put back: everything is read again, and recorded");
                // Some of it may have been struck out since the backup was made.
                app.store.reprieve_all().await.map_err(unreachable)?;
                self.read_everything(app, state).await?;
                continue;
            }
            let Changes { rows, after_at, last_at, .. } = changes;
            if after_at.is_some() {
                state.last_at = after_at;
            }
            let is_all = rows.len() < ROWS as usize;
            let there = there(app, &rows).await?;
            // Whoever reads late finds what a later one of them made of it.
            let last: HashMap<String, u64> =
                rows.iter().map(|(number, change)| (change.key.clone(), *number)).collect();
            for (number, change) in rows {
                let is_looked_at_later = last.get(&change.key).is_some_and(|last| *last > number);
                match learn(app, &change, &there).await {
                    Ok(news) => {
                        self.unread.done(&change.key);
                        self.untold().extend(news);
                    }
                    // Tried again with the next look.
                    Err(error) if !is_lasting(&error) => return Err(error),
                    Err(_) if is_looked_at_later => {}
                    Err(error) => {
                        tracing::warn!(key = change.key, %error, "a change of another server cannot be read: it is tried again");
                        self.unread.add(&change.key, ());
                    }
                }
                state.last = number;
                state.last_at = None;
                self.learned.fetch_add(1, Ordering::AcqRel);
            }
            if last_at.is_some() {
                state.last_at = last_at;
            }
            if is_all {
                return self.look_again(app).await;
            }
        }
    }

    async fn read_everything(&self, app: &Arc<App>, state: &mut State) -> io::Result<()> {
        // Before the facts are read, so that nothing that comes meanwhile is missed.
        let newest = app.store.last_change().await.map_err(unreachable)?;
        reread(app).await?.iter().for_each(|key| self.unread.add(key, ()));
        self.doubt(app);
        tell_of_intents(app).await?;
        // Whoever recorded it may not have done so in this database, or not have come to it.
        let all = publish::here_or_recorded(app).await.map_err(unreachable)?;
        self.may_be_recorded_wrongly(all);
        self.lacks_traces.store(true, Ordering::Release);
        (state.last, state.last_at) = (newest, None);
        self.learned.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn unrecorded(&self) -> MutexGuard<'_, BTreeSet<BlobDigest>> {
        self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn untold(&self) -> MutexGuard<'_, VecDeque<News>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the last change that was taken over is not in this database: it was put back to an earlier state, and begins to number where that was.
    /// Its changes alone would not do, as they would show again what was hidden since.
    fn is_of_before(&self, changes: &Changes) -> bool {
        match (&self.last_at, &changes.after_at) {
            (Some(known), Some(found)) => known != found,
            (None, Some(_)) => false,
            // Neither there nor deleted.
            (_, None) => changes.pruned < self.last,
        }
    }
}

fn failed(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::HostUnreachable, problem.to_owned())
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
        let poll = if follower.doubts_ids() || follower.doubts_facts() { SOON } else { POLL };
        let holds = tokio::time::timeout(poll, heard).await.unwrap_or(true);
        if !holds {
            signal = None;
        }
        let followed = async {
            follower.catch_up(&app).await?;
            follower.tell(&app).await?;
            follower.mend_records(&app).await
        };
        if let Err(error) = followed.await {
            tracing::warn!(%error, "what other servers did is not taken over");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Deletes changes that are older than [`KEPT`], and forgets uploads that ended as long ago as one may go on, until the server ends.
pub(crate) async fn prune(app: Arc<App>) {
    loop {
        match app.store.prune_changes(KEPT).await {
            Ok(0) => {}
            Ok(pruned) => tracing::info!(pruned, "old changes are deleted"),
            Err(error) => tracing::warn!(%error, "old changes are not deleted"),
        }
        if let Err(error) = app.store.forget_ended_uploads(ABANDONED_AFTER).await {
            tracing::warn!(%error, "uploads that ended long ago are not forgotten");
        }
        tokio::time::sleep(PRUNE).await;
    }
}

/// The keys of blobs and orphans among changes whose facts are there now. Asked for together: one after the other they would take long.
async fn there(app: &Arc<App>, rows: &[(u64, ChangeRow)]) -> io::Result<HashSet<String>> {
    let is_unknown = |change: &ChangeRow| match FactKey::parse(&change.key) {
        Some((name, FactKey::Blob(digest))) => change.is_removed || !has_blob(app, &name, &digest),
        Some((_, FactKey::Orphan(_))) => !change.is_removed,
        _ => false,
    };
    let keys: HashSet<String> =
        rows.iter().filter(|(_, change)| is_unknown(change)).map(|(_, change)| change.key.clone()).collect();
    if keys.is_empty() {
        return Ok(keys);
    }
    let shared = Arc::clone(app);
    run(app, move || match shared.repositories.facts() {
        Some(facts) => facts.among(keys),
        None => Ok(HashSet::new()),
    })
    .await
}

fn has_blob(app: &App, name: &RepositoryName, digest: &BlobDigest) -> bool {
    app.repositories.get(name).is_some_and(|repository| repository.has_blob(digest))
}

/// What was said to be there was not: it may be gone since, of which another change tells, or the object store was wrong.
fn not_there(key: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{key} is not there, though it was written"))
}

/// Takes a change over, `there` being the blobs and orphans among all of them whose facts are there; what debuggers must be told of it. What is not there
/// is taken for gone only where the change says so.
pub(super) async fn learn(app: &Arc<App>, change: &ChangeRow, there: &HashSet<String>) -> io::Result<Option<News>> {
    if let Some(id) = change.key.strip_prefix("traces/") {
        let Ok(id) = uuid::Uuid::try_parse(id) else { return Ok(None) };
        let (shared, key, is_removed) = (Arc::clone(app), change.key.clone(), change.is_removed);
        return run(app, move || {
            let Some(content) = read(&shared, &key)? else {
                return if is_removed { Ok(None) } else { Err(not_there(&key)) };
            };
            shared.traces.learn(id, digest_of(&content)?);
            Ok(None)
        })
        .await;
    }
    if notes::digest_of(TOMBSTONES, &change.key).is_some() {
        takedown::refresh(app).await?;
        return Ok(None);
    }
    if let Some(digest) = blob_of_key(&change.key) {
        let shared = Arc::clone(app);
        // Whoever put it there again since has it from the object store.
        return run(app, move || shared.blobs.forget(&digest).map(|()| None)).await;
    }
    let Some((name, fact)) = FactKey::parse(&change.key) else { return Ok(None) };
    let repository = app.repositories.get_or_create(&name);
    // With a change of this server's between what the object store says and what is made of it, an older state would stay.
    let _changes = repository.lock_changes().await;
    match fact {
        FactKey::Blob(digest) => {
            let is_known = !change.is_removed && repository.has_blob(&digest);
            if !is_known && !change.is_removed && !there.contains(&change.key) {
                return Err(not_there(&change.key));
            }
            repository.learn_blob(&digest, is_known || there.contains(&change.key));
            if app.taken_down.has(&digest) {
                let (shared, here) = (Arc::clone(app), Arc::clone(&repository));
                return run(app, move || {
                    shared.taken_down.hide_in_one(&here, &digest, &shared.blobs);
                    Ok(None)
                })
                .await;
            }
            Ok(None)
        }
        FactKey::Tag(tag) => {
            let (shared, key, here) = (Arc::clone(app), change.key.clone(), Arc::clone(&repository));
            let is_removed = change.is_removed;
            run(app, move || {
                let digest = read(&shared, &key)?.map(|content| digest_of(&content)).transpose()?;
                let is_known = digest.as_ref().is_some_and(|digest| here.knows_manifest(digest) || here.had(digest));
                if !is_removed && !is_known {
                    // It, or the manifest that it leads to and that came before it.
                    return Err(not_there(&key));
                }
                here.learn_tag(tag, digest, &shared.blobs)?;
                Ok(None)
            })
            .await
        }
        FactKey::Manifest(digest) => {
            let known = |digest: &BlobDigest| {
                let found = repository.manifest(&Reference::Digest(digest.clone()));
                found.map(|(digest, manifest)| News { digest, manifest, is_removed: false })
            };
            let before = known(&digest);
            if !change.is_removed && before.is_some() {
                // Our own, or one of which debuggers could not be told before.
                return Ok(before);
            }
            let (shared, key, wanted, here) =
                (Arc::clone(app), change.key.clone(), digest.clone(), Arc::clone(&repository));
            let (was_here, is_removed) = (before.is_some(), change.is_removed);
            let is_here = run(app, move || {
                let Some(media_type) = read(&shared, &key)? else {
                    if !is_removed {
                        return Err(not_there(&key));
                    }
                    if was_here {
                        here.learn_deletion(&wanted, &shared.blobs)?;
                    }
                    return Ok(false);
                };
                let bytes = shared.blobs.read(&wanted, MANIFEST_LIMIT as u64)?;
                let manifest = Manifest::parse(&bytes, Some(&media_type))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                // It, or what it refers to, may have come to another server before that one heard that it is taken down.
                let cause = here.learn_manifest(&wanted, manifest, |digest| shared.taken_down.has(digest));
                let Some(cause) = cause else { return Ok(true) };
                shared.taken_down.hide_in_one(&here, &cause, &shared.blobs);
                Ok(false)
            })
            .await?;
            Ok(if is_here { known(&digest) } else { before.map(|news| News { is_removed: true, ..news }) })
        }
        FactKey::Deleted(digest) => {
            let (shared, key, here) = (Arc::clone(app), change.key.clone(), Arc::clone(&repository));
            run(app, move || {
                if read(&shared, &key)?.is_none() {
                    here.unlearn_deleted(&digest);
                } else if here.manifest(&Reference::Digest(digest.clone())).is_none() {
                    // What is here is followed when it goes. Of what never came here, as it was gone before, the rest may have to be hidden.
                    let bytes = unless_lost(shared.blobs.read(&digest, MANIFEST_LIMIT as u64))?;
                    if let Some(manifest) = bytes.and_then(|bytes| Manifest::parse(&bytes, None).ok()) {
                        here.learn_of_deleted(&digest, &manifest);
                        for cause in [Some(digest), manifest.subject].into_iter().flatten() {
                            if shared.taken_down.has(&cause) {
                                shared.taken_down.hide_in_one(&here, &cause, &shared.blobs);
                            }
                        }
                    }
                }
                Ok(None)
            })
            .await
        }
        // It is deleted next what kept the manifest. A server that starts meanwhile may never know that there was such a thing, and this alone tells it.
        FactKey::Orphan(digest) if !change.is_removed => {
            if there.contains(&change.key) {
                let (shared, here) = (Arc::clone(app), Arc::clone(&repository));
                run(app, move || here.learn_orphan(&digest, &shared.blobs)).await?;
            }
            Ok(None)
        }
        // Of what is pushed again.
        FactKey::Orphan(digest) => {
            let (shared, key) = (Arc::clone(app), change.key.clone());
            if run(app, move || read(&shared, &key)).await?.is_none() {
                repository.learn_adoption(&digest);
            }
            Ok(None)
        }
    }
}

fn read(app: &App, key: &str) -> io::Result<Option<String>> {
    app.repositories.facts().map_or(Ok(None), |facts| facts.read(key))
}

pub(super) async fn run<T: Send + 'static>(
    app: &App,
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    // A job that does not come to its end would not do so the next time either.
    app.pool.run(job).await.map_err(|lost| io::Error::new(io::ErrorKind::InvalidData, lost))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_was_put_back_is_known_by_the_last_change_that_was_taken_over() {
        let at = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        for (last, known, pruned, found, expected) in [
            (0, "", 0, "", false),
            (5, "", 0, "10:00", false),
            (5, "10:00", 0, "10:00", false),
            // Its number was given again, however many changes there were since.
            (5, "10:00", 0, "11:00", true),
            (5, "10:00", 4, "", true),
            (5, "", 4, "", true),
            (5, "10:00", 5, "", false),
            (5, "", 5, "", false),
        ] {
            let state = State { last, last_at: at(known), looked: None };
            let changes = Changes { pruned, after_at: at(found), ..Changes::default() };
            assert_eq!(state.is_of_before(&changes), expected, "{last} {known:?} {pruned} {found:?}");
        }
    }
}
