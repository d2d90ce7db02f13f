//! Directories and package pools that are served where they lie: debug files and programs, loose or in archives and packages.
//!
//! A scan reads which ids they have and keeps that in an index beside the data directory's other files, so that a start, and every later scan,
//! reads again only what is new or has changed. What answers is looked up in the index, in memory; an archive is taken apart in the pool, and
//! what came out of it is kept in the cache. Everything is opened below the directory's handle, so that no link leads out.

mod gathered;
mod kept_open;
mod open;
mod read;
mod root;
mod scan;
mod split;
mod told;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use memmap2::Mmap;
use symseal_artifact::Reach;
use symseal_module::DebugId;

use crate::blobs::BlobDigest;
use crate::debug_files::{FileKind, Key, kind_code};
use crate::file_cache::FileCache;
use crate::file_stamp::FileStamp;
use crate::ids::Ids;
use crate::takedown::TakenDown;
use crate::withheld::Withheld;

pub(crate) use gathered::{NotAsTheyWere, digest_of_all, pieces};
use kept_open::KeptOpen;
pub(crate) use open::TreeError;
use root::Root;
pub(crate) use split::{AskedUnit, SplitFiles};

/// The index's name in the data directory.
pub(crate) const TREES_FILE: &str = "trees.index";

/// What the rows are made by: raise it with whatever a file answers for that it did not before, and all files are read again.
const CONTENT: u32 = 6;

/// Between an archive and the path of a member.
const WITHIN: &str = "!/";

/// Files that are tried for one id: of several that hold the same, some may be gone.
const TRIED: usize = 4;

/// A file that answers for something and was written a shorter time ago may be half of what it will be: it is read later.
const SETTLED: Duration = Duration::from_secs(2);

/// The directories, and what is known of them.
#[derive(Debug)]
pub(crate) struct Trees {
    /// As they are configured.
    paths: Vec<PathBuf>,
    /// What lay there at the last look, in the same order; while a scan goes on also what lay there before, behind that.
    roots: ArcSwap<Vec<Arc<Root>>>,
    ids: ArcSwapOption<Ids<Mmap>>,
    index_file: PathBuf,
    cache: Arc<FileCache>,
    taken_down: Arc<TakenDown>,
    /// How long after a scan the next one begins.
    interval: Duration,
    unread: read::Unread,
    kept_open: KeptOpen,
    withheld: Arc<Withheld>,
    /// What the log was told of.
    told: told::Told,
    /// Folders that lay too deep at the last look.
    too_deep: AtomicU64,
}

/// A file of a tree: by itself, or a member of an archive.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    root: Arc<Root>,
    /// Below the root.
    path: String,
    stamp: FileStamp,
    /// The way to it within the archive; empty for a file by itself.
    member: String,
    /// How it is reached there without reading what lies before it.
    reach: Option<Reach>,
    /// What its package has as the signature of its bytes, in hex.
    pub(crate) signature: Option<String>,
    sha256: [u8; 32],
    /// Bytes in the file.
    pub(crate) size: u64,
    /// Its own name.
    pub(crate) file: String,
}

/// An ELF file that is known by its path.
#[derive(Debug)]
pub(crate) struct NamedFile {
    /// Its build-id.
    pub(crate) id: DebugId,
    /// What it answers for.
    pub(crate) kind: FileKind,
    /// Where it lies, or where in its archive.
    pub(crate) path: String,
    /// The path of that.
    pub(crate) archive: Option<String>,
}

/// The path that debuggers are told of what does not lie there as it is: the one that the way to a member ends with; of a `file` that was compressed by itself
/// the one that it would have here, as `xz -d` leaves it.
fn path_within(container: &str, member: &str, file: &str) -> String {
    if member == read::ARCHIVE {
        let folder = container.rfind('/').and_then(|end| container.get(..=end));
        return format!("{}{file}", folder.unwrap_or_default());
    }
    let path = member.rsplit_once(WITHIN).map_or(member, |(_, path)| path);
    format!("/{}", path.trim_start_matches('/'))
}

/// How much is served in place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TreeCounts {
    /// Files that were read, archives among them.
    pub(crate) files: u32,
    /// Ids and names by which something is found.
    pub(crate) keys: u32,
    /// Members of archives that were passed over as bombs since the start.
    pub(crate) bombs: u64,
    /// Other members of archives that were passed over since the start.
    pub(crate) passed_over: u64,
    /// Archives that were not read to their end since the start.
    pub(crate) broken_off: u64,
    /// Folders that lay too deep at the last look.
    pub(crate) too_deep: u64,
}

impl Trees {
    /// Whether directories can be opened; else the first that cannot. Blocks.
    pub(crate) fn check(roots: &[PathBuf]) -> Result<(), (PathBuf, io::Error)> {
        roots
            .iter()
            .try_for_each(|path| Root::open(path, Arc::default()).map(drop).map_err(|error| (path.clone(), error)))
    }

