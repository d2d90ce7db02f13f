//! Which blob answers for a debug id: what is behind `/buildid/`, `/symbols/` and `/symbolicate/`.
//!
//! Readers look in [`Shown`], which never changes: a change makes another one beside it and puts it in its place, in one
//! step. The ids lie in [`Ids`](crate::ids::Ids), a few of them of falling size; which bundles may be seen, and where, stands
//! beside them, so that a seal that arrives moves no id.

mod file;
mod key;
mod layer;
mod rivals;
mod search;
mod standing;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use symseal_bundle::DebugInfo;

use crate::blobs::BlobDigest;
use crate::ids::{BundleEntry, TooLarge};
use crate::repositories::{Prefix, RepositoryName};
pub(crate) use file::{INDEX_FILE, SAVE_AFTER};
pub(crate) use key::{Key, SPLIT_UNIT};
use layer::{Layer, NewFiles};
pub(crate) use layer::{content_code, kind_code};
pub(crate) use rivals::{Claim, Contested, SecondOwner};
pub(crate) use search::{FoundModule, Pattern};
pub(crate) use standing::{Scope, Standing};

/// What a client asks an id for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    /// The file with debug information or symbols.
    Debuginfo,
    /// The file with code.
    Executable,
    /// The `.symx` table.
    SymbolTable,
    /// A symbol file of Breakpad that others made.
    SymbolFile,
}

/// A file that a bundle offers for an id.
///
/// Of several the bundle's standing decides first: sealed, then unsealed, then a file that was uploaded by itself. Then
/// more debug information, then a file with section headers, then the larger file, then the digest, so that the answer does not depend on what was pushed
/// first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// What it answers.
    pub(crate) kind: FileKind,
    /// How much debug information the module has in its bundle.
    pub(crate) debug_info: DebugInfo,
    /// The file has no section headers; not known of files in bundles, where it counts as having them.
    pub(crate) lacks_sections: bool,
    /// Bytes in the file.
    pub(crate) size: u64,
    /// The blob.
    pub(crate) digest: BlobDigest,
    /// The module's file name.
    pub(crate) name: String,
    /// The file's own name, the last part of its title, where it is asked for by that too (PDB and PE files); else empty.
    pub(crate) file: String,
    /// The bundle that offers it.
    pub(crate) bundle: BlobDigest,
}

/// A bundle, or a loose file, with the ids that it answers for.
#[derive(Debug, Clone)]
pub(crate) struct NewBundle {
    /// What it is.
    pub(crate) entry: BundleEntry,
    /// Its digest.
    pub(crate) digest: BlobDigest,
    /// Its ids with their files.
    pub(crate) files: Vec<(Key, Candidate)>,
}

/// What readers see.
#[derive(Debug, Default)]
struct Shown {
    layers: Vec<Layer>,
    ids: OnceLock<usize>,
    taken_down: Arc<TakenDown>,
}

/// The sha256 of files that nobody is given.
pub(super) type TakenDown = HashSet<[u8; 32]>;

/// The candidates of every id.
#[derive(Debug, Default)]
pub(crate) struct DebugFiles {
    shown: ArcSwap<Shown>,
    /// Held by those who make another [`Shown`], however long that takes; nobody else asks for it.
    arranging: Mutex<()>,
    /// Held for a moment; those who look for files never ask for it.
    known: Mutex<Known>,
    /// Held while a bundle is recorded and becomes visible, and while one that is deleted is forgotten.
    pub(crate) changes: tokio::sync::Mutex<()>,
}

/// What those who change go by.
#[derive(Debug, Default)]
struct Known {
    bundles: HashMap<BlobDigest, Bundle>,
    /// Where bundles without a seal are not shown.
    required: Vec<Prefix>,
    /// What the index file says no more.
    is_unsaved: bool,
}

/// A bundle as it is known.
#[derive(Debug, Clone)]
pub(crate) struct Bundle {
    /// What it is.
    pub(crate) entry: Arc<BundleEntry>,
    /// Where it is, and whether it is sealed there.
    pub(crate) standing: Standing,
}

impl DebugFiles {
    /// The file that answers for a key out of the repositories that a scope covers.
    pub(crate) fn find_in(&self, scope: &Scope, key: &Key, kind: FileKind) -> Option<Candidate> {
        self.find_called(scope, key, kind, |_| true)
    }

    /// The best of those whose own name is one that is asked for: a file may be there under several.
    pub(crate) fn find_called(
        &self,
        scope: &Scope,
        key: &Key,
        kind: FileKind,
        is_called: impl Fn(&str) -> bool,
    ) -> Option<Candidate> {
        self.best(scope, key, kind, |found| is_called(found.file()))
    }

