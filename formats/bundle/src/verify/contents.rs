//! Files against the symbol index: digests, page trees, ids, derivations. Each distinct file is read once.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use symseal_module::DebugId;
use symseal_seal::checks::{Check, id};

use super::Findings;
use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::index::{FileEntry, FileRole, ModuleEntry};
use crate::layout::{self, LayoutError};
use crate::page_hashes::PageHashes;
use crate::pages::{self, Hash};
use crate::pieces;
use crate::workers::{self, Budget};

/// Bytes of files that are in memory at once, where no single one is larger.
const LEAST_BUDGET: u64 = 256 << 20;
/// A file of at least so many bytes is hashed by several threads: its pages by all of them, the whole by one.
const WORTH_SPLITTING: usize = 4 << 20;

type Identify<'a> = dyn Fn(&[u8]) -> Vec<DebugId> + Sync + 'a;

/// One file on disk, with every entry of the index that means it.
struct Job<'a> {
    path: PathBuf,
    entries: Vec<(Option<Module<'a>>, &'a FileEntry)>,
}

/// The module that a file is listed for.
#[derive(Clone, Copy)]
struct Module<'a> {
    id: &'a str,
    entry: &'a ModuleEntry,
}

/// What one file gave.
#[derive(Default)]
struct Outcome {
    bytes: u64,
    failures: Vec<Check>,
    ids: u64,
    tables: u64,
    pieces: u64,
    /// From a file of page hashes: what each file's root must be.
    listed: Vec<((Digest, u32), (u64, Hash))>,
}

/// Checks every file; returns how many distinct ones there were, and their bytes.
pub(super) fn check(bundle: &Bundle, identify: &Identify<'_>, findings: &mut Findings) -> (u64, u64) {
    let jobs = jobs(bundle);
    let outcomes = run(&jobs, identify);
    let mut failures: Vec<Check> = Vec::new();
    let mut total = Outcome::default();
    let mut listed = BTreeMap::new();
    for outcome in outcomes {
        total.bytes = total.bytes.saturating_add(outcome.bytes);
        total.ids += outcome.ids;
        total.tables += outcome.tables;
        total.pieces += outcome.pieces;
        failures.extend(outcome.failures);
        listed.extend(outcome.listed);
    }
    let files = jobs.len() as u64;
    // A page-hashes file that could not be read was reported already.
    if failures.is_empty() {
        page_hashes_cover(bundle, &listed, &mut failures);
    }
    let passed = [
        (id::BLOB_DIGEST, format!("{files} files, {} bytes", total.bytes)),
        (id::PAGE_ROOT, format!("{files} page trees")),
        (id::PIECE_ROOT, format!("{} trees of pieces", total.pieces)),
        (id::MODULE_BUILD_ID, format!("{} binaries and debug files", total.ids)),
        (id::TABLE_DERIVATION, format!("{} tables", total.tables)),
    ];
    for (check, passed) in passed {
        let (own, others) = failures.into_iter().partition(|failure| failure.id == check);
        failures = others;
        findings.conclude(check, own, passed);
    }
    (files, total.bytes)
}

fn jobs(bundle: &Bundle) -> Vec<Job<'_>> {
    // By the paths' bytes: comparing paths by their components is slow.
    let mut jobs: BTreeMap<OsString, Vec<(Option<Module<'_>>, &FileEntry)>> = BTreeMap::new();
    let path = |file: &FileEntry| bundle.file_path(file).into_os_string();
    for (_, id, entry) in bundle.index().modules() {
        for file in &entry.files {
            jobs.entry(path(file)).or_default().push((Some(Module { id, entry }), file));
        }
    }
    for shard in &bundle.index().shards {
        jobs.entry(path(&shard.page_hashes)).or_default().push((None, &shard.page_hashes));
    }
    jobs.into_iter().map(|(path, entries)| Job { path: path.into(), entries }).collect()
}

