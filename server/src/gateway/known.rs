//! A bundle that the gateway has heard of: what is in it, where it is, and its seals as they came. Nothing of it proves anything: the judge is asked
//! each time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use symseal_bundle::seal::SubjectDigests;
use symseal_bundle::{Digest, SymbolIndex};
use symseal_seal::SEAL_LIMIT;

use super::home::Home;
use super::judge::Judged;
use super::lock;

/// Seals that are judged for one bundle, of all its homes together. More are not seals but a flood.
const SEALS: usize = 256;
/// Bytes of them all.
const SEALS_BYTES: usize = 16 << 20;
/// Repositories of one registry that a bundle is known in; beyond that the one goes that was heard of first, those without seals before the others.
const HOMES_OF_ONE: usize = 4;

/// A bundle that somebody offers.
pub(super) struct KnownBundle {
    /// Its digest.
    pub(super) digest: Digest,
    /// What is in it.
    pub(super) index: SymbolIndex,
    /// Bytes of its symbol index.
    index_bytes: u64,
    /// What a seal of it must be about.
    pub(super) subjects: SubjectDigests,
    /// What the judge found.
    pub(super) judged: Mutex<Option<Judged>>,
    lodgings: Mutex<Vec<Lodging>>,
    /// Counts the changes of the seals.
    generation: AtomicU64,
    /// Whether somebody who runs the gateway named it: it stays.
    is_pinned: AtomicBool,
    /// When it was asked for last, by the catalogue's clock.
    pub(super) used: AtomicU64,
}

/// A home, and what it has beside the bundle.
struct Lodging {
    home: Home,
    seals: Vec<Arc<[u8]>>,
    /// When its seals were asked for.
    asked: Option<Instant>,
    /// Why these may not be all that it has.
    unread: Option<String>,
}

impl KnownBundle {
    /// One that nobody has yet.
    pub(super) fn new(digest: Digest, subjects: SubjectDigests, (index, index_bytes): (SymbolIndex, u64)) -> Self {
        Self {
            digest,
            index,
            index_bytes,
            subjects,
            judged: Mutex::default(),
            lodgings: Mutex::default(),
            generation: AtomicU64::new(0),
            is_pinned: AtomicBool::new(false),
            used: AtomicU64::new(0),
        }
    }

    /// Where its files are.
    pub(super) fn homes(&self) -> Vec<Home> {
        lock(&self.lodgings).iter().map(|lodging| lodging.home.clone()).collect()
    }

