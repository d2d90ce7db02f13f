//! The step that asks servers: what comes counts only if it is of the module, and, where a bundle covers the module, one of the files that the bundle names.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use symseal_artifact::{DebugAltLink, ObjectFile, SplitUnit};
use symseal_bundle::Digest;
use symseal_module::{DebugId, MissReason, Quality, ResolverStep, Rva, Svma};

use crate::bundles::BundleSource;
use crate::flights::Flights;
use crate::local::companions::{Companions, FilesOf, describe, is_supplementary};
use crate::local::debug_file::pdb_in;
use crate::local::last_binary::OwnFile;
use crate::local::pair::Program;
use crate::local::read::check_id;
use crate::local::read::object_of;
use crate::local::{LocalTable, NoTable, Opened, ask_table, table_of};
use crate::naming::quality_of;
use crate::resolver::NamedBy;
use crate::servers::Covered;
use crate::trail::{miss, skip};
use crate::{
    CheckFile, DigestOf, DigestRef, FetchedFile, FileBytes, NotFetched, SymbolServers, Tried, WantedFile, WantedKind,
};

/// Tables of files that came.
const OPEN_TABLES: usize = 256;

/// Servers, and the tables of what they gave.
#[derive(Debug)]
pub(crate) struct Remote {
    servers: Arc<dyn SymbolServers>,
    /// By the name that was asked for as well, and by whether the program could be read.
    tables: Flights<(Option<String>, DebugId, bool), Fetched>,
    /// When a module is asked for again whose server failed; never, where nobody may wait for it.
    retry: Option<Duration>,
}

/// What came of asking for a module, and how long that is believed.
#[derive(Debug, Clone)]
struct Fetched {
    opened: Opened,
    /// What the table was made of.
    of: DigestOf,
    /// Whether another time may bring more: a server failed, be it for the file itself or for one that it refers to.
    passing: bool,
    /// Whether anybody was asked.
    asked: bool,
    until: Option<Instant>,
}

/// A module that servers are asked about.
#[derive(Clone, Copy)]
pub(crate) struct AskedModule<'m> {
    pub(crate) id: &'m DebugId,
    /// Its path, where that is known.
    pub(crate) path: Option<&'m str>,
    /// Its own file, where that may be read.
    pub(crate) program: Option<OwnFile<'m>>,
}

/// What servers say of an address.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) named: Option<NamedBy>,
    /// Why the name of a later step, where there is one, comes before this one.
    pub(crate) yields: Option<MissReason>,
    /// Whether another time they may say more.
    pub(crate) passing: bool,
}

/// When a module is asked for again whose server failed. One that is dead is left alone for longer, and costs nothing.
const RETRY: Duration = Duration::from_secs(10);

impl Remote {
    pub(crate) fn new(servers: Arc<dyn SymbolServers>) -> Self {
        Self { servers, tables: Flights::with_capacity(OPEN_TABLES), retry: Some(RETRY) }
    }

    /// The same servers, asked anew.
    pub(crate) fn afresh(&self) -> Self {
        Self { retry: self.retry, ..Self::new(Arc::clone(&self.servers)) }
    }

    /// The same servers, of which each module is asked for once.
    pub(crate) fn asking_once(&self) -> Self {
        Self { retry: None, ..self.afresh() }
    }

