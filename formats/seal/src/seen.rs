//! What a verifier has seen before: the last root and policy, and each log's checkpoints.
//!
//! Without a memory a verifier can be shown an old policy, or a second history of a log. The caller
//! keeps [`Seen::to_json`] in a state directory; nothing here does IO.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, LogIdentity};
use crate::checks::{Check, id};
use crate::consistency::ConsistencyProof;
use crate::encoding::{Hash, hash_from_base64, hash_from_hex, to_base64, to_hex};
use crate::tlog::verify_consistency;
use crate::trust::Trust;

/// `schema` of the file.
pub const SEEN_SCHEMA: &str = "symseal.seen.v1";
/// The largest state that is read, in bytes.
pub const SEEN_LIMIT: usize = 4 * 1024 * 1024;
/// How many checkpoints of one log are kept: the largest ones.
const MAX_CHECKPOINTS: usize = 256;
/// How many trust directories, and logs of one, are kept.
const MAX_ITEMS: usize = 1024;

/// The memory of one verifier. Several trust directories may share it; each is known by its first root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    trusts: BTreeMap<String, SeenTrust>,
}

/// The state is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected what this program wrote (schema {SEEN_SCHEMA}): {reason}")]
pub struct SeenError {
    reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SeenTrust {
    root: Option<Version>,
    policy: Option<Version>,
    logs: BTreeMap<String, BTreeMap<u64, Hash>>,
}

/// A version of a root or policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub version: u64,
    /// SHA-256 of its signed document.
    pub sha256: Hash,
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

/// How a log is known: trees of one Rekor v1 share an id, and two logs could claim one origin.
fn log_key(log: &LogIdentity) -> String {
    format!("{} {}", log.origin, log.id())
}

impl VersionJson {
    fn read(&self) -> Option<Version> {
        Some(Version { version: self.version, sha256: hash_from_hex(&self.sha256)? })
    }

