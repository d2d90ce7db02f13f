//! Failures that are over as soon as others have finished: the process, or the machine, has no more of something.

use std::error::Error;
use std::io;

/// No more open files of the process (EMFILE) or the machine (ENFILE), no memory, no more threads (EAGAIN of pthread_create(3)).
const SHORT: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];

/// Whether an error, or what it was made of, is one of these.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(this) = cause {
        cause = match this.downcast_ref::<io::Error>() {
            Some(error) if is_short(error) => return true,
            // Its `source` is what the error within was made of, and passes over that.
            Some(error) => error.get_ref().map(|within| within as &(dyn Error + 'static)),
            None => this.source(),
        };
    }
    false
}

/// The kind to tell an error on with where nothing but its text is kept: what the system said would be lost.
pub(crate) fn kind_of(error: &io::Error) -> io::ErrorKind {
    if is_shortage(error) { io::ErrorKind::ResourceBusy } else { error.kind() }
}

fn is_short(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| SHORT.contains(&code))
        || matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::ResourceBusy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_found_however_it_was_wrapped() {
        for code in SHORT {
            let bare = || io::Error::from_raw_os_error(code);
            let told_on = io::Error::new(kind_of(&bare()), format!("/a: {}", bare()));
            for error in [bare(), io::Error::other(bare()), io::Error::other(io::Error::other(bare())), told_on] {
                assert!(is_shortage(&error), "{error:?}");
            }
        }
        for error in [io::Error::from_raw_os_error(libc::EIO), io::ErrorKind::NotFound.into(), io::Error::other("a")] {
            assert!(!is_shortage(&error), "{error:?}");
            assert_eq!(kind_of(&error), error.kind());
        }
    }
}
