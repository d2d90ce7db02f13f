//! The chain itself: which step is asked, in which order, and what is recorded of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use symseal_bundle::{Bundle, DebugInfo, Digest};
use symseal_module::{
    Avma, DebugId, MappedModule, MissReason, ModuleMap, Proof, Quality, ResolverStep, Rva, Svma, UnwindMethod,
};

use crate::answers::{Answers, Question};
use crate::bundles::{Access, BundleSource, NoTable, StoredBundle};
use crate::code::NO_ID_ADVICE;
use crate::flights::Flights;
use crate::local::last_binary::OwnFile;
use crate::local::{self, Local};
use crate::naming::{demangle_frame, offset_in, quality_of, why_nameless};
use crate::remote::{Asked, AskedModule, Remote};
use crate::table::{LoadedTable, Named, TableBytes};
use crate::trail::{hit, miss, most_telling, raw_frame, skip};
use crate::{
    Answer, CallSite, DigestOf, DigestRef, FileBytes, JitNames, ModuleFiles, ModuleRef, NO_SERVERS, Options, Outcome,
    ResolvedFrame, SymbolServers, Symbolized, Tried, VdsoModule,
};

/// Names addresses through the strict chain. See the crate documentation.
#[derive(Debug)]
pub struct Resolver {
    options: Options,
    sources: Arc<Sources>,
    answers: Answers,
}

/// What answers are made from; shared by resolvers that differ in their caches alone.
#[derive(Debug, Default)]
struct Sources {
    bundles: Vec<Arc<BundleSource>>,
    /// Images of modules that are no file, by debug id.
    images: BTreeMap<DebugId, Arc<LoadedTable>>,
    /// Code that the process made, where a trace carries its names.
    jit: Option<Arc<JitNames>>,
    /// Modules whose symbol tables are treated as absent.
    dropped: Vec<DebugId>,
    /// Read where [`Options::local_files`] allows it.
    local: Arc<Local>,
    /// Asked where [`Options::online`] allows it.
    remote: Option<Arc<Remote>>,
    /// The ways to the tables of modules that were asked for.
    routes: Routes,
}

impl Resolver {
    /// A resolver without any bundle yet.
    pub fn new(options: Options) -> Self {
        Self { options, sources: Arc::default(), answers: Answers::with_capacity(options.address_cache) }
    }

    /// Adds a bundle; its files are read. `proof` is what the caller found: [`Proof::Sealed`] only if the
    /// bundle's seal was verified in this run, [`Proof::DigestKnown`] otherwise. Bundles are asked in the
    /// order in which they were added.
    pub fn with_bundle(self, bundle: Bundle, proof: Proof) -> Self {
        self.with_bundle_access(bundle, proof, Access::Foreign)
    }

    /// Adds a bundle of our own store; its tables are mapped.
    pub fn with_stored_bundle(self, bundle: Bundle, proof: Proof) -> Self {
        self.with_bundle_access(bundle, proof, Access::OwnStore)
    }

    /// Adds a bundle, saying where it lies.
    pub fn with_bundle_access(self, bundle: Bundle, proof: Proof, access: Access) -> Self {
        let source = Arc::new(BundleSource::new(bundle, proof, access));
        self.change(|sources| sources.bundles.push(source))
    }

    /// Adds a bundle of our own store by the list of its modules: the fastest way to a first name.
    pub fn with_store(self, bundle: StoredBundle, proof: Proof) -> Self {
        let source = Arc::new(BundleSource::of_store(bundle, proof));
        self.change(|sources| sources.bundles.push(source))
    }

    /// Adds the image of a module that is no file, as a trace carries it. Names from it have no proof.
    pub fn with_image(self, image: &VdsoModule) -> Self {
        let bytes = TableBytes::Owned(image.symbols.clone());
        match LoadedTable::open(bytes, Some(&image.debug_id), Some(image.digest), Vec::new()) {
            Ok(table) => {
                // Images change nothing of what servers gave.
                let remote = self.sources.remote.clone();
                self.change(|sources| {
                    sources.images.insert(image.debug_id.clone(), Arc::new(table));
                    sources.remote = remote;
                })
            }
            // The table was written by this crate a moment ago; without it the frames say why.
            Err(_) => self,
        }
    }

