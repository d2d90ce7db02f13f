//! The log entry of a seal: what stands in the log, byte for byte.
//!
//! Verification rebuilds the body and compares bytes; nothing in a logged body is believed because it
//! parses.

mod dsse;
mod hashedrekord;
mod request;
mod timestamp;

pub use dsse::{dsse_v001, rebuild_dsse_v001};
pub use hashedrekord::hashedrekord_v002;
pub use request::{ENTRY_REQUEST_LIMIT, EntryRequestError, HashedRekordRequest};
pub use timestamp::{SignedEntryTimestamp, timestamp_message};

/// A tile log frames entries by a 16-bit length.
pub const ENTRY_LIMIT: usize = u16::MAX as usize;

/// Which kind of entry a log takes, with what a log of that kind signs beside its checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// `hashedrekord` 0.0.2: embedded logs and Rekor v2.
    HashedRekord,
    /// `dsse` 0.0.1: Rekor v1, with the time that it signed.
    Dsse(SignedEntryTimestamp),
}

impl EntryKind {
    /// `kindVersion.kind` and `kindVersion.version`.
    #[must_use]
    pub fn name(&self) -> (&'static str, &'static str) {
        match self {
            Self::HashedRekord => HASHEDREKORD,
            Self::Dsse(_) => DSSE,
        }
    }

    /// Whether it is the kind of a Rekor v1.
    #[must_use]
    pub fn is_rekor_v1(&self) -> bool {
        matches!(self, Self::Dsse(_))
    }
}

/// Kind and version of a Rekor v2 entry.
pub(crate) const HASHEDREKORD: (&str, &str) = ("hashedrekord", "0.0.2");
/// Kind and version of a Rekor v1 entry of an envelope.
pub(crate) const DSSE: (&str, &str) = ("dsse", "0.0.1");
