//! Collection from an object store that servers share.
//!
//! One server at a time has the turn. A round has two steps, as in a directory: repositories cease to offer what nothing in them keeps, and the bytes
//! go of what no repository and no trace names. Neither is done to what was not condemned before, in a table that every server strikes out what it
//! comes to rely on (`promise`): offers for the grace period, bytes, of which no client is ever told, for [`LEAST`]. What is due is taken, a few rows
//! at a time, and whoever wants it waits; then this server follows the others once more, looks whether anything names it by now, removes
//! it, and lets it go.
//!
//! What counts for bytes is also what the object store says, read whole after they were condemned: a fact that was written and never told of, as its
//! writer was killed between the two, keeps them as well.
//!
//! A server that is killed over what it has taken leaves it to the others, when it has been [silent](SILENCE) for so long that nothing of its is on the
//! way any more. They tell of what is gone, and what is not is condemned again.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use symseal_seal::UtcSeconds;
use uuid::Uuid;

use super::Facts;
use super::facts::unreachable;
use super::follow::run;
use super::promise::HOLDS;
use crate::app::App;
use crate::blobs::{BlobDigest, blob_key, blob_of_key};
use crate::clock::Moment;
use crate::collector::{Collected, prefix};
use crate::repositories::{Ceased, FOLDER, FactKey, RepositoryName, digest_of};
use crate::store::{Condemned, Of};
use crate::traces;

/// What is taken was condemned this long ago at least. It is longer than a promise holds, as a row may be seen later than it says.
const LEAST: Duration = Duration::from_secs(5);

const _: () = assert!(LEAST.as_secs() > HOLDS.as_secs());

/// Rows taken at once: requests for these wait.
const AT_ONCE: u32 = 32;

/// Rows condemned in one statement.
const ROWS: usize = 1000;

/// How often the one who has taken something says so.
const SAY: Duration = Duration::from_secs(5);

/// Nothing is removed by one who could not say so for this long.
const SAID: Duration = Duration::from_secs(15);

/// Whoever has taken something and did not say so for this long is gone, with every request that it had sent to the object store: one is given up well
/// within what is left.
const SILENCE: Duration = Duration::from_secs(60);

/// One round, which ends early when the server stops; `None` while another server has the turn.
///
/// # Errors
/// The database or the object store does not answer; the next round goes on.
pub(crate) async fn collect(app: &Arc<App>, grace: Duration, stopped: &AtomicBool) -> io::Result<Option<Collected>> {
    let turn = app.store.collecting().await.map_err(unreachable)?;
    let (Some(mut turn), Some(follower)) = (turn, &app.follower) else { return Ok(None) };
    follower.catch_up(app).await?;
    if follower.doubts_facts() {
        tracing::warn!("what another server changed could not be read yet: nothing is collected now");
        turn.end().await;
        return Ok(None);
    }
    release(app).await?;
    let mut round = Round { app, stopped, collected: Collected::default() };
    round.end_uploads().await?;
    round.bury(grace).await?;
    round.condemn_offers().await?;
    round.condemn_bytes(grace).await?;
    if round.is_stopped() {
        return Ok(Some(round.collected));
    }
    tokio::time::sleep(LEAST).await;
    let said = Arc::new(said(app).await?);
    while turn.holds().await && round.take_offers(grace, &said).await? {}
    if turn.holds().await {
        round.forget_deleted().await?;
    }
    while turn.holds().await && round.take_bytes(&said).await? {}
    turn.end().await;
    Ok(Some(round.collected))
}

/// Lets go of what a server that is silent has taken.
///
/// # Errors
/// The database or the object store does not answer.
pub(super) async fn release(app: &Arc<App>) -> io::Result<()> {
    let Some(facts) = app.repositories.facts().cloned() else { return Ok(()) };
    let by = Uuid::new_v4();
    let rows = app.store.take_over(by, SILENCE).await.map_err(unreachable)?;
    if rows.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        rows = rows.len(),
        "a server was gone over what it collected: what it has not removed stays for now"
    );
    let held = Held::new(app, by, rows.len());
    run(app, move || {
        for row in &rows {
            held.may_go()?;
            keys(row).iter().try_for_each(|key| facts.tell_if_gone(key))?;
        }
        Ok(())
    })
    .await?;
    app.store.let_go(by).await.map_err(unreachable)
}

/// Where the object store has what a row is about.
fn keys(row: &Condemned) -> Vec<String> {
    let Ok(digest) = row.digest.parse::<BlobDigest>() else { return Vec::new() };
    if row.repository.is_empty() {
        return vec![blob_key(&digest)];
    }
    let key = |kind| format!("{FOLDER}/{}/{kind}/{}/{}", row.repository, digest.algorithm().name(), digest.hex());
    ["_blobs", "_manifests", "_orphans"].map(key).to_vec()
}

