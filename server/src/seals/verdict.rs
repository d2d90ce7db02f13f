//! What came out for a bundle.

use serde_json::{Value, json};
use symseal_seal::SealVerification;

/// Whether a bundle is sealed, and by whom; or why not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Verdict {
    /// The server has no trust directory: it judges nothing.
    #[default]
    Unjudged,
    /// No seal has come.
    Unsealed,
    /// A seal holds: every check passed that could be run.
    Sealed(SealedBy),
    /// Seals have come, and none holds.
    Refused(RefusedSeal),
}

/// Who sealed a bundle, and where that stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SealedBy {
    /// The keys' ids.
    pub(crate) signers: Vec<String>,
    /// Origin of the log.
    pub(crate) log: Option<String>,
    /// Place in it.
    pub(crate) rekor_tile_ref: Option<String>,
    /// The envelope.
    pub(crate) dsse_ref: Option<String>,
}

/// The first check that failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RefusedSeal {
    /// Its id.
    pub(crate) check: String,
    /// What had to be found.
    pub(crate) expected: String,
    /// What was found.
    pub(crate) found: String,
}

impl Verdict {
    /// What an examination came to.
    pub(crate) fn of(verification: &SealVerification) -> Self {
        let facts = &verification.facts;
        match verification.first_failure() {
            None => Self::Sealed(SealedBy {
                signers: facts.signers.iter().map(ToString::to_string).collect(),
                log: facts.log_origin.clone(),
                rekor_tile_ref: facts.rekor_tile_ref.clone(),
                dsse_ref: facts.dsse_ref.clone(),
            }),
            Some(check) => Self::Refused(RefusedSeal {
                check: check.id.to_owned(),
                expected: check.expected.clone(),
                found: check.found.clone(),
            }),
        }
    }

    /// Whether a seal holds.
    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self, Self::Sealed(_))
    }

    /// Its place among those of several repositories, the one that says most first.
    pub(crate) fn place(&self) -> u8 {
        match self {
            Self::Sealed(_) => 0,
            Self::Refused(_) => 1,
            Self::Unsealed => 2,
            Self::Unjudged => 3,
        }
    }

    /// The stable text of what came out.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Unjudged => "unjudged",
            Self::Unsealed => "unsealed",
            Self::Sealed(_) => "sealed",
            Self::Refused(_) => "refused",
        }
    }

    /// As our own API tells it.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Unjudged | Self::Unsealed => json!({ "status": self.code() }),
            Self::Sealed(SealedBy { signers, log, rekor_tile_ref, dsse_ref }) => json!({
                "status": self.code(),
                "signers": signers,
                "log": log,
                "rekor_tile_ref": rekor_tile_ref,
                "dsse_ref": dsse_ref,
            }),
            Self::Refused(RefusedSeal { check, expected, found }) => json!({
                "status": self.code(),
                "check": check,
                "expected": expected,
                "found": found,
            }),
        }
    }
}