    /// The bytes of memory that the tables take.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.tables
            .kept()
            .into_iter()
            .filter_map(|fetched| fetched.opened.ok())
            .map(|opened| opened.table.held_bytes())
            .sum()
    }

    /// Asks the servers about a module.
    pub(crate) fn ask(
        &self,
        step: ResolverStep,
        module: AskedModule<'_>,
        bundles: &[Arc<BundleSource>],
        lookup: Rva,
        tried: &mut Vec<Tried>,
    ) -> Asked {
        let covering = match covering(bundles, module.id) {
            Ok(covering) => covering,
            Err((reason, why)) => {
                // Which bytes would count nobody can say.
                tried.push(miss(step, reason, why, None));
                return Asked::default();
            }
        };
        let Fetched { opened, of, passing, asked, .. } = self.table(module, covering);
        if let (Err((reason, why)), false) = (&opened, asked) {
            tried.push(Tried { detail: why.clone(), ..skip(step, *reason) });
            return Asked::default();
        }
        let has_debug_info = opened.as_ref().is_ok_and(|table| table.has_debug_info);
        let told = match &opened {
            // What the program alone tells, the steps that read it say.
            Ok(table) => {
                table.program.as_ref().map(|program| table.ask_debug_file_of(program, step, lookup, tried).ok())
            }
            Err(_) => None,
        };
        let Some(mut answer) = told.unwrap_or_else(|| ask_table(opened, (step, of), lookup, tried)) else {
            return Asked { passing, ..Asked::default() };
        };
        // Go's programs have lines without debug information.
        let is_symbol = !has_debug_info && quality_of(&answer.named.frames) != Quality::Full;
        let yields = match (is_symbol, answer.named.approximate) {
            (true, _) => Some(MissReason::NoDebugInfo),
            // Where its function ends nobody knows: a public symbol of a program database, say, which the DWARF of another file is behind.
            (false, true) => Some(MissReason::NoSymbolAtAddress),
            (false, false) => None,
        };
        if let Some(bundle) = covering {
            // Every file that was read is one of those that the bundle names.
            answer.proof = bundle.proof;
            let of_bundle = bundle.digest.map(|digest| DigestRef { of: DigestOf::Bundle, digest });
            let of_index = DigestRef { of: DigestOf::SymbolIndex, digest: bundle.index_digest };
            answer.digests.splice(0..0, of_bundle.into_iter().chain([of_index]));
        }
        Asked { named: Some(answer), yields, passing }
    }

    /// The image base of a module that servers have.
    pub(crate) fn image_base(
        &self,
        (id, path): (&DebugId, Option<&str>),
        bundles: &[Arc<BundleSource>],
    ) -> Option<Svma> {
        let covering = covering(bundles, id).ok()?;
        self.table(AskedModule { id, path, program: None }, covering).opened.ok().map(|table| table.table.image_base())
    }

    /// The table of a module. It is kept by the name as well: who asks without one may be told less.
    fn table(&self, module: AskedModule<'_>, covering: Option<&Arc<BundleSource>>) -> Fetched {
        let AskedModule { id, path, program } = module;
        let in_bundle = covering.and_then(|bundle| bundle.facts(id));
        // A program database may be called otherwise than its program.
        let pdb = in_bundle.as_ref().and_then(|module| module.pdb.as_deref());
        let name = pdb.or(path).or(in_bundle.as_ref().map(|module| module.name.as_str()));
        let name = name.map(|path| path.rsplit(['/', '\\']).next().unwrap_or(path));
        let key = (name.map(str::to_owned), id.clone(), program.is_some());
        let holds = |fetched: &Fetched| fetched.until.is_none_or(|until| Instant::now() < until);
        self.tables.get_while(key, holds, || {
            let covered = covering.map(|bundle| covered(bundle, id));
            let asking = Asking::new(self.servers.as_ref(), covered.as_ref(), program);
            let opened = asking.open(id, name).map(Arc::new);
            let (of, passing, asked) = (asking.of.get(), asking.failed.get(), asking.asked.get());
            let until = self.retry.filter(|_| passing).and_then(|retry| Instant::now().checked_add(retry));
            Fetched { opened, of, passing, asked, until }
        })
    }
}

/// Servers, asked for one module and for what it refers to.
struct Asking<'s> {
    servers: &'s dyn SymbolServers,
    /// The files that count, where a bundle has the module.
    covered: Option<&'s Covered>,
    /// The module's own file, where that may be read.
    program: Option<OwnFile<'s>>,
    /// What came.
    of: Cell<DigestOf>,
    /// Whether a server failed.
    failed: Cell<bool>,
    /// Whether anybody was asked for anything, or had been before.
    asked: Cell<bool>,
    /// Why what dwz moved out is not there.
    lacking: RefCell<Option<NoTable>>,
}

impl<'s> Asking<'s> {
    fn new(servers: &'s dyn SymbolServers, covered: Option<&'s Covered>, program: Option<OwnFile<'s>>) -> Self {
        let (of, lacking) = (Cell::new(DigestOf::DebugFile), RefCell::new(None));
        Self { servers, covered, program, of, failed: Cell::new(false), asked: Cell::new(false), lacking }
    }

    fn fetch(&self, wanted: &WantedFile<'_>, check: CheckFile<'_>) -> Result<FetchedFile, NoTable> {
        let fetched = self.servers.fetch(wanted, check);
        let asked = fetched.as_ref().map_or_else(|none| none.asked, |_| true);
        self.asked.set(self.asked.get() || asked);
        fetched.map_err(|NotFetched { reason, why, passing, .. }| {
            self.failed.set(self.failed.get() || passing);
            (reason, why)
        })
    }

