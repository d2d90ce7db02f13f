//! Debug packages of Debian.

use std::path::{Path, PathBuf};

use symseal_artifact::ObjectFile;

use super::{run, skip};

/// The package's files, downloaded and unpacked once.
pub(crate) fn unpacked(package: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian").join(package);
    if folder.join("usr").is_dir() {
        return Some(folder);
    }
    std::fs::create_dir_all(&folder).expect("a folder");
    if run("apt-get", &["download", "-qq", package], &folder).is_none() {
        skip(package);
        return None;
    }
    let archives = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let archive =
        archives.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb")).expect("a package");
    run("dpkg-deb", &["-x", &archive.display().to_string(), "."], &folder).expect("dpkg-deb");
    std::fs::remove_file(archive).expect("the package goes");
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
