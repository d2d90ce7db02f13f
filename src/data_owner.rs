//! What a command writes below a server's data directory belongs to whoever the server runs as.
//!
//! A server that runs as its own user cannot read what root left there with its own name on it: a tombstone, a pin, an index. So a command of root's
//! becomes that user, for good and with no more rights than it has: whoever owns a directory may lay links in it that lead anywhere.

use std::path::Path;

use anyhow::{Result, bail};
use symseal_server::data_owner;

/// Sees to it that the files that this process makes from now on belong to the owner of a server's data directory: root becomes that owner, which
/// holds for all threads. Nothing is changed where the directory is not there, or is this user's own. Call it once everything else is read: what the
/// owner may not read cannot be read afterwards.
///
/// # Errors
/// Root cannot become that user here, or this process is another user's than root's and the owner's, and `is_to_write`.
pub(crate) fn act_for_owner(data: &Path, is_to_write: bool) -> Result<()> {
    let Ok((user, group)) = data_owner(data) else { return Ok(()) };
    let own = effective_user();
    if own == user || (own == 0 && has_become(user, group)) || (own != 0 && !is_to_write) {
        return Ok(());
    }
    refuse(data, (user, group), own)
}

/// The same for a command that makes the data directory where there is none: root makes it as whoever the nearest folder above it belongs to, as a server
/// that runs as its own user mostly has its folder already (`/var/lib/symseal`). Where that is root's too, it is told that the directory is root's.
///
/// # Errors
/// See above.
pub(crate) fn act_for_maker(data: &Path) -> Result<()> {
    if data_owner(data).is_ok() || effective_user() != 0 {
        return act_for_owner(data, true);
    }
    let place = std::path::absolute(data)?;
    let above = place.ancestors().skip(1).find_map(|above| data_owner(above).ok());
    match above {
        Some((user, group)) if user != 0 => match has_become(user, group) {
            true => Ok(()),
            false => refuse(data, (user, group), 0),
        },
        _ => {
            eprintln!(
                "warning: {}: it is made, and is root's: a server that runs as another user cannot use it before it is given to that user (chown -R USER), or make it as that user",
                data.display()
            );
            Ok(())
        }
    }
}

/// The same for a command that has files of its caller's besides, which would become another's.
///
/// # Errors
/// This process is not the owner's.
pub(crate) fn must_be_owner(data: &Path) -> Result<()> {
    match (data_owner(data), effective_user()) {
        (Ok(owner), own) if owner.0 != own => refuse(data, owner, own),
        _ => Ok(()),
    }
}

fn refuse(data: &Path, (user, group): (u32, u32), own: u32) -> Result<()> {
    bail!(
        "{}: it belongs to the user with the id {user}, who could not read what this user ({own}) writes there: run this as that user (as root: setpriv --reuid={user} --regid={group} --clear-groups symseal …)",
        data.display()
    )
}

#[allow(unsafe_code, reason = "a question to the system")]
fn effective_user() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether root is this user now, without a way back. Where that fails half way this process must not go on.
#[allow(unsafe_code, reason = "calls for which no library is at hand")]
fn has_become(user: u32, group: u32) -> bool {
    // SAFETY: setgroups reads none of the groups that it is told there are none of; the others take numbers. The C library tells all threads.
    unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(group) == 0
            && libc::setuid(user) == 0
            && libc::geteuid() == user
            && libc::getegid() == group
    }
}