    /// Names code that the process made by what its runtime said, as a trace carries it. Such names have no proof.
    pub fn with_jit(self, names: Arc<JitNames>) -> Self {
        let remote = self.sources.remote.clone();
        self.change(|sources| {
            sources.jit = Some(names);
            // This changes nothing of what servers gave.
            sources.remote = remote;
        })
    }

    /// Reads the files of modules from there, and not from this machine's paths. With [`Options::local_files`].
    pub fn with_module_files(self, files: Arc<dyn ModuleFiles>) -> Self {
        self.change(|sources| sources.local = Arc::new(sources.local.with_files(files)))
    }

    /// The same, where a module whose server failed is not asked for again.
    pub(crate) fn asking_once(self) -> Self {
        self.change(|sources| sources.remote = sources.remote.as_ref().map(|remote| Arc::new(remote.asking_once())))
    }

    /// Asks these servers first. With [`Options::online`].
    pub fn with_servers(self, servers: Arc<dyn SymbolServers>) -> Self {
        self.change(|sources| sources.remote = Some(Arc::new(Remote::new(servers))))
    }

    /// Looks for separate debug files below these directories, in place of `/usr/lib/debug`. With [`Options::local_files`].
    pub fn with_debug_directories(self, directories: Vec<PathBuf>) -> Self {
        self.change(|sources| sources.local = Arc::new(sources.local.with_directories(directories)))
    }

    /// Says that of the module `id` these addresses will be asked for and hardly others: of a large file of this machine only what describes them is read.
    /// Another address has the same answer as without, and may wait for all of the file to be read. A return address is looked up by the call before it
    /// ([`Options::call_site`]), so that is what is expected.
    pub fn expecting(self, id: &DebugId, addresses: &[Rva]) -> Self {
        self.expecting_modules(BTreeMap::from([(id.clone(), addresses.iter().copied().collect())]))
    }

    /// The same of several modules.
    pub(crate) fn expecting_modules(self, modules: BTreeMap<DebugId, BTreeSet<Rva>>) -> Self {
        let remote = self.sources.remote.clone();
        self.change(|sources| {
            sources.local = Arc::new(sources.local.expecting(modules));
            // This changes nothing of what servers gave.
            sources.remote = remote;
        })
    }

    /// Hands over the bytes of a module's own file that the caller has just read: the first question about it does not read it again.
    pub fn keep_read(&self, module: &MappedModule, bytes: FileBytes) {
        self.sources.local.keep_read(module, bytes);
    }

    /// The same sources and options with an address cache of its own, cold, of `capacity` addresses.
    pub fn with_cold_cache(&self, capacity: usize) -> Self {
        let options = Options { address_cache: capacity, ..self.options };
        Self { options, sources: Arc::clone(&self.sources), answers: Answers::with_capacity(capacity) }
    }

    /// The same for addresses of another processor.
    pub(crate) fn with_call_site(mut self, call_site: CallSite) -> Self {
        self.options.call_site = call_site;
        self.change(|_| ())
    }

    /// The same resolver, as if the bundles had no symbol table of the module `id`: what replay uses to
    /// test that the loss of a source is reported and not papered over.
    pub fn without_table(&self, id: &DebugId) -> Self {
        self.with_cold_cache(self.options.address_cache).change(|sources| sources.dropped.push(id.clone()))
    }

    /// What the caller allowed.
    pub fn options(&self) -> Options {
        self.options
    }

    /// The digest of the first bundle that has one.
    pub fn bundle_digest(&self) -> Option<Digest> {
        self.sources.bundles.iter().find_map(|bundle| bundle.digest)
    }

    /// Whether a bundle has line tables of the module, so that each of its frames should be named.
    pub fn has_line_tables(&self, id: &DebugId) -> bool {
        let found = self.sources.bundles.iter().find_map(|bundle| bundle.debug_info(id));
        matches!(found, Some(DebugInfo::Full | DebugInfo::LineTables))
    }

