//! The file behind a module, and no other.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use symseal_module::{Avma, DebugId};

use super::root::{RootDirectory, open_in_root};
use super::{living, of_io};
use crate::image::Image;
use crate::{Device, Mapping, OpenedBy, OpenedFile, ProcessError, ProcessModule};

/// Opens the file that a module was mapped from: through `map_files`, as the program that the process runs, else by its path in the process's own
/// root directory, when device and inode, or else the build-id in memory, are the mapped ones.
///
/// # Errors
/// [`ProcessError::Replaced`] where something else is at the path, be it a pipe or what nobody may read; [`ProcessError::Io`] for a file that is not there or
/// cannot be read; and whatever the process's root directory gives.
pub fn open_module(pid: u32, module: &ProcessModule) -> Result<OpenedFile, ProcessError> {
    if let Some(file) = through_map(pid, module.mapping_start, module.mapping_end) {
        return Ok(OpenedFile { file, by: OpenedBy::MapFiles });
    }
    if let Some(file) = through_exe(pid, module) {
        return Ok(OpenedFile { file, by: OpenedBy::Executable });
    }
    let (path, place) = (Path::new(OsStr::from_bytes(&module.path)), in_root(pid, &module.path));
    let root = RootDirectory::of(pid).map_err(|error| of_io(pid, "open the files of", place.clone(), error))?;
    // The process is there; its file is not, or is nobody's to read.
    let of_file = |error: io::Error| ProcessError::Io { path: place.clone(), error };
    let replaced = || ProcessError::Replaced { pid, path: place.clone() };
    let found = root.metadata(path).map_err(of_file)?;
    if !found.is_file() {
        return Err(replaced());
    }
    let is_mapped = is_mapped_file(&found, module.device, module.inode) && !module.deleted;
    let file = root.open(path).map_err(|error| match is_mapped || device_of(&found) != module.device {
        // Stacked file systems (overlayfs, btrfs) show one device in maps and another to stat: it may be the one.
        true => of_file(error),
        false => replaced(),
    })?;
    if is_mapped && is_mapped_file(&file.metadata().map_err(of_file)?, module.device, module.inode) {
        return Ok(OpenedFile { file, by: OpenedBy::Path });
    }
    if module.module.debug_id.is_some() && file_build_id(&file) == module.module.debug_id {
        return Ok(OpenedFile { file, by: OpenedBy::PathByBuildId });
    }
    Err(replaced())
}

/// Opens the file that is mapped here: through `map_files`, else by its path where device and inode are the mapped ones.
pub(crate) fn open_mapped(pid: u32, mapping: &Mapping) -> io::Result<File> {
    if let Some(file) = through_map(pid, mapping.start, mapping.end) {
        return Ok(file);
    }
    let file = open_in_root(pid, Path::new(OsStr::from_bytes(&mapping.path)))?;
    if !is_mapped_file(&file.metadata()?, mapping.device, mapping.inode) {
        return Err(io::Error::other("is not the file that the process has mapped"));
    }
    Ok(file)
}

/// The mapped file itself, where the kernel lets us have it.
fn through_map(pid: u32, start: Avma, end: Avma) -> Option<File> {
    open_regular(Path::new(&format!("/proc/{}/map_files/{:x}-{:x}", living(pid), start.0, end.0))).ok()
}

/// The program that the process runs, if that is the module: whoever may look at the process may have it, unlinked or not.
fn through_exe(pid: u32, module: &ProcessModule) -> Option<File> {
    let file = open_regular(Path::new(&format!("/proc/{}/exe", living(pid)))).ok()?;
    is_mapped_file(&file.metadata().ok()?, module.device, module.inode).then_some(file)
}

fn is_mapped_file(metadata: &Metadata, device: Device, inode: u64) -> bool {
    device_of(metadata) == device && metadata.ino() == inode
}

fn device_of(metadata: &Metadata) -> Device {
    Device { major: libc::major(metadata.dev()), minor: libc::minor(metadata.dev()) }
}

/// The build-id in a file's notes.
pub(crate) fn file_build_id(file: &File) -> Option<DebugId> {
    let image = file_image(file)?;
    image.build_id(|segment, out| file.read_exact_at(out, segment.offset).is_ok())
}

/// A file's headers.
pub(crate) fn file_image(file: &File) -> Option<Image> {
    Image::read(|offset, out| file.read_exact_at(out, offset).is_ok())
}

fn in_root(pid: u32, path: &[u8]) -> PathBuf {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    Path::new(&format!("/proc/{}/root", living(pid))).join(OsStr::from_bytes(relative))
}

/// A pipe or a device must not be opened: that could block, or do something.
fn open_regular(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}
