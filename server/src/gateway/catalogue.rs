//! The bundles that the gateway has heard of, and which of their files answers for what. Being in the catalogue proves nothing: the judge is
//! asked each time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use symseal_bundle::index::{IndexError, ShardEntry};
use symseal_bundle::seal::SubjectDigests;
use symseal_bundle::{DebugInfo, Digest, FileEntry, SymbolIndex};
use symseal_module::DebugId;

use super::home::Home;
use super::known::KnownBundle;
use super::lock;
use crate::debug_files::{FileKind, Key};
use crate::ingest::candidates;

/// Bytes of symbol indexes, as JSON, and seals that are kept; beyond that those bundles go that were not asked for the longest. In memory indexes take
/// about twice as much.
const BYTES: u64 = 256 << 20;
/// Bundles that are kept.
const BUNDLES: usize = 20_000;

/// A file that a bundle offers for a key.
#[derive(Clone)]
pub(super) struct Offer {
    /// The bundle.
    pub(super) bundle: Arc<KnownBundle>,
    /// The file as the index has it.
    pub(super) file: FileEntry,
    /// The module that it is of.
    pub(super) id: DebugId,
    /// Its architecture.
    pub(super) arch: String,
    /// Its file name.
    pub(super) module: String,
    /// How much debug information there is.
    pub(super) debug_info: DebugInfo,
    /// The file's own name, where it is asked for by that.
    pub(super) name: String,
}

/// Which file of which bundle.
#[derive(Clone)]
struct Place {
    bundle: Digest,
    id: DebugId,
    kind: FileKind,
    sha256: String,
    name: String,
}

/// All that the gateway has heard of.
#[derive(Default)]
pub(super) struct Catalogue {
    state: Mutex<State>,
    clock: AtomicU64,
}

#[derive(Default)]
struct State {
    bundles: HashMap<Digest, Arc<KnownBundle>>,
    places: HashMap<Key, Vec<Place>>,
    bytes: u64,
}

/// A bundle, and what it answers for: made before anybody is kept waiting for the catalogue.
pub(super) struct Listed {
    bundle: KnownBundle,
    places: Vec<(Key, Place)>,
}

impl Listed {
    /// A bundle whose index is that of its digest. Blocks.
    ///
    /// # Errors
    /// What is wrong with its symbol index.
    pub(super) fn read(digest: Digest, subjects: SubjectDigests, symbol_index: &[u8]) -> Result<Self, IndexError> {
        let index = SymbolIndex::parse(symbol_index)?;
        Ok(Self::of(KnownBundle::new(digest, subjects, (index, symbol_index.len() as u64))))
    }

    fn of(bundle: KnownBundle) -> Self {
        let mut places: Vec<(Key, Place)> = Vec::new();
        for (_, text, module) in bundle.index.modules() {
            let Ok(id) = text.parse::<DebugId>() else { continue };
            for (key, candidate) in candidates(&bundle.digest.into(), text, module) {
                if candidate.kind == FileKind::SymbolTable {
                    continue;
                }
                let (kind, sha256, name) = (candidate.kind, candidate.digest.to_string(), candidate.file);
                places.push((key, Place { bundle: bundle.digest, id: id.clone(), kind, sha256, name }));
            }
        }
        Self { bundle, places }
    }
}

impl Offer {
    /// The shard whose page hashes tell of the file.
    pub(super) fn shard(&self) -> Option<&ShardEntry> {
        let platform = match self.id {
            DebugId::BuildId(_) => "linux",
            DebugId::Pdb { .. } => "windows",
            DebugId::MachoUuid(_) => "macos",
        };
        let holds = |shard: &&ShardEntry| {
            shard.platform == platform && shard.arch == self.arch && (&shard.first..=&shard.last).contains(&&self.id)
        };
        self.bundle.index.shards.iter().find(holds)
    }
}

impl Catalogue {
    /// The bundle with this digest; one that is known has another home from now on.
    pub(super) fn known_at(&self, digest: &Digest, home: &Home) -> Option<Arc<KnownBundle>> {
        let mut state = lock(&self.state);
        let known = state.bundles.get(digest).cloned()?;
        state.weigh(&known, || known.settle(home));
        Some(known)
    }

    /// The bundle with this digest.
    pub(super) fn known(&self, digest: &Digest) -> Option<Arc<KnownBundle>> {
        lock(&self.state).bundles.get(digest).cloned()
    }

    /// Takes the seals that a home has for a bundle; `None` where that cannot be told.
    pub(super) fn take_seals(&self, known: &KnownBundle, home: &Home, seals: Option<Vec<Vec<u8>>>) {
        lock(&self.state).weigh(known, || known.take_seals(home, seals));
    }

    /// Takes a bundle.
    pub(super) fn add(&self, listed: Listed, home: &Home, seals: Option<Vec<Vec<u8>>>) -> Arc<KnownBundle> {
        let Listed { bundle, places } = listed;
        let mut state = lock(&self.state);
        if let Some(known) = state.bundles.get(&bundle.digest).cloned() {
            state.weigh(&known, || known.take_seals(home, seals));
            return known;
        }
        bundle.take_seals(home, seals);
        bundle.used.store(self.tick(), Ordering::Relaxed);
        let (bytes, bundle) = (bundle.weight(), Arc::new(bundle));
        state.make_room(bytes);
        state.bytes = state.bytes.saturating_add(bytes);
        state.bundles.insert(bundle.digest, Arc::clone(&bundle));
        for (key, place) in places {
            state.places.entry(key).or_default().push(place);
        }
        bundle
    }

