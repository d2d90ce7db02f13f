//! The builder: paths to a bundle in a layout.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use symseal_artifact::Limits;
use symseal_bundle::compose::{ComposeError, MAX_LAYERS};
use symseal_bundle::seal::Release;
use symseal_bundle::workers::{self, Budget};
use symseal_bundle::{Digest, LayoutDir, Staging, SymbolIndex};
use symseal_module::DebugId;

use crate::error::BuildError;
use crate::inputs::{self, Exclude, Reading, Spool};
use crate::module::{self, Building, Finished};
use crate::pairing::{self, Module, Pairing};
use crate::progress::{Progress, ProgressFn};
use crate::report::{BuildReport, ModuleReport, Unpaired, UnwindTotals};
use crate::sources::{GatheredSources, SourceOptions, WantedSources, gather_sources};
use crate::{assemble, unpaired};

/// Bytes of input that are worked on at once, where no single piece of work is larger: enough to keep the threads busy with
/// small files. Three times as much is the fixed part of what a build may take (docs/performance.md).
pub(crate) const LEAST_BUDGET: u64 = 8 << 20;

/// What the release is called, and whom to tell.
#[derive(Clone, Default)]
pub struct Options {
    /// The release's name.
    pub name: String,
    /// The release's version.
    pub version: String,
    /// Told what is being done.
    pub progress: Option<ProgressFn>,
}

/// Builds a bundle from what a release ships.
///
/// ```
/// use symseal_builder::{Options, SymbolBundleBuilder};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let release = tempfile::tempdir()?;
/// # std::fs::copy(std::env::current_exe()?, release.path().join("app"))?;
/// # let output = tempfile::tempdir()?;
/// # let (release, output) = (release.path(), output.path().join("bundle"));
/// let options = Options { name: "app".to_owned(), version: "1.0".to_owned(), progress: None };
/// let built = SymbolBundleBuilder::new(options).add_path(release).build_into(&output)?;
/// for module in &built.report.modules {
///     println!("{} {}: {} functions", module.debug_id, module.name, module.statistics.functions);
/// }
/// println!("bundle {}", built.digest);
/// # assert_eq!(built.report.modules.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SymbolBundleBuilder {
    options: Options,
    paths: Vec<PathBuf>,
    store_executables: bool,
    strict: bool,
    jobs: Option<usize>,
    limits: Limits,
    exclude: Exclude,
    sources: Option<SourceOptions>,
}

/// A bundle that was built.
#[derive(Debug, Clone)]
pub struct Built {
    /// The bundle's digest.
    pub digest: Digest,
    /// Its symbol index.
    pub index: SymbolIndex,
    /// What was found.
    pub report: BuildReport,
}

