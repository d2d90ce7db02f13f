//! `symseal symbolize --remote`: a table that stays in its registry, read page by page.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use symseal_bundle::index::{FileEntry, ShardEntry, platform_of};
use symseal_bundle::pages::{self, Hash};
use symseal_bundle::seal::examine_seals;
use symseal_bundle::verify::{Expectation, Verdict};
use symseal_bundle::{Digest, FileRole, SymbolIndex, page_hashes};
use symseal_module::{DebugId, Proof, ResolverStep, Rva, Svma};
use symseal_registry::{BundleIndexes, Reference, RegistryError, Repository};
use symseal_resolver::{DigestOf, DigestRef, Outcome, Symbolized, Tried};
use symseal_sealer::load_trust;
use symseal_symx::{ReadAt, SparseError, SparseTable};
use tokio::runtime::Runtime;

use crate::exit::NotFound;
use crate::memory::Memory;
use crate::registry_client;
use crate::seal_question::SealQuestion;

/// Fetched at once with the header of a file of page hashes: in most bundles the whole list of files is in it.
const DIRECTORY_BYTES: u64 = 16 << 10;
/// The longest list of files that is fetched.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;

/// A module's table in a registry. What was read of it was verified.
pub(super) struct Remote {
    table: SparseTable,
    pages: Pages,
    proof: Proof,
    digest: Digest,
    index_digest: Digest,
    /// Whether what was seen is remembered; `None` where nothing was verified.
    memory: Option<String>,
}

/// The pages of the table, fetched when they are needed.
struct Pages {
    runtime: Runtime,
    repository: Repository,
    file: FileEntry,
    leaves: Vec<Hash>,
    kept: BTreeMap<u64, Vec<u8>>,
    /// Bytes of the indexes, the seals and what is fetched here, and the requests that this took.
    bytes: u64,
    requests: u64,
}

impl Remote {
    /// Finds the module's table in the bundle that `reference` names. With a trust directory the bundle's seal is verified
    /// first, and what it does not hold is refused.
    pub(super) fn open(reference: &str, debug_id: &DebugId, question: &SealQuestion) -> Result<Self> {
        let parsed = Reference::parse(reference)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let repository = Repository::open(&parsed, &registry_client::options(&parsed)?)?;
        let indexes = runtime.block_on(repository.bundle_indexes()).map_err(registry_client::told)?;
        let index = SymbolIndex::parse(&indexes.symbol_index).with_context(|| format!("bundle {reference}"))?;
        let mut bytes = indexes.symbol_index.len() as u64;
        let mut memory = None;
        let proof = match question.asked()? {
            Some(trust) => {
                // Seals in files stand instead of the registry's, as in `bundle verify`.
                let given = question.signatures()?;
                let seals = if given.is_empty() {
                    let fetched = runtime.block_on(repository.seals(&indexes.digest)).map_err(registry_client::told)?;
                    bytes += fetched.iter().map(|seal| seal.len() as u64).sum::<u64>();
                    fetched
                } else {
                    given
                };
                memory = Some(verify_seal(&index, &indexes, &seals, trust, question)?);
                Proof::Sealed
            }
            None => Proof::DigestKnown,
        };
        let absent = |what: &str| NotFound(format!("bundle {reference} has no {what} {debug_id}"));
        let module = index.module(debug_id).ok_or_else(|| absent("module"))?;
        let file = module.file(FileRole::SymbolTable).ok_or_else(|| absent("symbol table of"))?.clone();
        let shard = index.shards.iter().find(|shard| holds(shard, debug_id, &module.arch));
        let shard = shard.with_context(|| format!("bundle {reference}: no page hashes for {debug_id}"))?.clone();
        let mut pages =
            Pages { runtime, repository, file, leaves: Vec::new(), kept: BTreeMap::new(), bytes, requests: 0 };
        pages.leaves = pages.hashes(&shard.page_hashes)?;
        let table = SparseTable::open(pages.file.size, &mut pages).map_err(|error| match error {
            SparseError::Table(error) => anyhow::anyhow!("the symbol table of {debug_id}: {error}"),
            SparseError::Read(error) => error,
        })?;
        if table.debug_id() != *debug_id {
            bail!("the symbol table of {debug_id}: it is of {}", table.debug_id());
        }
        let index_digest = Digest::of(&indexes.symbol_index);
        Ok(Self { table, pages, proof, digest: indexes.digest, index_digest, memory })
    }

