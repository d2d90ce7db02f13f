//! What was answered 404, on the disk: a bounded number of empty files, the oldest of which go.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// How long a 404 is believed.
const BELIEVED: Duration = Duration::from_secs(3600);
/// The most notes. One that went costs a question.
const NOTES: usize = 8192;
/// After so many new ones the folder is looked through.
const BETWEEN: usize = 512;

/// The folder of these notes.
#[derive(Debug)]
pub(super) struct Absent {
    folder: PathBuf,
    /// Notes since the folder was looked through.
    noted: AtomicUsize,
}

impl Absent {
    /// The folder is there.
    pub(super) fn open(folder: PathBuf) -> Self {
        let this = Self { folder, noted: AtomicUsize::new(0) };
        this.sweep();
        this
    }

    /// Whether what has this name was answered 404 a short while ago.
    pub(super) fn contains(&self, name: &str) -> bool {
        let noted = fs::metadata(self.folder.join(name)).and_then(|found| found.modified());
        noted.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < BELIEVED))
    }

    /// Notes that it was.
    pub(super) fn note(&self, name: &str) {
        // Without the note it is asked again.
        let _ = File::create(self.folder.join(name)).and_then(|file| file.set_modified(SystemTime::now()));
        if self.noted.fetch_add(1, Ordering::Relaxed) % BETWEEN == BETWEEN - 1 {
            self.sweep();
        }
    }

    /// Removes what is believed no more, and the oldest until there is room for what comes before the next time.
    fn sweep(&self) {
        let remove = |path: &Path| drop(fs::remove_file(path));
        let mut believed = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let Ok(at) = entry.metadata().and_then(|found| found.modified()) else { continue };
            match at.elapsed() {
                Ok(age) if age > BELIEVED => remove(&entry.path()),
                _ => believed.push((at, entry.path())),
            }
        }
        let beyond = believed.len().saturating_sub(NOTES - BETWEEN);
        if beyond > 0 {
            believed.sort();
            believed.iter().take(beyond).for_each(|(_, path)| remove(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_notes_than_the_bound_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let absent = Absent::open(folder.path().to_owned());
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let mut most = 0;
        for at in 0..NOTES + 2 * BETWEEN {
            absent.note(&at.to_string());
            if at % 100 == 0 {
                most = most.max(count());
            }
        }
        assert!((NOTES - BETWEEN..=NOTES).contains(&most) && count() <= NOTES, "{most}, {}", count());
        assert!(absent.contains(&(NOTES + 2 * BETWEEN - 1).to_string()) && !absent.contains("0"));
        // So is what other processes left there.
        for at in 0..2 * BETWEEN {
            File::create(folder.path().join(format!("other-{at}"))).unwrap();
        }
        Absent::open(folder.path().to_owned());
        assert_eq!(count(), NOTES - BETWEEN);
    }
}
