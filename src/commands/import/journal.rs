//! What earlier runs have read, so that a file that has not changed is not read again.
//!
//! The journal is advice: a file counts as imported when the server says that it has it, whatever stands here.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use symseal_bundle::Digest;

/// What a file came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    path: String,
    /// Time of change and size of the file then.
    stamp: String,
    #[serde(flatten)]
    pub(super) kept: Kept,
    /// Its ids.
    pub(super) ids: Vec<String>,
}

/// How a server has a file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Kept {
    /// By this manifest.
    pub(super) manifest: Digest,
    /// The file itself: it may have been taken down, and the manifest not.
    pub(super) file: Digest,
}

/// The entries of earlier runs, and the file to which new ones are added.
#[derive(Debug)]
pub(super) struct Journal {
    known: HashMap<String, Entry>,
    file: Option<File>,
}

impl Journal {
    /// One that forgets.
    pub(super) fn none() -> Self {
        Self { known: HashMap::new(), file: None }
    }

    /// A line that a crash cut short is left out.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let named = || format!("journal {}", path.display());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(named)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path).with_context(named)?;
        let mut known = HashMap::new();
        let mut ends_with_line = true;
        let mut reader = BufReader::new(&file);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).with_context(named)? > 0 {
            ends_with_line = line.ends_with(b"\n");
            if let Ok(entry) = serde_json::from_slice::<Entry>(&line) {
                known.insert(entry.path.clone(), entry);
            }
            line.clear();
        }
        if !ends_with_line {
            file.write_all(b"\n").with_context(named)?;
        }
        Ok(Self { known, file: Some(file) })
    }

    /// What is known of a file that has not changed.
    pub(super) fn find(&self, path: &str, stamp: &str) -> Option<&Entry> {
        self.known.get(path).filter(|entry| entry.stamp == stamp)
    }

    /// Notes what a server has. One line by one write, so that another run's lines do not mix with it.
    pub(super) fn add(&mut self, path: &str, stamp: &str, kept: Kept, ids: &[String]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let entry = Entry { path: path.to_owned(), stamp: stamp.to_owned(), kept, ids: ids.to_vec() };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        file.write_all(&line).context("journal")
    }

    /// Where the journal of a store and a server is kept.
    pub(super) fn default_path(data: &Path, store: &Path, server: &str, repository: &str) -> PathBuf {
        let what = format!("{}\n{server}\n{repository}", store.display());
        data.join("import").join(format!("{}.jsonl", Digest::of(what.as_bytes()).hex()))
    }
}