/// Rows that this server has taken, of which it says that it still has them until this is dropped.
struct Held {
    said: Arc<Mutex<Moment>>,
    saying: tokio::task::JoinHandle<()>,
}

impl Held {
    fn new(app: &App, by: Uuid, rows: usize) -> Self {
        let (store, said) = (Arc::clone(&app.store), Arc::new(Mutex::new(Moment::now())));
        let (rows, when) = (rows as u64, Arc::clone(&said));
        let saying = tokio::spawn(async move {
            loop {
                tokio::time::sleep(SAY).await;
                let now = Moment::now();
                match store.hold_taken(by, rows).await {
                    Ok(true) => *when.lock().unwrap_or_else(PoisonError::into_inner) = now,
                    // Another server has taken them over.
                    Ok(false) => return,
                    Err(error) => tracing::warn!(%error, "that something is being collected cannot be said"),
                }
            }
        });
        Self { said, saying }
    }

    /// Whether a removal may begin.
    ///
    /// # Errors
    /// The rows may be another server's.
    fn may_go(&self) -> io::Result<()> {
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < SAID {
            return Ok(());
        }
        Err(io::Error::other("another server may have taken over what was taken to be collected"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.saying.abort();
    }
}

/// What the object store said when it was read.
struct Said {
    /// When the reading began.
    at: Moment,
    /// The beginnings of all digests that are offered, or are manifests.
    named: HashSet<u64>,
    /// Repositories with a manifest that this server does not know, so that it does not know what that names.
    unknown: HashSet<RepositoryName>,
    /// Whether every trace is known.
    is_whole: bool,
}

async fn said(app: &Arc<App>) -> io::Result<Said> {
    let Some(facts) = app.repositories.facts().cloned() else { return Err(io::ErrorKind::Unsupported.into()) };
    let (at, shared, read) = (Moment::now(), Arc::clone(app), Arc::clone(&facts));
    let (named, new) = run(app, move || {
        let (mut named, mut new) = (HashSet::new(), Vec::new());
        read.objects().each(FOLDER, |key, _, _| {
            let Some((name, fact)) = FactKey::parse(key) else { return Ok(()) };
            match fact {
                FactKey::Blob(ref digest) | FactKey::Manifest(ref digest) => named.extend(prefix(digest)),
                FactKey::Orphan(_) | FactKey::Deleted(_) | FactKey::Tag(_) => {}
            }
            if !knows(&shared, &name, &fact) {
                new.push((key.to_owned(), name, fact));
            }
            Ok(())
        })?;
        Ok((named, new))
    })
    .await?;
    // What came while it was read.
    app.catch_up_repositories().await?;
    let (shared, look) = (Arc::clone(app), Arc::clone(&facts));
    let new = run(app, move || {
        let new: Vec<_> = new.into_iter().filter(|(_, name, fact)| !knows(&shared, name, fact)).collect();
        if !new.is_empty() {
            tracing::warn!(facts = new.len(), "nobody told of what the object store has: all servers look there now");
            look.tell_what_is(new.iter().map(|(key, _, _)| key.clone()).collect(), &[])?;
        }
        Ok(new)
    })
    .await?;
    if !new.is_empty() {
        app.catch_up_repositories().await?;
    }
    let shared = Arc::clone(app);
    run(app, move || {
        let mut unknown: HashSet<RepositoryName> =
            shared.follower.as_ref().map(|follower| follower.not_whole()).unwrap_or_default().into_iter().collect();
        for (key, name, fact) in new {
            if let FactKey::Manifest(digest) = &fact
                && !knows(&shared, &name, &fact)
                && facts.has(&key)?
            {
                tracing::warn!(repository = %name, %digest, "a manifest is not known here: nothing of its repository is collected");
                unknown.insert(name);
            }
        }
        let is_whole = know_traces(&shared, &facts)?;
        Ok(Said { at, named, unknown, is_whole })
    })
    .await
}

/// Whether nothing has to be looked at again for a fact that the object store has.
fn knows(app: &App, name: &RepositoryName, fact: &FactKey) -> bool {
    let repository = app.repositories.get(name);
    match fact {
        FactKey::Blob(digest) => repository.is_some_and(|repository| repository.knows_blob(digest)),
        FactKey::Manifest(digest) => repository.is_some_and(|repository| repository.knows_manifest(digest)),
        FactKey::Orphan(_) | FactKey::Deleted(_) | FactKey::Tag(_) => true,
    }
}

/// Takes over traces of which nobody told; whether all are known.
fn know_traces(app: &App, facts: &Facts) -> io::Result<bool> {
    let id_of = |key: &str| Uuid::try_parse(key.strip_prefix(traces::FOLDER)?.strip_prefix('/')?).ok();
    let mut unknown = Vec::new();
    facts.objects().each(traces::FOLDER, |key, _, _| {
        if id_of(key).is_some_and(|id| app.traces.get(id).is_none()) {
            unknown.push(key.to_owned());
        }
        Ok(())
    })?;
    let mut is_whole = true;
    for (key, read) in facts.read_all(unknown)? {
        match (id_of(&key), read.and_then(|content| digest_of(&content).map_err(|error| error.to_string()))) {
            (Some(id), Ok(digest)) => app.traces.learn(id, digest),
            (_, read) => {
                let problem = read.err().unwrap_or_default();
                tracing::warn!(key, problem, "a trace is unreadable, and may name any blob: no bytes are collected");
                is_whole = false;
            }
        }
    }
    Ok(is_whole)
}

struct Round<'a> {
    app: &'a Arc<App>,
    stopped: &'a AtomicBool,
    collected: Collected,
}

impl Round<'_> {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Ends uploads that came to several servers and were abandoned.
    async fn end_uploads(&mut self) -> io::Result<()> {
        let Some(parts) = self.app.parts.clone() else { return Ok(()) };
        self.collected.sessions += run(self.app, move || parts.expire()).await?;
        Ok(())
    }

