//! A new root: all three files of a trust directory change in one step. What else lies in the directory stays in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use symseal_seal::trust::{POLICY_FILE, ROOT_FILE, TRUSTED_ROOT_FILE};

use super::files::prepare;
use super::{TrustFiles, TrustInitError};
use crate::durable::{directory_of, sync_directory};

/// Puts a directory with these files in the place of one, and what else was in it into the new one. The directory has the mode and, where that is
/// allowed, the owner of before; a symbolic link to it stays one.
///
/// At no time is there no directory, and none with files of both; a process that is killed afterwards leaves further files of the
/// old directory beside the new one, in `.trust-…`.
pub(super) fn exchange(directory: &Path, files: &TrustFiles) -> Result<(), TrustInitError> {
    let io = |doing| move |source| TrustInitError::Io { path: directory.to_owned(), doing, source };
    let place = fs::canonicalize(directory).map_err(io("find it"))?;
    let parent = directory_of(&place);
    let new = prepare(parent, files).map_err(io("write its files beside it"))?;
    like(&place, new.path()).map_err(io("give the new one its mode"))?;
    // From here on nothing is removed that is not known: the name holds what was in the directory.
    let beside = new.keep();
    if let Err(error) = change_places(&beside, &place) {
        remove_the_three(&beside);
        return Err(io("put the new one in its place")(error));
    }
    let moved = move_the_others(&beside, &place);
    remove_the_three(&beside);
    moved.map_err(io("move its other files back from the directory .trust-… beside it"))?;
    sync_directory(&place).and_then(|()| sync_directory(parent)).map_err(io("make it durable"))
}

/// Mode and owner. Whoever may not give files away stays their owner.
#[cfg(unix)]
fn like(old: &Path, new: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let metadata = fs::metadata(old)?;
    let _ = chown(new, Some(metadata.uid()), Some(metadata.gid()));
    fs::set_permissions(new, metadata.permissions())
}

#[cfg(not(unix))]
fn like(_old: &Path, _new: &Path) -> io::Result<()> {
    Ok(())
}

/// Two directories in one step, where kernel and file system know how; else by a third name, with a moment at which there is no directory.
fn change_places(one: &Path, other: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            done => return Ok(done?),
        }
    }
    let mut third = one.as_os_str().to_owned();
    third.push("-new");
    let third = PathBuf::from(third);
    fs::rename(one, &third)?;
    fs::rename(other, one)?;
    fs::rename(&third, other).inspect_err(|_| {
        let _ = fs::rename(one, other);
    })
}

fn move_the_others(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if ![ROOT_FILE, POLICY_FILE, TRUSTED_ROOT_FILE].iter().any(|own| name == *own) {
            fs::rename(from.join(&name), to.join(&name))?;
        }
    }
    Ok(())
}

/// And the directory, if nothing else is in it.
fn remove_the_three(directory: &Path) {
    for name in [ROOT_FILE, POLICY_FILE, TRUSTED_ROOT_FILE] {
        let _ = fs::remove_file(directory.join(name));
    }
    let _ = fs::remove_dir(directory);
}
