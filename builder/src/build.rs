//! The builder: paths to a bundle in a layout.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use symseal_bundle::compose::{self, Composed, FileFormat};
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::page_hashes::{self, FilePages};
use symseal_bundle::seal::Release;
use symseal_bundle::{
    Digest, FileEntry, FileRole, IndexStatistics, LayoutDir, LayoutError, Producer, ShardEntry, SymbolIndex, index,
    pages, title,
};
use symseal_module::DebugId;

use crate::error::BuildError;
use crate::module::{self, Finished};
use crate::pairing::Module;
use crate::report::BuildReport;
use crate::{inputs, pairing};

/// Modules with more input than this are built one after the other, so that the largest one decides the peak of memory.
const LARGE_MODULE_BYTES: u64 = 64 << 20;

/// Called as a build goes on, from several threads.
pub type ProgressFn = Arc<dyn Fn(&Progress<'_>) + Send + Sync>;

/// What a build is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A file was looked at.
    Looked {
        /// The file.
        path: &'a Path,
    },
    /// A module was finished.
    Module {
        /// Modules that are finished.
        done: u64,
        /// Modules in all.
        total: u64,
        /// Its file name.
        name: &'a str,
    },
}

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

/// Builds a bundle.
#[derive(Clone)]
pub struct SymbolBundleBuilder {
    options: Options,
    paths: Vec<PathBuf>,
    store_executables: bool,
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
        Self { options, paths: Vec::new(), store_executables: true }
    }

    /// Adds a file, or a directory with everything below it.
    ///
    /// What is named must be an ELF executable, library or debug file; in a directory, other files are passed over and
    /// counted. A binary and its separate debug file find each other by their build-id.
    pub fn add_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// Whether the binaries themselves are stored (so that `/buildid/…/executable` has an answer). On by default.
    pub fn executables(mut self, store: bool) -> Self {
        self.store_executables = store;
        self
    }

    /// Builds into a layout. The bundle becomes visible in its `index.json` last, tagged with the version where that
    /// is a tag; until then, and after an error, the layout shows what it showed before.
    pub fn build(&self, layout: &LayoutDir) -> Result<Built, BuildError> {
        let modules = self.modules()?;
        self.write(modules, layout)
    }

    /// Builds into the layout in `dir`, which is made where it does not exist, but not before the inputs were found to be
    /// good. After an error a directory that was made is gone again.
    pub fn build_into(&self, dir: &Path) -> Result<Built, BuildError> {
        let modules = self.modules()?;
        let is_new = !dir.exists();
        let written = LayoutDir::create(dir).map_err(BuildError::from).and_then(|layout| self.write(modules, &layout));
        if written.is_err() && is_new {
            // The error that matters is the first one.
            let _ = std::fs::remove_dir_all(dir);
        }
        written
    }

    fn modules(&self) -> Result<(BTreeMap<DebugId, Module>, BuildReport), BuildError> {
        Release::new(&self.options.name, &self.options.version).check()?;
        let seen = |path: &Path| self.tell(&Progress::Looked { path });
        let (files, inputs) = inputs::identify(&self.paths, &seen)?;
        let mut report = BuildReport { inputs, modules: Vec::new() };
        report.inputs.taken = files.len() as u64;
        let (modules, doubles) = pairing::pair(files)?;
        report.inputs.doubles = doubles;
        report.inputs.taken -= doubles;
        if modules.is_empty() {
            let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
            let files = report.inputs.not_elf + report.inputs.other_elf + report.inputs.unidentified;
            let paths = if paths.is_empty() { "no paths".to_owned() } else { paths.join(", ") };
            return Err(BuildError::NoModules { paths, files });
        }
        Ok((modules, report))
    }

    fn write(
        &self,
        (modules, mut report): (BTreeMap<DebugId, Module>, BuildReport),
        layout: &LayoutDir,
    ) -> Result<Built, BuildError> {
        let finished = self.finish(&modules, layout)?;
        let mut pages: BTreeMap<String, Vec<FilePages>> = BTreeMap::new();
        let mut index = SymbolIndex {
            schema: index::SCHEMA.to_owned(),
            name: self.options.name.clone(),
            version: self.options.version.clone(),
            producer: Producer { name: "symseal".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            linux: BTreeMap::new(),
            windows: BTreeMap::new(),
            macos: BTreeMap::new(),
            shards: Vec::new(),
            sources: None,
            statistics: IndexStatistics::default(),
        };
        for module in finished {
            let text = module.id.to_string();
            pages.insert(text.clone(), module.pages);
            index.linux.insert(text, module.entry);
            report.modules.push(module.report);
        }
        for shard in compose::shards(&index)? {
            let entry = write_shard(&shard, &pages, layout)?;
            index.shards.push(entry);
        }
        index.statistics = statistics(&index);
        let composed = compose::compose(&index)?;
        publish(&composed, &self.options.version, layout)?;
        Ok(Built { digest: composed.digest, index, report })
    }

    /// All modules in the order of their ids: small ones in parallel, then large ones one by one.
    fn finish(&self, modules: &BTreeMap<DebugId, Module>, layout: &LayoutDir) -> Result<Vec<Finished>, BuildError> {
        let done = AtomicU64::new(0);
        let total = modules.len() as u64;
        let build = |(id, module): (&DebugId, &Module)| {
            let finished = module::build(id, module, self.store_executables, layout)?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            self.tell(&Progress::Module { done, total, name: &finished.entry.name });
            Ok(finished)
        };
        let (large, small): (Vec<_>, Vec<_>) =
            modules.iter().partition(|(_, module)| module.input_bytes() > LARGE_MODULE_BYTES);
        let mut finished: Vec<Finished> =
            small.into_par_iter().map(build).collect::<Result<Vec<Finished>, BuildError>>()?;
        for module in large {
            finished.push(build(module)?);
        }
        finished.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(finished)
    }

    fn tell(&self, progress: &Progress<'_>) {
        if let Some(told) = &self.options.progress {
            told(progress);
        }
    }
}