    /// Removes what repositories say of what was taken down longer ago than the grace period.
    async fn bury(&mut self, grace: Duration) -> io::Result<()> {
        let app = self.app;
        let before = SystemTime::now().checked_sub(grace).unwrap_or(SystemTime::UNIX_EPOCH);
        let since = before.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let before = UtcSeconds(i64::try_from(since).unwrap_or(i64::MAX));
        for (name, repository) in app.repositories.named() {
            let hidden = repository.hidden_with(&app.taken_down.before(before));
            if hidden.is_empty() || self.is_stopped() {
                continue;
            }
            let mut rows: Vec<Condemned> = hidden.iter().map(|digest| offer(&name, digest)).collect();
            rows.sort_by(|one, other| one.digest.cmp(&other.digest));
            rows.dedup();
            let by = Uuid::new_v4();
            if !app.store.take_now(by, &rows).await.map_err(unreachable)? {
                app.store.let_go(by).await.map_err(unreachable)?;
                continue;
            }
            let held = Held::new(app, by, rows.len());
            // Whoever came to rely on some of it before is done by then, or waits.
            tokio::time::sleep(LEAST).await;
            app.catch_up_repositories().await?;
            // It may have been lifted meanwhile.
            let old = app.taken_down.before(before);
            let _changes = repository.lock_changes().await;
            let is_taken: HashSet<BlobDigest> = hidden.into_iter().collect();
            if repository.hidden_with(&old).iter().all(|digest| is_taken.contains(digest)) {
                let shared = Arc::clone(&repository);
                run(app, move || shared.bury_while(&old, || held.may_go())).await?;
            }
            app.store.let_go(by).await.map_err(unreachable)?;
        }
        Ok(())
    }

    /// Forgets deleted manifests of which nothing is left.
    async fn forget_deleted(&self) -> io::Result<()> {
        self.app.catch_up_repositories().await?;
        for repository in self.app.repositories.all() {
            if self.is_stopped() {
                return Ok(());
            }
            let _changes = repository.lock_changes().await;
            let shared = Arc::clone(&repository);
            run(self.app, move || shared.forget_deleted()).await?;
        }
        Ok(())
    }

    async fn condemn_offers(&self) -> io::Result<()> {
        for (name, repository) in self.app.repositories.named() {
            let rows: Vec<Condemned> = repository.idle().iter().map(|digest| offer(&name, digest)).collect();
            for rows in rows.chunks(ROWS) {
                self.app.store.condemn(rows).await.map_err(unreachable)?;
            }
        }
        Ok(())
    }

