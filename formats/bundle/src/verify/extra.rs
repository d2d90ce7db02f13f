//! A pulled directory holds the bundle's files and nothing else: what no digest covers, a debugger could load.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use symseal_seal::checks::{Check, id};

use crate::bundle::Bundle;
use crate::title;

/// More folders inside one another than any title has components.
const MAX_DEPTH: usize = 64;
/// More entries than any bundle has files; bounds the work on a wrong directory.
const MAX_ENTRIES: usize = 4_000_000;

pub(super) fn check(bundle: &Bundle, signature_files: &[PathBuf]) -> Check {
    if bundle.layout().is_some() {
        return Check::passed(id::BLOB_EXTRA, "a layout").with_detail("files of a layout are named by their digests");
    }
    let mut expected: BTreeSet<PathBuf> = bundle.index().files().map(|file| PathBuf::from(&file.path)).collect();
    expected.insert(PathBuf::from(title::SYMBOL_INDEX));
    expected.insert(PathBuf::from(title::SEAL));
    let root = bundle.root();
    // A seal's own file may lie in the directory under a name of its own.
    expected.extend(signature_files.iter().filter_map(|path| {
        let (path, root) = (fs::canonicalize(path).ok()?, fs::canonicalize(root).ok()?);
        path.strip_prefix(root).ok().map(Path::to_owned)
    }));
    let mut walk = Walk { root, expected: &expected, left: MAX_ENTRIES, found: Vec::new() };
    if let Err(error) = walk.folder(Path::new(""), MAX_DEPTH) {
        return Check::failed(id::BLOB_EXTRA, "a directory that can be read", error.to_string())
            .with_detail(root.display().to_string());
    }
    if walk.found.is_empty() {
        return Check::passed(id::BLOB_EXTRA, "nothing but the bundle's files");
    }
    let more = walk.found.len().saturating_sub(MAX_NAMED);
    walk.found.truncate(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Check::failed(id::BLOB_EXTRA, "the bundle's files alone", format!("{}{more}", walk.found.join(", ")))
        .with_detail(format!("remove them from {}, or pull the bundle into an empty directory", root.display()))
}

/// How many of the surplus files are named.
const MAX_NAMED: usize = 10;

struct Walk<'a> {
    root: &'a Path,
    expected: &'a BTreeSet<PathBuf>,
    left: usize,
    found: Vec<String>,
}

impl Walk<'_> {
    fn folder(&mut self, below: &Path, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join(below))? {
            let entry = entry?;
            self.left = self.left.checked_sub(1).ok_or_else(|| io::Error::other("more entries than a bundle has"))?;
            let path = below.join(entry.file_name());
            // Not that of what a link leads to.
            let kind = entry.file_type()?;
            let shown = path.display().to_string().escape_debug().to_string();
            if kind.is_symlink() {
                self.found.push(format!("a link {shown}"));
            } else if kind.is_dir() && depth > 0 {
                self.folder(&path, depth - 1)?;
            } else if !kind.is_file() {
                self.found.push(format!("{shown}, which is no file"));
            } else if !self.expected.contains(&path) {
                self.found.push(shown);
            }
        }
        Ok(())
    }
}