    /// The bytes of the file that a module's code stands in, from the first bundle that has one.
    pub(crate) fn executable_in_bundles(&self, id: &DebugId, most_bytes: u64) -> Result<(Vec<u8>, Digest), NoTable> {
        let mut reason = (MissReason::NotInBundle, String::new());
        for bundle in &self.sources.bundles {
            match bundle.executable(id, most_bytes) {
                Ok(found) => return Ok(found),
                Err(why) if why.0 != MissReason::NotInBundle || reason.1.is_empty() => reason = why,
                Err(_) => {}
            }
        }
        Err(reason)
    }

    /// The bytes of the file at a module's path, whatever its id is; `None` where local files are not allowed ([`Options::local_files`]).
    ///
    /// # Errors
    /// The reason why it cannot be read, and a word about it for people.
    pub fn local_binary(&self, module: &MappedModule) -> Option<Result<FileBytes, (MissReason, String)>> {
        self.options.local_files.then(|| self.sources.local.read_binary(module))
    }

    /// Whether there is a bundle to ask.
    pub(crate) fn has_bundles(&self) -> bool {
        !self.sources.bundles.is_empty()
    }

    /// The image base of a module that a bundle has a table of.
    pub fn image_base(&self, id: &DebugId) -> Option<Svma> {
        self.sources.bundles.iter().find_map(|bundle| bundle.facts(id)).map(|facts| facts.image_base)
    }

    /// The image base of a module that a bundle or, with [`Options::online`], a server has; `name` as in [`Self::symbolize_named`].
    pub fn image_base_online(&self, id: &DebugId, name: Option<&str>) -> Option<Svma> {
        self.image_base(id).or_else(|| {
            let remote = self.sources.remote.as_ref().filter(|_| self.options.online)?;
            remote.image_base((id, name), &self.sources.bundles)
        })
    }

    /// The image base of the module `id` in a file of this machine, with [`Options::local_files`]; `None` where it is not that module's.
    pub fn image_base_in(&self, file: &Path, id: &DebugId) -> Option<Svma> {
        self.options.local_files.then(|| self.sources.local.image_base(file, id)).flatten()
    }

    /// Names the frame at `ip`.
    ///
    /// `exact` says that `ip` is the instruction that was executing (the innermost frame, or the frame that a
    /// signal interrupted). Otherwise it is a return address, and the call before it is looked up ([`Options::call_site`]); this is done
    /// here, once, and the answer keeps `ip` as it was given.
    pub fn resolve(&self, modules: &ModuleMap, ip: Avma, exact: bool, unwind: UnwindMethod) -> ResolvedFrame {
        let lookup = if exact { Some(ip) } else { self.options.call_site.before(ip) };
        // A call that never returns may end its module: the module is found by the lookup address as well.
        let located = lookup.and_then(|lookup| {
            let at = modules.locate(lookup)?;
            Some((modules.modules().get(at.module)?, at.rva))
        });
        let Some((module, lookup_rva)) = located else {
            let frame = raw_frame(ip, unwind);
            // What lies in a module is in a file.
            return match (&self.sources.jit, lookup) {
                (Some(names), Some(lookup)) => names.name(frame, lookup),
                _ => frame,
            };
        };
        let svma = module.svma(ip);
        let rva = svma.to_rva(module.image_base).unwrap_or(lookup_rva);
        let answer = self.answer(module.debug_id.as_ref(), Some(&module.path), Some(module), lookup_rva);
        let module = ModuleRef { path: module.path.clone(), debug_id: module.debug_id.clone(), rva, svma };
        ResolvedFrame { ip, module: Some(module), unwind, symbol_offset: offset_in(&answer, rva), answer }
    }

    /// Names an address of a module. The address is taken as it is: it is no return address.
    pub fn symbolize(&self, id: &DebugId, rva: Rva) -> Symbolized {
        self.symbolize_named(id, None, rva)
    }

