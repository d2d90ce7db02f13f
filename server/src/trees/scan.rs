//! Reading what is new in the trees, and making the index anew.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use memmap2::Mmap;

use super::read::{Holder, holders};
use super::root::{Look, Root};
use super::{CONTENT, SETTLED, Trees, split};
use crate::blobs::{map_own, write_file_atomically};
use crate::debug_files::{content_code, kind_code};
use crate::file_stamp::FileStamp;
use crate::ids::{BundleEntry, Ids, IdsBuilder, NewCandidate, TooLarge};

/// What was read is served after so long, while the scan goes on.
const SHOW_AFTER: Duration = Duration::from_secs(20);

/// Files read at once at most. Each may take a processor, and the window of a decompression.
const READERS: usize = 4;

/// A file that is there.
struct Present {
    root: Arc<Root>,
    path: String,
    stamp: FileStamp,
}

/// A file that was read.
type Read = (BundleEntry, Vec<Holder>);

impl Trees {
    /// Reads what is new or has changed since the last scan, and serves it; whether something that answered is being written just now, so that it is
    /// to be looked at again soon. Blocks for as long as reading takes.
    pub(super) fn scan(&self) -> io::Result<bool> {
        self.told.begin();
        let roots = self.open_again();
        let scanned = self.scan_roots(&roots);
        self.roots.store(Arc::new(roots.into_iter().map(|(root, _)| root).collect()));
        scanned
    }

    /// What lies under the configured paths now, each with whether it can be looked at: mirrors put a new directory, or a link to one, in the place of
    /// the old one, and file systems are mounted. What lay there before answers until the scan has ended. A path that cannot be opened keeps what it
    /// had.
    fn open_again(&self) -> Vec<(Arc<Root>, bool)> {
        let before = self.roots.load_full();
        let open = |(path, before): (&PathBuf, &Arc<Root>)| match Root::open(path, Arc::clone(&self.withheld)) {
            Ok(now) if now.is(before) => (Arc::clone(before), true),
            Ok(now) => {
                tracing::info!(path = %path.display(), "another directory lies there now: it is read");
                (Arc::new(now), true)
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "not opened: what is known of it is kept");
                (Arc::clone(before), false)
            }
        };
        let roots: Vec<(Arc<Root>, bool)> = self.paths.iter().zip(before.iter()).map(open).collect();
        let with_before = roots.iter().map(|(root, _)| root).chain(before.iter()).cloned().collect();
        self.roots.store(Arc::new(with_before));
        roots
    }

    fn scan_roots(&self, roots: &[(Arc<Root>, bool)]) -> io::Result<bool> {
        let before = self.ids.load_full();
        let known: HashMap<String, String> =
            before.iter().flat_map(|ids| entries(ids)).map(|entry| (entry.digest, entry.version)).collect();
        let mut kept: HashSet<String> = HashSet::new();
        let (mut todo, mut unsettled, mut too_deep, now) = (Vec::new(), 0_usize, 0_u64, SystemTime::now());
        let answering = LazyCell::new(|| before.as_deref().map(answering).unwrap_or_default());
        for (root, can_be_read) in roots {
            let look = if *can_be_read { root.look(&self.told) } else { Look::in_vain() };
            too_deep = too_deep.saturating_add(look.too_deep);
            // A disk that fails, or a folder that may not be read for a while, is no reason to read everything in it again.
            let may_be_there = |name: &&String| root.inside(name).is_some_and(|path| look.may_have(path));
            kept.extend(known.keys().filter(may_be_there).cloned());
            for (path, stamp) in look.files {
                let name = root.name_of(&path);
                let is_known = match known.get(&name) {
                    Some(known) if *known == stamp.to_string() => {
                        kept.insert(name);
                        continue;
                    }
                    known => known.is_some(),
                };
                // What is known of a file holds until it is read anew: what it answered for breaks connections meanwhile, where it is not as it was.
                if is_known && stamp.is_younger_than(SETTLED, now) && answering.contains(&name) {
                    unsettled = unsettled.saturating_add(1);
                } else {
                    todo.push(Present { root: Arc::clone(root), path, stamp });
                }
                kept.extend(is_known.then_some(name));
            }
        }
        self.too_deep.store(too_deep, Ordering::Relaxed);
        if unsettled > 0 {
            tracing::debug!(files = unsettled, "they are being written: they are read once that has ended");
        }
        let is_as_before = kept.len() == known.len() && before.is_some();
        if todo.is_empty() && is_as_before {
            return Ok(unsettled > 0);
        }
        tracing::info!(new = todo.len(), kept = kept.len(), "trees are read");
        self.read_all(todo, |read| {
            // A file that cannot be read is tried in vain at each scan.
            if read.is_empty() && is_as_before { Ok(()) } else { self.show(before.as_deref(), &kept, read) }
        })?;
        Ok(unsettled > 0)
    }

    /// Reads files side by side, and shows what is there from time to time and at the end.
    fn read_all(&self, todo: Vec<Present>, show: impl Fn(&[Read]) -> io::Result<()>) -> io::Result<()> {
        let readers = std::thread::available_parallelism().map_or(1, usize::from).min(READERS);
        let next = AtomicUsize::new(0);
        let (send, receive) = mpsc::channel::<Read>();
        let failed = Mutex::new(None);
        let mut all: Vec<Read> = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..readers {
                let send = send.clone();
                let (todo, next, failed) = (&todo, &next, &failed);
                scope.spawn(move || {
                    while let Some(present) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                        match self.read(present) {
                            Ok(Some(read)) => drop(send.send(read)),
                            Ok(None) => {}
                            // Our own disk: every other file would meet the same.
                            Err(error)
                                if matches!(
                                    error.kind(),
                                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                                ) =>
                            {
                                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                                return;
                            }
                            Err(error) => {
                                let file = present.root.name_of(&present.path);
                                if self.told.is_news(&file, (present.stamp, error.to_string())) {
                                    tracing::warn!(file, %error, "not read: tried again at each scan");
                                }
                            }
                        }
                    }
                });
            }
            drop(send);
            let mut shown = Instant::now();
            for read in receive {
                all.push(read);
                if shown.elapsed() > SHOW_AFTER {
                    show(&all)?;
                    shown = Instant::now();
                }
            }
            show(&all)
        })?;
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// One file; `None` when it is gone, or changes while it is read.
    fn read(&self, present: &Present) -> io::Result<Option<Read>> {
        let name = present.root.name_of(&present.path);
        let (file, stamp) = match present.root.open_file(&present.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if stamp != present.stamp {
            return Ok(None);
        }
        let holders = holders(file, &name, (&self.cache, &self.unread))?;
        // Half of it may have been another file's.
        if !present.root.open_file(&present.path).is_ok_and(|(_, now)| now == stamp) {
            return Ok(None);
        }
        let entry = BundleEntry {
            digest: name,
            name: String::new(),
            version: stamp.to_string(),
            symbol_index: [0; 32],
            modules_root: None,
            is_loose: true,
        };
        Ok(Some((entry, holders)))
    }

    /// Makes the index of what is kept and what was read, and serves by it.
    fn show(&self, before: Option<&Ids<Mmap>>, kept: &HashSet<String>, read: &[Read]) -> io::Result<()> {
        let bytes = build(before, kept, read).map_err(io::Error::other)?;
        write_file_atomically(&self.index_file, &bytes)?;
        self.ids.store(Some(Arc::new(open_index(&self.index_file)?)));
        Ok(())
    }
}