    /// Condemns what nothing names here, and counts what there is.
    async fn condemn_bytes(&self, grace: Duration) -> io::Result<()> {
        let Some(objects) = self.app.blobs.objects().cloned() else { return Ok(()) };
        // A kindness to uploads under way, by the clocks of two machines: nothing relies on it.
        let before = SystemTime::now().checked_sub(grace).unwrap_or(SystemTime::UNIX_EPOCH);
        let app = Arc::clone(self.app);
        run(self.app, move || {
            let mut named = HashSet::new();
            for repository in app.repositories.all() {
                repository.each_offered(|digest| named.extend(prefix(digest)));
            }
            named.extend(app.traces.list().iter().filter_map(|(_, digest)| prefix(digest)));
            let condemn = |rows: &mut Vec<Condemned>| {
                let condemned = objects.runtime().block_on(app.store.condemn(rows)).map_err(unreachable);
                rows.clear();
                condemned
            };
            let (mut rows, mut blobs, mut held) = (Vec::new(), 0_u64, 0_u64);
            objects.each("blobs", |key, bytes, written| {
                let Some(digest) = blob_of_key(key) else { return Ok(()) };
                blobs += 1;
                held = held.saturating_add(bytes);
                let is_named = prefix(&digest).is_none_or(|prefix| named.contains(&prefix));
                if !is_named && written <= before {
                    rows.push(Condemned { digest: digest.to_string(), repository: String::new(), bytes });
                }
                if rows.len() < ROWS { Ok(()) } else { condemn(&mut rows) }
            })?;
            app.metrics.store_holds(blobs, held);
            condemn(&mut rows)
        })
        .await
    }

    /// Whether there may be more.
    async fn take_offers(&mut self, grace: Duration, said: &Arc<Said>) -> io::Result<bool> {
        let (by, app) = (Uuid::new_v4(), self.app);
        let age = grace.max(said.at.elapsed() + LEAST);
        let rows = app.store.take(by, Of::Offers, age, AT_ONCE).await.map_err(unreachable)?;
        if rows.is_empty() || self.is_stopped() {
            app.store.let_go(by).await.map_err(unreachable)?;
            return Ok(false);
        }
        let held = Arc::new(Held::new(app, by, rows.len()));
        // What was made to rely on it before it was taken.
        app.catch_up_repositories().await?;
        let mut by_name = HashMap::<RepositoryName, Vec<BlobDigest>>::new();
        for Condemned { digest, repository, .. } in &rows {
            if let (Ok(name), Ok(digest)) = (repository.parse(), digest.parse()) {
                by_name.entry(name).or_default().push(digest);
            }
        }
        for (name, digests) in by_name {
            let Some(repository) = app.repositories.get(&name).filter(|_| !said.unknown.contains(&name)) else {
                continue;
            };
            let _changes = repository.lock_changes().await;
            let (shared, blobs) = (Arc::clone(&repository), Arc::clone(&app.blobs));
            let held = Arc::clone(&held);
            let ceased = run(app, move || {
                let cease = |digest| held.may_go().and_then(|()| shared.cease(digest, &blobs));
                digests.iter().map(cease).collect::<io::Result<Vec<_>>>()
            })
            .await?;
            self.collected.manifests += ceased.iter().filter(|it| **it == Ceased::Manifest).count() as u64;
            self.collected.unlinked += ceased.iter().filter(|it| **it == Ceased::Blob).count() as u64;
        }
        app.store.let_go(by).await.map_err(unreachable)?;
        Ok(true)
    }

    /// As above.
    async fn take_bytes(&mut self, said: &Arc<Said>) -> io::Result<bool> {
        let (by, app) = (Uuid::new_v4(), self.app);
        let age = said.at.elapsed() + LEAST;
        let Some(facts) = app.repositories.facts().cloned().filter(|_| said.is_whole) else { return Ok(false) };
        let rows = app.store.take(by, Of::Bytes, age, AT_ONCE).await.map_err(unreachable)?;
        if rows.is_empty() || self.is_stopped() {
            app.store.let_go(by).await.map_err(unreachable)?;
            return Ok(false);
        }
        let held = Held::new(app, by, rows.len());
        app.catch_up_repositories().await?;
        let (shared, said) = (Arc::clone(app), Arc::clone(said));
        let (blobs, bytes) = run(app, move || {
            let in_traces: HashSet<BlobDigest> = shared.traces.list().into_iter().map(|(_, digest)| digest).collect();
            let repositories = shared.repositories.all();
            let (mut blobs, mut bytes) = (0, 0);
            for row in &rows {
                let Ok(digest) = row.digest.parse::<BlobDigest>() else { continue };
                let is_said = prefix(&digest).is_none_or(|prefix| said.named.contains(&prefix));
                if is_said || in_traces.contains(&digest) || repositories.iter().any(|it| it.needs(&digest)) {
                    continue;
                }
                held.may_go()?;
                facts.remove(&blob_key(&digest))?;
                shared.blobs.forget(&digest)?;
                blobs += 1;
                bytes += row.bytes;
            }
            Ok((blobs, bytes))
        })
        .await?;
        self.collected.blobs += blobs;
        self.collected.bytes += bytes;
        app.store.let_go(by).await.map_err(unreachable)?;
        Ok(true)
    }
}

fn offer(name: &RepositoryName, digest: &BlobDigest) -> Condemned {
    Condemned { digest: digest.to_string(), repository: name.to_string(), bytes: 0 }
}