/// Stores the page hashes of one shard's files.
fn write_shard(
    shard: &compose::Shard,
    pages: &BTreeMap<String, Vec<FilePages>>,
    layout: &LayoutDir,
) -> Result<ShardEntry, BuildError> {
    let own: Vec<FilePages> = shard.ids.iter().filter_map(|id| pages.get(&id.to_string())).flatten().cloned().collect();
    let id = |id: Option<&DebugId>| id.cloned().ok_or(BuildError::NoModules { paths: shard.arch.clone(), files: 0 });
    let (first, last) = (id(shard.ids.first())?, id(shard.ids.last())?);
    let path = title::page_hashes(shard.platform, &shard.arch, &first);
    let bytes = page_hashes::write(&own)
        .map_err(|error| BuildError::ModuleIndex { module: path.clone(), problem: error.to_string() })?;
    layout.write_blob(&bytes)?;
    let role = FileRole::PageHashes;
    let measured = pages::measure(&bytes, pages::page_size_of(role));
    let page_hashes = FileEntry {
        role,
        path,
        size: measured.size,
        sha256: measured.digest,
        media_type: compose::media_type(role, FileFormat::Elf).to_owned(),
        page_size: pages::page_size_of(role),
        page_root: measured.root,
        derived_from: Vec::new(),
    };
    Ok(ShardEntry { platform: shard.platform.to_owned(), arch: shard.arch.clone(), first, last, page_hashes })
}

fn statistics(index: &SymbolIndex) -> IndexStatistics {
    let mut seen = BTreeSet::new();
    let mut statistics = IndexStatistics::default();
    for file in index.files() {
        statistics.files += 1;
        if seen.insert(file.sha256) {
            statistics.bytes = statistics.bytes.saturating_add(file.size);
        }
    }
    statistics.modules = index.modules().count() as u64;
    statistics
}

/// Stores manifests and indexes, and makes the bundle visible.
fn publish(composed: &Composed, version: &str, layout: &LayoutDir) -> Result<(), LayoutError> {
    layout.write_blob(oci::EMPTY_JSON)?;
    layout.write_blob(&composed.symbol_index)?;
    for manifest in &composed.manifests {
        layout.write_blob(manifest)?;
    }
    layout.write_blob(&composed.image_index)?;
    let mut descriptor = Descriptor::of(oci::IMAGE_INDEX, &composed.image_index);
    descriptor.artifact_type = Some(oci::BUNDLE.to_owned());
    layout.add_to_index(descriptor, Some(version).filter(|version| symseal_bundle::is_tag(version)))
}