impl SymbolBundleBuilder {
    /// A builder without inputs.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            paths: Vec::new(),
            store_executables: true,
            strict: false,
            jobs: None,
            limits: Limits::default(),
            exclude: Exclude::default(),
            sources: None,
        }
    }

    /// Adds a file, or a directory with everything below it. Archives, packages and images are looked into.
    ///
    /// What is named must be a release file (ELF, PE, PDB, Mach-O) or hold some; in directories and archives, other files are
    /// passed over and counted. Binaries and their debug files find each other by their ids.
    pub fn add_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// Whether the binaries themselves are stored (so that `/buildid/…/executable` has an answer). On by default.
    pub fn executables(mut self, store: bool) -> Self {
        self.store_executables = store;
        self
    }

    /// Whether a module that is not paired, a debug file of another build, damage, or an archive that is not looked into is an error
    /// ([`BuildError::Strict`]). Off by default.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// How many files and modules are worked on at once, at most; by default as many as rayon has threads,
    /// which are as many as there are processors. The bundle's
    /// bytes do not depend on it.
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = Some(jobs.max(1));
        self
    }

    /// What one archive may ask for. [`Limits`] says what the defaults are.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What is left out of the inputs. Nothing by default.
    pub fn exclude(mut self, exclude: Exclude) -> Self {
        self.exclude = exclude;
        self
    }

    /// Gathers the source files that the line tables name, as an artifact of their own whose digest the bundle's index names
    /// ([`gather_sources`]). Off by default.
    pub fn sources(mut self, options: SourceOptions) -> Self {
        self.sources = Some(options);
        self
    }

    /// Builds into a layout. Its files move there when all are finished, and the bundle becomes visible in `index.json` last,
    /// tagged with the version where that is a tag; after an error the layout is what it was before.
    ///
    /// # Errors
    /// Whatever [`BuildError`] says; every variant names the file.
    pub fn build(&self, layout: &LayoutDir) -> Result<Built, BuildError> {
        self.check()?;
        let staging = Staging::new(layout)?;
        let (mut report, mut finished) = self.run(Some(staging.layout()), Some(layout.root()))?;
        let sources = self.gather(&mut finished, Some(staging.layout()), &mut report)?;
        let mut report = self.checked(report)?;
        let (mut index, pages) = self.index(finished, &mut report);
        index.sources = sources.as_ref().and_then(GatheredSources::digest);
        if let Some(sources) = sources {
            sources.publish(&self.options.version, staging.layout())?;
        }
        let digest = assemble::publish(&mut index, &pages, staging.layout())?;
        staging.commit()?;
        report.bundle = Some(digest);
        Ok(Built { digest, index, report })
    }

    /// Builds into the layout in `dir`, which is made where it does not exist. After an error a directory that was made is
    /// gone again.
    ///
    /// # Errors
    /// As [`SymbolBundleBuilder::build`].
    pub fn build_into(&self, dir: &Path) -> Result<Built, BuildError> {
        self.check()?;
        // A link to nothing is there, too.
        let is_new = std::fs::symlink_metadata(dir).is_err();
        let layout = LayoutDir::create(dir)?;
        let written = self.build(&layout);
        if written.is_err() && is_new {
            // The error that matters is the first one. What somebody else has put there since stays.
            let _ = layout.remove_if_empty();
        }
        written
    }

    /// Does everything but writing a bundle, and says what was found, also of the sources. Release files out of archives are kept among the
    /// system's temporary files meanwhile.
    ///
    /// # Errors
    /// As [`SymbolBundleBuilder::build`].
    pub fn report(&self) -> Result<BuildReport, BuildError> {
        self.check()?;
        let (mut report, mut finished) = self.run(None, None)?;
        self.gather(&mut finished, None, &mut report)?;
        let mut report = self.checked(report)?;
        self.index(finished, &mut report);
        Ok(report)
    }

    /// The index of all modules and the hashes of their pages; the report says what lies elsewhere in it.
    fn index(&self, finished: Vec<Finished>, report: &mut BuildReport) -> (SymbolIndex, assemble::Pages) {
        let (index, pages) = assemble::index(&self.options.name, &self.options.version, finished);
        assemble::tell_what_moved(&index, report);
        (index, pages)
    }

    /// The report, where it is one of a bundle that may be written.
    fn checked(&self, report: BuildReport) -> Result<BuildReport, BuildError> {
        if !report.conflicts.is_empty() {
            return Err(BuildError::Conflict { conflicts: report.conflicts.clone(), report: Some(Box::new(report)) });
        }
        if self.strict && !report.is_complete() { Err(strict_error(report)) } else { Ok(report) }
    }

    /// The sources of all modules, where they are asked for, and what is reported of them.
    fn gather(
        &self,
        finished: &mut [Finished],
        layout: Option<&LayoutDir>,
        report: &mut BuildReport,
    ) -> Result<Option<GatheredSources>, BuildError> {
        let Some(options) = &self.sources else { return Ok(None) };
        let mut wanted = WantedSources::default();
        for module in finished {
            wanted.extend(std::mem::take(&mut module.sources));
        }
        let gathered = gather_sources(&wanted, options, layout)?;
        report.sources = Some(gathered.report.clone());
        Ok(Some(gathered))
    }

    fn check(&self) -> Result<(), BuildError> {
        Ok(Release::new(&self.options.name, &self.options.version).check()?)
    }

    /// Reads, pairs and builds every module; the report, and the modules by id. Files are stored in `layout`; what lies below
    /// `output` is no input.
    fn run(
        &self,
        layout: Option<&LayoutDir>,
        output: Option<&Path>,
    ) -> Result<(BuildReport, Vec<Finished>), BuildError> {
        let jobs = self.jobs.unwrap_or_else(rayon::current_num_threads);
        let spool = layout.map_or_else(Spool::temporary, Spool::in_layout);
        let tell = |progress: &Progress<'_>| self.tell(progress);
        let budget = Budget::of_at_least(LEAST_BUDGET);
        let (limits, exclude) = (&self.limits, &self.exclude);
        let reading = Reading { jobs, spool: &spool, tell: &tell, limits, exclude, budget: &budget, output };
        let gathered = inputs::gather(&self.paths, &reading)?;
        let mut report = BuildReport::new(&self.options.name, &self.options.version, gathered.report);
        let (files, doubles) = pairing::unique(gathered.files);
        let pairing = pairing::pair(&files, layout)?;
        if pairing.modules.is_empty() {
            let hints = unpaired::instead_of_modules(&self.paths, &report.inputs, &pairing);
            self.account(&mut report, pairing, doubles);
            return Err(unpaired::no_modules(&self.paths, hints, report));
        }
        for (id, module) in &pairing.modules {
            // Told before the long work; the tables that are made are counted at the end.
            let files = module.files().len();
            if files >= MAX_LAYERS {
                return Err(ComposeError::TooManyFiles { id: id.to_string(), files }.into());
            }
        }
        let finished = self.finish(&pairing.modules, layout, jobs, &budget)?;
        report.modules = finished.iter().map(|module| module.report.clone()).collect();
        report.unwind = UnwindTotals::of(&report.modules);
        self.account(&mut report, pairing, doubles);
        Ok((report, finished))
    }

    /// All modules in the order of their ids.
    fn finish(
        &self,
        modules: &std::collections::BTreeMap<DebugId, Module<'_>>,
        layout: Option<&LayoutDir>,
        jobs: usize,
        budget: &Budget,
    ) -> Result<Vec<Finished>, BuildError> {
        let mut queue: Vec<(u64, &DebugId, &Module<'_>)> =
            modules.iter().map(|(id, module)| (module.weight(), id, module)).collect();
        // The largest first, so that no thread is left alone with it at the end.
        queue.sort_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
        let building = Building {
            layout,
            store_executables: self.store_executables,
            jobs: NonZeroUsize::new(jobs).unwrap_or(NonZeroUsize::MIN),
            wants_sources: self.sources.is_some(),
        };
        let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let total = modules.len() as u64;
        let total_bytes = modules.values().map(Module::bytes).fold(0, u64::saturating_add);
        let mut finished = workers::run(&queue, jobs, |(weight, id, module)| {
            let _permit = budget.acquire(*weight);
            let begun = begun.fetch_add(1, Ordering::Relaxed) + 1;
            let described = module.described().or(module.binary);
            let name = described.map_or("", |part| part.file.name.as_str());
            self.tell(&Progress::Begun { begun, total, name, total_bytes });
            let finished = module::build(id, module, &building)?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let name = &finished.entry.name;
            self.tell(&Progress::Module { done, total, name, bytes: module.bytes(), total_bytes });
            Ok::<_, BuildError>(finished)
        })?;
        finished.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(finished)
    }

    /// What pairing found, in the report.
    fn account(&self, report: &mut BuildReport, pairing: Pairing<'_>, doubles: u64) {
        let used: std::collections::BTreeSet<(Digest, &str)> =
            pairing.modules.values().flat_map(Module::files).map(|file| (file.digest(), file.place.as_str())).collect();
        report.inputs.taken = used.len() as u64;
        report.inputs.bytes = pairing
            .modules
            .values()
            .flat_map(Module::files)
            .map(|file| (file.digest(), file.measured.size))
            .collect::<std::collections::BTreeMap<_, _>>()
            .values()
            .sum();
        report.inputs.doubles = doubles;
        report.inputs.skip("another file of the same id is better", pairing.superseded.len() as u64);
        // Files of one id are of one module, so that what contradicts it is nobody's.
        let used_places = used.iter().map(|(_, place)| *place);
        let loose_places = pairing.loose.iter().map(|(file, _)| file.place.as_str());
        let counted: std::collections::BTreeSet<&str> =
            used_places.chain(loose_places).chain(pairing.superseded.iter().map(|one| one.place.as_str())).collect();
        let sides = pairing.mismatches.iter().flat_map(|one| [&one.binary.place, &one.debug_file.place]);
        let left: std::collections::BTreeSet<&str> =
            sides.map(String::as_str).filter(|place| !counted.contains(place)).collect();
        report.inputs.skip("of another build than what has its id: see the mismatches", left.len() as u64);
        for (file, reason) in &pairing.loose {
            report.inputs.skip(reason, 1);
            report.inputs.skipped_places.add(reason, file.place.clone());
            if !matches!(file.content, inputs::Content::DsymMember) {
                report.debug_files_without_binaries.push(Unpaired {
                    debug_id: None,
                    name: file.name.clone(),
                    place: file.place.clone(),
                    advice: unpaired::loose(file, reason),
                });
            }
        }
        for module in &report.modules {
            let Some(of) = pairing.modules.get(&module.debug_id) else { continue };
            if let Some(found) = unpaired::binary(module, of) {
                report.binaries_without_debug_files.push(found);
            }
            if let Some(found) = unpaired::debug_file(module, of) {
                report.debug_files_without_binaries.push(found);
            }
        }
        report.modules.sort_by(|a, b| by_platform(a).cmp(&by_platform(b)));
        report.binaries_without_debug_files.sort();
        report.debug_files_without_binaries.sort();
        report.mismatches = pairing.mismatches;
        report.conflicts = pairing.conflicts;
        report.superseded = pairing.superseded;
    }

    fn tell(&self, progress: &Progress<'_>) {
        if let Some(told) = &self.options.progress {
            told(progress);
        }
    }
}

fn by_platform(module: &ModuleReport) -> (&'static str, &DebugId) {
    (module.platform, &module.debug_id)
}

fn strict_error(report: BuildReport) -> BuildError {
    BuildError::Strict {
        unpaired: report.unpaired(),
        mismatches: report.mismatches.len() as u64,
        damaged: report.inputs.damaged() + report.damaged_modules(),
        not_looked_into: report.inputs.not_looked_into(),
        sources: report.mismatched_sources(),
        report: Box::new(report),
    }
}