    /// Names an address of a module whose file name is known: symbol servers for Windows and macOS are asked by it.
    pub fn symbolize_named(&self, id: &DebugId, name: Option<&str>, rva: Rva) -> Symbolized {
        let answer = self.answer(Some(id), name, None, rva);
        Symbolized { rva, symbol_offset: offset_in(&answer, rva), answer }
    }

    /// Addresses whose answers are cached now.
    pub fn cached_addresses(&self) -> usize {
        self.answers.len()
    }

    /// The bytes of memory that tables take: those of files and images, which are this resolver's own. Those of bundles are not counted.
    pub(crate) fn held_bytes(&self) -> u64 {
        let images: u64 = self.sources.images.values().map(|image| image.held_bytes()).sum();
        let remote = self.sources.remote.as_ref().map_or(0, |remote| remote.held_bytes());
        images.saturating_add(self.sources.local.held_bytes()).saturating_add(remote)
    }

    fn change(mut self, change: impl FnOnce(&mut Sources)) -> Self {
        let mut sources = Sources {
            bundles: self.sources.bundles.clone(),
            images: self.sources.images.clone(),
            jit: self.sources.jit.clone(),
            dropped: self.sources.dropped.clone(),
            local: Arc::clone(&self.sources.local),
            // What may count depends on the bundles.
            remote: self.sources.remote.as_ref().map(|remote| Arc::new(remote.afresh())),
            routes: Routes::default(),
        };
        change(&mut sources);
        self.sources = Arc::new(sources);
        // Answers of other sources must not be given for these.
        self.answers = Answers::with_capacity(self.options.address_cache);
        self
    }

    fn answer(
        &self,
        id: Option<&DebugId>,
        name: Option<&str>,
        module: Option<&MappedModule>,
        lookup: Rva,
    ) -> Arc<Answer> {
        let Options { local_files, online, .. } = self.options;
        let path = name.filter(|_| local_files || online || id.is_none());
        let question = Question { id, path, is_mapped: module.is_some(), lookup };
        if let Some(answer) = self.answers.find(question) {
            return answer;
        }
        let (answer, passing) = self.walk(id, name, module, lookup);
        let answer = Arc::new(answer);
        // What a server failed to say it may say later.
        if !passing {
            self.answers.keep(question, Arc::clone(&answer));
        }
        answer
    }

    /// Asks one step after the other until one answers, and says whether another time a server may say more.
    fn walk(
        &self,
        id: Option<&DebugId>,
        name: Option<&str>,
        module: Option<&MappedModule>,
        lookup: Rva,
    ) -> (Answer, bool) {
        if let Some(route) = id.filter(|_| !self.options.online).and_then(|id| self.route(id))
            && let Some(named) = route.table.lookup(lookup)
        {
            let trail = (Arc::clone(&route.tried), Arc::clone(&route.digests));
            return (self.named(ResolverStep::LocalBundle, route.proof, named, trail), false);
        }
        let mut tried = Vec::with_capacity(4);
        let Asked { named, yields, passing } = self.ask_servers(id, (name, module), lookup, &mut tried);
        // A symbol of a server's file must not hide what a bundle, a debug file or the binary knows of the source.
        let (named, kept_back) = if yields.is_none() { (named, None) } else { (None, named) };
        let asked = tried.len();
        let named = named
            .or_else(|| self.ask_bundles(id, lookup, &mut tried))
            .or_else(|| self.ask_local(id, module, lookup, &mut tried));
        if let (Some(_), Some(why), Some(missed)) = (&named, yields, tried.get_mut(..asked).and_then(<[_]>::last_mut)) {
            missed.outcome = Outcome::Miss(why);
        }
        let answer = match named.or(kept_back) {
            Some(named) => self.finish(named, tried),
            None => {
                let reason = most_telling(&tried);
                tried.push(hit(ResolverStep::ModuleOffset));
                let nameless = Answer::nameless(ResolverStep::ModuleOffset, Quality::ModuleOffset);
                Answer { tried: tried.into(), reason, ..nameless }
            }
        };
        (answer, passing)
    }