    pub(super) fn image_base(&self) -> Svma {
        self.table.image_base()
    }

    pub(super) fn symbolize(&mut self, rva: Rva, demangle: bool) -> Result<Symbolized> {
        let hit = self.table.lookup(&mut self.pages, rva)?;
        let mut found = Symbolized::from_sparse(rva, hit, self.proof, demangle);
        let asked =
            |step, outcome, digest| Tried { step, outcome, detail: String::new(), lacks: String::new(), digest };
        let (outcome, table) = (found.reason.map_or(Outcome::Hit, Outcome::Miss), self.pages.file.sha256);
        let answer = Arc::make_mut(&mut found.answer);
        let nowhere = asked(ResolverStep::ModuleOffset, Outcome::Hit, None);
        let steps = [asked(ResolverStep::LocalBundle, outcome, Some(table))].into_iter();
        answer.tried = steps.chain((outcome != Outcome::Hit).then_some(nowhere)).collect();
        if outcome == Outcome::Hit {
            let of_source = self.pages.file.derived_from.iter().map(|digest| (DigestOf::Source, *digest));
            let of_table = [
                (DigestOf::Bundle, self.digest),
                (DigestOf::SymbolIndex, self.index_digest),
                (DigestOf::SymbolTable, table),
            ];
            let all = of_table.into_iter().chain(of_source);
            answer.digests = all.map(|(of, digest)| DigestRef { of, digest }).collect();
        }
        Ok(found)
    }

    /// What it took, for people.
    pub(super) fn account(&self) -> String {
        let Pages { bytes, requests, file, kept, leaves, .. } = &self.pages;
        let sealed = match &self.memory {
            Some(memory) => format!("its seal holds; memory of what was seen: {memory}"),
            None => "its seal was not asked for: give --trust".to_owned(),
        };
        format!(
            "read {bytes} bytes, manifests aside, those of the table in {requests} requests: {} of {} pages of a table of {} bytes, each verified; bundle {}, {sealed}",
            kept.len(),
            leaves.len(),
            file.size,
            self.digest
        )
    }
}

/// Whether the shard's range holds the module.
fn holds(shard: &ShardEntry, debug_id: &DebugId, arch: &str) -> bool {
    shard.platform == platform_of(debug_id) && shard.arch == arch && (&shard.first..=&shard.last).contains(&debug_id)
}

/// One of the seals must hold for this release; says whether what was seen is remembered now.
fn verify_seal(
    index: &SymbolIndex,
    indexes: &BundleIndexes,
    seals: &[Vec<u8>],
    trust: &Path,
    question: &SealQuestion,
) -> Result<String> {
    let trust = load_trust(trust)?;
    let memory = Memory::open(&question.state)?;
    // Where nothing holds, the error is what is told.
    let _ = memory.record_policy(&trust);
    let digest = &indexes.digest;
    let (consistency, fragments) = (question.consistency()?, question.fragments()?);
    let expectation = Expectation {
        name: question.expect_name.as_deref(),
        version: question.expect_version.as_deref(),
        claimed_name: Some(&index.name),
        claimed_version: Some(&index.version),
        seen: memory.seen(),
        consistency: &consistency,
        fragments: &fragments,
        ..Expectation::default()
    };
    if seals.is_empty() {
        return Err(NotFound(format!("bundle {digest}: expected a seal that refers to it, found none")).into());
    }
    let (at, _) = question.time();
    let examined = examine_seals(seals, &indexes.subjects(), &trust, &expectation, at);
    match examined.first_failure() {
        None => Ok(memory.record(Verdict::Verified, &trust, &examined.checkpoints, &consistency)),
        Some(check) => Err(NotFound(format!("bundle {digest}: its seal does not hold: {check}")).into()),
    }
}

