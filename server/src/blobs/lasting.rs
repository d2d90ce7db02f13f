//! Which failures to read stay what they are, and which are over when the cause is.

use std::io;

use super::NotGiven;
use crate::objects::{Failure, Why};

/// Whether reading again would fail alike: the bytes are not there, are damaged, or are not what was expected. Everything else (an object store
/// that does not answer, a full disk, no file descriptors left) says nothing of what is there, and nothing may be concluded from it.
pub(crate) fn is_lasting(error: &io::Error) -> bool {
    let is_of_the_bytes = matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::InvalidData
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::IsADirectory
    );
    let is_of_one_object = Failure::why(error) == Some(Why::OneObject);
    // A part of the disk that cannot be read any more: the rest can, and is served.
    is_of_the_bytes || is_of_one_object || error.raw_os_error() == Some(libc::EIO) || NotGiven::is_why(error)
}

/// What was read; `None` where that failed for good.
///
/// # Errors
/// It failed for now.
pub(crate) fn unless_lost<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_lasting(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_try_may_mend_is_not_lasting() {
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOSPC, libc::ENOMEM, libc::EACCES, libc::ENOTDIR] {
            assert!(!is_lasting(&io::Error::from_raw_os_error(code)), "{code}");
        }
        assert!(!is_lasting(&io::ErrorKind::HostUnreachable.into()));
        for code in [libc::ENOENT, libc::EIO] {
            assert!(is_lasting(&io::Error::from_raw_os_error(code)), "{code}");
        }
        assert!(is_lasting(&io::Error::new(io::ErrorKind::InvalidData, "another digest")));
    }
}
