//! Files that are opened by a name from outside: in the place of a file there may be a named pipe, where the opening alone waits for somebody to write into
//! it, perhaps for ever, or a device, which gives bytes without end.

use std::fs::File;
use std::io;
use std::path::Path;

/// Where a shell puts what it hands over itself (`--config <(decrypt server.toml)`): whoever writes there is there already.
const HANDED_OVER: [&str; 3] = ["/dev/fd", "/proc/self/fd", "/dev/stdin"];

/// Opens a file that people name in settings and options, to be read: no pipe and no device but what a shell hands over.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::InvalidInput`] for what is no file.
pub fn open_plain_file(path: &Path) -> io::Result<File> {
    let is_handed_over = HANDED_OVER.iter().any(|place| path.starts_with(place));
    if is_handed_over { File::open(path) } else { open_file(path) }
}

/// Opens a file of bytes, no pipe and no device.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    // To open a folder waits for nothing, and to read from it is an error of its own.
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() || kind.is_dir() {
        return File::open(path);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file, found a pipe, a socket or a device"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_pipe_is_opened_where_it_was_handed_over_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(open_plain_file(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(open_plain_file(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let (reader, writer) = io::pipe().unwrap();
        io::Write::write_all(&mut &writer, b"listen = 1").unwrap();
        drop(writer);
        let mut text = String::new();
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        open_plain_file(Path::new(&path)).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "listen = 1");
    }
}
