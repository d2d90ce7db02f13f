//! Directories whose files may be read as sources: opened once; every file is opened below that handle, so that no link and no `..`
//! leads out (`openat2` with `RESOLVE_BENEATH` on Linux).

use std::io;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use symseal_bundle::sources::MAX_SOURCE_BYTES;

use super::canonical;
use crate::blobs::OpenBlob;
use crate::file_stamp::FileStamp;
use crate::withheld::Withheld;

/// An open directory of sources.
#[derive(Debug)]
pub(crate) struct SourceRoot {
    dir: Dir,
    /// Its own path, for paths that begin with it.
    place: String,
    withheld: Arc<Withheld>,
}

impl SourceRoot {
    /// Opens a directory.
    pub(crate) fn open(path: &Path, withheld: Arc<Withheld>) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        // One whose own path is no text can still be looked into; no line table names it.
        let place = path.canonicalize()?.to_str().unwrap_or_default().to_owned();
        Ok(Self { dir, place, withheld })
    }

    /// Opens the file that an absolute path of a line table names: below the directory as if that were the root, or, where the path
    /// begins with the directory's own, at what follows; with the state that it is in. None when there is no regular file of a source's size. Blocks.
    pub(crate) fn find(&self, path: &str) -> Option<(OpenBlob, FileStamp)> {
        let path = canonical(path);
        let inside =
            path.strip_prefix(self.place.as_str()).filter(|rest| rest.starts_with('/') && !self.place.is_empty());
        inside.and_then(|rest| self.open_file(rest)).or_else(|| self.open_file(&path))
    }

    fn open_file(&self, path: &str) -> Option<(OpenBlob, FileStamp)> {
        let mut options = OpenOptions::new();
        // A pipe that nobody writes to would hold us for ever.
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = self.dir.open_with(path.trim_start_matches('/'), &options).ok()?.into_std();
        let metadata = file.metadata().ok()?;
        let found_at = || Path::new(&self.place).join(path.trim_start_matches('/')).canonicalize();
        let taken = metadata.is_file() && metadata.len() <= MAX_SOURCE_BYTES && !self.withheld.has(&file, found_at);
        let stamp = FileStamp::of(&metadata).ok().filter(|_| taken)?;
        Some((OpenBlob { size: metadata.len(), modified: metadata.modified().ok(), file }, stamp))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_outside_the_directory_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("src/deep")).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("src/a.c"), "source").unwrap();
        symlink("a.c", root.join("src/inside.c")).unwrap();
        symlink("../../secret", root.join("src/outside.c")).unwrap();
        symlink(folder.path().join("secret"), root.join("src/absolute.c")).unwrap();
        symlink("/", root.join("src/deep/all")).unwrap();
        let opened = SourceRoot::open(&root, Arc::default()).unwrap();
        let read = |path: &str| {
            let mut text = String::new();
            opened.find(path)?.0.file.read_to_string(&mut text).ok()?;
            Some(text)
        };
        for path in ["/src/a.c", "/src/inside.c", "/src/../src//./a.c", "/../../src/a.c"] {
            assert_eq!(read(path).as_deref(), Some("source"), "{path}");
        }
        let own = format!("{}/src/a.c", root.canonicalize().unwrap().display());
        assert_eq!(read(&own).as_deref(), Some("source"));
        let secret = format!("/src/deep/all{}/secret", folder.path().display());
        for path in
            ["/src/outside.c", "/src/absolute.c", "/../secret", "/src", "/", "/src/none.c", "/src/a.c\0", &secret]
        {
            assert_eq!(read(path), None, "{path}");
        }
    }
}
