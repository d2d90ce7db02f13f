//! The checks of a foreign bundle: their ids, which are a promise to users, and which of them an error belongs to.

use sigstore_verify::{CertificateError, Error, TimestampError, TransparencyLogError};

/// A line of [`CATALOGUE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignCheck {
    /// The stable id.
    pub id: &'static str,
    /// What holds when it passes, in one sentence.
    pub sentence: &'static str,
}

/// A check that did not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{check}: expected: {expected}; found: {found}")]
pub struct Refusal {
    /// An id of [`CATALOGUE`].
    pub check: &'static str,
    /// What had to be found, as text for a person.
    pub expected: String,
    /// What was found, likewise.
    pub found: String,
}

impl Refusal {
    /// A refusal that expected no more than what the check's sentence says.
    pub(super) fn new(check: &'static str, found: impl Into<String>) -> Self {
        let sentence = CATALOGUE.iter().find(|known| known.id == check).map_or("", |known| known.sentence);
        Self::of(check, sentence.trim_end_matches('.'), found)
    }

    /// A refusal with both sides.
    pub(super) fn of(check: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { check, expected: expected.into(), found: found.into() }
    }
}

macro_rules! catalogue {
    ($($constant:ident $id:literal $sentence:literal)*) => {
        /// The ids as constants.
        pub mod id {
            $(#[doc = $sentence] pub const $constant: &str = $id;)*
        }

        /// Every check of a foreign bundle.
        pub const CATALOGUE: &[ForeignCheck] = &[$(ForeignCheck { id: $id, sentence: $sentence },)*];
    };
}

catalogue! {
    BUNDLE_FORM "bundle.form" "The file is a Sigstore bundle v0.1, v0.2 or v0.3 with what its version asks for, no key twice, and one of each alternative."
    SUPPORTED "bundle.supported" "Its kinds of keys, digests and log entries are among those that are read here."
    SIGNER_KIND "signer.kind" "The bundle has what was asked for: a key's signature, or a certificate's."
    TIMESTAMP "timestamp" "Every RFC 3161 timestamp is over the signature and by an authority of the root that was valid then."
    SIGNED_TIME "signed-time" "A certificate's signature has a time: a timestamp, or that of a Rekor v1."
    CERTIFICATE_FORM "certificate.form" "The certificate is one of Sigstore's profile."
    CERTIFICATE_CHAIN "certificate.chain" "It leads to an authority of the root, and is for signing code."
    CERTIFICATE_TIME "certificate.time" "It was valid at every time that the signature has."
    CERTIFICATE_SCT "certificate.sct" "A certificate log of the root vouches for it."
    CERTIFICATE_IDENTITY "certificate.identity" "Its identity is the expected one."
    CERTIFICATE_ISSUER "certificate.issuer" "Its OIDC issuer is the expected one."
    SIGNATURE "signature" "The key, or the certificate's, verifies the signature."
    ARTIFACT_READ "artifact.read" "The artifact can be read to its end."
    ARTIFACT_DIGEST "artifact.digest" "The artifact is what was signed: the message itself, or a subject of the statement."
    LOG_ID "log.id" "Each log entry is of a log of the root."
    LOG_ENTRY "log.entry" "Each log entry is that of this signature, key or certificate, and artifact."
    LOG_INCLUSION "log.inclusion" "Its audit path leads to the checkpoint's root, and its size is the checkpoint's."
    LOG_CHECKPOINT "log.checkpoint" "The checkpoint is a strictly formed signed note by the entry's own log; a Rekor v2's names its log."
    LOG_PROMISE "log.promise" "The signed entry timestamp of a Rekor v1 is the log's."
    LOG_TIME "log.time" "Its time is not in the future, and the certificate was valid then."
    LOG_KEY_VALIDITY "log.key-validity" "The log's key was valid at every time that the signature has."
}

/// Which check an error of the underlying crates is about.
pub(super) fn refusal(error: &Error) -> Refusal {
    let check = match error {
        Error::IdentityMismatch { .. } => id::CERTIFICATE_IDENTITY,
        Error::IssuerMismatch { .. } => id::CERTIFICATE_ISSUER,
        Error::SignatureInvalid(_) => id::SIGNATURE,
        Error::ArtifactMismatch(_) => id::ARTIFACT_DIGEST,
        Error::ArtifactRead(_) => id::ARTIFACT_READ,
        Error::Certificate(error) => match error {
            CertificateError::ChainInvalid(_) => id::CERTIFICATE_CHAIN,
            CertificateError::NoValidAuthority { .. }
            | CertificateError::NotYetValid { .. }
            | CertificateError::Expired { .. } => id::CERTIFICATE_TIME,
            CertificateError::Sct(_) => id::CERTIFICATE_SCT,
            _ => id::CERTIFICATE_FORM,
        },
        Error::TransparencyLog(error) => match error {
            TransparencyLogError::UnknownLog { .. } => id::LOG_ID,
            TransparencyLogError::InclusionProof(_) => id::LOG_INCLUSION,
            TransparencyLogError::Checkpoint(_) => id::LOG_CHECKPOINT,
            TransparencyLogError::InclusionPromise(_) => id::LOG_PROMISE,
            TransparencyLogError::IntegratedTime(_) => id::LOG_TIME,
            _ => id::LOG_ENTRY,
        },
        Error::Timestamp(TimestampError::NoVerifiedTimestamp(_)) => id::SIGNED_TIME,
        Error::Timestamp(_) => id::TIMESTAMP,
        Error::UnsupportedArtifact(_) | Error::UnsupportedBundle(_) | Error::Crypto(_) => id::SUPPORTED,
        _ => id::BUNDLE_FORM,
    };
    Refusal::new(check, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_was_expected_and_what_was_found() {
        let refusal = Refusal::new(id::SIGNATURE, "one that does not verify");
        let text = "signature: expected: The key, or the certificate's, verifies the signature; found: one that does not verify";
        assert_eq!(refusal.to_string(), text);
        assert!(CATALOGUE.iter().all(|check| !Refusal::new(check.id, "x").expected.is_empty()));
    }

    #[test]
    fn ids_are_unique_and_sentences_end_with_a_full_stop() {
        for (n, check) in CATALOGUE.iter().enumerate() {
            assert!(check.sentence.ends_with('.'), "{}", check.id);
            assert_eq!(CATALOGUE.iter().position(|other| other.id == check.id), Some(n), "{} twice", check.id);
        }
    }
}