/// The outcomes in the order of the jobs.
fn run(jobs: &[Job<'_>], identify: &Identify<'_>) -> Vec<Outcome> {
    // As many threads hash as there are processors. Asked once: the answer is read out of files.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let size = |job: &Job<'_>| job.entries.first().map_or(0, |(_, file)| file.size);
    // The largest first, so that no thread is left alone with it at the end.
    let mut order: Vec<(usize, &Job<'_>)> = jobs.iter().enumerate().collect();
    order.sort_by_key(|(_, job)| std::cmp::Reverse(size(job)));
    let budget = Budget::of_at_least(LEAST_BUDGET);
    let Ok(mut outcomes) = workers::run(&order, threads, |(at, job)| {
        let _permit = budget.acquire(size(job));
        Ok::<_, Infallible>((*at, check_file(job, threads, identify)))
    });
    outcomes.sort_unstable_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The digest of a file's bytes, and its page tree's root for pages of this size. Of a large file the pages are hashed by
/// threads of their own, beside the whole.
fn hash(bytes: &[u8], page_size: u32, threads: usize) -> (Digest, Hash) {
    let pages_each = bytes.len().div_ceil(page_size.max(1) as usize).div_ceil(threads);
    let part = pages_each.saturating_mul(page_size as usize);
    if threads == 1 || bytes.len() < WORTH_SPLITTING || part == 0 {
        return (Digest::of(bytes), pages::root(&pages::leaves(bytes, page_size)));
    }
    std::thread::scope(|scope| {
        let parts: Vec<_> =
            bytes.chunks(part).map(|part| scope.spawn(move || pages::leaves(part, page_size))).collect();
        let digest = Digest::of(bytes);
        let join = |part: std::thread::ScopedJoinHandle<'_, Vec<Hash>>| {
            part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let leaves: Vec<Hash> = parts.into_iter().flat_map(join).collect();
        (digest, pages::root(&leaves))
    })
}

fn check_file(job: &Job<'_>, threads: usize, identify: &Identify<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let Some((_, first)) = job.entries.first() else { return outcome };
    let what = |file: &FileEntry| format!("{} {}", file.path, job.path.display());
    let bytes = match layout::read_bounded(&job.path, first.size) {
        Ok(bytes) => bytes,
        Err(error) => {
            let found = match error {
                LayoutError::TooLarge { size, .. } => format!("{size} bytes"),
                LayoutError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => "no file".to_owned(),
                error => error.to_string(),
            };
            let expected = format!("{} of {} bytes", first.sha256, first.size);
            outcome.failures.push(Check::failed(id::BLOB_DIGEST, expected, found).with_detail(what(first)));
            return outcome;
        }
    };
    outcome.bytes = bytes.len() as u64;
    let (digest, root) = hash(&bytes, first.page_size, threads);
    let mut roots: BTreeMap<u32, Hash> = BTreeMap::from([(first.page_size, root)]);
    for (module, file) in &job.entries {
        if digest != file.sha256 || bytes.len() as u64 != file.size {
            let expected = format!("{} of {} bytes", file.sha256, file.size);
            let found = format!("{digest} of {} bytes", bytes.len());
            outcome.failures.push(Check::failed(id::BLOB_DIGEST, expected, found).with_detail(what(file)));
        }
        let root = roots.entry(file.page_size).or_insert_with(|| pages::root(&pages::leaves(&bytes, file.page_size)));
        if *root != file.page_root {
            let check = Check::failed(id::PAGE_ROOT, file.page_root.to_string(), root.to_string());
            outcome.failures.push(check.with_detail(what(file)));
        }
        if let Some(expected) = file.piece_root {
            outcome.pieces += 1;
            let found = pieces::root(&bytes);
            if found != expected {
                let check = Check::failed(id::PIECE_ROOT, expected.to_string(), found.to_string());
                outcome.failures.push(check.with_detail(what(file)));
            }
        }
        match (file.role, module) {
            (FileRole::Debuginfo | FileRole::Executable, Some(module)) => {
                outcome.ids += 1;
                if let Err(found) = is_of_module(module, file.role, &identify(&bytes)) {
                    let check = Check::failed(id::MODULE_BUILD_ID, module.id, found);
                    outcome.failures.push(check.with_detail(what(file)));
                }
            }
            (FileRole::SymbolTable | FileRole::UnwindTable, Some(module)) => {
                outcome.tables += 1;
                if let Err(check) = check_table(module.id, file, &bytes) {
                    outcome.failures.push(check.with_detail(what(file)));
                }
            }
            (FileRole::PageHashes, _) => match PageHashes::parse(&bytes) {
                Ok(hashes) => outcome
                    .listed
                    .extend(hashes.files().map(|pages| ((pages.sha256, pages.page_size), (pages.size, pages.root())))),
                Err(error) => {
                    let check = Check::refused_by(id::PAGE_ROOT, "a file of page hashes", &error);
                    outcome.failures.push(check.with_detail(what(file)));
                }
            },
            _ => {}
        }
    }
    outcome
}

/// One of the file's ids must be the module's; a universal Mach-O file has one for each slice. A debug file that was paired
/// with a binary without an id has none. `Err` holds what was found.
fn is_of_module(module: &Module<'_>, role: FileRole, found: &[DebugId]) -> Result<(), String> {
    if found.iter().any(|found| found.to_string() == module.id) {
        return Ok(());
    }
    let may_have_none = module.entry.id_kind == "text-hash" && role == FileRole::Debuginfo;
    if found.is_empty() {
        return if may_have_none { Ok(()) } else { Err("none".to_owned()) };
    }
    Err(found.iter().map(DebugId::to_string).collect::<Vec<_>>().join(", "))
}

/// A table's header must name the module and the file that it was made from.
fn check_table(module: &str, file: &FileEntry, bytes: &[u8]) -> Result<(), Check> {
    let failed = |expected: String, found: String| Err(Check::failed(id::TABLE_DERIVATION, expected, found));
    let source = match file.role {
        FileRole::SymbolTable => match symseal_symx::Table::open(bytes) {
            Ok(table) if table.debug_id().to_string() == module => table.source_sha256(),
            Ok(table) => return failed(format!("a table of {module}"), format!("one of {}", table.debug_id())),
            Err(error) => return Err(Check::refused_by(id::TABLE_DERIVATION, "a .symx table", &error)),
        },
        _ => match unwind_table_source(bytes) {
            Some(source) => source,
            None => return failed("a .uwt table of version 1".to_owned(), "another header".to_owned()),
        },
    };
    let source = Digest::from_bytes(source);
    match file.derived_from.first() {
        Some(derived) if *derived == source => Ok(()),
        Some(derived) => {
            failed(format!("{derived}, of which the index says that the table is made"), source.to_string())
        }
        None => failed("an index that says what the table is made from".to_owned(), "nothing".to_owned()),
    }
}

/// The source's sha256 in the header of a `.uwt` table (`docs/formats/uwt.md`, "Header"). The table itself is the
/// unwind room's, which this one may not use.
fn unwind_table_source(bytes: &[u8]) -> Option<[u8; 32]> {
    const MAGIC_AND_VERSION: [u8; 6] = *b"UWT1\x01\x00";
    const SOURCE_SHA256_AT: usize = 64;
    bytes.strip_prefix(&MAGIC_AND_VERSION)?;
    bytes.get(SOURCE_SHA256_AT..)?.first_chunk().copied()
}

/// Every file must be found in the page hashes, with the index's root.
fn page_hashes_cover(bundle: &Bundle, listed: &BTreeMap<(Digest, u32), (u64, Hash)>, failures: &mut Vec<Check>) {
    for (_, _, module) in bundle.index().modules() {
        for file in &module.files {
            let found = match listed.get(&(file.sha256, file.page_size)) {
                Some((size, root)) if *size == file.size && *root == file.page_root => continue,
                Some((_, root)) => root.to_string(),
                None => "no hashes".to_owned(),
            };
            failures.push(
                Check::failed(id::PAGE_ROOT, file.page_root.to_string(), found)
                    .with_detail(format!("{} in the bundle's page hashes", file.path)),
            );
        }
    }
}
