//! The embedded log: a [`TileLog`] that this process appends to.

use symseal_seal::encoding::sha256;
use symseal_seal::entry::hashedrekord_v002;
use symseal_seal::{ArtifactPublicKey, EntryKind, Envelope, Hash, LogEntry, LogIdentity};

use super::{AnchorError, TransparencyLog};
use crate::log::{Appended, TileLog};

impl TransparencyLog for TileLog {
    fn name(&self) -> String {
        self.directory().display().to_string()
    }

    fn identities(&self) -> Vec<LogIdentity> {
        vec![self.identity().clone()]
    }

    fn anchor(&mut self, envelope: &Envelope, key: &ArtifactPublicKey) -> Result<LogEntry, AnchorError> {
        let body = hashedrekord_v002(&sha256(&envelope.pae()), &envelope.signature, key.spki());
        Ok(self.append(&body)?.into_entry(body))
    }

    fn consistency(&self, from: u64, to: u64) -> Result<Vec<Hash>, AnchorError> {
        Ok(TileLog::consistency(self, from, to)?.hashes)
    }

    fn renewed(&self, _: &LogEntry) -> Result<Option<LogEntry>, AnchorError> {
        // This process holds the lease: nobody else has made a newer one.
        Ok(None)
    }
}

impl Appended {
    /// The log entry of the `hashedrekord` 0.0.2 that was appended.
    #[must_use]
    pub fn into_entry(self, body: Vec<u8>) -> LogEntry {
        LogEntry {
            kind: EntryKind::HashedRekord,
            log_index: self.index,
            log_id: self.log_id,
            canonicalized_body: body,
            proof_index: self.index,
            proof_size: self.size,
            proof_root: self.root,
            hashes: self.proof,
            checkpoint: self.checkpoint,
        }
    }
}