    /// The step that asks the network: by which kind of server depends on the module's platform.
    fn ask_servers(
        &self,
        id: Option<&DebugId>,
        (path, module): (Option<&str>, Option<&MappedModule>),
        lookup: Rva,
        tried: &mut Vec<Tried>,
    ) -> Asked {
        let step = match id {
            Some(DebugId::Pdb { .. } | DebugId::MachoUuid(_)) => ResolverStep::SymbolServer,
            Some(DebugId::BuildId(_)) | None => ResolverStep::Debuginfod,
        };
        let skipped = match (self.options.online, &self.sources.remote, id) {
            (false, ..) => skip(step, MissReason::Offline),
            (true, None, _) => Tried { detail: NO_SERVERS.to_string(), ..skip(step, MissReason::Unsupported) },
            (true, Some(_), None) => skip(step, MissReason::NoDebugId),
            (true, Some(remote), Some(id)) => {
                let module = module.filter(|_| self.options.local_files);
                let program = module.map(|module| OwnFile { local: &self.sources.local, module });
                return remote.ask(step, AskedModule { id, path, program }, &self.sources.bundles, lookup, tried);
            }
        };
        tried.push(skipped);
        Asked::default()
    }

    /// The way to the first table of a module in a bundle, as offline questions take it.
    fn route(&self, id: &DebugId) -> Option<Arc<Route>> {
        self.sources.routes.0.get(id.clone(), || {
            let mut tried = Vec::new();
            self.ask_servers(Some(id), (None, None), Rva(0), &mut tried);
            let mut bundles = self.sources.bundles.iter();
            let (bundle, table) = bundles.find_map(|bundle| Some((bundle, self.table_in(bundle, id, &mut tried)?)))?;
            tried.push(Tried { digest: table.digest, ..hit(ResolverStep::LocalBundle) });
            let digests = digests_of(bundle, &table).into();
            Some(Arc::new(Route { proof: bundle.proof, tried: tried.into(), digests, table }))
        })
    }

    /// The table of a module in one bundle; else why there is none is noted.
    fn table_in(&self, bundle: &BundleSource, id: &DebugId, tried: &mut Vec<Tried>) -> Option<Arc<LoadedTable>> {
        let opened = match self.sources.dropped.contains(id) && bundle.has(id) {
            true => Err((MissReason::NoSymbolTable, String::new())),
            false => bundle.table(id),
        };
        opened
            .map_err(|(reason, detail)| tried.push(miss(ResolverStep::LocalBundle, reason, detail, bundle.digest)))
            .ok()
    }

    fn ask_bundles(&self, id: Option<&DebugId>, lookup: Rva, tried: &mut Vec<Tried>) -> Option<NamedBy> {
        let step = ResolverStep::LocalBundle;
        let Some(id) = id else {
            tried.push(miss(step, MissReason::NoDebugId, NO_ID_ADVICE.to_owned(), None));
            return None;
        };
        if self.sources.bundles.is_empty() {
            tried.push(skip(step, MissReason::NoBundle));
        }
        for bundle in &self.sources.bundles {
            let Some(table) = self.table_in(bundle, id, tried) else { continue };
            let Some(named) = table.lookup(lookup) else {
                tried.push(miss(step, MissReason::NoSymbolAtAddress, String::new(), table.digest));
                continue;
            };
            tried.push(Tried { digest: table.digest, ..hit(step) });
            return Some(NamedBy { step, proof: bundle.proof, named, digests: digests_of(bundle, &table) });
        }
        None
    }

