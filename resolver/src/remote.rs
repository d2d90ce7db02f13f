//! The step that asks servers: what comes counts only if it is of the module, and, where a bundle covers the module, one of the files that the bundle names.

use std::sync::Arc;

use symseal_artifact::{DebugAltLink, ObjectFile, SplitUnit};
use symseal_bundle::Digest;
use symseal_module::{DebugId, MappedModule, MissReason, ResolverStep, Rva};

use crate::bundles::BundleSource;
use crate::flights::Flights;
use crate::local::companions::{Companions, describe, is_supplementary};
use crate::local::debug_file::pdb_table;
use crate::local::read::object_of;
use crate::local::{LocalTable, NoTable, table_of};
use crate::resolver::{NamedBy, hit, miss};
use crate::servers::Covered;
use crate::{DigestOf, DigestRef, SymbolServers, Tried, WantedFile, WantedKind};

/// Tables of files that came.
const OPEN_TABLES: usize = 256;

/// Servers, and the tables of what they gave.
#[derive(Debug)]
pub(crate) struct Remote {
    servers: Arc<dyn SymbolServers>,
    tables: Flights<DebugId, Result<Arc<LocalTable>, NoTable>>,
}

impl Remote {
    pub(crate) fn new(servers: Arc<dyn SymbolServers>) -> Self {
        Self { servers, tables: Flights::with_capacity(OPEN_TABLES) }
    }

    /// The same servers, asked anew.
    pub(crate) fn afresh(&self) -> Self {
        Self::new(Arc::clone(&self.servers))
    }

    /// Asks the servers.
    pub(crate) fn ask(
        &self,
        step: ResolverStep,
        (id, module): (&DebugId, Option<&MappedModule>),
        bundles: &[Arc<BundleSource>],
        lookup: Rva,
        tried: &mut Vec<Tried>,
    ) -> Option<NamedBy> {
        let covering = bundles.iter().find(|bundle| bundle.module(id).is_some());
        let covered = covering.map(|bundle| covered(bundle, id));
        let table = match self.tables.get(id.clone(), || self.open(id, module, covered.as_ref()).map(Arc::new)) {
            Ok(table) => table,
            Err((reason, detail)) => {
                tried.push(miss(step, reason, detail, None));
                return None;
            }
        };
        let Some(named) = table.table.lookup(lookup) else {
            tried.push(miss(step, MissReason::NoSymbolAtAddress, table.detail.clone(), Some(table.digest)));
            return None;
        };
        tried.push(Tried { detail: table.detail.clone(), digest: Some(table.digest), ..hit(step) });
        let mut answer = table.answer(step, DigestOf::DebugFile, named);
        if let (Some(bundle), Some(covered)) = (covering, covered) {
            // What dwz moved out has a say in the names as well.
            if table.companions.iter().all(|digest| covered.digests.contains(digest)) {
                answer.proof = bundle.proof;
            }
            let of_bundle = bundle.digest.map(|digest| DigestRef { of: DigestOf::Bundle, digest });
            let of_index = DigestRef { of: DigestOf::SymbolIndex, digest: bundle.index_digest };
            answer.digests.splice(0..0, of_bundle.into_iter().chain([of_index]));
        }
        Some(answer)
    }

    fn open(
        &self,
        id: &DebugId,
        module: Option<&MappedModule>,
        covered: Option<&Covered>,
    ) -> Result<LocalTable, NoTable> {
        let name = module.map(|module| module.path.rsplit(['/', '\\']).next().unwrap_or(&module.path));
        let check = |bytes: &[u8]| -> Result<(), NoTable> {
            if let Some(pdb) = pdb_id(bytes) {
                let found = pdb?;
                if found != *id {
                    return Err((MissReason::DebugIdMismatch, format!("the file is of {found}")));
                }
            } else {
                object_of(bytes, id, "the file")?;
            }
            covered.map_or(Ok(()), |covered| covered.check(bytes))
        };
        let wanted = |kind| WantedFile { id, kind, name };
        let fetched = match self.servers.fetch(&wanted(WantedKind::DebugFile), &check) {
            // Symbols are better than nothing.
            Err((MissReason::ServerMiss, why)) => {
                self.servers.fetch(&wanted(WantedKind::Executable), &check).map_err(|(reason, other)| match reason {
                    MissReason::ServerMiss => (reason, why),
                    _ => (reason, other),
                })?
            }
            fetched => fetched?,
        };
        let bytes = fetched.bytes.as_slice();
        if let Some(table) = pdb_table(bytes, id, &fetched.from) {
            return table;
        }
        let object = object_of(bytes, id, &fetched.from)?;
        let described = describe(&object, &fetched.from, self)?;
        table_of(described, object.image_base(), (id, bytes, fetched.from), object.has_debug_info())
    }
}

impl Companions for Remote {
    fn supplementary(&self, object: &ObjectFile<'_>, link: &DebugAltLink<'_>) -> Option<Vec<u8>> {
        let id = DebugId::from_build_id(link.build_id).ok()?;
        let check = |bytes: &[u8]| match is_supplementary(object, link, bytes) {
            true => Ok(()),
            false => Err((MissReason::DebugIdMismatch, "it is no supplementary file of this id".to_owned())),
        };
        let wanted = WantedFile { id: &id, kind: WantedKind::DebugFile, name: None };
        self.servers.fetch(&wanted, &check).ok().map(|fetched| fetched.bytes)
    }

    /// Servers have none by what a skeleton names.
    fn split(&self, _: &ObjectFile<'_>, _: &[SplitUnit]) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// The id of a program database; `None` where the bytes are none.
fn pdb_id(bytes: &[u8]) -> Option<Result<DebugId, NoTable>> {
    use symseal_artifact::{FileKind, PdbFile, sniff};
    (sniff(bytes) == FileKind::Pdb).then(|| {
        PdbFile::parse(bytes).map(|pdb| pdb.debug_id()).map_err(|error| (MissReason::Malformed, error.to_string()))
    })
}

/// What a bundle names for a module: its files, and what its tables were made from.
fn covered(bundle: &BundleSource, id: &DebugId) -> Covered {
    let files = bundle.module(id).map(|module| module.files.as_slice()).unwrap_or_default();
    let digests = files.iter().flat_map(|file| std::iter::once(file.sha256).chain(file.derived_from.iter().copied()));
    let name = bundle.digest.unwrap_or(bundle.index_digest).to_string();
    Covered { bundle: name, digests: digests.collect::<Vec<Digest>>() }
}