    fn open(&self, id: &DebugId, name: Option<&str>) -> Result<LocalTable, NoTable> {
        let check = |bytes: &[u8]| -> Result<(), NoTable> {
            check_id(bytes, id, "the file")?;
            self.covered.map_or(Ok(()), |covered| covered.check(bytes))
        };
        let check_debug_file =
            |bytes: &[u8]| -> Result<(), NoTable> { check(bytes).and_then(|()| is_debug_file(bytes, id)) };
        let wanted = |kind| WantedFile { id, kind, name };
        let has_table = self.covered.is_some_and(|covered| covered.has_table);
        let fetched = match self.fetch(&wanted(WantedKind::DebugFile), &check_debug_file) {
            // Symbols are better than nothing, and worse than the table of a bundle.
            Err((lack @ (MissReason::ServerMiss | MissReason::NoDebugInfo), why)) if !has_table => {
                self.of.set(DigestOf::Binary);
                self.fetch(&wanted(WantedKind::Executable), &check).map_err(|(reason, other)| match reason {
                    // Nobody keeps programs by what is known of this one.
                    MissReason::ServerMiss | MissReason::Unsupported => (lack, why),
                    MissReason::NotAllowed => (lack, format!("{why}; the program: {other}")),
                    _ => (reason, other),
                })?
            }
            fetched => fetched?,
        };
        let bytes = fetched.bytes.as_slice();
        let pdb = pdb_in(bytes, id, &fetched.from)?;
        let object = if pdb.is_some() { None } else { Some(object_of(bytes, id, &fetched.from)?) };
        let has_debug_info = object.as_ref().is_none_or(ObjectFile::has_debug_info);
        if has_table && !has_debug_info {
            // The program itself in the place of its debug file: the bundle's table tells more.
            return Err((MissReason::NoDebugInfo, fetched.from));
        }
        // As the builder reads them, and with it the debug files of this machine: as one.
        let own = self.program.filter(|_| self.of.get() == DigestOf::DebugFile).and_then(|own| own.read());
        let own = own.filter(|own| self.covered.is_none_or(|covered| covered.check(own).is_ok()));
        let program = own.as_deref().and_then(|own| object_of(own, id, &fetched.from).ok());
        let files = FilesOf { program: program.as_ref(), debug: object.as_ref(), pdb: pdb.as_ref() };
        let described = describe(files, &fetched.from, self, &[])?;
        let beside = self.program.zip(own.as_ref()).zip(program.as_ref());
        let beside = beside.map(|((own, bytes), program)| Program::new((own.module, bytes.digest(), program), files));
        if has_table && !described.lacks.is_empty() {
            // The bundle knows more.
            let (reason, why) = self.lacking.take().unwrap_or((MissReason::ServerMiss, String::new()));
            let parts = [fetched.from.as_str(), &described.lacks, &why].map(str::to_owned);
            return Err((reason, parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")));
        }
        let image_base = files.binary().map_or(Svma(0), ObjectFile::image_base);
        let table = table_of(described, image_base, (id, Digest::of(bytes), fetched.from), has_debug_info)?;
        drop(program);
        if let (Some(own), Some(bytes)) = (self.program, own) {
            own.keep(bytes);
        }
        Ok(LocalTable { program: beside, ..table })
    }
}

/// Whether bytes of the right id are what a debug file is, as opposed to the program itself, stripped, or to a file whose end,
/// where the sections are listed, was lost: the next server may have better. A debug file with symbols alone is one.
fn is_debug_file(bytes: &[u8], id: &DebugId) -> Result<(), NoTable> {
    if !matches!(id, DebugId::BuildId(_)) {
        return Ok(());
    }
    let object = object_of(bytes, id, "the file")?;
    if object.has_debug_info() || (!object.is_executable() && object.has_symtab()) {
        return Ok(());
    }
    Err((MissReason::NoDebugInfo, "it has no debug information".to_owned()))
}

impl Companions for Asking<'_> {
    fn supplementary(&self, object: &ObjectFile<'_>, link: &DebugAltLink<'_>) -> Option<FileBytes> {
        let id = DebugId::from_build_id(link.build_id).ok()?;
        let check = |bytes: &[u8]| {
            if !is_supplementary(object, link, bytes) {
                return Err((MissReason::DebugIdMismatch, "it is no supplementary file of this id".to_owned()));
            }
            // It has a say in the names.
            self.covered.map_or(Ok(()), |covered| covered.check(bytes))
        };
        let wanted = WantedFile { id: &id, kind: WantedKind::DebugFile, name: None };
        let fetched = self.fetch(&wanted, &check).map_err(|why| self.lacking.replace(Some(why)));
        fetched.ok().map(|fetched| fetched.bytes.into())
    }

    /// Servers have none by what a skeleton names.
    fn split(&self, _: &ObjectFile<'_>, _: &[SplitUnit]) -> Vec<FileBytes> {
        Vec::new()
    }
}

/// The first bundle that has a module.
///
/// # Errors
/// Where one cannot say whether it has.
fn covering<'b>(bundles: &'b [Arc<BundleSource>], id: &DebugId) -> Result<Option<&'b Arc<BundleSource>>, NoTable> {
    for bundle in bundles {
        if bundle.find(id)?.is_some() {
            return Ok(Some(bundle));
        }
    }
    Ok(None)
}

/// What a bundle names for a module: its files, and what its tables were made from.
fn covered(bundle: &BundleSource, id: &DebugId) -> Covered {
    let name = bundle.digest.unwrap_or(bundle.index_digest).to_string();
    let facts = bundle.facts(id);
    let has_table = facts.as_ref().is_some_and(|facts| facts.table.is_some());
    Covered { bundle: name, digests: facts.map(|facts| facts.digests).unwrap_or_default(), has_table }
}
