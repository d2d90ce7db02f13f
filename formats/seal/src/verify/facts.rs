//! What an examination of a seal gives: the checks, and what the seal says of itself.

use serde::Serialize;

use crate::checkpoint::{Checkpoint, LogIdentity};
use crate::checks::Check;
use crate::keys::{KeyId, LogId};
use crate::statement::Release;
use crate::time::UtcSeconds;

/// What a seal says of itself. Worth as much as the checks beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SealFacts {
    /// The id of the key that signed, if the policy knows it.
    #[serde(serialize_with = "as_text")]
    pub signer: Option<KeyId>,
    /// The release.
    pub release: Option<Release>,
    /// The bundle's digest as signed, lower-case hex.
    pub signed_bundle_sha256: Option<String>,
    /// The symbol index's digest as signed, lower-case hex.
    pub signed_index_sha256: Option<String>,
    /// The root of modules as signed, lower-case hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_modules_root: Option<String>,
    /// `dsse:` and the SHA-256 of the envelope's canonical JSON.
    pub dsse_ref: Option<String>,
    /// `<origin>/tile/entries/<N>#<index>`, if the policy knows the log; of a Rekor v1, which has no tiles,
    /// `<host>/api/v1/log/entries?logIndex=<index>`.
    pub rekor_tile_ref: Option<String>,
    /// Origin of the log, if the policy knows it.
    pub log_origin: Option<String>,
    /// The log's id, likewise.
    #[serde(serialize_with = "as_text")]
    pub log_id: Option<LogId>,
    /// Who runs the log, as the policy says.
    pub log_operator: Option<String>,
    /// Position of the entry; in a Rekor v1 it counts over all of its trees.
    pub log_index: Option<u64>,
    /// When a Rekor v1 says that it took the entry; only where its signature over that holds.
    pub integrated_time: Option<UtcSeconds>,
    /// Size of the log at the checkpoint.
    pub tree_size: Option<u64>,
    /// How many distinct witnesses of the policy cosigned the checkpoint.
    pub witnesses: u64,
    /// Their names.
    pub witness_names: Vec<String>,
    /// The latest time at which one of them says that it saw the checkpoint.
    pub witnessed_at: Option<UtcSeconds>,
    /// The keys of all seals that hold, each once, where the policy asks for several.
    #[serde(serialize_with = "as_texts")]
    pub signers: Vec<KeyId>,
}

fn as_texts<S: serde::Serializer>(values: &[KeyId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// The outcome of [`examine_seal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealVerification {
    /// Every check of the catalogue from `seal.structure` on, in its order, each exactly once.
    pub checks: Vec<Check>,
    /// What the seal says.
    pub facts: SealFacts,
    /// The checkpoints that were verified, to be remembered where the seal holds.
    pub checkpoints: Vec<(LogIdentity, Checkpoint)>,
}

impl SealVerification {
    /// Whether no check failed.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.checks.iter().any(Check::is_failed)
    }

    /// The first check that failed.
    #[must_use]
    pub fn first_failure(&self) -> Option<&Check> {
        self.checks.iter().find(|check| check.is_failed())
    }
}