    /// Opens the directories, and the index of an earlier run. Blocks.
    pub(crate) fn open(
        paths: &[PathBuf],
        (data, withheld): (&Path, Arc<Withheld>),
        cache: Arc<FileCache>,
        taken_down: Arc<TakenDown>,
        interval: Duration,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let open = |path: &PathBuf| {
            Root::open(path, Arc::clone(&withheld)).map(Arc::new).map_err(|error| (path.clone(), error))
        };
        let roots = ArcSwap::from_pointee(paths.iter().map(open).collect::<Result<Vec<_>, _>>()?);
        let index_file = data.join(TREES_FILE);
        let ids = match scan::open_index(&index_file) {
            Ok(ids) => Some(Arc::new(ids)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(path = %index_file.display(), %error, "the index of trees is not used: they are read anew");
                None
            }
        };
        let (ids, unread, told) = (ArcSwapOption::new(ids), read::Unread::default(), told::Told::default());
        let (paths, too_deep, kept_open) = (paths.to_vec(), AtomicU64::default(), KeptOpen::default());
        Ok(Self {
            paths,
            roots,
            ids,
            index_file,
            cache,
            taken_down,
            interval,
            unread,
            kept_open,
            withheld,
            told,
            too_deep,
        })
    }

    /// The files that answer for a key and are not taken down, the best first.
    pub(crate) fn find(&self, key: &Key, kind: FileKind) -> Vec<Place> {
        let Some(ids) = self.ids.load_full() else { return Vec::new() };
        let (key, kind) = (key.to_bytes(), kind_code(kind));
        let found = ids.find(&key).filter(|found| found.kind == kind && self.is_given(found));
        found.filter_map(|found| self.place(&ids, &found)).take(TRIED).collect()
    }

    /// Where a candidate lies; `None` where nothing lies there any more.
    fn place(&self, ids: &Ids<Mmap>, found: &crate::ids::Candidate<'_>) -> Option<Place> {
        let container = ids.bundle(found.bundle)?;
        let way = read::Way::of(found.name);
        let roots = self.roots.load();
        let (root, path) = roots.iter().find_map(|root| Some((root, root.inside(&container.digest)?)))?;
        Some(Place {
            root: Arc::clone(root),
            path: path.to_owned(),
            stamp: FileStamp::parse(&container.version)?,
            member: way.path.to_owned(),
            reach: way.reach,
            signature: way.signature.map(str::to_owned),
            sha256: *found.sha256,
            size: found.size,
            file: found.file.to_owned(),
        })
    }

    /// ELF files whose path is wanted: where they lie, or in their archive. None where there are too many, or time is up. Reads every id. Blocks.
    pub(crate) fn named(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        limit: usize,
        deadline: Instant,
    ) -> Option<Vec<NamedFile>> {
        let Some(ids) = self.ids.load_full() else { return Some(Vec::new()) };
        let mut files = Vec::new();
        for (at, row) in ids.keys().enumerate() {
            let Some(Key::Id(id @ DebugId::BuildId(_))) = Key::from_bytes(row.bytes) else { continue };
            for found in row.candidates().filter(|found| self.is_given(found)) {
                let kinds = [FileKind::Executable, FileKind::Debuginfo];
                let Some(kind) = kinds.into_iter().find(|kind| kind_code(*kind) == found.kind) else { continue };
                let (member, container) = (read::Way::of(found.name).path, ids.bundle(found.bundle)?.digest);
                let (path, archive) = match member {
                    "" => (container, None),
                    member => (path_within(&container, member, found.file), Some(container)),
                };
                if wanted(&path) || wanted(found.file) {
                    files.push(NamedFile { id: id.clone(), kind, path, archive });
                }
            }
            if files.len() > limit || (at.is_multiple_of(1024) && Instant::now() > deadline) {
                return None;
            }
        }
        Some(files)
    }

    /// Whether something answers for a key.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.ids.load().as_ref().is_some_and(|ids| ids.find(&key.to_bytes()).any(|found| self.is_given(&found)))
    }

    fn is_given(&self, found: &crate::ids::Candidate<'_>) -> bool {
        !self.taken_down.has(&BlobDigest::from_sha256(*found.sha256))
    }

    /// How much there is.
    pub(crate) fn counts(&self) -> TreeCounts {
        let (ids, [bombs, passed_over, broken_off]) = (self.ids.load(), self.unread.counts());
        let (files, keys) = ids.as_ref().map_or((0, 0), |ids| (ids.bundle_count(), ids.key_count()));
        let too_deep = self.too_deep.load(Ordering::Relaxed);
        TreeCounts { files, keys, bombs, passed_over, broken_off, too_deep }
    }
}

/// After a scan that met files which were being written, the next one waits for so many times as long as it took.
const LOOKING: u32 = 10;

/// Scans again and again.
pub(crate) async fn scan_again(trees: Arc<Trees>) {
    loop {
        let shared = Arc::clone(&trees);
        // A thread of its own: a scan takes minutes, and the pools are for requests.
        let began = Instant::now();
        let pause = match tokio::task::spawn_blocking(move || shared.scan()).await {
            // A large tree is not looked through all the time for one file that is written to for hours.
            Ok(Ok(true)) => trees.interval.min(SETTLED.max(began.elapsed().saturating_mul(LOOKING))),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the index of trees could not be written: what is new in them is not served");
                trees.interval
            }
            _ => trees.interval,
        };
        tokio::time::sleep(pause).await;
    }
}