    fn ask_local(
        &self,
        id: Option<&DebugId>,
        module: Option<&MappedModule>,
        lookup: Rva,
        tried: &mut Vec<Tried>,
    ) -> Option<NamedBy> {
        let local = &self.sources.local;
        if let Some((id, image)) = id.and_then(|id| Some((id, self.sources.images.get(id)?))) {
            if self.options.local_files {
                let found = local.ask_debug_file(id, lookup, tried);
                if found.is_some() {
                    return found;
                }
            } else {
                tried.push(skip(ResolverStep::DebugFile, MissReason::NotAllowed));
            }
            return ask_image(image, lookup, tried);
        }
        if !self.options.local_files {
            local::skipped(MissReason::NotAllowed, tried);
            return None;
        }
        let Some(id) = id else {
            local::skipped(MissReason::NoDebugId, tried);
            return None;
        };
        let Some(module) = module else {
            return local.ask_debug_file(id, lookup, tried).or_else(|| {
                tried.push(skip(ResolverStep::BinaryDebugInfo, MissReason::FileNotFound));
                tried.push(skip(ResolverStep::BinarySymbols, MissReason::FileNotFound));
                None
            });
        };
        local.ask_files((id, module), lookup, tried)
    }

    fn finish(&self, found: NamedBy, tried: Vec<Tried>) -> Answer {
        let NamedBy { step, proof, named, digests } = found;
        self.named(step, proof, named, (tried.into(), digests.into()))
    }

    fn named(
        &self,
        step: ResolverStep,
        proof: Proof,
        mut named: Named,
        (tried, digests): (Arc<[Tried]>, Arc<[DigestRef]>),
    ) -> Answer {
        if self.options.demangle {
            named.frames.iter_mut().for_each(demangle_frame);
        }
        let (start, reason) = (Some(named.start), why_nameless(&named.frames));
        Answer {
            resolver: step,
            quality: quality_of(&named.frames),
            proof,
            approximate: named.approximate,
            folded: named.folded,
            aliases: named.aliases,
            frames: named.frames,
            start: start.filter(|_| reason.is_none()),
            tried,
            reason,
            digests,
        }
    }
}

/// Modules whose routes are kept.
const ROUTES: usize = 4096;

#[derive(Debug)]
struct Routes(Flights<DebugId, Option<Arc<Route>>>);

impl Default for Routes {
    fn default() -> Self {
        Self(Flights::with_capacity(ROUTES))
    }
}

/// Where the names of a module are, with all that is the same for each of them.
#[derive(Debug)]
struct Route {
    table: Arc<LoadedTable>,
    proof: Proof,
    tried: Arc<[Tried]>,
    digests: Arc<[DigestRef]>,
}

/// What a name of a bundle's table rests on.
fn digests_of(bundle: &BundleSource, table: &LoadedTable) -> Vec<DigestRef> {
    let digest = |of, digest| DigestRef { of, digest };
    let mut digests = Vec::new();
    digests.extend(bundle.digest.map(|found| digest(DigestOf::Bundle, found)));
    digests.push(digest(DigestOf::SymbolIndex, bundle.index_digest));
    digests.extend(table.digest.map(|found| digest(DigestOf::SymbolTable, found)));
    digests.extend(table.sources.iter().map(|found| digest(DigestOf::Source, *found)));
    digests
}

/// Asks the image of a module that is no file, which has symbols alone.
fn ask_image(image: &LoadedTable, lookup: Rva, tried: &mut Vec<Tried>) -> Option<NamedBy> {
    let word = "the image of the module that is no file".to_string();
    tried.push(miss(ResolverStep::BinaryDebugInfo, MissReason::NoDebugInfo, word.clone(), image.digest));
    let step = ResolverStep::BinarySymbols;
    let Some(named) = image.lookup(lookup) else {
        tried.push(miss(step, MissReason::NoSymbolAtAddress, word, image.digest));
        return None;
    };
    tried.push(Tried { detail: word, digest: image.digest, ..hit(step) });
    let digests = image.digest.map(|digest| DigestRef { of: DigestOf::Binary, digest }).into_iter().collect();
    Some(NamedBy { step, proof: Proof::None, named, digests })
}

/// A name and the step that had it.
pub(crate) struct NamedBy {
    pub(crate) step: ResolverStep,
    pub(crate) proof: Proof,
    pub(crate) named: Named,
    pub(crate) digests: Vec<DigestRef>,
}
