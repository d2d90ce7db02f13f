//! Uploads whose requests come to different servers.
//!
//! A session is a name that any of the servers can check: half of it is random, half is a seal over that and the repository's
//! name by a key that the servers' database keeps. What a request brought is an object `uploads/<session>/<offset>`; the
//! request that ends the session puts the parts together. That it has ended is a row in the servers' database, for a day.
//! The digest of the whole decides, so that two requests that write to one session at once can spoil it and nothing else.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ring::hmac;
use uuid::Uuid;

use crate::blobs::ABANDONED_AFTER;
use crate::objects::Objects;
use crate::repositories::RepositoryName;
use crate::store::{Store, StoreError, hmac_key};

/// The name of the key in the database.
const KEY_NAME: &str = "upload-key";

/// Where parts are.
const FOLDER: &str = "uploads";

/// Digits of an offset in a key, so that keys are ordered as offsets are.
const OFFSET_DIGITS: usize = 20;

/// The parts of unfinished uploads.
pub(crate) struct Parts {
    objects: Arc<Objects>,
    key: hmac::Key,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("objects", &self.objects).finish_non_exhaustive()
    }
}

/// A part of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    key: String,
    offset: u64,
    size: u64,
}

impl Parts {
    pub(crate) async fn new(objects: Arc<Objects>, store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self { objects, key: hmac_key(store, KEY_NAME).await? })
    }

    /// A new session in a repository.
    pub(crate) fn session(&self, name: &RepositoryName) -> Uuid {
        let (random, _) = Uuid::new_v4().as_u64_pair();
        self.sealed(name, random)
    }

    /// Whether a session is one of a repository.
    pub(crate) fn is_session(&self, name: &RepositoryName, session: Uuid) -> bool {
        let (random, _) = session.as_u64_pair();
        self.sealed(name, random) == session
    }

    fn sealed(&self, name: &RepositoryName, random: u64) -> Uuid {
        let mut text = random.to_be_bytes().to_vec();
        text.extend_from_slice(name.as_str().as_bytes());
        let seal = hmac::sign(&self.key, &text);
        let seal = seal.as_ref().iter().take(8).fold(0_u64, |seal, byte| seal << 8 | u64::from(*byte));
        Uuid::from_u64_pair(random, seal)
    }

    /// What has come of a session, in order; its end is the last one's. Blocks.
    pub(crate) fn of(&self, session: Uuid) -> io::Result<Vec<Part>> {
        let folder = folder(session);
        let objects = self.objects.list(&folder)?;
        let mut parts: Vec<Part> = objects
            .into_iter()
            .filter_map(|(key, size)| {
                let offset = key.strip_prefix(&folder)?.strip_prefix('/')?.parse().ok()?;
                Some(Part { key, offset, size })
            })
            .collect();
        parts.sort_by_key(|part| part.offset);
        Ok(contiguous(parts))
    }

    /// Keeps a file as the part at an offset. Blocks.
    pub(crate) fn put(&self, session: Uuid, offset: u64, file: &Path) -> io::Result<()> {
        self.objects.put_file(&format!("{}/{offset:0OFFSET_DIGITS$}", folder(session)), file)
    }

    /// Gives the bytes of a part to `take`. Blocks.
    pub(crate) fn read(&self, part: &Part, take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if self.objects.read(&part.key, take)? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is gone: upload it again", part.key)))
    }

    /// Removes the parts of the sessions to which nothing came for a day, by the object store's own clock and this server's; how many sessions
    /// there were. Blocks.
    pub(crate) fn expire(&self) -> io::Result<u64> {
        let before = SystemTime::now().checked_sub(ABANDONED_AFTER).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut sessions = HashMap::<Uuid, SystemTime>::new();
        self.objects.each(FOLDER, |key, _, written| {
            let session = key.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/')?.split('/').next());
            if let Some(session) = session.and_then(|session| Uuid::try_parse(session).ok()) {
                let last = sessions.entry(session).or_insert(written);
                *last = written.max(*last);
            }
            Ok(())
        })?;
        let mut expired = 0;
        for (session, _) in sessions.into_iter().filter(|(_, last)| *last < before) {
            self.remove(session)?;
            expired += 1;
        }
        Ok(expired)
    }

    /// Removes the parts of a session. Blocks.
    pub(crate) fn remove(&self, session: Uuid) -> io::Result<()> {
        self.objects.list(&folder(session))?.iter().try_for_each(|(key, _)| self.objects.delete(key))
    }
}

/// Where parts end.
pub(crate) fn end(parts: &[Part]) -> u64 {
    parts.last().map_or(0, |part| part.offset.saturating_add(part.size))
}

/// The parts up to the first gap. One that begins within another is from a request that was tried again.
fn contiguous(parts: Vec<Part>) -> Vec<Part> {
    let mut chain = Vec::<Part>::new();
    for part in parts {
        if part.offset == end(&chain) && part.size > 0 {
            chain.push(part);
        }
    }
    chain
}

fn folder(session: Uuid) -> String {
    format!("{FOLDER}/{session}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, size: u64) -> Part {
        Part { key: offset.to_string(), offset, size }
    }

    #[test]
    fn parts_count_up_to_the_first_gap() {
        assert_eq!(end(&contiguous(vec![part(0, 5), part(5, 7)])), 12);
        assert_eq!(end(&contiguous(vec![part(0, 5), part(6, 7)])), 5);
        assert_eq!(end(&contiguous(vec![part(1, 5)])), 0);
        assert_eq!(end(&contiguous(vec![part(0, 9), part(5, 7), part(9, 1)])), 10);
        assert_eq!(end(&[]), 0);
    }
}
