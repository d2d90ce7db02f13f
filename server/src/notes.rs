//! What an operator notes about a digest: that a bundle stays (a pin), or that something was taken down (a tombstone).
//!
//! A note is a small fact beside those of the repositories, `<folder>/<algorithm>/<hex>`, as a file of the data directory or as an object. So it is
//! copied with them, and a record that is made again from the store has it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::blobs::{Algorithm, BlobDigest, kind_of, sync_directory, write_file_atomically};
use crate::shared::{FACT_LIMIT, Facts};
use crate::{Config, ServerError, opened, store, store_id};

/// The folder of pins, and the beginning of their keys.
pub(crate) const PINS: &str = "pins";

/// What is noted about a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// When, in UTC (RFC 3339).
    pub at: String,
    /// Why.
    pub reason: String,
    /// Who noted it, as far as is known: a user of the machine.
    pub by: String,
}

/// The longest note, in bytes, as it is stored.
const NOTE_LIMIT: usize = FACT_LIMIT as usize;

/// By what a note that was replaced is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp(String);

/// The notes of a folder. Every method blocks.
#[derive(Debug)]
pub(crate) struct Notes {
    folder: &'static str,
    root: PathBuf,
    facts: Option<Arc<Facts>>,
}

impl Notes {
    /// The notes of a data directory, or of the object store that it is a cache of.
    pub(crate) fn new(folder: &'static str, data: &Path, facts: Option<Arc<Facts>>) -> Self {
        Self { folder, root: data.join(folder), facts }
    }

    /// Whether they are kept in an object store.
    pub(crate) fn are_objects(&self) -> bool {
        self.facts.is_some()
    }

    /// What is noted about a digest.
    pub(crate) fn get(&self, digest: &BlobDigest) -> io::Result<Option<Note>> {
        let Some(facts) = &self.facts else { return self.read(digest) };
        let key = self.key(digest);
        let bytes = match facts.read_bytes(&key)? {
            // One answer is no proof of an absence.
            None if facts.has(&key)? => match facts.read_bytes(&key)? {
                None => return Ok(Some(unread("the object store has it, and does not give it"))),
                bytes => bytes,
            },
            bytes => bytes,
        };
        Ok(bytes.map(|bytes| note(&bytes)))
    }

