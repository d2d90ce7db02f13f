//! The embedded log: a [`TileLog`] that this process appends to.

use symseal_seal::encoding::sha256;
use symseal_seal::entry::hashedrekord_v002;
use symseal_seal::{ArtifactPublicKey, EntryKind, Envelope, LogEntry, LogIdentity};

use super::{AnchorError, TransparencyLog};
use crate::log::TileLog;

impl TransparencyLog for TileLog {
    fn name(&self) -> String {
        self.directory().display().to_string()
    }

    fn identities(&self) -> Vec<LogIdentity> {
        vec![self.identity().clone()]
    }

    fn anchor(&mut self, envelope: &Envelope, key: &ArtifactPublicKey) -> Result<LogEntry, AnchorError> {
        let body = hashedrekord_v002(&sha256(&envelope.pae()), &envelope.signature, key.spki());
        let appended = self.append(&body)?;
        Ok(LogEntry {
            kind: EntryKind::HashedRekord,
            log_index: appended.index,
            log_id: appended.log_id,
            canonicalized_body: body,
            proof_index: appended.index,
            proof_size: appended.size,
            proof_root: appended.root,
            hashes: appended.proof,
            checkpoint: appended.checkpoint,
        })
    }
}