    /// It has this home from now on; one that is known is reached by the newer client.
    pub(super) fn settle(&self, home: &Home) {
        if matches!(home, Home::Layout(_)) {
            self.is_pinned.store(true, Ordering::Relaxed);
        }
        let mut lodgings = lock(&self.lodgings);
        if let Some(known) = lodgings.iter_mut().find(|known| known.home.is(home)) {
            known.home = home.clone();
            return;
        }
        let alike = |known: &Lodging| known.home.host().is_some_and(|host| home.host() == Some(host));
        let bare = |known: &Lodging| alike(known) && known.seals.is_empty();
        if lodgings.iter().filter(|known| alike(known)).count() >= HOMES_OF_ONE
            && let Some(at) = lodgings.iter().position(bare).or_else(|| lodgings.iter().position(alike))
        {
            lodgings.remove(at);
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        lodgings.push(Lodging { home: home.clone(), seals: Vec::new(), asked: None, unread: None });
    }

    /// Whether a home was asked for its seals within this time.
    pub(super) fn was_asked(&self, home: &Home, within: Duration) -> bool {
        let lodgings = lock(&self.lodgings);
        let asked = lodgings.iter().find(|known| known.home.is(home)).and_then(|known| known.asked);
        asked.is_some_and(|at| at.elapsed() < within)
    }

    /// Takes the seals that a home has, in the place of those that it had. `None`, and an empty list, leave those: a seal does not become wrong by
    /// being withheld, and a copy of a registry may lag.
    pub(super) fn take_seals(&self, home: &Home, seals: Option<Vec<Vec<u8>>>) {
        self.settle(home);
        let mut lodgings = lock(&self.lodgings);
        let Some(lodging) = lodgings.iter_mut().find(|known| known.home.is(home)) else { return };
        lodging.asked = Some(Instant::now());
        let mut taken = Seals::default();
        // The verifier refuses larger ones anyway.
        let seals = seals.unwrap_or_default().into_iter().filter(|seal| seal.len() <= SEAL_LIMIT);
        seals.for_each(|seal| taken.add(seal.into()));
        if !taken.list.is_empty() && taken.list != lodging.seals {
            lodging.seals = taken.list;
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes why a home may have more seals than were taken of it; `None` where these are all.
    pub(super) fn note_unread(&self, home: &Home, why: Option<String>) {
        if let Some(lodging) = lock(&self.lodgings).iter_mut().find(|known| known.home.is(home)) {
            lodging.unread = why;
        }
    }

    /// Why one of its homes may have seals of it that nobody has looked at.
    pub(super) fn unread(&self) -> Option<String> {
        lock(&self.lodgings).iter().find_map(|lodging| lodging.unread.clone())
    }

    /// Counts the changes of the seals.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The seals of all homes: of each the first, of each the second, and so on, so that none of them crowds out those of the others.
    pub(super) fn seals(&self) -> Vec<Arc<[u8]>> {
        let lodgings = lock(&self.lodgings);
        let most = lodgings.iter().map(|lodging| lodging.seals.len()).max().unwrap_or_default();
        let mut all = Seals::default();
        for at in 0..most {
            lodgings.iter().filter_map(|lodging| lodging.seals.get(at)).for_each(|seal| all.add(Arc::clone(seal)));
        }
        all.list
    }

    /// Bytes of its index and of its seals.
    pub(super) fn weight(&self) -> u64 {
        let lodgings = lock(&self.lodgings);
        let seals = lodgings.iter().flat_map(|lodging| &lodging.seals).map(|seal| seal.len() as u64);
        seals.fold(self.index_bytes, u64::saturating_add)
    }

    /// Whether it stays, however much there is.
    pub(super) fn is_pinned(&self) -> bool {
        self.is_pinned.load(Ordering::Relaxed)
    }
}

/// Seals, each once, of bounded number and size.
#[derive(Default)]
struct Seals {
    list: Vec<Arc<[u8]>>,
    bytes: usize,
}

impl Seals {
    fn add(&mut self, seal: Arc<[u8]>) {
        let bytes = self.bytes.saturating_add(seal.len());
        if self.list.len() < SEALS && bytes <= SEALS_BYTES && !self.list.contains(&seal) {
            self.bytes = bytes;
            self.list.push(seal);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use symseal_bundle::LayoutDir;

    use super::*;

    fn index(name: &str) -> SymbolIndex {
        let producer = symseal_bundle::index::Producer { name: "symseal".into(), version: "0".into() };
        SymbolIndex {
            schema: symseal_bundle::index::SCHEMA.into(),
            name: name.into(),
            version: "1".into(),
            producer,
            linux: Default::default(),
            windows: Default::default(),
            macos: Default::default(),
            shards: Vec::new(),
            sources: None,
            statistics: Default::default(),
        }
    }

    /// A bundle of nothing.
    pub(crate) fn bundle(name: &str, index_bytes: u64) -> KnownBundle {
        let digest = Digest::of(name.as_bytes());
        let subjects = symseal_bundle::verify::subject_digests(Some(&digest), b"");
        KnownBundle::new(digest, subjects, (index(name), index_bytes))
    }

    pub(crate) fn home(name: &str) -> Home {
        let reference = symseal_registry::Reference::parse(name).unwrap();
        let repository = symseal_registry::Repository::open(&reference, &symseal_registry::Options::default()).unwrap();
        Home::Registry { name: name.into(), repository: Arc::new(repository) }
    }

    #[test]
    fn each_home_is_asked_for_seals_by_itself_and_a_list_takes_the_place_of_the_one_before() {
        let (bundle, first, second) = (bundle("a", 7), home("one.example/a"), home("two.example/a"));
        let moment = Duration::from_secs(60);
        bundle.take_seals(&first, Some(Vec::new()));
        assert!(bundle.was_asked(&first, moment) && !bundle.was_asked(&second, moment));
        let before = bundle.generation();
        bundle.take_seals(&second, Some(vec![vec![1], vec![2]]));
        assert!(bundle.was_asked(&second, moment) && bundle.generation() > before);
        assert_eq!((bundle.seals().len(), bundle.weight()), (2, 9));
        // The same again changes nothing; another list does, and is not added to it.
        let before = bundle.generation();
        bundle.take_seals(&second, Some(vec![vec![1], vec![2]]));
        bundle.take_seals(&second, None);
        bundle.take_seals(&second, Some(Vec::new()));
        assert_eq!((bundle.generation(), bundle.seals().len()), (before, 2));
        bundle.take_seals(&second, Some(vec![vec![3]]));
        assert_eq!((bundle.seals(), bundle.weight()), (vec![Arc::from([3])], 8));
        assert!(bundle.generation() > before);
    }

    #[test]
    fn a_flood_of_seals_is_bounded_and_hides_none_of_another_home() {
        let (bundle, flood, good) = (bundle("a", 0), home("flood.example/a"), home("good.example/a"));
        let many: Vec<Vec<u8>> = (0..1000_u32).map(|n| n.to_le_bytes().repeat(100_000)).collect();
        bundle.take_seals(&flood, Some(many));
        assert!(bundle.weight() <= SEALS_BYTES as u64);
        bundle.take_seals(&flood, Some((0..1000_u32).map(|n| n.to_le_bytes().to_vec()).collect()));
        bundle.take_seals(&good, Some(vec![b"good".to_vec()]));
        let seals = bundle.seals();
        assert!(seals.len() == SEALS && seals.iter().any(|seal| **seal == *b"good"));
        // One that no verifier reads takes no room.
        bundle.take_seals(&good, Some(vec![vec![0; SEAL_LIMIT + 1]]));
        assert!(bundle.seals().iter().any(|seal| **seal == *b"good"));
    }

    #[test]
    fn a_registry_that_tells_of_ever_new_repositories_has_a_few_homes_alone() {
        let bundle = bundle("a", 0);
        bundle.settle(&home("good.example/a"));
        (0..100).for_each(|n| bundle.settle(&home(&format!("many.example/r{n}"))));
        let names: Vec<String> = bundle.homes().iter().map(Home::name).collect();
        assert_eq!(names.len(), 1 + HOMES_OF_ONE);
        assert!(names.contains(&"good.example/a".to_owned()) && names.contains(&"many.example/r99".to_owned()));
        // The one that has its seals is not pushed out by those that have none.
        bundle.take_seals(&home("many.example/sealed"), Some(vec![b"seal".to_vec()]));
        (0..100).for_each(|n| bundle.settle(&home(&format!("many.example/s{n}"))));
        assert!(bundle.homes().iter().any(|home| home.name() == "many.example/sealed"));
        assert!(!bundle.is_pinned());
        let layout = LayoutDir::create(tempfile::tempdir().unwrap().path().join("l")).unwrap();
        bundle.settle(&Home::Layout(layout));
        assert!(bundle.is_pinned());
    }
}
