//! Which blob answers for a debug id: the memory index behind `/buildid/`, `/symbols/` and `/symbolicate/`.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use symseal_bundle::DebugInfo;
use symseal_module::DebugId;

use crate::blobs::BlobDigest;

/// What a file is asked for by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The platform's identity of a module.
    Id(DebugId),
    /// GUID and age in which Breakpad's tools, and the Firefox Profiler after them, write the id of every platform's modules.
    Breakpad {
        /// As printed, most significant byte first.
        guid: [u8; 16],
        /// 0 but for PDBs.
        age: u32,
    },
    /// Name and code id of a PE file, in lower case, with a slash between: the code ids of two programs may be equal.
    Image(Box<str>),
}

impl Key {
    /// Of a PE file. Symbol servers fold case.
    pub(crate) fn image(name: &str, code_id: &str) -> Self {
        Self::Image(format!("{}/{}", name.to_lowercase(), code_id.to_lowercase()).into())
    }
}

/// What a client asks an id for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    /// The file with debug information or symbols.
    Debuginfo,
    /// The file with code.
    Executable,
    /// The `.symx` table.
    SymbolTable,
}

/// A file that a bundle offers for an id.
///
/// The order is the order of preference: more debug information first, then the larger file, then the digest, so that
/// the answer does not depend on what was pushed first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// What it answers.
    pub(crate) kind: FileKind,
    /// How much debug information the module has in its bundle.
    pub(crate) debug_info: DebugInfo,
    /// Bytes in the file.
    pub(crate) size: u64,
    /// The blob.
    pub(crate) digest: BlobDigest,
    /// The module's file name.
    pub(crate) name: String,
    /// The file's own name: the last part of its title.
    pub(crate) file: String,
    /// The bundle that offers it.
    pub(crate) bundle: BlobDigest,
}

impl Candidate {
    fn preference(&self) -> impl Ord + '_ {
        (self.kind, self.debug_info, std::cmp::Reverse(self.size), &self.digest, &self.bundle)
    }
}

/// The candidates of every id.
#[derive(Debug, Default)]
pub(crate) struct DebugFiles {
    by_key: RwLock<HashMap<Key, Vec<Candidate>>>,
    /// Held while a bundle is recorded and becomes visible, and while one that is deleted is forgotten.
    pub(crate) changes: tokio::sync::Mutex<()>,
}

/// Two bundles that offer different bytes for one debug id. Both are kept; the better one answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The debug id.
    pub(crate) id: DebugId,
    /// What they are offered as.
    pub(crate) kind: FileKind,
    /// The file that answers from now on.
    pub(crate) answers: BlobDigest,
    /// The file that does not.
    pub(crate) passed_over: BlobDigest,
}

impl DebugFiles {
    /// The file that answers for a key.
    pub(crate) fn find(&self, key: &Key, kind: FileKind) -> Option<Candidate> {
        self.read().get(key)?.iter().find(|candidate| candidate.kind == kind).cloned()
    }

    /// Debug ids that have a file.
    pub(crate) fn len(&self) -> usize {
        self.read().keys().filter(|key| matches!(key, Key::Id(_))).count()
    }

    /// Makes all files of a bundle visible at once; what differs from other bundles' files comes back.
    pub(crate) fn insert(&self, files: Vec<(Key, Candidate)>) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        let mut by_key = self.write();
        for (key, new) in files {
            let candidates = by_key.entry(key.clone()).or_default();
            if candidates.contains(&new) {
                continue;
            }
            let kind = new.kind;
            let other = candidates
                .iter()
                .find(|old| old.kind == kind && old.digest != new.digest)
                .map(|old| old.digest.clone());
            let added = new.digest.clone();
            candidates.push(new);
            candidates.sort_by(|a, b| a.preference().cmp(&b.preference()));
            let best = candidates.iter().find(|candidate| candidate.kind == kind).map(|best| best.digest.clone());
            // The other keys lead to the same files, and a table differs with the symseal that made it.
            if let (Key::Id(id), Some(other), Some(answers)) = (key, other, best) {
                let passed_over = if answers == added { other } else { added };
                conflicts.push(Conflict { id, kind, answers, passed_over });
            }
        }
        conflicts
    }

    /// Takes a bundle's files out again.
    pub(crate) fn remove(&self, bundle: &BlobDigest) {
        self.write().retain(|_, candidates| {
            candidates.retain(|candidate| candidate.bundle != *bundle);
            !candidates.is_empty()
        });
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Key, Vec<Candidate>>> {
        self.by_key.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Key, Vec<Candidate>>> {
        self.by_key.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::Id("ab".parse().unwrap())
    }

    fn file(text: &str, debug_info: DebugInfo, bundle: &str) -> (Key, Candidate) {
        let candidate = Candidate {
            kind: FileKind::Debuginfo,
            debug_info,
            size: text.len() as u64,
            digest: BlobDigest::of(text.as_bytes()),
            name: "app".into(),
            file: "app".into(),
            bundle: BlobDigest::of(bundle.as_bytes()),
        };
        (key(), candidate)
    }

    #[test]
    fn the_better_file_answers_whatever_came_first() {
        let poor = file("symbols only", DebugInfo::Symbols, "one");
        let rich = file("full", DebugInfo::Full, "two");
        for order in [[poor.clone(), rich.clone()], [rich.clone(), poor.clone()]] {
            let files = DebugFiles::default();
            let [first, second] = order;
            assert!(files.insert(vec![first]).is_empty());
            let conflicts = files.insert(vec![second]);
            assert_eq!(conflicts.len(), 1);
            assert_eq!(conflicts[0].answers, rich.1.digest);
            assert_eq!(conflicts[0].passed_over, poor.1.digest);
            assert_eq!(files.find(&key(), FileKind::Debuginfo), Some(rich.1.clone()));
            assert_eq!(files.find(&key(), FileKind::Executable), None);
        }
    }

    #[test]
    fn the_same_bytes_in_two_bundles_are_no_conflict_and_outlive_one_of_them() {
        let files = DebugFiles::default();
        let (one, two) = (file("same", DebugInfo::Full, "one"), file("same", DebugInfo::Full, "two"));
        assert!(files.insert(vec![one.clone()]).is_empty());
        assert!(files.insert(vec![two.clone()]).is_empty());
        assert!(files.insert(vec![two.clone()]).is_empty());
        files.remove(&one.1.bundle);
        assert_eq!(files.find(&key(), FileKind::Debuginfo), Some(two.1.clone()));
        files.remove(&two.1.bundle);
        assert_eq!(files.len(), 0);
    }

    #[test]
    fn the_case_of_an_images_name_and_id_does_not_count() {
        assert_eq!(Key::image("App.EXE", "5F3A1B2C1f000"), Key::image("app.exe", "5f3a1b2c1F000"));
    }
}
