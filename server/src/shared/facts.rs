//! Facts: small objects whose presence or content says what a repository offers, and which traces there are.
//!
//! A fact is written to the object store, then told to the other servers through the database, and counts only then: where the
//! second step fails the client is told to try again, and trying again does both.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use crate::objects::Objects;
use crate::store::{ChangeRow, Store, StoreError};

/// The largest fact, in bytes: media types and digests are far smaller.
pub(crate) const FACT_LIMIT: u64 = 4096;

/// The facts of an object store. Every method blocks.
#[derive(Debug)]
pub(crate) struct Facts {
    objects: Arc<Objects>,
    /// `None` for those who only read.
    store: Option<Arc<dyn Store>>,
}

impl Facts {
    pub(crate) fn new(objects: Arc<Objects>, store: Arc<dyn Store>) -> Self {
        Self { objects, store: Some(store) }
    }

    /// For those who only read.
    pub(crate) fn reader(objects: Arc<Objects>) -> Self {
        Self { objects, store: None }
    }

    /// Writes a fact in place of what its key said before.
    pub(crate) fn write(&self, key: &str, content: &str) -> io::Result<()> {
        self.objects.put(key, content.as_bytes().to_vec())?;
        self.tell(key, false)
    }

    /// Removes a fact, which may be gone already.
    pub(crate) fn remove(&self, key: &str) -> io::Result<()> {
        self.objects.delete(key)?;
        self.tell(key, true)
    }

    /// Tells of a fact that is gone, where whoever removed it may not have come to that.
    pub(crate) fn tell_if_gone(&self, key: &str) -> io::Result<()> {
        if self.has(key)? { Ok(()) } else { self.tell(key, true) }
    }

    fn tell(&self, key: &str, is_removed: bool) -> io::Result<()> {
        let Some(store) = &self.store else { return Err(io::ErrorKind::ReadOnlyFilesystem.into()) };
        let change = ChangeRow { key: key.to_owned(), is_removed };
        self.objects.runtime().block_on(store.put_change(&change)).map_err(unreachable)
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
