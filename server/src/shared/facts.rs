//! Facts: small objects whose presence or content says what a repository offers, and which traces there are.
//!
//! A fact is announced in the database, written to the object store, and then told to the other servers through the database; it counts only then. Where
//! the first step fails nothing has changed. After it, whatever happens, the announcement stays until somebody has told what became of the fact: this
//! server tries to, and the others do where it is gone (`intents`).

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::clock::Moment;
use crate::objects::Objects;
use crate::store::{ChangeRow, Intent, Store, StoreError};

/// The largest fact, in bytes: media types and digests are far smaller.
pub(crate) const FACT_LIMIT: u64 = 4096;

/// A request to the object store begins this soon after it was announced, or not at all: others take its writer for gone later (`intents`), and later than
/// whoever collects last said that it does (`collection`).
const FRESH: Duration = Duration::from_secs(5);

/// Facts announced at once.
const AT_ONCE: usize = 32;

/// What is told once more by this server; the others tell of what is beyond.
const TOLD_AGAIN: usize = 1000;

/// The facts of an object store. Every method blocks.
#[derive(Debug)]
pub(crate) struct Facts {
    objects: Arc<Objects>,
    /// `None` for those who only read.
    store: Option<Arc<dyn Store>>,
    /// What the database would not take when it was told that it is done.
    untold: Mutex<Vec<(Uuid, Vec<ChangeRow>)>>,
}

impl Facts {
    pub(crate) fn new(objects: Arc<Objects>, store: Arc<dyn Store>) -> Self {
        Self { objects, store: Some(store), untold: Mutex::default() }
    }

    /// For those who only read.
    pub(crate) fn reader(objects: Arc<Objects>) -> Self {
        Self { objects, store: None, untold: Mutex::default() }
    }

    /// Writes a fact in place of what its key said before.
    pub(crate) fn write(&self, key: &str, content: &str) -> io::Result<()> {
        self.change(&[key.to_owned()], false, |key| self.objects.put(key, content.as_bytes().to_vec()))
    }

    /// Removes a fact, which may be gone already.
    pub(crate) fn remove(&self, key: &str) -> io::Result<()> {
        self.remove_all(&[key.to_owned()])
    }

    /// [`Self::remove`] for several.
    pub(crate) fn remove_all(&self, keys: &[String]) -> io::Result<()> {
        keys.chunks(AT_ONCE).try_for_each(|keys| self.change(keys, true, |key| self.objects.delete(key)))
    }

    /// Tells of a fact that is gone, where whoever removed it may not have come to that.
    pub(crate) fn tell_if_gone(&self, key: &str) -> io::Result<()> {
        if self.has(key)? { Ok(()) } else { self.tell(&[ChangeRow { key: key.to_owned(), is_removed: true }], &[]) }
    }

    /// Looks what became of facts, and tells of it; with that intents are settled.
    pub(crate) fn tell_what_is(&self, keys: HashSet<String>, settled: &[Uuid]) -> io::Result<()> {
        let there = self.among(keys.clone())?;
        let change = |key: String| ChangeRow { is_removed: !there.contains(&key), key };
        let changes: Vec<ChangeRow> = keys.into_iter().map(change).collect();
        self.tell(&changes, settled)
    }

    /// Tells what the database would not take before.
    pub(crate) fn tell_again(&self) -> io::Result<()> {
        let untold = self.untold().clone();
        let mut refused = Ok(());
        for (id, changes) in untold {
            // It may have been taken, without an answer: told twice is as good as once.
            match self.objects.runtime().block_on(self.store()?.put_changes(&changes, &[id])) {
                Ok(()) => self.untold().retain(|(untold, _)| *untold != id),
                // The next one may be taken.
                Err(error @ StoreError::Failed(_)) => refused = Err(unreachable(error)),
                Err(error) => return Err(unreachable(error)),
            }
        }
        refused
    }

