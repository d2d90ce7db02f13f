//! What the user who runs this process is called.

use std::ffi::CStr;

/// Bytes that the user database may need for one user; beyond that the user has a number alone.
const ROOM: usize = 64 << 10;

/// The name that this process's user has in the user database, or `uid NUMBER` where it has none.
pub(crate) fn own_user() -> String {
    let id = own_id();
    name_of(id).unwrap_or_else(|| format!("uid {id}"))
}

#[allow(unsafe_code, reason = "a question to the system")]
fn own_id() -> u32 {
    // SAFETY: getuid takes nothing and cannot fail.
    unsafe { libc::getuid() }
}

#[allow(unsafe_code, reason = "a call for which no library is at hand")]
fn name_of(id: u32) -> Option<String> {
    let mut room = vec![0; ROOM];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: `entry` and `found` may be written, and `room` has as many bytes as are told.
    let failed = unsafe { libc::getpwuid_r(id, entry.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut found) };
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: where it finds a user, `found` is `entry`, filled, and its name ends with a zero in `room`, which is there until the end of this function.
    let name = unsafe { CStr::from_ptr((*found).pw_name) };
    name.to_str().ok().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_name_that_the_user_database_says_or_a_number() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(name_of(3_999_999_999), None);
        assert!(!own_user().is_empty());
    }
}
