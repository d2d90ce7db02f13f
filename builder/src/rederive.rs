//! Are a bundle's tables the ones that its files give? Each module is built again, and the digests are compared.
//!
//! A seal says that somebody signed a table, and its header from which file it claims to come. That it does come from
//! there, only making it again shows. Tables that another version of this program made cannot be compared: a bundle's bytes
//! depend on the version.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use symseal_bundle::pages::{DEBUG_FILE_PAGE, measure};
use symseal_bundle::workers::{self, Budget};
use symseal_bundle::{Bundle, Digest, FileEntry, FileRole, ModuleEntry};
use symseal_module::DebugId;

use crate::build::LEAST_BUDGET;
use crate::error::{BuildError, place_of};
use crate::inputs::{self, InputFile};
use crate::module::{self, Building};
use crate::pairing;
use crate::progress::{Progress, ProgressFn};

/// A table of a bundle, and what making it again gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RederivedTable {
    /// Its module.
    pub debug_id: String,
    /// Its title.
    pub path: String,
    /// What came of it.
    pub outcome: Rederived,
}

/// What making a table again gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rederived {
    /// The same bytes.
    Same,
    /// Other bytes, or none.
    Differs {
        /// The digest that the index gives.
        expected: Digest,
        /// What was made.
        found: String,
    },
    /// Another version of the program made it.
    NotComparable {
        /// Its name and version.
        made_by: String,
    },
    /// A file that the module was made from is not here.
    NotChecked {
        /// Which, and where it was looked for.
        reason: String,
    },
}

/// Files to look for what a bundle does not hold, by digest.
#[derive(Debug, Default)]
struct Elsewhere(BTreeMap<Digest, PathBuf>);

/// Makes every table of `bundle` again: from the bundle's own files, or from those at or below `paths` that have the
/// recorded sha256. No more modules are worked on at once than memory for the largest allows.
///
/// # Errors
/// [`BuildError`] where `paths` cannot be read. What is wrong with a module is in its outcome.
pub fn rederive(
    bundle: &Bundle,
    paths: &[PathBuf],
    told: Option<&ProgressFn>,
) -> Result<Vec<RederivedTable>, BuildError> {
    let modules: Vec<(&str, &ModuleEntry)> = bundle.index().modules().map(|(_, id, entry)| (id, entry)).collect();
    let stored: BTreeMap<Digest, &FileEntry> = modules
        .iter()
        .flat_map(|(_, entry)| &entry.files)
        .filter(|file| !is_made(file.role))
        .map(|file| (file.sha256, file))
        .collect();
    let is_missing =
        modules.iter().flat_map(|(_, entry)| &entry.inputs).any(|input| !stored.contains_key(&input.sha256));
    let elsewhere = if is_missing { Elsewhere::find(paths)? } else { Elsewhere::default() };
    let sources = Sources { bundle, stored, elsewhere };

    let weight = |entry: &ModuleEntry| entry.files.iter().map(|file| file.size).fold(0, u64::saturating_add);
    let mut queue: Vec<(u64, &str, &ModuleEntry)> =
        modules.iter().map(|(id, entry)| (weight(entry), *id, *entry)).collect();
    // The largest first, so that no thread is left alone with it at the end.
    queue.sort_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
    let budget = Budget::of_at_least(LEAST_BUDGET);
    let (done, total) = (AtomicU64::new(0), queue.len() as u64);
    let total_bytes = queue.iter().map(|(weight, ..)| *weight).fold(0, u64::saturating_add);
    let jobs = rayon::current_num_threads();
    let made = workers::run(&queue, jobs, |(weight, id, entry)| {
        let _permit = budget.acquire(*weight);
        let tables = sources.module(id, entry, jobs);
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(told) = told {
            told(&Progress::Module { done, total, name: &entry.name, bytes: *weight, total_bytes });
        }
        Ok::<_, BuildError>(tables)
    })?;
    let mut tables: Vec<RederivedTable> = made.into_iter().flatten().collect();
    tables.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(tables)
}

/// Whether files of this role are made from others.
fn is_made(role: FileRole) -> bool {
    matches!(role, FileRole::SymbolTable | FileRole::UnwindTable | FileRole::ModuleIndex | FileRole::PageHashes)
}

impl Elsewhere {
    fn find(paths: &[PathBuf]) -> Result<Self, BuildError> {
        let files = inputs::files_below(paths)?;
        // One that cannot be read is as good as none: the module says which file it lacks.
        let digest = |path: PathBuf| Some((Digest::of_reader(std::fs::File::open(&path).ok()?).ok()?.0, path));
        Ok(Self(files.into_par_iter().filter_map(digest).collect()))
    }
}

struct Sources<'b> {
    bundle: &'b Bundle,
    /// The files that the bundle took as they were.
    stored: BTreeMap<Digest, &'b FileEntry>,
    elsewhere: Elsewhere,
}

