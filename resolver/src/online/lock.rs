//! `symbols.lock`: which bytes servers gave for which module, so that a run can be repeated with the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use symseal_bundle::Digest;
use symseal_module::{DebugId, MissReason};

use super::cache::{read_regular, write_whole};
use crate::{WantedFile, WantedKind};

/// The largest lock file that is read, in bytes: several hundred thousand files.
const BYTES: u64 = 64 << 20;

/// So long is waited for another process that writes, and so long between two looks.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(20);

/// What a lock allows beyond what it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// What it does not name is fetched, and noted.
    Extend,
    /// What it does not name is not fetched.
    Frozen,
}

/// A lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    files: BTreeMap<String, Entry>,
    mode: LockMode,
}

/// What is pinned of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Null where no file came that counted.
    sha256: Option<Digest>,
    /// Why none came, where servers said anything else than that they have none: one failed, or gave the wrong file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<MissReason>,
    /// Where it came from; not compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    from: String,
}

impl Entry {
    /// How much is pinned; what is pinned more firmly stays.
    fn rank(&self) -> u8 {
        match self {
            Self { sha256: Some(_), .. } => 2,
            Self { reason: None, .. } => 1,
            Self { reason: Some(_), .. } => 0,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    files: BTreeMap<String, Entry>,
}

/// A lock file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It is none.
    #[error("{path}: expected a lock file of version 1 as symseal writes it: {problem}; remove it to begin anew")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// Another process pinned other bytes at the same time.
    #[error("{path}: another run pinned other bytes of {key} meanwhile; run it again, with what stands there now")]
    Differs {
        /// The file.
        path: String,
        /// Kind and id.
        key: String,
    },
}

/// What a lock says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pinned {
    /// These bytes.
    File(Digest),
    /// No file came, for this reason.
    None(MissReason),
    /// Nothing, and nothing else is taken.
    Unknown,
    /// Nothing: it is fetched and noted.
    Free,
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// One after the other, where folders can be locked. Others hold it for as long as a small file takes.
fn lock_folder(folder: &Path) -> io::Result<Option<fs::File>> {
    let Ok(file) = fs::File::open(folder) else { return Ok(None) };
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) if start.elapsed() < PATIENCE => std::thread::sleep(AGAIN),
            Err(fs::TryLockError::WouldBlock) => {
                let why = format!(
                    "another program has held a lock on {} for {PATIENCE:?}; end it, or name a file elsewhere",
                    folder.display()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            // Not every file system knows locks.
            Err(fs::TryLockError::Error(_)) => return Ok(None),
        }
    }
}

impl Lock {
    /// Reads a lock file; an empty one where there is none, unless it is frozen.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn read(path: &Path, mode: LockMode) -> Result<Self, LockError> {
        let name = path.display().to_string();
        let bytes = match read_regular(path, BYTES) {
            // Where it is to be written is known before anything is fetched.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && mode == LockMode::Extend && folder_of(path).is_dir() =>
            {
                return Ok(Self { files: BTreeMap::new(), mode });
            }
            Err(source) => return Err(LockError::Io { path: name, source }),
            Ok(bytes) => bytes,
        };
        let parsed: Result<Document, _> = serde_json::from_slice(&bytes);
        let document =
            parsed.map_err(|error| LockError::Malformed { path: name.clone(), problem: error.to_string() })?;
        if document.version != 1 {
            let problem = format!("found version {}", document.version);
            return Err(LockError::Malformed { path: name, problem });
        }
        Ok(Self { files: document.files, mode })
    }

    /// Adds it to what is there by now, as other processes may have written as well. It is seen whole or not at all.
    ///
    /// # Errors
    /// [`LockError::Io`]; [`LockError::Malformed`] where what is there is no lock file; [`LockError::Differs`] where it pins other bytes.
    pub fn write(&self, path: &Path) -> Result<(), LockError> {
        let name = || path.display().to_string();
        let fail = |source| LockError::Io { path: name(), source };
        // A link leads to the file that is written.
        let real = fs::canonicalize(path);
        let path = real.as_deref().unwrap_or(path);
        let folder = folder_of(path);
        let folder_lock = lock_folder(folder).map_err(fail)?;
        let mut files = Self::read(path, LockMode::Extend)?.files;
        for (key, entry) in &self.files {
            match files.get(key) {
                Some(Entry { sha256: Some(known), .. }) if entry.sha256.is_some_and(|ours| ours != *known) => {
                    return Err(LockError::Differs { path: name(), key: key.clone() });
                }
                // Somebody had it after all.
                Some(known) if known.rank() > entry.rank() => {}
                _ => drop(files.insert(key.clone(), entry.clone())),
            }
        }
        let document = serde_json::to_vec_pretty(&Document { version: 1, files });
        let mut text = document.map_err(|error| fail(io::Error::other(error)))?;
        text.push(b'\n');
        let written = write_whole(folder, path, &text).map_err(fail);
        drop(folder_lock);
        written
    }

    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(super) fn pinned(&self, wanted: &WantedFile<'_>) -> Pinned {
        let noted = self.files.get(&key(wanted)).or_else(|| self.files.get(&key_of_absent(wanted)));
        match (noted, self.mode) {
            (Some(Entry { sha256: Some(digest), .. }), _) => Pinned::File(*digest),
            (Some(Entry { reason: None, .. }), _) => Pinned::None(MissReason::ServerMiss),
            // What failed may come another time; who repeats a run is told what was told then.
            (Some(Entry { reason: Some(reason), .. }), LockMode::Frozen) => Pinned::None(*reason),
            (Some(Entry { reason: Some(_), .. }), LockMode::Extend) => Pinned::Free,
            (None, LockMode::Frozen) => Pinned::Unknown,
            (None, LockMode::Extend) => Pinned::Free,
        }
    }

    /// Notes the bytes that came, and from where.
    pub(super) fn note(&mut self, wanted: &WantedFile<'_>, sha256: Digest, from: &str) {
        // What was said before of any name is overtaken.
        self.files.remove(&key_of_absent(wanted));
        self.files.insert(key(wanted), Entry { sha256: Some(sha256), reason: None, from: from.to_owned() });
    }

    /// Notes that none came, and why.
    pub(super) fn note_none(&mut self, wanted: &WantedFile<'_>, reason: MissReason) {
        let reason = Some(reason).filter(|reason| *reason != MissReason::ServerMiss);
        self.files.insert(key_of_absent(wanted), Entry { sha256: None, reason, from: String::new() });
    }
}

