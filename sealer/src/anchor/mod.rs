//! Anchoring: an envelope becomes an entry of a transparency log, with its proof.
//!
//! There is one face for all logs, [`TransparencyLog`]: the embedded tile log in a directory, Rekor v2
//! and Rekor v1 over HTTP (feature `online`). What a log answers is believed only as far as the offline
//! verifier would: [`anchor_verified`] runs it on the answer before a seal is made of it.

mod embedded;
mod location;
#[cfg(feature = "online")]
mod rekor;
mod rekor_v1_answer;

use symseal_seal::{ArtifactPublicKey, Check, Envelope, Hash, LogEntry, LogId, LogIdentity, verify_entry};

use crate::log::LogError;
pub(crate) use location::is_host_and_path;
pub use location::{LogLocation, LogLocationError, RekorVersion};
#[cfg(feature = "online")]
pub use rekor::{REKOR_LIMIT, RekorLog, RekorLogError};
pub use rekor_v1_answer::{RekorV1AnswerError, parse_rekor_v1_answer};

/// A transparency log that takes envelopes. Several threads may ask it for proofs.
pub trait TransparencyLog: Sync {
    /// What the log is called in errors: its directory or URL.
    fn name(&self) -> String;

    /// The logs that may answer under this name, with their keys: one, or those that a trust directory
    /// pins.
    fn identities(&self) -> Vec<LogIdentity>;

    /// Logs the envelope, which `key` signed, and gives its entry; an entry that stands in the log already
    /// is given again. The entry is as the log answered: a caller uses [`anchor_verified`].
    ///
    /// # Errors
    /// [`AnchorError`]. The entry may be in the log all the same; trying again is safe.
    fn anchor(&mut self, envelope: &Envelope, key: &ArtifactPublicKey) -> Result<LogEntry, AnchorError>;

    /// The proof that the log's tree of `to` entries begins with that of `from` (RFC 9162, section 2.1.4.1): what a witness is
    /// given that saw the smaller one.
    ///
    /// # Errors
    /// [`AnchorError::Unproved`].
    fn consistency(&self, from: u64, to: u64) -> Result<Vec<Hash>, AnchorError>;

    /// The entry under the newest checkpoint of a log that others append to at the same time, as the log says; `None` of a
    /// log that only this process appends to, and which has none newer than the one it gave.
    ///
    /// # Errors
    /// [`AnchorError::Unproved`].
    fn renewed(&self, entry: &LogEntry) -> Result<Option<LogEntry>, AnchorError>;
}

/// An envelope could not be anchored, so that there is no seal. Trying again is safe.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// The embedded log did not take the entry.
    #[error(transparent)]
    Embedded(#[from] LogError),
    /// The log could not be reached, or did not answer in time.
    #[error("log {log}: {reason}; nothing was sealed, try again when the log answers")]
    Unreachable {
        /// The log.
        log: String,
        /// What happened.
        reason: String,
    },
    /// The log said no.
    #[error("log {log}: expected the entry, found status {status}: {said}; nothing was sealed")]
    Refused {
        /// The log.
        log: String,
        /// The HTTP status.
        status: u16,
        /// What the log said, and what it may mean.
        said: String,
    },
    /// What the log answered cannot be read.
    #[error("log {log}: expected {expected}, found {found}; nothing was sealed")]
    Answer {
        /// The log.
        log: String,
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A log answered that is not pinned.
    #[error(
        "log {log}: expected the answer of a log that the trust directory pins ({known}), found one of the log {found}; nothing was sealed"
    )]
    UnknownLog {
        /// The log, as it was asked.
        log: String,
        /// Ids and origins of the pinned ones.
        known: String,
        /// The id that answered.
        found: LogId,
    },
    /// What the log answered does not prove that it took this envelope.
    #[error("log {log}: what it answered does not hold: {check}; nothing was sealed")]
    Wrong {
        /// The log.
        log: String,
        /// The first check that failed.
        check: Check,
    },
    /// The entry stands in the log already, and its proof could not be had.
    #[error(
        "log {log}: the entry stands in the log already, at index {index}, and its proof cannot be read: {reason}; nothing was sealed"
    )]
    Duplicate {
        /// The log.
        log: String,
        /// Where it stands.
        index: u64,
        /// Why not, and what to do.
        reason: String,
    },
    /// The log gives no proof about its own growth.
    #[error("log {log}: expected a proof of its growth for the witnesses, found none: {reason}; nothing was sealed")]
    Unproved {
        /// The log.
        log: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// The trust directory names no witness for the log that answered.
    #[error("log {log}: expected witnesses of the log {found} in the trust directory, found none; nothing was sealed")]
    NoWitnesses {
        /// The log, as it was asked.
        log: String,
        /// The id that answered.
        found: LogId,
    },
    /// Fewer witnesses cosigned than the policy asks for.
    #[error(
        "log {log}: expected the cosignatures of {quorum} witnesses, as the policy asks for, found {found}: {reasons}; nothing was sealed, and trying again is safe"
    )]
    Witnesses {
        /// The log.
        log: String,
        /// How many must cosign.
        quorum: u64,
        /// How many did, and their names.
        found: String,
        /// Each of the others, and why not.
        reasons: String,
    },
    /// A witness saw what this log does not continue.
    #[error(
        "log {log}: witness {witness}: {reason}. The log was put back from a backup, or has a second history: bring back the log that was seen, or start a new one under a new origin; nothing was sealed"
    )]
    SecondHistory {
        /// The log.
        log: String,
        /// The witness.
        witness: String,
        /// What it saw.
        reason: String,
    },
}

/// Anchors, and verifies the answer as an offline verifier would: the body is byte for byte this
/// envelope's, and inclusion, checkpoint and, of Rekor v1, timestamp hold under a pinned key.
///
/// # Errors
/// [`AnchorError`].
pub fn anchor_verified(
    log: &mut dyn TransparencyLog,
    envelope: &Envelope,
    key: &ArtifactPublicKey,
) -> Result<LogEntry, AnchorError> {
    let entry = log.anchor(envelope, key)?;
    let identities = log.identities();
    let Some(identity) = pinned(&identities, &entry) else {
        let known: Vec<String> = identities.iter().map(|one| format!("{} {}", one.origin, one.id())).collect();
        return Err(AnchorError::UnknownLog { log: log.name(), known: known.join(", "), found: entry.log_id });
    };
    match verify_entry(&entry, envelope, key, identity) {
        Ok(_) => Ok(entry),
        Err(check) => Err(AnchorError::Wrong { log: log.name(), check }),
    }
}

/// The pinned log of an entry: by its id, and where several trees of one Rekor v1 have the same key, by the
/// origin in the checkpoint.
fn pinned<'a>(identities: &'a [LogIdentity], entry: &LogEntry) -> Option<&'a LogIdentity> {
    let origin = entry.checkpoint.lines().next().unwrap_or_default();
    let mut named = identities.iter().filter(|one| one.id() == entry.log_id);
    let first = named.clone().next();
    named.find(|one| one.origin.as_str() == origin).or(first)
}
