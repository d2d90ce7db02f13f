//! The form of `seen.json` (`docs/formats/seal.md`, "The state directory"), and the limits within which it is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::log::SeenLog;
use super::{Seen, SeenTrust, Version};
use crate::encoding::{Hash, hash_from_base64, hash_from_hex, to_base64, to_hex};

/// `schema` of the file.
pub const SEEN_SCHEMA: &str = "symseal.seen.v1";
/// The largest state that is read, in bytes.
pub const SEEN_LIMIT: usize = 4 * 1024 * 1024;
/// How many trust directories, and logs of one, are kept.
pub(super) const MAX_ITEMS: usize = 1024;
/// How many checkpoints of one log are kept, and how many apart because nothing connects them: the largest ones.
pub(super) const MAX_CHECKPOINTS: usize = 256;
/// Sizes below this are kept: JSON has no larger integers that every reader keeps exactly. No honest log comes near it.
pub(super) const SIZE_LIMIT: u64 = 1 << 53;

/// The state is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected what this program wrote (schema {SEEN_SCHEMA}): {reason}")]
pub struct SeenError {
    reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeenJson {
    schema: String,
    trusts: BTreeMap<String, TrustJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustJson {
    root: Option<VersionJson>,
    policy: Option<VersionJson>,
    logs: BTreeMap<String, Vec<CheckpointJson>>,
    /// Of logs that are among the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unproved: BTreeMap<String, Vec<CheckpointJson>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionJson {
    version: u64,
    sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointJson {
    size: u64,
    root: String,
}

impl VersionJson {
    fn read(&self) -> Option<Version> {
        Some(Version { version: self.version, sha256: hash_from_hex(&self.sha256)? })
    }

    fn write(version: &Version) -> Self {
        Self { version: version.version, sha256: to_hex(&version.sha256) }
    }
}

fn read_roots(checkpoints: &[CheckpointJson]) -> Option<BTreeMap<u64, Hash>> {
    if checkpoints.len() > MAX_CHECKPOINTS {
        return None;
    }
    let read = |checkpoint: &CheckpointJson| {
        let root = hash_from_base64(&checkpoint.root)?;
        (checkpoint.size < SIZE_LIMIT).then_some((checkpoint.size, root))
    };
    checkpoints.iter().map(read).collect()
}

fn read_trust(json: TrustJson) -> Option<SeenTrust> {
    let version = |json: Option<VersionJson>| json.map(|json| json.read()).map_or(Some(None), |read| read.map(Some));
    if json.logs.len() > MAX_ITEMS {
        return None;
    }
    let read = |(log, checkpoints): (String, Vec<CheckpointJson>)| {
        Some((log, SeenLog { proved: read_roots(&checkpoints)?, ..SeenLog::default() }))
    };
    let mut logs = json.logs.into_iter().map(read).collect::<Option<BTreeMap<_, _>>>()?;
    for (log, checkpoints) in json.unproved {
        logs.get_mut(&log)?.unproved = read_roots(&checkpoints)?;
    }
    Some(SeenTrust { root: version(json.root)?, policy: version(json.policy)?, logs })
}

impl Seen {
    /// Reads a state.
    ///
    /// # Errors
    /// [`SeenError`]. A state that cannot be read must not be taken for an empty one.
    pub fn parse(json: &[u8]) -> Result<Self, SeenError> {
        let refused = |reason: &str| SeenError { reason: reason.to_owned() };
        if json.len() > SEEN_LIMIT {
            return Err(refused("it is larger than 4 MiB"));
        }
        let file: SeenJson = serde_json::from_slice(json).map_err(|error| refused(&error.to_string()))?;
        if file.schema != SEEN_SCHEMA {
            return Err(refused("another schema"));
        }
        if file.trusts.len() > MAX_ITEMS {
            return Err(refused("more than 1024 trust directories"));
        }
        let read = |(id, trust)| Some((id, read_trust(trust)?));
        let trusts: Option<BTreeMap<_, _>> = file.trusts.into_iter().map(read).collect();
        let wrong = "a hash or a size that is none, or too many logs or checkpoints";
        Ok(Self { trusts: trusts.ok_or_else(|| refused(wrong))? })
    }

    /// The state as canonical JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let checkpoints = |roots: &BTreeMap<u64, Hash>| {
            roots.iter().map(|(size, root)| CheckpointJson { size: *size, root: to_base64(root) }).collect()
        };
        let trust = |trust: &SeenTrust| TrustJson {
            root: trust.root.as_ref().map(VersionJson::write),
            policy: trust.policy.as_ref().map(VersionJson::write),
            logs: trust.logs.iter().map(|(log, seen)| (log.clone(), checkpoints(&seen.proved))).collect(),
            unproved: (trust.logs.iter().filter(|(_, seen)| !seen.unproved.is_empty()))
                .map(|(log, seen)| (log.clone(), checkpoints(&seen.unproved)))
                .collect(),
        };
        crate::canonical_json(&SeenJson {
            schema: SEEN_SCHEMA.into(),
            trusts: self.trusts.iter().map(|(id, seen)| (id.clone(), trust(seen))).collect(),
        })
    }
}
