//! Which blob answers for a build-id: the memory index behind `/buildid/`.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use symseal_bundle::DebugInfo;

use crate::blobs::BlobDigest;

/// What a client asks a build-id for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    /// The file with debug information or symbols.
    Debuginfo,
    /// The file with code.
    Executable,
}

/// A file that a bundle offers for a build-id.
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
    /// The bundle that offers it.
    pub(crate) bundle: BlobDigest,
}

impl Candidate {
    fn preference(&self) -> impl Ord + '_ {
        (self.kind, self.debug_info, std::cmp::Reverse(self.size), &self.digest, &self.bundle)
    }
}

/// The candidates of every build-id.
#[derive(Debug, Default)]
pub(crate) struct DebugFiles {
    by_id: RwLock<HashMap<Box<[u8]>, Vec<Candidate>>>,
}

/// Two bundles that offer different bytes for one build-id. Both are kept; the better one answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The build-id's bytes.
    pub(crate) id: Box<[u8]>,
    /// What they are offered as.
    pub(crate) kind: FileKind,
    /// The file that answers from now on.
    pub(crate) answers: BlobDigest,
    /// The file that does not.
    pub(crate) passed_over: BlobDigest,
}

impl DebugFiles {
    /// The file that answers for a build-id.
    pub(crate) fn find(&self, id: &[u8], kind: FileKind) -> Option<Candidate> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        by_id.get(id)?.iter().find(|candidate| candidate.kind == kind).cloned()
    }

    /// Build-ids that have a file.
    pub(crate) fn len(&self) -> usize {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Makes all files of a bundle visible at once; what differs from other bundles' files comes back.
    pub(crate) fn insert(&self, files: Vec<(Box<[u8]>, Candidate)>) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        for (id, new) in files {
            let candidates = by_id.entry(id.clone()).or_default();
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
            if let (Some(other), Some(answers)) = (other, best) {
                let passed_over = if answers == added { other } else { added };
                conflicts.push(Conflict { id, kind, answers, passed_over });
            }
        }
        conflicts
    }

    /// Takes a bundle's files out again.
    pub(crate) fn remove(&self, bundle: &BlobDigest) {
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        by_id.retain(|_, candidates| {
            candidates.retain(|candidate| candidate.bundle != *bundle);
            !candidates.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str, debug_info: DebugInfo, bundle: &str) -> (Box<[u8]>, Candidate) {
        let candidate = Candidate {
            kind: FileKind::Debuginfo,
            debug_info,
            size: text.len() as u64,
            digest: BlobDigest::of(text.as_bytes()),
            name: "app".into(),
            bundle: BlobDigest::of(bundle.as_bytes()),
        };
        (Box::from([0xab]), candidate)
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
            assert_eq!(files.find(&[0xab], FileKind::Debuginfo), Some(rich.1.clone()));
            assert_eq!(files.find(&[0xab], FileKind::Executable), None);
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
        assert_eq!(files.find(&[0xab], FileKind::Debuginfo), Some(two.1.clone()));
        files.remove(&two.1.bundle);
        assert_eq!(files.len(), 0);
    }
}