    /// The best of those whose module, or who themselves where they were uploaded by themselves, have one of these names.
    pub(crate) fn find_named(
        &self,
        scope: &Scope,
        key: &Key,
        kind: FileKind,
        is_named: impl Fn(&str) -> bool,
    ) -> Option<Candidate> {
        self.best(scope, key, kind, |found| is_named(found.name()))
    }

    fn best(
        &self,
        scope: &Scope,
        key: &Key,
        kind: FileKind,
        is_wanted: impl Fn(&layer::Found<'_>) -> bool,
    ) -> Option<Candidate> {
        let key = key.to_bytes();
        let (shown, kind) = (self.shown.load(), kind_code(kind));
        let all = shown.layers.iter().flat_map(|layer| layer.find(&key, kind, scope, &shown.taken_down));
        all.filter(is_wanted).min_by(layer::Found::preferred)?.to_candidate()
    }

    /// The files with different bytes that answer for a key in a scope, the best first and at most so many.
    pub(crate) fn find_several(&self, scope: &Scope, key: &Key, kind: FileKind, at_most: usize) -> Vec<Candidate> {
        self.find_several_called(scope, key, kind, at_most, |_| true)
    }

    /// The same of those whose own name is one that is asked for.
    pub(crate) fn find_several_called(
        &self,
        scope: &Scope,
        key: &Key,
        kind: FileKind,
        at_most: usize,
        is_called: impl Fn(&str) -> bool,
    ) -> Vec<Candidate> {
        let key = key.to_bytes();
        let (shown, kind) = (self.shown.load(), kind_code(kind));
        let found = shown.layers.iter().flat_map(|layer| layer.find(&key, kind, scope, &shown.taken_down));
        let mut all: Vec<_> = found.filter(|found| is_called(found.file())).collect();
        all.sort_by(layer::Found::preferred);
        let mut several: Vec<Candidate> = Vec::new();
        for candidate in all.iter().filter_map(layer::Found::to_candidate) {
            if several.len() < at_most && several.iter().all(|known| known.digest != candidate.digest) {
                several.push(candidate);
            }
        }
        several
    }

    /// The bundles that offer a file for a key in a scope, the best first. Loose files are none: they have no index.
    pub(crate) fn bundles_of(&self, scope: &Scope, key: &Key) -> Vec<BlobDigest> {
        let (shown, key) = (self.shown.load(), key.to_bytes());
        let mut bundles: Vec<BlobDigest> = Vec::new();
        for kind in [FileKind::Debuginfo, FileKind::Executable, FileKind::SymbolTable].map(kind_code) {
            let mut found: Vec<_> =
                shown.layers.iter().flat_map(|layer| layer.find(&key, kind, scope, &shown.taken_down)).collect();
            found.sort_by(layer::Found::preferred);
            for candidate in found.iter().filter_map(layer::Found::to_candidate) {
                if !bundles.contains(&candidate.bundle) {
                    bundles.push(candidate.bundle);
                }
            }
        }
        let known = self.known();
        bundles.retain(|digest| known.bundles.get(digest).is_some_and(|bundle| !bundle.entry.is_loose));
        bundles
    }

    /// Debug ids that have a file.
    pub(crate) fn len(&self) -> usize {
        let shown = self.shown.load();
        let is_first = |at: usize, key: &[u8]| {
            let before = shown.layers.get(..at).unwrap_or_default();
            !before.iter().any(|layer| layer.shows(key, &shown.taken_down))
        };
        *shown.ids.get_or_init(|| {
            let layers = shown.layers.iter().enumerate();
            layers.map(|(at, layer)| layer.ids(&shown.taken_down).filter(|key| is_first(at, key)).count()).sum()
        })
    }

    /// What is known of a bundle.
    pub(crate) fn bundle(&self, digest: &BlobDigest) -> Option<Bundle> {
        self.known().bundles.get(digest).cloned()
    }

    /// Every bundle and loose file.
    pub(crate) fn bundles(&self) -> Vec<(BlobDigest, Bundle)> {
        self.known().bundles.iter().map(|(digest, bundle)| (digest.clone(), bundle.clone())).collect()
    }

    /// Whether any debugger sees a bundle.
    pub(crate) fn is_shown(&self, digest: &BlobDigest) -> bool {
        self.is_shown_to(digest, |_| true)
    }

    /// Whether debuggers see a bundle in one of the repositories that a caller may know of.
    pub(crate) fn is_shown_to(&self, digest: &BlobDigest, may_know: impl Fn(&RepositoryName) -> bool) -> bool {
        let known = self.known();
        let Some(bundle) = known.bundles.get(digest) else { return false };
        let mut verdicts = bundle.standing.verdicts();
        verdicts.any(|(name, verdict)| may_know(name) && standing::is_shown_in(name, verdict, &known.required))
    }

    /// Makes all files of bundles that are not known yet visible at once, as far as their standing allows. Blocks.
    ///
    /// # Errors
    /// [`TooLarge`]: nothing has changed.
    pub(crate) fn insert(&self, bundles: Vec<(NewBundle, Standing)>) -> Result<(), TooLarge> {
        let _arranging = self.arranging();
        let mut files = NewFiles::new();
        let mut entries: HashMap<BlobDigest, Bundle> = HashMap::new();
        for (new, standing) in bundles {
            if self.bundle(&new.digest).is_some() || entries.contains_key(&new.digest) {
                continue;
            }
            files.add(&new)?;
            entries.insert(new.digest, Bundle { entry: Arc::new(new.entry), standing });
        }
        if entries.is_empty() {
            return Ok(());
        }
        let new = files.build()?;
        {
            let mut known = self.known();
            known.bundles.extend(entries);
            known.is_unsaved = true;
        }
        let standing = |digest: &str| self.known().standing(digest);
        let mut layers: Vec<Layer> = self.shown.load().layers.clone();
        layers.push(new.with_standings(standing));
        if let Err(error) = layer::settle(&mut layers, |digest| self.known().knows(digest), standing) {
            tracing::warn!(%error, "parts of the index of ids stay apart");
        }
        self.show(layers);
        Ok(())
    }

    /// Says where known bundles are now and whether they are sealed there; those without a repository are forgotten. What
    /// follows from it is seen at once. Blocks.
    pub(crate) fn set(&self, standings: impl IntoIterator<Item = (BlobDigest, Standing)>) {
        let _arranging = self.arranging();
        let mut known = self.known();
        let mut changed = BTreeSet::new();
        for (digest, standing) in standings {
            if standing.is_gone() {
                if known.bundles.remove(&digest).is_some() {
                    changed.insert(digest.to_string());
                    known.is_unsaved = true;
                }
            } else if let Some(bundle) = known.bundles.get_mut(&digest)
                && bundle.standing != standing
            {
                bundle.standing = standing;
                changed.insert(digest.to_string());
            }
        }
        if !changed.is_empty() {
            let shown = self.shown.load();
            let refresh = |layer: &Layer| layer.refreshed(&changed, |digest| known.standing(digest));
            self.show(shown.layers.iter().map(refresh).collect());
        }
    }

    /// Says under which repositories only sealed bundles are shown. Blocks.
    pub(crate) fn require_seals(&self, required: Vec<Prefix>) {
        let _arranging = self.arranging();
        let mut known = self.known();
        known.required = required;
        let all = known.bundles.keys().map(ToString::to_string).collect();
        let shown = self.shown.load();
        self.show(shown.layers.iter().map(|layer| layer.refreshed(&all, |digest| known.standing(digest))).collect());
    }

    /// Whether a repository's bundles are shown only with a seal.
    pub(crate) fn requires_seal(&self, repository: &RepositoryName) -> bool {
        self.known().required.iter().any(|prefix| prefix.holds(repository))
    }

    /// The ids of a bundle with their files. Reads every id: not for requests. Blocks.
    pub(crate) fn files_of(&self, digest: &BlobDigest) -> Vec<(Key, Candidate)> {
        let shown = self.shown.load();
        shown.layers.iter().flat_map(|layer| layer.files_of(&digest.to_string())).collect()
    }

    /// Gives nobody files of these digests any more, and files of others again. Blocks.
    pub(crate) fn take_down(&self, digests: &[BlobDigest]) {
        let _arranging = self.arranging();
        let taken_down: TakenDown = digests.iter().filter_map(|digest| digest.bytes().try_into().ok()).collect();
        let layers = self.shown.load().layers.clone();
        self.shown.store(Arc::new(Shown { layers, ids: OnceLock::new(), taken_down: Arc::new(taken_down) }));
    }

    fn show(&self, layers: Vec<Layer>) {
        let taken_down = Arc::clone(&self.shown.load().taken_down);
        self.shown.store(Arc::new(Shown { layers, ids: OnceLock::new(), taken_down }));
    }

    fn arranging(&self) -> MutexGuard<'_, ()> {
        self.arranging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn knows(&self, digest: &str) -> bool {
        digest.parse::<BlobDigest>().is_ok_and(|digest| self.bundles.contains_key(&digest))
    }

    /// Where a bundle is shown; `None` where it is not, or not known.
    fn standing(&self, digest: &str) -> Option<standing::Visible> {
        let bundle = self.bundles.get(&digest.parse::<BlobDigest>().ok()?)?;
        standing::of(bundle, &self.required)
    }
}

#[cfg(test)]
mod tests;