    fn change(&self, keys: &[String], is_removed: bool, act: impl Fn(&str) -> io::Result<()>) -> io::Result<()> {
        let intent = Intent { id: Uuid::new_v4(), keys: keys.to_vec() };
        let announced = Moment::now();
        self.objects.runtime().block_on(self.store()?.intend(&intent)).map_err(unreachable)?;
        for key in keys {
            if announced.elapsed() > FRESH {
                let problem = "what was to be changed took too long to begin: try again";
                return Err(io::Error::new(io::ErrorKind::HostUnreachable, problem));
            }
            // What fails may be done all the same, now or soon.
            act(key)?;
        }
        let changes: Vec<ChangeRow> = keys.iter().map(|key| ChangeRow { key: key.clone(), is_removed }).collect();
        let told = self.tell(&changes, &[intent.id]);
        if told.is_err() {
            let mut untold = self.untold();
            if untold.len() < TOLD_AGAIN {
                untold.push((intent.id, changes));
            }
        }
        told
    }

    fn tell(&self, changes: &[ChangeRow], settled: &[Uuid]) -> io::Result<()> {
        let told = self.objects.runtime().block_on(self.store()?.put_changes(changes, settled));
        told.map_err(|error| match error {
            // Whatever the reason: it is done, and whoever tries again will find it so.
            StoreError::Failed(_) => io::Error::new(io::ErrorKind::HostUnreachable, error),
            error => unreachable(error),
        })
    }

    fn store(&self) -> io::Result<&Arc<dyn Store>> {
        self.store.as_ref().ok_or_else(|| io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn untold(&self) -> std::sync::MutexGuard<'_, Vec<(Uuid, Vec<ChangeRow>)>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a key says now; `None` where it says nothing.
    pub(crate) fn read(&self, key: &str) -> io::Result<Option<String>> {
        let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        self.read_bytes(key)?.map(|bytes| String::from_utf8(bytes).map_err(damaged)).transpose()
    }

    /// [`Self::read`] of what may be no text.
    pub(crate) fn read_bytes(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.objects.get(key, FACT_LIMIT)
    }

    /// Whether there is a fact of this key.
    pub(crate) fn has(&self, key: &str) -> io::Result<bool> {
        Ok(self.objects.size(key)?.is_some())
    }

    /// Those of some keys that say something now.
    pub(crate) fn among(&self, keys: HashSet<String>) -> io::Result<HashSet<String>> {
        self.objects.among(keys)
    }

    /// Where they are.
    pub(crate) fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    /// When a fact was written.
    pub(crate) fn written(&self, key: &str) -> io::Result<Option<SystemTime>> {
        self.objects.modified(key)
    }

    /// The keys of all facts below a folder.
    pub(crate) fn keys(&self, folder: &str) -> io::Result<Vec<String>> {
        Ok(self.objects.list(folder)?.into_iter().map(|(key, _)| key).collect())
    }

    /// The keys of all facts below a folder, each with a text that changes when it is written again.
    pub(crate) fn stamps(&self, folder: &str) -> io::Result<Vec<(String, String)>> {
        self.objects.stamps(folder)
    }

    /// What many keys say, or why one of them can be no fact. Those that say nothing are left out.
    pub(crate) fn read_all(&self, keys: Vec<String>) -> io::Result<Vec<(String, Result<String, String>)>> {
        let found = self.objects.get_all(keys, FACT_LIMIT)?;
        let text = |read: Result<Vec<u8>, String>| String::from_utf8(read?).map_err(|error| error.to_string());
        Ok(found.into_iter().map(|(key, read)| (key, text(read))).collect())
    }
}

/// A database that is away is answered as an object store that is.
pub(crate) fn unreachable(error: StoreError) -> io::Error {
    match error {
        StoreError::Full(_) => io::Error::new(io::ErrorKind::StorageFull, error),
        StoreError::Away(_) => io::Error::new(io::ErrorKind::HostUnreachable, error),
        StoreError::Failed(_) => io::Error::other(error),
    }
}
