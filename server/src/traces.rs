//! Which traces are here: `traces/<id>` holds the digest of the events' blob, memory holds the same.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use uuid::Uuid;

use crate::blobs::{BlobDigest, BlobDirectory, write_file_atomically};

/// The traces of the data directory.
#[derive(Debug)]
pub(crate) struct Traces {
    folder: PathBuf,
    by_id: RwLock<HashMap<Uuid, BlobDigest>>,
    incomplete: bool,
    /// Held while a trace is compared, recorded and made visible.
    pub(crate) changes: tokio::sync::Mutex<()>,
}

impl Traces {
    /// Reads what there is.
    pub(crate) fn load(data: &Path, blobs: &BlobDirectory) -> io::Result<Self> {
        let folder = data.join("traces");
        fs::create_dir_all(&folder)?;
        let (mut by_id, mut incomplete) = (HashMap::new(), false);
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| Uuid::try_parse(name).ok()) else { continue };
            let text = fs::read_to_string(entry.path())?;
            let digest = text.trim().parse::<BlobDigest>();
            incomplete |= digest.is_err();
            match digest {
                Ok(digest) if blobs.size(&digest)?.is_some() => drop(by_id.insert(id, digest)),
                _ => tracing::warn!(trace_id = %id, "the trace's events are missing and no longer offered"),
            }
        }
        Ok(Self { folder, by_id: RwLock::new(by_id), incomplete, changes: tokio::sync::Mutex::default() })
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
        write_file_atomically(&self.folder.join(id.to_string()), digest.to_string().as_bytes())?;
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).insert(id, digest);
        Ok(())
    }
}
