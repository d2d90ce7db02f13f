//! Debug packages of Debian.

use std::path::{Path, PathBuf};

use symseal_artifact::ObjectFile;

use super::downloads::Download;
use super::run;

/// The package's files, unpacked once.
pub(crate) fn unpacked(package: &Download) -> Option<PathBuf> {
    let archive = package.file()?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian");
    // Another version is another folder.
    let folder = folder.join(archive.file_stem().expect("a name"));
    if folder.is_dir() {
        return Some(folder);
    }
    let parent = folder.parent().expect("a folder");
    std::fs::create_dir_all(parent).expect("a folder");
    let new = tempfile::tempdir_in(parent).expect("a folder");
    run("dpkg-deb", &["-x", &archive.display().to_string(), "."], new.path()).expect("dpkg-deb");
    // Of another test that was faster it has the same files.
    let renamed = std::fs::rename(new.path(), &folder);
    assert!(folder.is_dir(), "{renamed:?}");
    Some(folder)
}

/// Its files with debug information, in order.
pub(crate) fn debug_files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && has_debug_info(&entry.path()) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files
}

fn has_debug_info(path: &Path) -> bool {
    let bytes = std::fs::read(path).expect("a file");
    bytes.starts_with(b"\x7fELF") && ObjectFile::parse(&bytes).is_ok_and(|object| object.has_debug_info())
}
