//! What lies in the data directory: whether the server's user may use it. The directory's own modes say nothing of that, where somebody else wrote below it.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::Finding;
use crate::data_owner::data_owner;

const ID: &str = "data.contents";
/// Folders below the data directory that are looked into: `blobs/sha256` is a folder of the second depth. What is deeper are files by the thousand.
const DEPTH: u32 = 2;

/// `None` where the directory cannot be looked into, which is told otherwise.
pub(super) fn look(data: &Path) -> Option<Finding> {
    let (user, _) = data_owner(data).ok()?;
    let mut wrong = Vec::new();
    // Root may use everything.
    if user != 0 {
        find(data, user, DEPTH, &mut wrong).ok()?;
    }
    let Some((path, why)) = wrong.first() else {
        return Some(Finding::ok(ID, "the server's user may use what lies there"));
    };
    let more = match wrong.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let advice = format!("chown -R {user} {0}; chmod -R u+rwX {0}", data.display());
    Some(Finding::problem(ID, format!("{} {why}{more}: the server's user is {user}", path.display()), advice))
}

/// Files and folders that a user may not use, and why. What this process may not look into itself is one of these, or nobody can say.
fn find(folder: &Path, user: u32, depth: u32, wrong: &mut Vec<(PathBuf, String)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // A file system has it in its own top folder.
        if path.file_name().is_some_and(|name| name == "lost+found") {
            continue;
        }
        // It may have gone meanwhile.
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        if let Some(why) = unusable(&metadata, user) {
            wrong.push((path, why));
        } else if metadata.is_dir() && depth > 1 {
            let _ = find(&path, user, depth - 1, wrong);
        }
    }
    Ok(())
}

fn unusable(metadata: &Metadata, user: u32) -> Option<String> {
    let needed = if metadata.is_dir() { 0o700 } else { 0o400 };
    if metadata.uid() != user {
        return Some(format!("belongs to the user {}", metadata.uid()));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    (mode & needed != needed && !metadata.is_symlink()).then(|| format!("has the mode {mode:o}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_anothers_or_closed_to_its_owner_is_found() {
        let data = tempfile::tempdir().unwrap();
        let own = std::fs::metadata(data.path()).unwrap().uid();
        std::fs::create_dir_all(data.path().join("tombstones/sha256")).unwrap();
        std::fs::write(data.path().join("lock"), "").unwrap();
        let found = |user| {
            let mut wrong = Vec::new();
            find(data.path(), user, DEPTH, &mut wrong).unwrap();
            wrong.sort();
            wrong
        };
        assert_eq!(found(own), []);
        assert_eq!(found(own + 1).len(), 2, "{:?}", found(own + 1));
        let closed = data.path().join("tombstones/sha256");
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(found(own), [(closed.clone(), "has the mode 0".to_owned())]);
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
}
