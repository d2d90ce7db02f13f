//! The tables of modules, each made once for all who need it.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symseal_artifact::ObjectFile;
use symseal_module::{Avma, DebugId, MappedModule, MissReason, ModuleMap, ResolverStep, Rva, UnwindMethod};

use super::files::ProcessFiles;
use super::lru::{CacheStatistics, Lru};
use super::view::{ModuleKey, ViewedModule};
use crate::bundles::io_reason;
use crate::local::NoTable;
use crate::local::read::read_whole;
use crate::{ModuleFiles, Outcome, Resolver};

/// How long a file that could not be read is not looked for again.
const RETRY: Duration = Duration::from_secs(10);

/// What a module without any table weighs, in bytes.
const EMPTY_BYTES: u64 = 1024;

#[derive(Debug)]
pub(super) struct Modules {
    base: Resolver,
    places: Mutex<Lru<ModuleKey, Arc<Place>>>,
    serials: AtomicU64,
}

/// Where a module's names are, or will be.
#[derive(Debug, Default)]
pub(super) struct Place {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unread,
    /// A thread is reading it.
    Reading,
    Read(Names, Option<Instant>),
}

/// The names of one module.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// Another one each time that the module is read.
    pub(super) serial: u64,
    /// Its steps of the chain; `None` where reading it panicked.
    pub(super) resolver: Option<Arc<Resolver>>,
    /// The id that its file has, where its memory has none.
    pub(super) debug_id: Option<DebugId>,
    /// Why that file could not be read.
    pub(super) problem: Option<(MissReason, String)>,
}

/// What was read of a module.
struct Read {
    resolver: Resolver,
    debug_id: Option<DebugId>,
    problem: Option<(MissReason, String)>,
    /// Whether another time may bring more.
    passing: bool,
}

impl Modules {
    pub(super) fn new(base: Resolver, most_bytes: u64) -> Self {
        let places = Mutex::new(Lru::new(usize::MAX, most_bytes));
        Self { base, places, serials: AtomicU64::new(0) }
    }

    /// The place of a module's names.
    pub(super) fn place(&self, module: &ViewedModule) -> Arc<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(&module.key) {
            return place;
        }
        let place = Arc::new(Place::default());
        places.insert(module.key.clone(), Arc::clone(&place), EMPTY_BYTES);
        place
    }

    /// The names at this place. Where they are not there yet, they are read here, or waited for where another thread
    /// is just reading them. `expected` are the only addresses that will be asked for, where that is known.
    pub(super) fn names(&self, place: &Arc<Place>, pid: u32, module: &ViewedModule, expected: &[Avma]) -> Names {
        let mut state = place.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*state {
                State::Read(names, retry) if retry.is_none_or(|retry| Instant::now() < retry) => return names.clone(),
                State::Reading => state = place.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                State::Unread | State::Read(..) => break,
            }
        }
        *state = State::Reading;
        drop(state);
        let read = std::panic::catch_unwind(AssertUnwindSafe(|| self.read(pid, module, expected)));
        let (resolver, debug_id, problem, passing) = match read {
            Ok(Read { resolver, debug_id, problem, passing }) => (Some(Arc::new(resolver)), debug_id, problem, passing),
            Err(_) => (None, None, None, false),
        };
        let bytes = resolver.as_ref().map_or(0, |resolver| resolver.held_bytes());
        let names = Names { serial: self.serials.fetch_add(1, Ordering::Relaxed), resolver, debug_id, problem };
        let retry = if passing { Instant::now().checked_add(RETRY) } else { None };
        *place.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Read(names.clone(), retry);
        place.changed.notify_all();
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.insert(module.key.clone(), Arc::clone(place), bytes.saturating_add(EMPTY_BYTES));
        names
    }

    pub(super) fn statistics(&self) -> CacheStatistics {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).statistics()
    }

    /// Reads what names the module.
    fn read(&self, pid: u32, viewed: &ViewedModule, expected: &[Avma]) -> Read {
        let files = ProcessFiles { pid, module: viewed.module.clone() };
        let mut module = viewed.module.module.clone();
        let (mut debug_id, mut problem) = (None, None);
        if module.debug_id.is_none() && viewed.image.is_none() && self.base.options().local_files {
            // The file is the one that is mapped; what it is called is for the file to say.
            match own_id(&files, &module) {
                Ok(id) => debug_id = id,
                Err(why) => problem = Some(why),
            }
            module.debug_id = debug_id.clone();
        }
        // Who does not wait must never come to ask a server: what one failed to say is believed here until the module is read again.
        let mut resolver = self.base.with_cold_cache(0).with_module_files(Arc::new(files)).asking_once();
        if let Some(image) = &viewed.image {
            resolver = resolver.with_image(image);
        }
        // The first question opens the tables.
        let first = expected.first().copied().unwrap_or(module.start);
        let map = ModuleMap::new(vec![module]);
        let expected: Vec<Rva> = expected.iter().filter_map(|address| Some(map.locate(*address)?.rva)).collect();
        if let (Some(id), false) =
            (map.modules().first().and_then(|module| module.debug_id.as_ref()), expected.is_empty())
        {
            resolver = resolver.expecting(id, &expected);
        }
        let first = resolver.resolve(&map, first, true, UnwindMethod::Context);
        let passing = problem.is_some()
            || first.tried.iter().any(|tried| {
                let unread = [MissReason::FileNotFound, MissReason::FileUnreadable, MissReason::NotPermitted];
                tried.step == ResolverStep::BinaryDebugInfo
                    && matches!(tried.outcome, Outcome::Miss(reason) if unread.contains(&reason))
            });
        Read { resolver, debug_id, problem, passing }
    }
}

impl Names {
    /// The module with the id that is known of it.
    pub(super) fn module(&self, viewed: &ViewedModule) -> MappedModule {
        let module = viewed.module.module.clone();
        MappedModule { debug_id: module.debug_id.or_else(|| self.debug_id.clone()), ..module }
    }
}

/// The id of a module's own file, as a builder gives it: by its code, where no linker wrote one.
fn own_id(files: &ProcessFiles, module: &MappedModule) -> Result<Option<DebugId>, NoTable> {
    let file = files.open(module).map_err(|error| (io_reason(&error), format!("{}: {error}", module.path)))?;
    let bytes = read_whole(file, &module.path)?;
    Ok(ObjectFile::parse(&bytes).ok().and_then(|object| object.debug_id().cloned()))
}

impl Place {
    /// The names, where they are there already. Waits for nothing.
    pub(super) fn ready(&self) -> Option<Names> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Read(names, retry) if retry.is_none_or(|retry| Instant::now() < retry) => Some(names.clone()),
            _ => None,
        }
    }
}
