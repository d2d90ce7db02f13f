//! The files of a store, found by several threads. Everything is opened below the root's handle, so that no link leads out.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirEntry, File, Metadata};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How deep folders are looked into.
const DEEPEST: usize = 64;

/// Threads that look into folders: on a file server most of the time is waiting.
const WALKERS: usize = 4;

/// Files that are found and not yet worked on.
const AHEAD: usize = 4096;

/// A file of a store.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Below the root, `/` between the parts.
    pub(super) path: String,
    /// Bytes.
    pub(super) size: u64,
    /// By what a change of it is known.
    pub(super) stamp: String,
    /// Why it is not looked into.
    pub(super) problem: Option<String>,
}

/// A store, or a folder that pointers lead to.
#[derive(Debug, Clone)]
pub(super) struct Root {
    dir: Arc<Dir>,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { dir: Arc::new(Dir::open_ambient_dir(path, ambient_authority())?) })
    }

    /// Opens a regular file below it.
    pub(super) fn file(&self, path: &str) -> io::Result<(File, Metadata)> {
        let file = self.dir.open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_file() { Ok((file, metadata)) } else { Err(io::Error::other("no regular file")) }
    }

    /// The first files, for a look at the layout: a few of each folder.
    pub(super) fn sample(&self, limit: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = VecDeque::from([String::new()]);
        while let Some(folder) = open.pop_front().filter(|_| found.len() < limit) {
            let Ok(entries) = self.entries(&folder) else { continue };
            for entry in entries.take(limit).flatten() {
                let Some(path) = path_of(&folder, &entry) else { continue };
                match entry.file_type() {
                    // Depth first after the top, so that few folders are enough.
                    Ok(kind) if kind.is_dir() && depth(&path) <= DEEPEST => {
                        if folder.is_empty() {
                            open.push_back(path)
                        } else {
                            open.push_front(path)
                        }
                    }
                    Ok(_) => found.push(path),
                    Err(_) => {}
                }
            }
        }
        found
    }

    /// Every file, as it is found.
    pub(super) fn walk(&self) -> Receiver<Found> {
        let (send, receive) = channel(AHEAD);
        let queue = Arc::new(Queue::new());
        for _ in 0..WALKERS {
            let (root, queue, send) = (self.clone(), Arc::clone(&queue), send.clone());
            std::thread::spawn(move || {
                while let Some(folder) = queue.next() {
                    root.look_into(&folder, &queue, &send);
                    queue.done();
                }
            });
        }
        receive
    }

    fn entries(&self, folder: &str) -> io::Result<cap_std::fs::ReadDir> {
        if folder.is_empty() { self.dir.entries() } else { self.dir.open_dir(folder)?.entries() }
    }

    fn look_into(&self, folder: &str, queue: &Queue, send: &Sender<Found>) {
        let problem = |path: &str, problem: String| {
            let found = Found { path: path.to_owned(), size: 0, stamp: String::new(), problem: Some(problem) };
            // Nobody listens any more: the command ends.
            let _ = send.blocking_send(found);
        };
        let entries = match self.entries(folder) {
            Ok(entries) => entries,
            Err(error) => return problem(folder, format!("the folder cannot be read: {error}")),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return problem(folder, format!("the folder cannot be read to its end: {error}")),
            };
            let Some(path) = path_of(folder, &entry) else {
                problem(
                    &format!("{folder}/{}", entry.file_name().to_string_lossy()),
                    "its name is not UTF-8".to_owned(),
                );
                continue;
            };
            match self.look_at(&path, &entry) {
                Ok(Seen::Folder) if depth(&path) <= DEEPEST => queue.add(path),
                Ok(Seen::Folder) => problem(&path, format!("more than {DEEPEST} folders inside one another")),
                Ok(Seen::File(found)) => drop(send.blocking_send(found)),
                Ok(Seen::Other(what)) => problem(&path, what.to_owned()),
                Err(error) => problem(&path, format!("cannot be looked at: {error}")),
            }
            if send.is_closed() {
                return;
            }
        }
    }

    fn look_at(&self, path: &str, entry: &DirEntry) -> io::Result<Seen> {
        let kind = entry.file_type()?;
        let metadata = if kind.is_symlink() {
            match self.dir.metadata(path) {
                Ok(metadata) if metadata.is_file() => metadata,
                Ok(_) => return Ok(Seen::Other("a link to a folder is not followed")),
                Err(_) => return Ok(Seen::Other("a link that leads out of the store, or nowhere")),
            }
        } else if kind.is_dir() {
            return Ok(Seen::Folder);
        } else if kind.is_file() {
            entry.metadata()?
        } else {
            return Ok(Seen::Other("no regular file"));
        };
        Ok(Seen::File(Found { path: path.to_owned(), size: metadata.len(), stamp: stamp(&metadata), problem: None }))
    }
}

enum Seen {
    Folder,
    File(Found),
    Other(&'static str),
}

/// Time of change and size.
fn stamp(metadata: &Metadata) -> String {
    let modified = metadata.modified().ok().and_then(|time| time.into_std().duration_since(UNIX_EPOCH).ok());
    format!("{}-{}", modified.unwrap_or_default().as_nanos(), metadata.len())
}

fn path_of(folder: &str, entry: &DirEntry) -> Option<String> {
    let name = entry.file_name().into_string().ok()?;
    Some(if folder.is_empty() { name } else { format!("{folder}/{name}") })
}

fn depth(path: &str) -> usize {
    path.split('/').count()
}

/// Folders to look into.
struct Queue {
    state: Mutex<(Vec<String>, usize)>,
    changed: Condvar,
}

impl Queue {
    /// With the root.
    fn new() -> Self {
        Self { state: Mutex::new((vec![String::new()], 0)), changed: Condvar::new() }
    }

    fn add(&self, folder: String) {
        self.lock().0.push(folder);
        self.changed.notify_one();
    }

    /// The next one; none when nobody will find another.
    fn next(&self) -> Option<String> {
        let mut state = self.lock();
        loop {
            if let Some(folder) = state.0.pop() {
                state.1 += 1;
                return Some(folder);
            }
            if state.1 == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self) {
        let mut state = self.lock();
        state.1 = state.1.saturating_sub(1);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<String>, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
