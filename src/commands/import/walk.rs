//! The files of a store, found by several threads. Everything is opened below the root's handle, so that no link leads out.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirEntry, File, Metadata};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How deep folders are looked into.
const DEEPEST: usize = 64;

/// Of a look at the layout: files in all, of one folder, folders below one of the top, entries of a folder that are gone through, and how deep it goes.
const SAMPLE: usize = 400;
const SAMPLE_OF_FOLDER: usize = 4;
const SAMPLE_OF_TOP: usize = 16;
const SAMPLE_ENTRIES: usize = 100_000;
const SAMPLE_DEPTH: usize = 8;

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

/// Names of folders that are remembered for paths whose letters are other ones, for each root: some 50 MB. A folder with more is gone through for each path.
const REMEMBERED: usize = 500_000;

/// A store, or a folder that pointers lead to.
#[derive(Debug, Clone)]
pub(super) struct Root {
    dir: Arc<Dir>,
    listed: Arc<Mutex<Listed>>,
}

/// What folders had when somebody first looked for a name in other letters there.
#[derive(Debug, Default)]
struct Listed {
    folders: HashMap<String, Arc<Mutex<Option<Names>>>>,
    names: usize,
}

/// The names of a folder's entries by what they are in small letters; `None` where there are too many.
type Names = Option<Arc<HashMap<String, Vec<String>>>>;

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let dir = Arc::new(Dir::open_ambient_dir(path, ambient_authority())?);
        Ok(Self { dir, listed: Arc::default() })
    }

    /// Opens a regular file below it.
    pub(super) fn file(&self, path: &str) -> io::Result<(File, Metadata)> {
        let regular = |metadata: Metadata| {
            if metadata.is_file() { Ok(metadata) } else { Err(io::Error::other("no regular file")) }
        };
        // A pipe that nobody writes to would not be opened for ever.
        regular(self.dir.metadata(path)?)?;
        let file = self.dir.open(path)?;
        let metadata = regular(file.metadata()?)?;
        Ok((file, metadata))
    }

    /// The same, whatever letters are capitals: Windows does not mind, so that whoever wrote a path may not have minded either. Of names that differ by that
    /// alone the one that is written so is taken, and without it none.
    pub(super) fn file_in_any_case(&self, path: &str) -> io::Result<(File, Metadata)> {
        match self.file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let mut there = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let name = self.name_in_any_case(&there, part)?;
            if !there.is_empty() {
                there.push('/');
            }
            there.push_str(&name);
        }
        self.file(&there)
    }

    /// What a folder's entry of this name is called.
    fn name_in_any_case(&self, folder: &str, name: &str) -> io::Result<String> {
        let lower = name.to_lowercase();
        let there = match self.names(folder)? {
            Some(names) => names.get(&lower).cloned().unwrap_or_default(),
            None => {
                let is_it = |there: &String| there.to_lowercase() == lower;
                self.each_name(folder)?.filter(|there| there.as_ref().map_or(true, is_it)).collect::<io::Result<_>>()?
            }
        };
        if there.iter().any(|there| there == name) {
            return Ok(name.to_owned());
        }
        match <[String; 1]>::try_from(there) {
            Ok([only]) => Ok(only),
            Err(others) if others.is_empty() => Err(io::ErrorKind::NotFound.into()),
            Err(others) => {
                let problem = format!("{} in {folder:?} differ by capitals alone", others.join(" and "));
                Err(io::Error::new(io::ErrorKind::NotFound, problem))
            }
        }
    }

    /// The names in a folder. It is gone through once for all who ask: a store may have many pointers to files that are not there any more.
    fn names(&self, folder: &str) -> io::Result<Names> {
        let listing = Arc::clone(self.listed().folders.entry(folder.to_owned()).or_default());
        let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = &*listing {
            return Ok(names.clone());
        }
        let (found, kept) = match self.all_names(folder) {
            Ok(found) => found,
            Err(error) => {
                self.listed().folders.remove(folder);
                return Err(error);
            }
        };
        *listing = Some(found.clone());
        drop(listing);
        let mut listed = self.listed();
        listed.names = listed.names.saturating_add(kept);
        if listed.names > REMEMBERED {
            // Those who look into one just now have it still.
            let this = listed.folders.remove(folder);
            listed.folders = this.map(|this| (folder.to_owned(), this)).into_iter().collect();
            listed.names = kept;
        }
        Ok(found)
    }

    /// With how many they are, and one for the folder.
    fn all_names(&self, folder: &str) -> io::Result<(Names, usize)> {
        let mut names: HashMap<String, Vec<String>> = HashMap::new();
        let mut count = 1_usize;
        for name in self.each_name(folder)? {
            let name = name?;
            count = count.saturating_add(1);
            if count > REMEMBERED {
                return Ok((None, 1));
            }
            names.entry(name.to_lowercase()).or_default().push(name);
        }
        Ok((Some(Arc::new(names)), count))
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are texts: no other has been written into a pointer.
    fn each_name(&self, folder: &str) -> io::Result<impl Iterator<Item = io::Result<String>>> {
        let name = |entry: io::Result<DirEntry>| match entry {
            Ok(entry) => entry.file_name().into_string().ok().map(Ok),
            Err(error) => Some(Err(error)),
        };
        Ok(self.entries(folder)?.filter_map(name))
    }

    /// Some files, for a look at the layout: a few of each of many folders, so that no single one speaks for all. What is `left_out` is not looked into,
    /// but told of where it lies at the top.
    pub(super) fn sample(&self, left_out: impl Fn(&str) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut tops = VecDeque::new();
        let look = |folder: &str, found: &mut Vec<String>, folders: &mut dyn FnMut(String)| {
            let mut files = 0;
            for entry in self.entries(folder).into_iter().flatten().take(SAMPLE_ENTRIES).flatten() {
                let Some(path) = path_of(folder, &entry) else { continue };
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => {
                        if depth(&path) <= SAMPLE_DEPTH && !left_out(&path) {
                            folders(path);
                        }
                    }
                    Ok(_) if left_out(&path) => found.extend(folder.is_empty().then_some(path)),
                    Ok(_) if files < SAMPLE_OF_FOLDER => {
                        files += 1;
                        found.push(path);
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        };
        look("", &mut found, &mut |folder| tops.push_back(folder));
        for top in tops {
            if found.len() >= SAMPLE {
                break;
            }
            let (mut open, mut looked) = (vec![top], 0);
            while let Some(folder) = open.pop().filter(|_| looked < SAMPLE_OF_TOP) {
                looked += 1;
                look(&folder, &mut found, &mut |folder| open.push(folder));
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
                let path = below(folder, entry.file_name().to_string_lossy().into_owned());
                problem(&path, "its name is not UTF-8".to_owned());
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
    Some(below(folder, entry.file_name().into_string().ok()?))
}

/// The path of what a folder has; the root has no name.
fn below(folder: &str, name: String) -> String {
    if folder.is_empty() { name } else { format!("{folder}/{name}") }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_files_of_many_folders_however_full_the_first_ones_are() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: String| {
            let file = folder.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, b"").unwrap();
        };
        for number in 0..600 {
            put(format!("000Admin/{number:010}"));
            put(format!("report{number}.txt"));
            put(format!("aa/notes/note{number}"));
        }
        put("index2.txt".to_owned());
        put("000Admin/index2.txt".to_owned());
        put("ap/app.pdb/D6FE1/app.pd_".to_owned());
        let root = Root::open(folder.path()).unwrap();
        let sample = root.sample(super::super::place::is_administration);
        let has = |path: &str| sample.iter().any(|found| found == path);
        assert!(has("ap/app.pdb/D6FE1/app.pd_") && has("index2.txt"), "{sample:?}");
        assert!(sample.len() <= SAMPLE && !sample.iter().any(|path| path.starts_with("000Admin")), "{sample:?}");
    }

    #[test]
    fn a_folder_is_gone_through_once_for_all_paths_that_are_written_in_other_letters() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let file = folder.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, b"").unwrap();
        };
        put("Drops/One/App.exe");
        put("Drops/One/both.dll");
        put("Drops/One/BOTH.dll");
        let root = Root::open(folder.path()).unwrap();
        let kind = |path: &str| root.file_in_any_case(path).map(|_| ()).map_err(|error| error.kind());
        assert_eq!(kind("drops/one/app.EXE"), Ok(()));
        assert_eq!(kind("drops/one/none.exe"), Err(io::ErrorKind::NotFound));
        assert_eq!(kind("drops/one/BOTH.dll"), Ok(()));
        let twice = root.file_in_any_case("drops/one/Both.dll").unwrap_err().to_string();
        assert!(twice.contains("differ by capitals alone"), "{twice}");
        // What comes later is found as it is written, and in other letters by the next run.
        put("Drops/One/None.exe");
        assert_eq!(kind("Drops/One/None.exe"), Ok(()));
        assert_eq!(kind("drops/one/none.exe"), Err(io::ErrorKind::NotFound));
        assert_eq!(root.listed().folders.len(), 3);
    }

    #[test]
    fn what_is_remembered_of_folders_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("Sub")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.listed().names = REMEMBERED;
        assert!(root.file_in_any_case("sub/none").is_err());
        let listed = root.listed();
        assert!(listed.folders.len() <= 2 && listed.names < 10, "{} names", listed.names);
    }

    #[test]
    #[cfg(unix)]
    fn a_name_that_is_no_text_is_told_with_its_path_below_the_root() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        for name in [&b"a\xff"[..], b"sub/b\xff"] {
            std::fs::write(folder.path().join(std::ffi::OsStr::from_bytes(name)), b"").unwrap();
        }
        let mut walk = Root::open(folder.path()).unwrap().walk();
        let mut found: Vec<String> = std::iter::from_fn(|| walk.blocking_recv()).map(|found| found.path).collect();
        found.sort();
        assert_eq!(found, ["a\u{fffd}", "sub/b\u{fffd}"]);
    }

    #[test]
    #[cfg(unix)]
    fn a_pipe_that_nobody_writes_to_is_no_file_and_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("meta")).status().unwrap();
        assert!(made.success());
        let refused = Root::open(folder.path()).unwrap().file("meta").unwrap_err();
        assert_eq!(refused.to_string(), "no regular file");
    }
}
