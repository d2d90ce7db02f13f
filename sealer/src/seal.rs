//! Statement → envelope → log entry → Sigstore bundle v0.3.

use symseal_seal::{Envelope, IN_TOTO_PAYLOAD_TYPE, STATEMENT_LIMIT, SigstoreBundle, Statement, StatementError};

use crate::anchor::{AnchorError, TransparencyLog, anchor_verified};
use crate::signer::{SignError, Signer, sign_verified};

/// A seal cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The statement cannot be sealed.
    #[error("the statement cannot be sealed: {0}")]
    Statement(#[from] StatementError),
    /// The signer gave no usable signature.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The log did not take the entry, or its answer does not hold.
    #[error(transparent)]
    Anchor(#[from] AnchorError),
}

/// Signs the statement, logs the envelope, verifies what the log answered, and gives the seal: the JSON of
/// a Sigstore bundle v0.3. Sealing the same statement again finds the same entry where the signer signs the
/// same bytes alike (key files do; tokens and key services mostly do not).
///
/// # Errors
/// [`SealError`]. If the log failed, the entry may be in it all the same; trying again is safe.
pub fn seal(statement: &Statement, signer: &dyn Signer, log: &mut dyn TransparencyLog) -> Result<Vec<u8>, SealError> {
    let envelope = sign_statement(statement, signer)?;
    let entry = anchor_verified(log, &envelope, signer.public())?;
    let seal = SigstoreBundle { hint: signer.public().key_id().to_string(), envelope, entry };
    Ok(seal.to_json())
}

/// Signs the statement, and verifies the signature: the envelope that a log then takes.
///
/// # Errors
/// [`SealError::Statement`] if the statement cannot be sealed, [`SealError::Sign`] if the signer failed.
pub fn sign_statement(statement: &Statement, signer: &dyn Signer) -> Result<Envelope, SealError> {
    let payload = payload(statement)?;
    // The key is named once, in the bundle's hint. An envelope of Sigstore's own clients has no key id
    // either, and cosign (3.1.2) refuses any that is not an OpenSSH fingerprint.
    let mut envelope =
        Envelope { payload_type: IN_TOTO_PAYLOAD_TYPE.into(), payload, keyid: String::new(), signature: Vec::new() };
    envelope.signature = sign_verified(signer, &envelope.pae())?;
    Ok(envelope)
}

/// What is signed of a statement.
pub(crate) fn payload(statement: &Statement) -> Result<Vec<u8>, StatementError> {
    statement.predicate.release.check()?;
    let payload = statement.to_json();
    if payload.len() >= STATEMENT_LIMIT {
        return Err(StatementError::TooLarge { found: payload.len() });
    }
    Ok(payload)
}
