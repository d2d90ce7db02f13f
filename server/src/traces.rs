//! Which traces are here: `traces/<id>` holds the digest of the events' blob, memory holds the same.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use uuid::Uuid;

use crate::blobs::{BlobDigest, BlobDirectory, sweep_unfinished, write_file_atomically};
use crate::repositories::digest_of;
use crate::shared::Facts;

/// Of the data directory; keys of the facts begin with it too.
pub(crate) const FOLDER: &str = "traces";

/// The traces of the data directory.
#[derive(Debug)]
pub(crate) struct Traces {
    folder: PathBuf,
    facts: Option<Arc<Facts>>,
    by_id: RwLock<HashMap<Uuid, BlobDigest>>,
    incomplete: bool,
    /// Held while a trace is compared, recorded and made visible.
    pub(crate) changes: tokio::sync::Mutex<()>,
}

impl Traces {
    /// Reads what there is, in the data directory or in the object store.
    pub(crate) fn load(data: &Path, blobs: &BlobDirectory, facts: Option<Arc<Facts>>) -> io::Result<Self> {
        let folder = data.join(FOLDER);
        if let Some(facts) = facts {
            let mut by_id = HashMap::new();
            for (key, read) in facts.read_all(facts.keys(FOLDER)?)? {
                let id = key.strip_prefix(FOLDER).and_then(|rest| Uuid::try_parse(rest.strip_prefix('/')?).ok());
                let Some(id) = id else { continue };
                match read.and_then(|content| digest_of(&content).map_err(|error| error.to_string())) {
                    Ok(digest) => drop(by_id.insert(id, digest)),
                    Err(error) => tracing::error!(key, error, "the fact of a trace is damaged: the trace is left out"),
                }
            }
            let (by_id, changes) = (RwLock::new(by_id), tokio::sync::Mutex::default());
            return Ok(Self { folder, facts: Some(facts), by_id, incomplete: false, changes });
        }
        fs::create_dir_all(&folder)?;
        sweep_unfinished(&folder)?;
        let (mut by_id, mut incomplete) = (HashMap::new(), false);
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| Uuid::try_parse(name).ok()) else { continue };
            let digest = digest_of(&String::from_utf8_lossy(&fs::read(entry.path())?));
            incomplete |= digest.is_err();
            match digest {
                Ok(digest) if blobs.size(&digest)?.is_some() => drop(by_id.insert(id, digest)),
                _ => tracing::warn!(trace_id = %id, "the trace's events are missing and no longer offered"),
            }
        }
        Ok(Self { folder, facts: None, by_id: RwLock::new(by_id), incomplete, changes: tokio::sync::Mutex::default() })
    }

    /// A file names no blob that can be read: which one it was is not known.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// The blob of a trace's events.
    pub(crate) fn get(&self, id: Uuid) -> Option<BlobDigest> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Every trace.
    pub(crate) fn list(&self) -> Vec<(Uuid, BlobDigest)> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        by_id.iter().map(|(id, digest)| (*id, digest.clone())).collect()
    }

    /// Makes a stored blob the events of a trace. Blocks.
    pub(crate) fn set(&self, id: Uuid, digest: BlobDigest) -> io::Result<()> {
        match &self.facts {
            Some(facts) => facts.write(&format!("{FOLDER}/{id}"), &digest.to_string())?,
            None => write_file_atomically(&self.folder.join(id.to_string()), digest.to_string().as_bytes())?,
        }
        self.learn(id, digest);
        Ok(())
    }

    /// Takes over a trace that another server stored.
    pub(crate) fn learn(&self, id: Uuid, digest: BlobDigest) {
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).insert(id, digest);
    }
}
