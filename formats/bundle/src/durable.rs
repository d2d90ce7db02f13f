//! Bytes that must be on the disk before anything names them: one directory, or many files together.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::layout::{LayoutError, io_error};

/// From so many files on one request for the whole file system takes the place of one for each, though it waits for what other programs have
/// written as well. Where the two cost the same was not measured.
#[cfg(target_os = "linux")]
const WORTH_THE_FILE_SYSTEM: usize = 64;
/// So many files are asked for at once where each is asked for by itself: the disk then writes what several wait for in one go.
const AT_ONCE: usize = 16;

/// A directory's file system, held since before its files were written: what fails to reach the disk from then on is told.
#[derive(Debug)]
pub(crate) struct Unsynced {
    /// None where directories cannot be opened.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux syncs a file system by one of its files")
    )]
    held: Option<File>,
}

impl Unsynced {
    /// For files that are written below `dir` from now on.
    pub(crate) fn since_now(dir: &Path) -> Self {
        Self { held: File::open(dir).ok() }
    }

    /// Makes the bytes of these files durable.
    ///
    /// # Errors
    /// [`LayoutError::Io`] where the disk did not take one of them.
    pub(crate) fn sync(&self, files: &[PathBuf]) -> Result<(), LayoutError> {
        #[cfg(target_os = "linux")]
        if let Some(held) = self.held.as_ref().filter(|_| files.len() >= WORTH_THE_FILE_SYSTEM && tells_what_failed()) {
            let path = files.first().and_then(|file| file.parent()).unwrap_or(Path::new("."));
            return rustix::fs::syncfs(held).map_err(|error| io_error("sync the file system of", path)(error.into()));
        }
        sync_each(files)
    }
}

/// Whether `syncfs` of this kernel tells of writes that failed, which it does since Linux 5.8.
#[cfg(target_os = "linux")]
fn tells_what_failed() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| is_since_5_8(&release))
}

#[cfg(target_os = "linux")]
fn is_since_5_8(release: &str) -> bool {
    let mut numbers = release.split(|other: char| !other.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (5, 8),
        _ => false,
    }
}

/// Some files at a time, so that what one waits for serves the others.
fn sync_each(files: &[PathBuf]) -> Result<(), LayoutError> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), LayoutError> {
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            sync_file(path).map_err(io_error("sync", path))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..AT_ONCE.min(files.len())).map(|_| scope.spawn(work)).collect();
        let own = work();
        let joined =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.fold(own, Result::and)
    })
}

fn sync_file(path: &Path) -> io::Result<()> {
    // Windows flushes only what is open for writing.
    let file = if cfg!(windows) { File::options().write(true).open(path) } else { File::open(path) };
    file?.sync_all()
}

/// Makes renames in `dir` durable. Only Unix lets a directory be opened for that.
pub(crate) fn sync_directory(dir: &Path) -> Result<(), LayoutError> {
    if cfg!(unix) { File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync", dir)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_and_many_are_synced_and_one_that_is_gone_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let unsynced = Unsynced::since_now(dir.path());
        let files: Vec<PathBuf> = (0..200).map(|number| dir.path().join(format!("{number}"))).collect();
        for file in &files {
            std::fs::write(file, b"bytes").unwrap();
        }
        unsynced.sync(&files).unwrap();
        unsynced.sync(&files[..40]).unwrap();
        sync_each(&files).unwrap();
        std::fs::remove_file(&files[17]).unwrap();
        let error = sync_each(&files).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot sync {}", files[17].display())), "{error}");
        unsynced.sync(&[]).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn kernels_that_keep_failures_to_themselves_are_not_relied_on() {
        for (release, told) in [
            ("5.8.0", true),
            ("6.1.0-56-cloud-amd64\n", true),
            ("5.10", true),
            ("10.0.1", true),
            ("5.7.19", false),
            ("4.18.0-553.el8_10.x86_64", false),
            ("", false),
            ("Linux", false),
        ] {
            assert_eq!(is_since_5_8(release), told, "{release:?}");
        }
    }
}