    /// The files that bundles offer for a key, the better ones first: more debug information, then the larger, then by digest, as the
    /// server chooses.
    pub(super) fn offers(&self, key: &Key, kind: FileKind) -> Vec<Offer> {
        let state = lock(&self.state);
        let now = self.tick();
        let mut offers: Vec<Offer> = Vec::new();
        for place in state.places.get(key).into_iter().flatten().filter(|place| place.kind == kind) {
            let Some(bundle) = state.bundles.get(&place.bundle) else { continue };
            let Some(module) = bundle.index.module(&place.id) else { continue };
            let Some(file) = module.files.iter().find(|file| file.sha256.to_string() == place.sha256) else { continue };
            bundle.used.store(now, Ordering::Relaxed);
            offers.push(Offer {
                file: file.clone(),
                id: place.id.clone(),
                arch: module.arch.clone(),
                module: module.name.clone(),
                debug_info: module.debug_info,
                name: place.name.clone(),
                bundle: Arc::clone(bundle),
            });
        }
        drop(state);
        let order = |offer: &Offer| {
            (offer.debug_info, std::cmp::Reverse(offer.file.size), offer.file.sha256, offer.bundle.digest)
        };
        offers.sort_by_key(order);
        offers
    }

    /// The bundles that have a module, in the order of their digests.
    pub(super) fn bundles_of(&self, key: &Key) -> Vec<Arc<KnownBundle>> {
        let state = lock(&self.state);
        let mut found: Vec<_> = state.places.get(key).into_iter().flatten().map(|place| place.bundle).collect();
        found.sort_unstable();
        found.dedup();
        found.iter().filter_map(|digest| state.bundles.get(digest).cloned()).collect()
    }

    /// Every bundle, by name, version and digest.
    pub(super) fn bundles(&self) -> Vec<Arc<KnownBundle>> {
        let mut bundles: Vec<_> = lock(&self.state).bundles.values().cloned().collect();
        bundles.sort_by(|a, b| {
            let order = |bundle: &KnownBundle| (bundle.index.name.clone(), bundle.index.version.clone(), bundle.digest);
            order(a).cmp(&order(b))
        });
        bundles
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

impl State {
    /// Changes a bundle's homes or seals, and counts what they weigh.
    fn weigh(&mut self, known: &KnownBundle, change: impl FnOnce()) {
        let before = known.weight();
        change();
        // One that was forgotten and heard of again is another one, and was weighed by itself.
        if self.bundles.get(&known.digest).is_some_and(|kept| std::ptr::eq(Arc::as_ptr(kept), known)) {
            self.bytes = self.bytes.saturating_sub(before).saturating_add(known.weight());
            self.make_room(0);
        }
    }

    /// Forgets bundles until another one of `bytes` fits. Those that whoever runs the gateway has named stay.
    fn make_room(&mut self, bytes: u64) {
        if self.bytes.saturating_add(bytes) <= BYTES && self.bundles.len() < BUNDLES {
            return;
        }
        let others = self.bundles.values().filter(|bundle| !bundle.is_pinned());
        let mut by_use: Vec<(u64, Digest)> =
            others.map(|bundle| (bundle.used.load(Ordering::Relaxed), bundle.digest)).collect();
        by_use.sort_unstable();
        // A tenth more than needed: this is not for every bundle.
        let (goal, most) = ((BYTES - BYTES / 10).saturating_sub(bytes), BUNDLES - BUNDLES / 10);
        let mut gone = std::collections::HashSet::new();
        for (_, digest) in by_use {
            if self.bytes <= goal && self.bundles.len() <= most {
                break;
            }
            if let Some(bundle) = self.bundles.remove(&digest) {
                self.bytes = self.bytes.saturating_sub(bundle.weight());
                gone.insert(digest);
            }
        }
        self.places.retain(|_, places| {
            places.retain(|place| !gone.contains(&place.bundle));
            !places.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::known::tests::{bundle, home};
    use super::*;

    #[test]
    fn what_was_named_by_hand_stays_when_others_go() {
        let (catalogue, registry) = (Catalogue::default(), home("registry.example/a"));
        let layout = symseal_bundle::LayoutDir::create(tempfile::tempdir().unwrap().path().join("l")).unwrap();
        catalogue.add(Listed::of(bundle("named", 100)), &Home::Layout(layout), None);
        for n in 0..40 {
            catalogue.add(Listed::of(bundle(&format!("other {n}"), BYTES / 8)), &registry, None);
        }
        let names: Vec<String> = catalogue.bundles().iter().map(|bundle| bundle.index.name.clone()).collect();
        assert!(names.contains(&"named".to_owned()) && names.contains(&"other 39".to_owned()), "{names:?}");
        assert!(names.len() <= 9 && lock(&catalogue.state).bytes <= BYTES, "{names:?}");
    }

    #[test]
    fn seals_are_weighed_too() {
        let (catalogue, registry) = (Catalogue::default(), home("registry.example/a"));
        let known = catalogue.add(Listed::of(bundle("a", 100)), &registry, Some(vec![vec![1; 1000]]));
        assert_eq!(lock(&catalogue.state).bytes, 1100);
        catalogue.take_seals(&known, &registry, Some(vec![vec![2; 10]]));
        assert_eq!(lock(&catalogue.state).bytes, 110);
        let many = || Some((0..40).map(|n| vec![n; 400_000]).collect());
        for n in 0..40 {
            catalogue.add(Listed::of(bundle(&format!("other {n}"), 0)), &registry, many());
        }
        assert!(lock(&catalogue.state).bytes <= BYTES && catalogue.bundles().len() < 40);
    }
}
