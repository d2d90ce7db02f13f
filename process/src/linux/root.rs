//! Files as a process sees them, below its own root directory.

use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::living;

/// Opens the regular file at `path`, as process `pid` would find it: in its mount namespace, below its root directory.
/// Links that begin with a slash lead to its root, not to ours, and none leads out of it.
///
/// # Errors
/// As [`File::open`]; `InvalidInput` for what is no regular file, which is not opened for reading.
pub fn open_in_root(pid: u32, path: &Path) -> io::Result<File> {
    RootDirectory::of(pid)?.open(path)
}

/// The root directory of a process, in its mount namespace.
#[derive(Debug)]
pub(crate) struct RootDirectory {
    folder: File,
    /// Where it lies in that namespace: the paths that the kernel shows of a process that changed its root begin there.
    place: PathBuf,
}

impl RootDirectory {
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let link = format!("/proc/{}/root", living(pid));
        Ok(Self { folder: File::open(&link)?, place: std::fs::read_link(&link)? })
    }

    /// What is said of the file at `path`, which need not be readable, and is not opened.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.open_with(path, libc::O_PATH)?.metadata()
    }

    /// Opens the regular file at `path`: a pipe or a device must not be opened, as that could block, or do something.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        let regular = |found: &Metadata| match found.is_file() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        };
        regular(&self.metadata(path)?)?;
        // What came into its place meanwhile does not hold up the call, and is recognised afterwards.
        let file = self.open_with(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY)?;
        regular(&file.metadata()?)?;
        Ok(file)
    }

    fn open_with(&self, path: &Path, flags: libc::c_int) -> io::Result<File> {
        let open = |path: &Path| {
            open_beneath(&self.folder, &CString::new(path.as_os_str().as_bytes())?, flags | libc::O_CLOEXEC)
        };
        match path.strip_prefix(&self.place) {
            Ok(inside) if self.place != Path::new("/") => open(inside).or_else(|_| open(path)),
            _ => open(path),
        }
    }
}

#[allow(unsafe_code)]
fn open_beneath(root: &File, path: &CString, flags: libc::c_int) -> io::Result<File> {
    // SAFETY: `open_how` is plain numbers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = flags as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    let (folder, name, bytes) = (root.as_raw_fd(), path.as_ptr(), size_of::<libc::open_how>());
    // SAFETY: the descriptor is open, the name ends in a zero byte, and `how` lives through the call and has the size
    // that is given.
    let opened = unsafe { libc::syscall(libc::SYS_openat2, folder, name, &raw const how, bytes) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    let opened = i32::try_from(opened).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(opened) }))
}
