//! The data directory's lock, and who holds it.

use std::fs::TryLockError;
use std::io;
use std::path::Path;

use symseal_bundle::open_plain_file;

use super::Finding;
use super::process::{Process, of_lock};

/// Who holds a lock, which a server takes and a program that looks does not.
pub(super) enum Holder {
    /// Nobody has it.
    Nobody,
    /// A server, which the system may not name.
    Server(Option<Process>),
    /// This cannot be told.
    Unknown(io::Error),
}

impl Holder {
    /// The server that runs, if it can be named.
    pub(super) fn process(&self) -> Option<&Process> {
        match self {
            Self::Server(process) => process.as_ref(),
            Self::Nobody | Self::Unknown(_) => None,
        }
    }
}

/// Who holds the lock of a data directory.
pub(super) fn holder(data: &Path) -> Holder {
    holder_of(&data.join("lock"))
}

/// Who holds the lock of a file.
pub(super) fn holder_of(path: &Path) -> Holder {
    let file = match open_plain_file(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Holder::Nobody,
        Err(error) => return Holder::Unknown(error),
    };
    // Shared, and given back at once: a server that starts at this moment tries for a second.
    match file.try_lock_shared() {
        Ok(()) => Holder::Nobody,
        Err(TryLockError::WouldBlock) => Holder::Server(of_lock(path)),
        Err(TryLockError::Error(error)) => Holder::Unknown(error),
    }
}

pub(super) fn look(data: &Path, holder: &Holder) -> Finding {
    const ID: &str = "data.lock";
    match holder {
        Holder::Nobody => Finding::ok(ID, "no server uses the data directory"),
        Holder::Server(Some(process)) => Finding::ok(ID, format!("{process} uses the data directory")),
        Holder::Server(None) => {
            Finding::ok(ID, "a server uses the data directory; the system does not say which process")
        }
        Holder::Unknown(error) => Finding::problem(
            ID,
            format!("{}: {error}", data.join("lock").display()),
            "give the file to the server's user, or run this as that user",
        ),
    }
}