    fn write(version: &Version) -> Self {
        Self { version: version.version, sha256: to_hex(&version.sha256) }
    }
}

fn read_trust(json: TrustJson) -> Option<SeenTrust> {
    let version = |json: Option<VersionJson>| json.map(|json| json.read()).map_or(Some(None), |read| read.map(Some));
    let mut logs = BTreeMap::new();
    if json.logs.len() > MAX_ITEMS {
        return None;
    }
    for (log, checkpoints) in json.logs {
        let mut sizes = BTreeMap::new();
        for checkpoint in checkpoints.iter().take(MAX_CHECKPOINTS) {
            sizes.insert(checkpoint.size, hash_from_base64(&checkpoint.root)?);
        }
        logs.insert(log, sizes);
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
        Ok(Self { trusts: trusts.ok_or_else(|| refused("a hash that is none, or too many logs"))? })
    }

    /// The state as canonical JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let checkpoints = |sizes: &BTreeMap<u64, Hash>| {
            sizes.iter().map(|(size, root)| CheckpointJson { size: *size, root: to_base64(root) }).collect()
        };
        let trust = |trust: &SeenTrust| TrustJson {
            root: trust.root.as_ref().map(VersionJson::write),
            policy: trust.policy.as_ref().map(VersionJson::write),
            logs: trust.logs.iter().map(|(log, sizes)| (log.clone(), checkpoints(sizes))).collect(),
        };
        crate::canonical_json(&SeenJson {
            schema: SEEN_SCHEMA.into(),
            trusts: self.trusts.iter().map(|(id, seen)| (id.clone(), trust(seen))).collect(),
        })
    }

    fn of(&self, trust: &Trust) -> Option<&SeenTrust> {
        self.trusts.get(&to_hex(&trust.root.identity()))
    }

    /// The checks `trust.root-chain` and `trust.policy-version`.
    #[must_use]
    pub fn trust_checks(&self, trust: &Trust) -> Vec<Check> {
        let seen = self.of(trust);
        let root = match seen.and_then(|seen| seen.root) {
            None => first(id::TRUST_ROOT_CHAIN, trust.root.version),
            Some(seen) => match trust.root.history.iter().find(|root| root.version == seen.version) {
                Some(same) if same.sha256 == seen.sha256 => Check::passed(
                    id::TRUST_ROOT_CHAIN,
                    format!("version {}, from version {} that was seen", trust.root.version, seen.version),
                ),
                Some(other) => Check::failed(id::TRUST_ROOT_CHAIN, text(&seen), text(other))
                    .with_detail("two roots of one version: the root keys signed twice, or this is another root"),
                None => Check::failed(
                    id::TRUST_ROOT_CHAIN,
                    format!("at least {}", text(&seen)),
                    trust.root.version.to_string(),
                )
                .with_detail("an older root than the one seen before; get the current trust directory"),
            },
        };
        let now = Version { version: trust.policy.version, sha256: trust.policy.sha256 };
        let policy = match seen.and_then(|seen| seen.policy) {
            None => first(id::TRUST_POLICY_VERSION, now.version),
            Some(seen) if now == seen || now.version > seen.version => Check::passed(
                id::TRUST_POLICY_VERSION,
                format!("version {}, after version {} that was seen", now.version, seen.version),
            ),
            Some(seen) if now.version == seen.version => {
                Check::failed(id::TRUST_POLICY_VERSION, text(&seen), text(&now))
                    .with_detail("two policies of one version: the root keys signed twice")
            }
            Some(seen) => Check::failed(id::TRUST_POLICY_VERSION, format!("at least {}", text(&seen)), text(&now))
                .with_detail("an older policy than the one seen before; get the current trust directory"),
        };
        vec![root, policy]
    }

    /// The check `log.freshness` of a verified checkpoint.
    #[must_use]
    pub fn freshness(
        &self,
        trust: &Trust,
        log: &LogIdentity,
        checkpoint: &Checkpoint,
        proofs: &[ConsistencyProof],
    ) -> Check {
        let none = BTreeMap::new();
        let seen = self.of(trust).and_then(|seen| seen.logs.get(&log_key(log))).unwrap_or(&none);
        let (size, root) = (checkpoint.size, checkpoint.root);
        if let Some(other) = seen.get(&size) {
            let named = |root: &Hash| format!("root {} at {size} entries", to_base64(root));
            return if *other == root {
                Check::passed(id::LOG_FRESHNESS, format!("{size} entries, as seen before"))
            } else {
                Check::failed(id::LOG_FRESHNESS, named(other), named(&root))
                    .with_detail("the log signed two histories: keep both checkpoints and ask its operator")
            };
        }
        let Some((largest, _)) = seen.last_key_value() else {
            return Check::passed(id::LOG_FRESHNESS, format!("{size} entries, nothing seen of the log before"));
        };
        match prove(seen, log, checkpoint, proofs) {
            Some(Ok(other)) => {
                return Check::passed(
                    id::LOG_FRESHNESS,
                    format!("{size} entries, consistent with {other} seen before"),
                );
            }
            Some(Err((other, error))) => {
                let expected = format!("a proof that {size} entries are consistent with {other} seen before");
                return Check::failed(id::LOG_FRESHNESS, expected, error);
            }
            None => {}
        }
        if size < *largest {
            return Check::passed(id::LOG_FRESHNESS, format!("{size} entries, older than {largest} seen before"))
                .with_detail("an old bundle has a smaller tree; whether both are of one history was not checked");
        }
        let why = format!("not checked: {size} entries, {largest} seen before, and no consistency proof between them");
        if trust.policy.require_consistency {
            return Check::failed(
                id::LOG_FRESHNESS,
                format!("a consistency proof from {largest} to {size} entries"),
                "none",
            )
            .with_detail("the policy asks for one: give it with --consistency");
        }
        Check::skipped(id::LOG_FRESHNESS, why)
    }

    /// Remembers what a verification that held was shown. Versions only rise; of a log the largest
    /// checkpoints are kept.
    pub fn record(&mut self, trust: &Trust, checkpoints: &[(LogIdentity, Checkpoint)]) {
        let seen = self.trusts.entry(to_hex(&trust.root.identity())).or_default();
        let newer = |old: Option<Version>, new: Version| match old {
            Some(old) if old.version >= new.version => Some(old),
            _ => Some(new),
        };
        if let Some(root) = trust.root.history.last() {
            seen.root = newer(seen.root, *root);
        }
        seen.policy = newer(seen.policy, Version { version: trust.policy.version, sha256: trust.policy.sha256 });
        for (log, checkpoint) in checkpoints {
            let sizes = seen.logs.entry(log_key(log)).or_default();
            sizes.insert(checkpoint.size, checkpoint.root);
            while sizes.len() > MAX_CHECKPOINTS {
                sizes.pop_first();
            }
        }
    }
}

/// Looks for a proof between the checkpoint and one that was seen; `Ok` and `Err` hold the other's size.
fn prove(
    seen: &BTreeMap<u64, Hash>,
    log: &LogIdentity,
    checkpoint: &Checkpoint,
    proofs: &[ConsistencyProof],
) -> Option<Result<u64, (u64, String)>> {
    let now = (checkpoint.size, &checkpoint.root);
    for proof in proofs.iter().filter(|proof| proof.origin == log.origin.as_str()) {
        let other = match (proof.from == now.0, proof.to == now.0) {
            (true, false) => proof.to,
            (false, true) => proof.from,
            _ => continue,
        };
        let Some(root) = seen.get(&other) else { continue };
        let (first, second) = if other < now.0 { ((other, root), now) } else { (now, (other, root)) };
        let verified = verify_consistency(first, second, &proof.hashes);
        return Some(verified.map(|()| other).map_err(|error| (other, error.to_string())));
    }
    None
}

fn text(version: &Version) -> String {
    format!("version {} with sha256 {}", version.version, to_hex(&version.sha256))
}

fn first(id: &'static str, version: u64) -> Check {
    Check::passed(id, format!("version {version}, none seen before"))
}
