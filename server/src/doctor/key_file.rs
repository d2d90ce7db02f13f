//! Who may read the file of a private key.

use std::path::Path;

use super::Finding;

/// `None` where the file is not there, or cannot be looked at: whoever reads it tells that.
#[cfg(unix)]
pub(super) fn look(id: &'static str, path: &Path) -> Option<Finding> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let (mode, owner, shown) = (metadata.mode() & 0o7777, metadata.uid(), path.display());
    if mode & 0o007 != 0 {
        let found =
            format!("{shown} has the mode {mode:o}: everybody on this machine may use this key, or put another there");
        return Some(Finding::warning(
            id,
            found,
            format!("chmod go-rwx {shown}; take another key where others were here"),
        ));
    }
    // So a key is given to a server that may not change it.
    if owner == 0 && mode & 0o070 == 0o040 {
        let found = format!("{shown} has the mode {mode:o}: root's, and the group {} reads it", metadata.gid());
        return Some(Finding::ok(id, found));
    }
    if mode & 0o070 != 0 {
        let found = format!("{shown} has the mode {mode:o}: the group {} may use this key too", metadata.gid());
        let advice = format!(
            "chmod g-rwx {shown}, where the user {owner} is the server's; else give it to that user before (chown)"
        );
        return Some(Finding::warning(id, found, advice));
    }
    Some(Finding::ok(id, format!("{shown} has the mode {mode:o}, for the user {owner} alone")))
}

#[cfg(not(unix))]
pub(super) fn look(_: &'static str, _: &Path) -> Option<Finding> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::doctor::Standing;

    #[test]
    fn a_key_that_others_may_read_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let check = |mode, expected, part: &str| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let found = look("tls.key-permissions", file.path()).unwrap();
            let advice = found.advice.clone().unwrap_or_default();
            assert!(found.standing == expected && advice.contains(part), "{found:?}");
        };
        check(0o600, Standing::Ok, "");
        check(0o400, Standing::Ok, "");
        check(0o660, Standing::Warning, "chmod g-rwx");
        let is_roots = std::os::unix::fs::MetadataExt::uid(&file.as_file().metadata().unwrap()) == 0;
        check(0o640, if is_roots { Standing::Ok } else { Standing::Warning }, "");
        check(0o604, Standing::Warning, "chmod go-rwx");
        check(0o622, Standing::Warning, "chmod go-rwx");
        assert_eq!(look("tls.key-permissions", Path::new("/nowhere/key.pem")), None);
    }
}
