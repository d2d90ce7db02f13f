//! Unfinished files of a layout, and what is left of those whose writers died.
//!
//! Whoever writes below `ingest/` holds a lock on the file or directory that it made there, which ends with the process. What
//! nobody holds has no writer any more.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// A new directory in `parent` that nobody else may look into, held as long as the file is open; none where directories
/// cannot be opened.
///
/// # Errors
/// What the system says where the directory cannot be made.
pub fn temporary_directory(parent: &Path) -> io::Result<(Option<File>, PathBuf)> {
    loop {
        let path = parent.join(format!("symseal-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        match create_private(&path) {
            Ok(()) => {
                let directory = File::open(&path).ok();
                if directory.as_ref().is_none_or(|directory| hold(directory, &path)) {
                    return Ok((directory, path));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(unix)]
fn create_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_private(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

/// Whether the file is ours and still at its path.
fn hold(file: &File, path: &Path) -> bool {
    // A file system without locks keeps its orphans: nothing can be said about them there.
    let _ = file.try_lock();
    path.exists()
}

/// Removes what dead writers left in `ingest`. Best effort: what is left is only untidy, as readers ignore it.
pub(crate) fn remove_orphans(ingest: &Path) {
    let Ok(entries) = fs::read_dir(ingest) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_ours = entry.file_name().to_string_lossy().ends_with(".tmp")
            || entry.file_name().to_string_lossy().starts_with("symseal-");
        if is_ours && File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_writer_left_goes_and_what_is_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (file, written) = temporary_file(dir.path()).unwrap();
        let (held, directory) = temporary_directory(dir.path()).unwrap();
        let (dead, left) = temporary_file(dir.path()).unwrap();
        let (gone, spool) = temporary_directory(dir.path()).unwrap();
        fs::write(spool.join("member"), b"bytes").unwrap();
        fs::write(dir.path().join("another's"), b"bytes").unwrap();
        drop((dead, gone));
        remove_orphans(dir.path());
        assert!(written.exists() && directory.exists() && dir.path().join("another's").exists());
        assert!(!left.exists() && !spool.exists());
        drop((file, held));
        remove_orphans(dir.path());
        assert!(!written.exists() && !directory.exists());
    }
}
