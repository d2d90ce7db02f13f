//! The bundles that the gateway has heard of, and which of their files answers for what. Being in the catalogue proves nothing: the judge is
//! asked each time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use symseal_bundle::index::ShardEntry;
use symseal_bundle::seal::SubjectDigests;
use symseal_bundle::{DebugInfo, Digest, FileEntry, SymbolIndex};
use symseal_module::DebugId;

use super::home::Home;
use super::judge::Judged;
use crate::debug_files::{FileKind, Key};
use crate::ingest::candidates;

/// Bytes of symbol indexes, as JSON, that are kept; beyond that those go that were not asked for the longest. In memory they take about
/// twice as much.
const INDEX_BYTES: u64 = 256 << 20;
/// Bundles that are kept.
const BUNDLES: usize = 20_000;

/// A bundle that somebody offers.
pub(super) struct KnownBundle {
    /// Its digest.
    pub(super) digest: Digest,
    /// What is in it.
    pub(super) index: SymbolIndex,
    /// Bytes of its symbol index.
    bytes: u64,
    /// What a seal of it must be about.
    pub(super) subjects: SubjectDigests,
    /// Its seals as they came, and when they were asked for.
    pub(super) seals: Mutex<Vec<Vec<u8>>>,
    /// When the seals were asked for.
    pub(super) seals_asked: Mutex<Instant>,
    /// What the judge found.
    pub(super) judged: Mutex<Option<Judged>>,
    /// Where its files are.
    homes: Mutex<Vec<Home>>,
    used: AtomicU64,
}

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

impl KnownBundle {
    /// Where its files are.
    pub(super) fn homes(&self) -> Vec<Home> {
        lock(&self.homes).clone()
    }

    fn settle(&self, home: Home) {
        let mut homes = lock(&self.homes);
        if !homes.iter().any(|known| known.is(&home)) {
            homes.push(home);
        }
    }

    /// Takes the seals that a home has; whether there are new ones.
    pub(super) fn take_seals(&self, seals: Vec<Vec<u8>>) -> bool {
        *lock(&self.seals_asked) = Instant::now();
        let mut known = lock(&self.seals);
        let before = known.len();
        for seal in seals {
            if !known.contains(&seal) {
                known.push(seal);
            }
        }
        let grew = known.len() > before;
        drop(known);
        if grew {
            *lock(&self.judged) = None;
        }
        grew
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
    pub(super) fn known_at(&self, digest: &Digest, home: impl FnOnce() -> Home) -> Option<Arc<KnownBundle>> {
        let known = lock(&self.state).bundles.get(digest).cloned()?;
        known.settle(home());
        Some(known)
    }

    /// Takes a bundle whose index is that of its digest.
    pub(super) fn add(
        &self,
        (digest, subjects): (Digest, SubjectDigests),
        (index, bytes): (SymbolIndex, u64),
        seals: Vec<Vec<u8>>,
        home: Home,
    ) -> Arc<KnownBundle> {
        let mut state = lock(&self.state);
        if let Some(known) = state.bundles.get(&digest).cloned() {
            drop(state);
            known.settle(home);
            known.take_seals(seals);
            return known;
        }
        let mut places: Vec<(Key, Place)> = Vec::new();
        for (_, text, module) in index.modules() {
            let Ok(id) = text.parse::<DebugId>() else { continue };
            for (key, candidate) in candidates(&digest.into(), text, module) {
                if candidate.kind == FileKind::SymbolTable {
                    continue;
                }
                let (kind, sha256, name) = (candidate.kind, candidate.digest.to_string(), candidate.file);
                places.push((key, Place { bundle: digest, id: id.clone(), kind, sha256, name }));
            }
        }
        let bundle = Arc::new(KnownBundle {
            digest,
            index,
            bytes,
            subjects,
            seals: Mutex::new(seals),
            seals_asked: Mutex::new(Instant::now()),
            judged: Mutex::default(),
            homes: Mutex::new(vec![home]),
            used: AtomicU64::new(self.tick()),
        });
        state.make_room(bytes);
        state.bytes = state.bytes.saturating_add(bytes);
        state.bundles.insert(digest, Arc::clone(&bundle));
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
    /// Forgets bundles until another one of `bytes` fits.
    fn make_room(&mut self, bytes: u64) {
        if self.bytes.saturating_add(bytes) <= INDEX_BYTES && self.bundles.len() < BUNDLES {
            return;
        }
        let mut by_use: Vec<(u64, Digest)> =
            self.bundles.values().map(|bundle| (bundle.used.load(Ordering::Relaxed), bundle.digest)).collect();
        by_use.sort_unstable();
        // A tenth more than needed: this is not for every bundle.
        let (goal, most) = ((INDEX_BYTES - INDEX_BYTES / 10).saturating_sub(bytes), BUNDLES - BUNDLES / 10);
        let mut gone = std::collections::HashSet::new();
        for (_, digest) in by_use {
            if self.bytes <= goal && self.bundles.len() <= most {
                break;
            }
            if let Some(bundle) = self.bundles.remove(&digest) {
                self.bytes = self.bytes.saturating_sub(bundle.bytes);
                gone.insert(digest);
            }
        }
        self.places.retain(|_, places| {
            places.retain(|place| !gone.contains(&place.bundle));
            !places.is_empty()
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