impl Sources<'_> {
    /// The tables of one module.
    fn module(&self, id: &str, entry: &ModuleEntry, jobs: usize) -> Vec<RederivedTable> {
        let tables = entry
            .files
            .iter()
            .filter(|file| matches!(file.role, FileRole::SymbolTable | FileRole::UnwindTable | FileRole::ModuleIndex));
        let all = |outcome: &dyn Fn(&FileEntry) -> Rederived| {
            tables
                .clone()
                .map(|file| RederivedTable { debug_id: id.to_owned(), path: file.path.clone(), outcome: outcome(file) })
                .collect::<Vec<_>>()
        };
        let producers: BTreeMap<Digest, Result<String, String>> =
            tables.clone().map(|file| (file.sha256, self.producer(entry, file))).collect();
        let other = |file: &FileEntry| match producers.get(&file.sha256)? {
            Ok(made_by) if made_by == crate::PRODUCER => None,
            Ok(made_by) => Some(Rederived::NotComparable { made_by: made_by.clone() }),
            Err(reason) => Some(Rederived::NotChecked { reason: reason.clone() }),
        };
        // Nothing is made where nothing could be compared.
        if tables.clone().all(|file| other(file).is_some()) {
            return all(&|file| other(file).unwrap_or(Rederived::Same));
        }
        let made = match self.files_of(id, entry) {
            Ok(files) => make(id, files, jobs),
            Err(reason) => return all(&|_| Rederived::NotChecked { reason: reason.clone() }),
        };
        all(&|file| {
            if let Some(other) = other(file) {
                return other;
            }
            let differs = |found: String| Rederived::Differs { expected: file.sha256, found };
            match &made {
                Err(error) => differs(error.to_string()),
                Ok(made) => match made.iter().find(|made| made.role == file.role) {
                    Some(made) if made.sha256 == file.sha256 => Rederived::Same,
                    Some(made) => differs(made.sha256.to_string()),
                    None => differs("no such table".to_owned()),
                },
            }
        })
    }

    /// Who made a table: its header says so. A module's index is made from its symbol table.
    fn producer(&self, entry: &ModuleEntry, file: &FileEntry) -> Result<String, String> {
        let table = match file.role {
            FileRole::ModuleIndex => entry.file(FileRole::SymbolTable).ok_or("there is no symbol table")?,
            _ => file,
        };
        let bytes = self.bundle.read(table).map_err(|error| error.to_string())?;
        if table.role == FileRole::UnwindTable {
            let table = symseal_unwind::Table::open(&bytes).map_err(|error| error.to_string())?;
            return Ok(table.producer().to_owned());
        }
        let table = symseal_symx::Table::open(&bytes).map_err(|error| error.to_string())?;
        Ok(table.producer().to_owned())
    }

    /// The files that a module was made from; `Err` names the first that is not here.
    fn files_of(&self, id: &str, entry: &ModuleEntry) -> Result<Vec<InputFile>, String> {
        // A supplementary file is known as one by the modules that refer to it.
        let refers = |other: &ModuleEntry| other.supplementary.as_ref().is_some_and(|named| named.to_string() == id);
        let referrer = self.bundle.index().modules().map(|(_, _, other)| other).filter(|other| refers(other));
        let referrer = referrer.min_by_key(|other| other.files.iter().map(|file| file.size).sum::<u64>());
        let wanted = entry.inputs.iter().chain(referrer.into_iter().flat_map(|other| &other.inputs));
        let mut files: Vec<InputFile> = Vec::new();
        for input in wanted {
            if files.iter().any(|file| file.digest() == input.sha256 && file.name == input.name) {
                continue;
            }
            let stored = self.stored.get(&input.sha256);
            if stored.is_some_and(|file| file.role == FileRole::DsymMember) {
                continue;
            }
            let (path, place) = match (stored, self.elsewhere.0.get(&input.sha256)) {
                // Where a dSYM's file lies in the bundle says that it is one.
                (Some(file), _) => (self.bundle.file_path(file), file.path.clone()),
                (None, Some(path)) => (path.clone(), place_of(path)),
                (None, None) => {
                    return Err(format!(
                        "{} ({}) is neither in the bundle nor among the inputs",
                        input.name, input.sha256
                    ));
                }
            };
            let bytes = inputs::file::read_file(&path).map_err(|error| error.to_string())?;
            let measured = measure(&bytes, DEBUG_FILE_PAGE);
            if measured.digest != input.sha256 {
                return Err(format!("{}: expected {}, found {}", path.display(), input.sha256, measured.digest));
            }
            // What is no release file (a dSYM's lists) makes no table.
            let identified = inputs::identified(&place, &path, &input.name, &bytes, measured);
            files.extend(identified.map_err(|error| error.to_string())?);
        }
        Ok(files)
    }
}

/// A module's files as the builder makes them, without storing any.
fn make(id: &str, files: Vec<InputFile>, jobs: usize) -> Result<Vec<FileEntry>, BuildError> {
    let (files, _) = pairing::unique(files);
    let pairing = pairing::pair(&files, None)?;
    if !pairing.conflicts.is_empty() {
        return Err(BuildError::Conflict { conflicts: pairing.conflicts, report: None });
    }
    let wanted: Option<(&DebugId, _)> = pairing.modules.iter().find(|(found, _)| found.to_string() == id);
    let Some((id, module)) = wanted else {
        return Err(BuildError::NoModules {
            paths: id.to_owned(),
            files: files.len() as u64,
            hints: Vec::new(),
            report: None,
        });
    };
    let building = Building {
        layout: None,
        store_executables: true,
        jobs: NonZeroUsize::new(jobs).unwrap_or(NonZeroUsize::MIN),
        wants_sources: false,
    };
    Ok(module::build(id, module, &building)?.entry.files)
}
