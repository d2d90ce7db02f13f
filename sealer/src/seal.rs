//! Statement → envelope → log entry → Sigstore bundle v0.3.

use symseal_seal::encoding::sha256;
use symseal_seal::entry::hashedrekord_v002;
use symseal_seal::{
    EntryKind, Envelope, IN_TOTO_PAYLOAD_TYPE, LogEntry, STATEMENT_LIMIT, SigstoreBundle, Statement, StatementError,
};

use crate::keys::ArtifactKey;
use crate::log::{LogError, TileLog};

/// A seal cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The statement cannot be sealed.
    #[error("the statement cannot be sealed: {0}")]
    Statement(#[from] StatementError),
    /// The log did not take the entry.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Signs the statement, appends its entry to the log and gives the seal: the JSON of a Sigstore bundle
/// v0.3. Sealing the same statement with the same key again finds the same entry.
///
/// # Errors
/// [`SealError`]. If the log failed, the entry may be in it all the same; trying again is safe.
pub fn seal(statement: &Statement, key: &ArtifactKey, log: &mut TileLog) -> Result<Vec<u8>, SealError> {
    let envelope = sign_statement(statement, key)?;
    let body = hashedrekord_v002(&sha256(&envelope.pae()), &envelope.signature, key.spki());
    let appended = log.append(&body)?;
    let seal = SigstoreBundle {
        hint: key.key_id().to_string(),
        envelope,
        entry: LogEntry {
            kind: EntryKind::HashedRekord,
            log_index: appended.index,
            log_id: appended.log_id,
            canonicalized_body: body,
            proof_index: appended.index,
            proof_size: appended.size,
            proof_root: appended.root,
            hashes: appended.proof,
            checkpoint: appended.checkpoint,
        },
    };
    Ok(seal.to_json())
}

/// Signs the statement: the envelope that a log then takes.
///
/// # Errors
/// [`StatementError`] if the statement cannot be sealed.
pub fn sign_statement(statement: &Statement, key: &ArtifactKey) -> Result<Envelope, StatementError> {
    statement.predicate.release.check()?;
    let payload = statement.to_json();
    if payload.len() >= STATEMENT_LIMIT {
        return Err(StatementError::TooLarge { found: payload.len() });
    }
    // The key is named once, in the bundle's hint. An envelope of Sigstore's own clients has no key id
    // either, and cosign (3.1.2) refuses any that is not an OpenSSH fingerprint.
    let mut envelope =
        Envelope { payload_type: IN_TOTO_PAYLOAD_TYPE.into(), payload, keyid: String::new(), signature: Vec::new() };
    envelope.signature = key.sign(&envelope.pae());
    Ok(envelope)
}
