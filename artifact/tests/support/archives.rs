//! Archives made by the real tools, and what is read of them.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};
use symseal_artifact::{ArchiveError, ArchiveReport, Limits, Source, read_archive};

/// A file's size and SHA-256.
pub(crate) type Content = (u64, [u8; 32]);

/// Full paths and contents of all members.
pub(crate) type Members = BTreeMap<String, Content>;

pub(crate) fn content(bytes: &[u8]) -> Content {
    (bytes.len() as u64, Sha256::digest(bytes).into())
}

/// Everything in an archive, read as `source` says.
pub(crate) fn read_source(
    name: &str,
    source: Source<'_>,
    limits: &Limits,
) -> Result<(Members, ArchiveReport), ArchiveError> {
    let mut members = Members::new();
    let report = read_archive::<ArchiveError>(name, source, limits, &mut |member, content| {
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        let mut size = 0;
        // A failing reader is what the caller gets to know by itself.
        while let Ok(read) = content.read(&mut buffer) {
            if read == 0 {
                break;
            }
            digest.update(&buffer[..read]);
            size += read as u64;
        }
        if let Some(hint) = member.size_hint {
            assert!(hint == size || size < hint, "{} has {size} of {hint} bytes", member.full_path());
        }
        members.insert(member.full_path(), (size, digest.finalize().into()));
        Ok(())
    })?;
    Ok((members, report))
}

/// Everything in an archive, once as a stream and once at any offset: the same both times.
pub(crate) fn read_bytes(name: &str, bytes: &[u8]) -> Result<(Members, ArchiveReport), ArchiveError> {
    let limits = Limits::default();
    let stream = read_source(name, Source::Stream(&mut &bytes[..]), &limits);
    let file = read_source(name, Source::Seekable(&mut Cursor::new(bytes)), &limits);
    if let (Ok(stream), Ok(file)) = (&stream, &file) {
        assert!(stream.0 == file.0, "{name} read as a stream and as a file");
    }
    file
}

pub(crate) fn read_file(path: &Path) -> (Members, ArchiveReport) {
    let bytes = std::fs::read(path).expect("a file");
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    read_bytes(&name, &bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a shell command in a folder; its output.
pub(crate) fn shell(command: &str, folder: &Path) -> Vec<u8> {
    let output =
        Command::new("bash").args(["-c", &format!("set -eo pipefail; {command}")]).current_dir(folder).output();
    let output = output.expect("bash starts");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The regular files below a folder with their contents, by path relative to it.
pub(crate) fn files_below(folder: &Path) -> Members {
    fn walk(root: &Path, folder: &Path, files: &mut Members) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                walk(root, &entry.path(), files);
            } else if kind.is_file() {
                let path = entry.path();
                let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
                files.insert(name, content(&std::fs::read(&path).expect("a file")));
            }
        }
    }
    let mut files = Members::new();
    walk(folder, folder, &mut files);
    files
}

/// The same members within an archive.
pub(crate) fn within(archive: &str, files: &Members) -> Members {
    files.iter().map(|(path, content)| (format!("{archive}!/{path}"), *content)).collect()
}

/// Says which members differ.
pub(crate) fn assert_same(what: &str, found: &Members, expected: &Members) {
    let paths = |members: &Members| members.keys().cloned().collect::<std::collections::BTreeSet<_>>();
    let (found_paths, expected_paths) = (paths(found), paths(expected));
    let missing: Vec<_> = expected_paths.difference(&found_paths).take(5).collect();
    let more: Vec<_> = found_paths.difference(&expected_paths).take(5).collect();
    assert!(missing.is_empty() && more.is_empty(), "{what}: missing {missing:?}, not expected {more:?}");
    for (path, content) in expected {
        assert_eq!(&found[path], content, "{what}: {path}");
    }
}

/// Fills a folder with files of many sizes and names, links, and a sparse file.
pub(crate) fn fill(folder: &Path) {
    let long = format!("{}/{}", "long".repeat(40), "name".repeat(50));
    for (name, size) in [
        ("empty", 0),
        ("one", 1),
        ("block", 512),
        ("more", 513),
        ("usr/lib/debug/.build-id/ab/cdef.debug", 300_000),
        ("größe/ü", 77),
        (&long, 1000),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        let bytes: Vec<u8> = (0..size).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(path, bytes).expect("a file");
    }
    shell("ln -s one link; mkdir -p deep/er; ln -s ../../one deep/er/link; mkfifo pipe", folder);
}