    /// The note in a file. One that is there and that nobody lets this server read is a note all the same.
    fn read(&self, digest: &BlobDigest) -> io::Result<Option<Note>> {
        let path = self.path(digest);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(note(&bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => match fs::symlink_metadata(&path) {
                Ok(_) => {
                    let problem = format!("{}: {error}", path.display());
                    tracing::warn!(problem, "a note cannot be read: it holds all the same");
                    Ok(Some(unread(&problem)))
                }
                Err(_) => Err(at(&path, &error)),
            },
        }
    }

    /// Notes something, in place of what was noted before.
    pub(crate) fn put(&self, digest: &BlobDigest, note: &Note) -> io::Result<()> {
        let text = serde_json::to_string(note)?;
        if text.len() > NOTE_LIMIT {
            let problem = format!(
                "the note about {digest} has {} bytes, expected at most {NOTE_LIMIT}: give a shorter reason",
                text.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        match &self.facts {
            Some(facts) => facts.write(&self.key(digest), &text),
            None => write_file_atomically(&self.path(digest), text.as_bytes()),
        }
    }

    /// Removes what is noted; whether there was anything.
    pub(crate) fn remove(&self, digest: &BlobDigest) -> io::Result<bool> {
        if let Some(facts) = &self.facts {
            let is_there = facts.has(&self.key(digest))?;
            facts.remove(&self.key(digest))?;
            return Ok(is_there);
        }
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => {
                removed?;
                path.parent().map_or(Ok(()), sync_directory)?;
                Ok(true)
            }
        }
    }

    /// By what the notes that there are would be seen to have changed.
    pub(crate) fn stamps(&self) -> io::Result<BTreeMap<BlobDigest, Stamp>> {
        if let Some(facts) = &self.facts {
            let stamps = facts.stamps(self.folder)?.into_iter();
            return Ok(stamps.filter_map(|(key, stamp)| Some((digest_of(self.folder, &key)?, Stamp(stamp)))).collect());
        }
        let mut found = BTreeMap::new();
        for algorithm in Algorithm::ALL {
            let folder = self.root.join(algorithm.name());
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(|error| at(&folder, &error))?,
            };
            for entry in entries {
                let entry = entry.map_err(|error| at(&folder, &error))?;
                // Other names are what a crash left before its rename.
                let name = entry.file_name();
                let digest = name.to_str().and_then(|hex| format!("{}:{hex}", algorithm.name()).parse().ok());
                let Some(digest) = digest else { continue };
                match entry.metadata() {
                    // Lifted meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    // A note is replaced by another file, and one that could not be read is given to this server.
                    metadata => {
                        let metadata = metadata.map_err(|error| at(&entry.path(), &error))?;
                        let stamp = format!("{}-{}-{}", metadata.ino(), metadata.ctime(), metadata.ctime_nsec());
                        found.insert(digest, Stamp(stamp));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Everything that is noted.
    pub(crate) fn all(&self) -> io::Result<BTreeMap<BlobDigest, Note>> {
        let digests = self.stamps()?.into_keys();
        if let Some(facts) = &self.facts {
            let digests: Vec<BlobDigest> = digests.collect();
            let found = facts.read_all(digests.iter().map(|digest| self.key(digest)).collect())?.into_iter();
            let noted = |read: Result<String, String>| {
                read.map_or_else(|problem| unread(&problem), |text| note(text.as_bytes()))
            };
            let read = found.filter_map(|(key, read)| Some((digest_of(self.folder, &key)?, noted(read))));
            let mut read: BTreeMap<BlobDigest, Note> = read.collect();
            for digest in digests {
                if !read.contains_key(&digest)
                    && let Some(note) = self.get(&digest)?
                {
                    read.insert(digest, note);
                }
            }
            return Ok(read);
        }
        let mut found = BTreeMap::new();
        for digest in digests {
            if let Some(note) = self.get(&digest)? {
                found.insert(digest, note);
            }
        }
        Ok(found)
    }

    fn path(&self, digest: &BlobDigest) -> PathBuf {
        self.root.join(digest.algorithm().name()).join(digest.hex())
    }

    fn key(&self, digest: &BlobDigest) -> String {
        format!("{}/{}/{}", self.folder, digest.algorithm().name(), digest.hex())
    }
}

/// The digest that a key is about; `None` for a key of another folder.
pub(crate) fn digest_of(folder: &str, key: &str) -> Option<BlobDigest> {
    let rest = key.strip_prefix(folder)?.strip_prefix('/')?;
    rest.replacen('/', ":", 1).parse().ok()
}

/// A note that cannot be read is one all the same: what somebody wanted kept, or gone, is not lost to a damaged file.
fn note(bytes: &[u8]) -> Note {
    serde_json::from_slice(bytes).unwrap_or_else(|error| unread(&error.to_string()))
}

/// What went wrong, and where.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(kind_of(error), format!("{}: {error}", path.display()))
}

fn unread(problem: &str) -> Note {
    Note { at: String::new(), reason: format!("the note cannot be read: {problem}"), by: String::new() }
}

/// The pins of a store, for an operator.
#[derive(Debug)]
pub struct Pins(pub(crate) OperatorNotes);

/// The notes of a store, and whether its blobs are here.
#[derive(Debug)]
pub(crate) struct OperatorNotes {
    notes: Arc<Notes>,
    config: Config,
}

impl OperatorNotes {
    pub(crate) async fn open(folder: &'static str, config: &Config) -> Result<Self, ServerError> {
        let facts = match &config.blobs {
            Some(behind) => {
                if config.database.is_none() {
                    let failed = |source| ServerError::Data { path: config.data.clone(), source };
                    opened::make_data(&config.data).map_err(failed)?;
                }
                let store = store::open(&config.data, config.database.as_ref()).await?;
                let objects = opened::objects_of(behind)?;
                store_id::check(config, &store, Some(&objects)).await?;
                Some(Arc::new(Facts::new(objects, store)))
            }
            None => None,
        };
        Ok(Self { notes: Arc::new(Notes::new(folder, &config.data, facts)), config: config.clone() })
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Notes) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ServerError> {
        let notes = Arc::clone(&self.notes);
        let done = tokio::task::spawn_blocking(move || act(&notes)).await.map_err(io::Error::other).flatten();
        done.map_err(|source| ServerError::Data { path: self.config.data.join(self.notes.folder), source })
    }

    /// Everything that is noted, by digest.
    pub(crate) async fn all(&self) -> Result<BTreeMap<String, Note>, ServerError> {
        let all = self.run(Notes::all).await?;
        Ok(all.into_iter().map(|(digest, note)| (digest.to_string(), note)).collect())
    }

    /// Whether the bytes of a digest are here.
    pub(crate) async fn has_blob(&self, digest: &str) -> Result<bool, ServerError> {
        let digest = parse(digest)?;
        let objects = self.config.blobs.as_ref().map(opened::objects_of).transpose()?;
        let data = self.config.data.clone();
        self.run(move |_| match objects {
            Some(objects) => {
                let (algorithm, hex) = (digest.algorithm().name(), digest.hex());
                Ok(objects.size(&format!("blobs/{algorithm}/{}/{hex}", digest.shard()))?.is_some())
            }
            None => Ok(crate::blobs::BlobDirectory::existing(&data).size(&digest)?.is_some()),
        })
        .await
    }
}

/// A digest that an operator wrote.
pub(crate) fn parse(digest: &str) -> Result<BlobDigest, ServerError> {
    digest.parse().map_err(|source| ServerError::Digest { text: digest.to_owned(), source: Box::new(source) })
}

impl Pins {
    /// The pins of a data directory, or of the object store that it is a cache of. Servers may run beside.
    ///
    /// # Errors
    /// [`ServerError`]: the database or the object store cannot be used.
    pub fn open(config: &Config) -> BoxFuture<'_, Result<Self, ServerError>> {
        Box::pin(async { Ok(Self(OperatorNotes::open(PINS, config).await?)) })
    }

    /// Keeps a bundle, or a loose file, from retention and from deletion. `false` where its bytes are not here.
    ///
    /// # Errors
    /// [`ServerError`]: no digest, or a place that cannot be written.
    pub fn pin<'a>(&'a self, digest: &'a str, note: Note) -> BoxFuture<'a, Result<bool, ServerError>> {
        Box::pin(async move {
            if !self.0.has_blob(digest).await? {
                return Ok(false);
            }
            let digest = parse(digest)?;
            self.0.run(move |notes| notes.put(&digest, &note)).await?;
            Ok(true)
        })
    }

    /// Lets it go. `false` where there was no pin.
    ///
    /// # Errors
    /// [`ServerError`]: no digest, or a place that cannot be written.
    pub fn unpin<'a>(&'a self, digest: &'a str) -> BoxFuture<'a, Result<bool, ServerError>> {
        Box::pin(async move {
            let digest = parse(digest)?;
            self.0.run(move |notes| notes.remove(&digest)).await
        })
    }

    /// Every pin, by digest.
    ///
    /// # Errors
    /// [`ServerError`]: a place that cannot be read.
    pub fn list(&self) -> BoxFuture<'_, Result<BTreeMap<String, Note>, ServerError>> {
        Box::pin(self.0.all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_a_damaged_one_still_counts() {
        let data = tempfile::tempdir().unwrap();
        let notes = Notes::new(PINS, data.path(), None);
        let [one, other] = [b"1", b"2"].map(|bytes| BlobDigest::of(bytes));
        assert!(notes.all().unwrap().is_empty() && !notes.remove(&one).unwrap());
        let note = Note { at: "2026-01-02T03:04:05Z".into(), reason: "long support \"é\"".into(), by: "me".into() };
        notes.put(&one, &note).unwrap();
        assert_eq!(notes.get(&one).unwrap(), Some(note.clone()));
        assert_eq!(notes.get(&other).unwrap(), None);
        let before = notes.stamps().unwrap();
        assert_eq!(notes.stamps().unwrap(), before);
        notes.put(&one, &Note { reason: "longer support".into(), ..note.clone() }).unwrap();
        assert_ne!(notes.stamps().unwrap(), before, "it was replaced");
        let long = Note { reason: "x".repeat(NOTE_LIMIT), ..note };
        assert!(notes.put(&one, &long).unwrap_err().to_string().contains("shorter reason"));
        fs::write(data.path().join(PINS).join("sha256").join(other.hex()), [b'{', 0xff]).unwrap();
        fs::write(data.path().join(PINS).join("sha256/.new123"), "").unwrap();
        assert!(notes.get(&other).unwrap().unwrap().reason.contains("cannot be read"));
        assert_eq!(notes.all().unwrap().len(), 2);
        assert!(notes.remove(&one).unwrap() && !notes.remove(&one).unwrap());
        assert_eq!(digest_of(PINS, &notes.key(&one)), Some(one));
        for key in ["pins/sha256/..", "pins/", "pinsx/sha256/00", "tombstones/sha256/00", ""] {
            assert_eq!(digest_of(PINS, key), None, "{key}");
        }
    }
}