/// The same with the name by which it was asked for: a symbol server that has none under one name may have it under another.
fn key_of_absent(wanted: &WantedFile<'_>) -> String {
    match (wanted.id, wanted.name) {
        (DebugId::BuildId(_), _) | (_, None) => key(wanted),
        (_, Some(name)) => format!("{} {name}", key(wanted)),
    }
}

/// `debug-file ID` or `executable ID`.
fn key(wanted: &WantedFile<'_>) -> String {
    let kind = match wanted.kind {
        WantedKind::DebugFile => "debug-file",
        WantedKind::Executable => "executable",
    };
    format!("{kind} {}", wanted.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_write_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("symbols.lock");
        let ids: Vec<DebugId> = (0..8_u8).map(|n| format!("{n:02x}{}", "cd".repeat(19)).parse().unwrap()).collect();
        let wanted = |id| WantedFile { id, kind: WantedKind::DebugFile, name: None };
        std::thread::scope(|scope| {
            for id in &ids {
                let path = &path;
                scope.spawn(move || {
                    let mut lock = Lock::read(path, LockMode::Extend).unwrap();
                    lock.note(&wanted(id), Digest::of(id.to_string().as_bytes()), "server");
                    lock.write(path).unwrap();
                });
            }
        });
        let all = Lock::read(&path, LockMode::Frozen).unwrap();
        for id in &ids {
            assert_eq!(all.pinned(&wanted(id)), Pinned::File(Digest::of(id.to_string().as_bytes())));
        }
        let mut other = Lock { files: BTreeMap::new(), mode: LockMode::Extend };
        other.note(&wanted(&ids[0]), Digest::of(b"other"), "server");
        assert!(matches!(other.write(&path), Err(LockError::Differs { .. })));
    }

    #[test]
    fn what_nobody_has_under_one_name_may_be_there_under_another() {
        let id: DebugId = "uuid:4c4c44f555553144a1b2c3d4e5f60718".parse().unwrap();
        let wanted = |name| WantedFile { id: &id, kind: WantedKind::DebugFile, name: Some(name) };
        let mut lock = Lock { files: BTreeMap::new(), mode: LockMode::Extend };
        lock.note_none(&wanted("one"), MissReason::ServerMiss);
        let none = Pinned::None(MissReason::ServerMiss);
        assert_eq!((lock.pinned(&wanted("one")), lock.pinned(&wanted("two"))), (none, Pinned::Free));
        // What came is the same under every name.
        let digest = Digest::of(b"bytes");
        lock.note(&wanted("two"), digest, "server");
        for name in ["one", "two", "three"] {
            assert_eq!(lock.pinned(&wanted(name)), Pinned::File(digest));
        }
    }

    #[test]
    fn what_failed_is_told_again_to_who_repeats_a_run_and_asked_again_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("symbols.lock");
        let id: DebugId = "abcd".repeat(10).parse().unwrap();
        let wanted = WantedFile { id: &id, kind: WantedKind::DebugFile, name: None };
        let mut lock = Lock::read(&path, LockMode::Extend).unwrap();
        lock.note_none(&wanted, MissReason::DigestMismatch);
        lock.write(&path).unwrap();
        let read = |mode| Lock::read(&path, mode).unwrap().pinned(&wanted);
        assert_eq!(read(LockMode::Frozen), Pinned::None(MissReason::DigestMismatch));
        assert_eq!(read(LockMode::Extend), Pinned::Free);
        // Who had it after all outranks that, whoever writes last.
        let digest = Digest::of(b"bytes");
        let mut other = Lock::read(&path, LockMode::Extend).unwrap();
        other.note(&wanted, digest, "server");
        other.write(&path).unwrap();
        lock.write(&path).unwrap();
        assert_eq!(read(LockMode::Frozen), Pinned::File(digest));
    }
}