fn build(before: Option<&Ids<Mmap>>, kept: &HashSet<String>, read: &[Read]) -> Result<Vec<u8>, TooLarge> {
    let mut builder = IdsBuilder::new(getrandom::u64().unwrap_or_default(), CONTENT);
    if let Some(before) = before {
        let mut numbers = Vec::new();
        let anew: HashSet<&str> = read.iter().map(|(entry, _)| entry.digest.as_str()).collect();
        for entry in entries(before) {
            let stays = kept.contains(&entry.digest) && !anew.contains(entry.digest.as_str());
            numbers.push(if stays { Some(builder.bundle(&entry)?) } else { None });
        }
        for key in before.keys() {
            for found in key.candidates() {
                let Some(bundle) = numbers.get(found.bundle as usize).copied().flatten() else { continue };
                let crate::ids::Candidate { kind, debug_info, sha256, size, name, file, .. } = found;
                builder
                    .add(key.bytes, &NewCandidate { bundle, kind, debug_info, sha256: *sha256, size, name, file })?;
            }
        }
    }
    for (entry, holders) in read {
        let bundle = builder.bundle(entry)?;
        for holder in holders {
            let new = |kind, debug_info| NewCandidate {
                bundle,
                kind,
                debug_info,
                sha256: holder.sha256,
                size: holder.size,
                name: &holder.member,
                file: &holder.file,
            };
            for answer in &holder.answers {
                let content = content_code(answer.debug_info, answer.lacks_sections);
                builder.add(&answer.key.to_bytes(), &new(kind_code(answer.kind), content))?;
            }
            if let Some(units) = &holder.units {
                let new = new(split::kind(), units.content_code());
                units.keys().try_for_each(|key| builder.add(&key, &new))?;
            }
        }
    }
    builder.build()
}

/// The names of the files that answer for something, or hold what does.
fn answering(ids: &Ids<Mmap>) -> HashSet<String> {
    let numbers: HashSet<u32> =
        ids.keys().flat_map(|key| key.candidates().map(|found| found.bundle).collect::<Vec<_>>()).collect();
    numbers.into_iter().filter_map(|number| Some(ids.bundle(number)?.digest)).collect()
}

fn entries(ids: &Ids<Mmap>) -> impl Iterator<Item = BundleEntry> {
    (0..ids.bundle_count()).filter_map(|number| ids.bundle(number))
}

pub(super) fn open_index(path: &Path) -> io::Result<Ids<Mmap>> {
    let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let ids = Ids::open(map_own(&File::open(path)?)?).map_err(damaged)?;
    if ids.content() != CONTENT {
        return Err(io::Error::other(format!("expected rows of version {CONTENT}, found version {}", ids.content())));
    }
    Ok(ids)
}