impl Pages {
    fn part(&mut self, of: &Digest, from: u64, to: u64) -> Result<Vec<u8>> {
        let part = self.runtime.block_on(self.repository.part(of, from..to)).map_err(|error| match error {
            RegistryError::NotFound { .. } => anyhow::anyhow!("{error}, though the bundle's index lists it"),
            error => error.into(),
        })?;
        self.bytes += part.len() as u64;
        self.requests += 1;
        Ok(part)
    }

    /// The page hashes of the table, which must give the root that the index has.
    fn hashes(&mut self, list: &FileEntry) -> Result<Vec<Hash>> {
        let mut directory = self.part(&list.sha256, 0, list.size.min(DIRECTORY_BYTES))?;
        let end = page_hashes::directory_end(&directory).with_context(|| list.path.clone())?;
        if end > list.size.min(MAX_DIRECTORY_BYTES) {
            bail!("{}: expected a list of files within it, found one of {end} bytes", list.path);
        }
        if end > directory.len() as u64 {
            let rest = self.part(&list.sha256, directory.len() as u64, end)?;
            directory.extend_from_slice(&rest);
        }
        directory.truncate(usize::try_from(end)?);
        let (file, size) = (self.file.clone(), list.size);
        let range = page_hashes::locate(&directory, &file.sha256, file.page_size).filter(|range| range.end <= size);
        let range = range.with_context(|| format!("{}: no hashes of {}", list.path, file.path))?;
        let bytes = self.part(&list.sha256, range.start, range.end)?;
        let leaves: Vec<Hash> = bytes.as_chunks::<32>().0.iter().copied().map(Hash).collect();
        let found = pages::root(&leaves);
        if found != file.page_root || leaves.len() as u64 != pages::page_count(file.size, file.page_size) {
            bail!(
                "{}: expected page hashes of {} with the root {}, found {found}",
                list.path,
                file.path,
                file.page_root
            );
        }
        Ok(leaves)
    }

    /// Fetches the pages from `first` to `last` that are not there, neighbours at once.
    fn need(&mut self, first: u64, last: u64) -> Result<()> {
        let page = u64::from(self.file.page_size);
        let missing: Vec<u64> = (first..=last).filter(|index| !self.kept.contains_key(index)).collect();
        for run in missing.chunk_by(|a, b| a + 1 == *b) {
            let (Some(from), Some(to)) = (run.first(), run.last()) else { continue };
            let end = (to + 1).saturating_mul(page).min(self.file.size);
            let digest = self.file.sha256;
            let bytes = self.part(&digest, from.saturating_mul(page), end)?;
            for (index, bytes) in (*from..).zip(bytes.chunks(self.file.page_size as usize)) {
                let expected = usize::try_from(index).ok().and_then(|index| self.leaves.get(index)).copied();
                let found = pages::leaf_hash(bytes);
                if expected != Some(found) {
                    let expected = expected.map_or_else(|| "no such page".to_owned(), |hash| hash.to_string());
                    return Err(NotFound(format!(
                        "page {index} of {}: expected {expected}, found {found}",
                        self.file.path
                    ))
                    .into());
                }
                self.kept.insert(index, bytes.to_vec());
            }
        }
        Ok(())
    }
}

impl ReadAt for Pages {
    type Error = anyhow::Error;

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<()> {
        let page = u64::from(self.file.page_size);
        let Some(last) = (into.len() as u64).checked_sub(1) else { return Ok(()) };
        self.need(offset / page, offset.saturating_add(last) / page)?;
        pages::assemble(self.file.page_size, offset, into, |index| self.kept.get(&index).map(Vec::as_slice)).map_err(
            |index| anyhow::anyhow!("{}: it ends in page {index}, before what it says of itself", self.file.path),
        )
    }
}
