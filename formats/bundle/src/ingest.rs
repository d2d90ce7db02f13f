//! Unfinished files of a layout, and what is left of those whose writers died.
//!
//! Whoever writes below `ingest/` holds a lock on the file or directory that it made there, which ends with the process. What
//! nobody holds has no writer any more.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::scratch;

/// Makes names of one process differ.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A new file in `ingest`, held by the caller as long as the file is open.
pub(crate) fn temporary_file(ingest: &Path) -> io::Result<(File, PathBuf)> {
    loop {
        let path = ingest.join(format!("{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            // It may have been taken for an orphan before it was held.
            Ok(file) if hold(&file, &path) => return Ok((file, path)),
            Ok(_) => {}
            // A process of the same id, in another container or before a crash, left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether the file is ours and still at its path.
pub(crate) fn hold(file: &File, path: &Path) -> bool {
    // Whoever takes it for an orphan holds it until it is gone. A file system without locks keeps its orphans: nothing can be said about
    // them there.
    let _ = file.lock();
    path.exists()
}

/// Removes the files that dead writers left in `ingest`. Best effort: what is left is only untidy, as readers ignore it.
pub(crate) fn remove_orphans(ingest: &Path) {
    scratch::remove_abandoned(ingest);
    let Ok(entries) = fs::read_dir(ingest) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let file = path.extension().filter(|extension| *extension == "tmp").and_then(|_| File::open(&path).ok());
        if file.as_ref().is_some_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_a_dead_writer_left_goes_and_what_is_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (file, written) = temporary_file(dir.path()).unwrap();
        let scratch = Scratch::beside(dir.path()).unwrap();
        let (dead, left) = temporary_file(dir.path()).unwrap();
        let gone = dir.path().join("symseal-scratch-99999999-0");
        fs::create_dir(&gone).unwrap();
        fs::write(dir.path().join("another's"), b"bytes").unwrap();
        drop(dead);
        remove_orphans(dir.path());
        assert!(written.exists() && scratch.path().exists() && dir.path().join("another's").exists());
        assert!(!left.exists() && !gone.exists());
        drop(file);
        remove_orphans(dir.path());
        assert!(!written.exists());
    }
}
