//! The tables of modules, each made once for all who need it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use symseal_artifact::ObjectFile;
use symseal_module::{Avma, DebugId, MappedModule, MissReason, ModuleMap, ResolverStep, Rva, UnwindMethod};

use super::files::ProcessFiles;
use super::shelf::{CacheStatistics, Place, Shelf};
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
    shelf: Shelf<ModuleKey, Names>,
    serials: AtomicU64,
}

/// The names of one module.
#[derive(Debug)]
pub(super) struct Names {
    /// Another one each time that the module is read.
    pub(super) serial: u64,
    /// Its steps of the chain; `None` where reading it panicked.
    pub(super) resolver: Option<Resolver>,
    /// The id that its file has, where its memory has none.
    pub(super) debug_id: Option<DebugId>,
    /// Why that file could not be read.
    pub(super) problem: Option<(MissReason, String)>,
    /// From when on another reading may bring more.
    retry: Option<Instant>,
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
        Self { base, shelf: Shelf::new(usize::MAX, most_bytes), serials: AtomicU64::new(0) }
    }

    /// The names of a module, where they are there already. Waits for nothing.
    pub(super) fn ready(&self, module: &ViewedModule) -> Option<Arc<Names>> {
        self.shelf.ready(self.place(module), Names::hold)
    }

    /// Whether the names of a module have to be read.
    pub(super) fn is_unread(&self, module: &ViewedModule) -> bool {
        !self.place(module).holds(Names::hold)
    }

    /// The names of a module. Where they are not there yet, they are read here, or waited for where another thread
    /// is just reading them. `expected` are the only addresses that will be asked for, where that is known.
    pub(super) fn names(&self, pid: u32, module: &ViewedModule, expected: &[Avma]) -> Arc<Names> {
        self.shelf.get(self.place(module), Names::hold, || {
            let read = std::panic::catch_unwind(AssertUnwindSafe(|| self.read(pid, module, expected)));
            let (resolver, debug_id, problem, passing) = match read {
                Ok(Read { resolver, debug_id, problem, passing }) => (Some(resolver), debug_id, problem, passing),
                Err(_) => (None, None, None, false),
            };
            let bytes = resolver.as_ref().map_or(0, Resolver::held_bytes);
            let serial = self.serials.fetch_add(1, Ordering::Relaxed);
            let retry = if passing { Instant::now().checked_add(RETRY) } else { None };
            (Names { serial, resolver, debug_id, problem, retry }, bytes.saturating_add(EMPTY_BYTES))
        })
    }

    /// Looked for once for each time that a module is seen.
    fn place<'m>(&self, module: &'m ViewedModule) -> &'m Arc<Place<Names>> {
        module.place.get_or_init(|| self.shelf.place(&module.key))
    }

    pub(super) fn statistics(&self) -> CacheStatistics {
        self.shelf.statistics()
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
    fn hold(&self) -> bool {
        self.retry.is_none_or(|retry| Instant::now() < retry)
    }

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
