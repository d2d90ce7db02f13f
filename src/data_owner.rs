//! What a command writes below a server's data directory belongs to whoever the server runs as.
//!
//! A server that runs as its own user cannot read what root left there with its own name on it: a tombstone, a pin, an index. So a command of root's
//! makes files as that user, with root's rights all the same, as a directory such as `/var/lib/private` lets nobody else through. That is what Linux
//! has a user and a group of their own for that a thread's new files get (setfsuid(2)).

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Result, bail};

/// Made by whoever used the data directory first.
const LOCK: &str = "lock";

/// Sees to it that the files that this process makes from now on belong to the owner of a server's data directory. Call it before threads are
/// started, which take it over. Nothing is changed where the directory is not there, or is this user's own.
///
/// # Errors
/// This process can give files to nobody, or is another user's than root's and the owner's, and `is_to_write`.
pub(crate) fn act_for_owner(data: &Path, is_to_write: bool) -> Result<()> {
    let Ok(directory) = std::fs::metadata(data) else { return Ok(()) };
    let lock = std::fs::metadata(data.join(LOCK)).ok();
    // A directory that was made for a server by root is used by another user through its group.
    let (user, group) = match lock.filter(|_| directory.uid() == 0) {
        Some(lock) => owner(&lock),
        None => owner(&directory),
    };
    // SAFETY: geteuid takes nothing and cannot fail.
    #[allow(unsafe_code, reason = "a question to the system")]
    let own = unsafe { libc::geteuid() };
    if own == user || (own == 0 && make_files_as(user, group)) || (own != 0 && !is_to_write) {
        return Ok(());
    }
    bail!(
        "{}: it belongs to the user with the id {user}, who could not read what this user ({own}) writes there: run this as that user, or as root (setpriv --reuid={user} --regid={group} --clear-groups symseal …)",
        data.display()
    )
}

fn owner(metadata: &Metadata) -> (u32, u32) {
    (metadata.uid(), metadata.gid())
}

/// Whether files that this thread, and those that it starts, make from now on belong to these; what it may do stays as it is.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "calls for which no library is at hand")]
fn make_files_as(user: u32, group: u32) -> bool {
    /// Capabilities in 64 bits each (capget(2), `_LINUX_CAPABILITY_VERSION_3`).
    const VERSION: u32 = 0x2008_0522;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Half {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let mut header = Header { version: VERSION, pid: 0 };
    let mut halves = [Half::default(), Half::default()];
    // SAFETY: both structures have the layout that capget(2) and capset(2) give for this version, and live until the calls return. setfsuid and
    // setfsgid take a number and answer with the one before, also where nothing changes: with one that nobody has they tell what holds.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) != 0 {
            return false;
        }
        libc::setfsgid(group);
        libc::setfsuid(user);
        let holds =
            libc::setfsuid(u32::MAX).cast_unsigned() == user && libc::setfsgid(u32::MAX).cast_unsigned() == group;
        // Rights over files go with root's id, and come back by themselves alone.
        holds && libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) == 0
    }
}

#[cfg(not(target_os = "linux"))]
fn make_files_as(_: u32, _: u32) -> bool {
    false
}
