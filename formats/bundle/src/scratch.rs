//! Directories for what is needed while a program runs, and what is left of those whose programs died.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ingest::hold;

/// What the names of all such directories begin with.
const PREFIX: &str = "symseal-scratch-";
/// Makes names of one process differ.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory that nobody else may look into. It goes with all that is in it when this is dropped; where the program is killed before
/// that, it goes when the next one is made beside it.
///
/// It is locked as long as this is there, which shows others that it is in use: a file system without locks keeps those of dead programs.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// None where directories cannot be opened.
    _held: Option<File>,
}

impl Scratch {
    /// Among the system's temporary files.
    ///
    /// # Errors
    /// What the system says where the directory cannot be made.
    pub fn temporary() -> io::Result<Self> {
        Self::beside(&std::env::temp_dir())
    }

    /// In a directory, in which those of dead programs are removed.
    ///
    /// # Errors
    /// What the system says where the directory cannot be made.
    pub fn beside(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match create_private(&path) {
                Ok(()) => {
                    let held = File::open(&path).ok();
                    // It may have been taken for abandoned before it was held.
                    if held.as_ref().is_none_or(|directory| hold(directory, &path)) {
                        return Ok(Self { path, _held: held });
                    }
                }
                // A process of the same id, in another container or before a crash, left it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed with the next one.
        let _ = fs::remove_dir_all(&self.path);
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

/// Best effort: other people's stay, where the system does not let us remove them.
pub(crate) fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(is_name) && entry.file_type().is_ok_and(|it| it.is_dir());
        // Held until it is gone, as another program may look at it meanwhile.
        let held = is_ours.then(|| File::open(entry.path()).ok()).flatten();
        if held.as_ref().is_some_and(|directory| directory.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether it is a name that we give.
fn is_name(name: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_dead_program_left_goes_and_what_is_in_use_or_anothers_stays() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let used = Scratch::beside(parent.path()).unwrap();
        fs::write(used.path().join("member"), b"bytes").unwrap();
        let others = ["symseal-scratch-1-x", "symseal-scratch-", "symseal-7-1", "kept"];
        for name in others.iter().chain(&["symseal-scratch-99999999-0"]) {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("member"), b"bytes").unwrap();
        }
        symlink(at("kept"), at("symseal-scratch-99999999-1")).unwrap();

        let next = Scratch::beside(parent.path()).unwrap();
        assert!(next.path() != used.path() && used.path().join("member").exists());
        assert!(others.iter().all(|name| at(name).join("member").exists()));
        assert!(!at("symseal-scratch-99999999-0").exists());

        let gone = used.path().to_owned();
        drop(used);
        assert!(!gone.exists() && next.path().exists());
    }
}
