//! What a verifier has seen before: the last root and policy, and each log's checkpoints.
//!
//! Without a memory a verifier can be shown an old policy, or a second history of a log. The caller
//! keeps [`Seen::to_json`] in a state directory; nothing here does IO.

mod file;
mod log;

use std::collections::BTreeMap;

use crate::checkpoint::{Checkpoint, LogIdentity};
use crate::checks::{Check, id};
use crate::consistency::ConsistencyProof;
use crate::encoding::{Hash, to_hex};
use crate::trust::Trust;
use file::MAX_ITEMS;
pub use file::{SEEN_LIMIT, SEEN_SCHEMA, SeenError};
use log::SeenLog;

/// The memory of one verifier. Several trust directories may share it; each is known by its first root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    trusts: BTreeMap<String, SeenTrust>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SeenTrust {
    root: Option<Version>,
    policy: Option<Version>,
    logs: BTreeMap<String, SeenLog>,
}

/// A version of a root or policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub version: u64,
    /// SHA-256 of its signed document.
    pub sha256: Hash,
}

/// How a log is known: trees of one Rekor v1 share an id, and two logs could claim one origin.
fn log_key(log: &LogIdentity) -> String {
    format!("{} {}", log.origin, log.id())
}

impl Seen {
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
        let nothing = SeenLog::default();
        let seen = self.of(trust).and_then(|seen| seen.logs.get(&log_key(log))).unwrap_or(&nothing);
        seen.check(checkpoint, proofs, trust.policy.require_consistency)
    }

    /// The root of the known history of this log at this size.
    pub(crate) fn root_of(&self, trust: &Trust, log: &LogIdentity, size: u64) -> Option<Hash> {
        let seen = self.of(trust)?.logs.get(&log_key(log))?;
        seen.proved.get(&size).copied()
    }

    /// Remembers what a verification that held was shown. Versions only rise. Of a log a checkpoint is remembered if it is
    /// the first, or proved from one that is; of those, the largest. What is left out is told, each with its reason; if only a proof is lacking, its
    /// root is kept apart, as the log may sign no other one at that size.
    pub fn record(
        &mut self,
        trust: &Trust,
        checkpoints: &[(LogIdentity, Checkpoint)],
        proofs: &[ConsistencyProof],
    ) -> Vec<String> {
        let identity = to_hex(&trust.root.identity());
        if self.trusts.len() >= MAX_ITEMS && !self.trusts.contains_key(&identity) {
            return vec![format!("the state has {MAX_ITEMS} trust directories, and room for no more")];
        }
        let before = self.clone();
        let left_out = self.trusts.entry(identity).or_default().record(trust, checkpoints, proofs);
        if self.to_json().len() > SEEN_LIMIT {
            *self = before;
            return vec![format!("the state would be larger than {SEEN_LIMIT} bytes")];
        }
        left_out
    }
}

impl SeenTrust {
    fn record(
        &mut self,
        trust: &Trust,
        checkpoints: &[(LogIdentity, Checkpoint)],
        proofs: &[ConsistencyProof],
    ) -> Vec<String> {
        let newer = |old: Option<Version>, new: Version| match old {
            Some(old) if old.version >= new.version => Some(old),
            _ => Some(new),
        };
        if let Some(root) = trust.root.history.last() {
            self.root = newer(self.root, *root);
        }
        self.policy = newer(self.policy, Version { version: trust.policy.version, sha256: trust.policy.sha256 });
        let mut left: Vec<&(LogIdentity, Checkpoint)> = checkpoints.iter().collect();
        loop {
            // What is kept may be what connects another one.
            let (before, mut why) = (left.len(), Vec::new());
            left.retain(|(log, checkpoint)| match self.keep(log, checkpoint, proofs) {
                Ok(()) => false,
                Err(reason) => {
                    why.push(format!("{} at {} entries: {reason}", log.origin, checkpoint.size));
                    true
                }
            });
            if left.len() == before {
                return why;
            }
        }
    }

    fn keep(&mut self, log: &LogIdentity, checkpoint: &Checkpoint, proofs: &[ConsistencyProof]) -> Result<(), String> {
        let key = log_key(log);
        if let Some(seen) = self.logs.get_mut(&key) {
            return seen.keep(checkpoint, proofs);
        }
        if self.logs.len() >= MAX_ITEMS {
            return Err(format!("the state has {MAX_ITEMS} logs, and room for no more"));
        }
        let mut first = SeenLog::default();
        first.keep(checkpoint, proofs)?;
        self.logs.insert(key, first);
        Ok(())
    }
}

fn text(version: &Version) -> String {
    format!("version {} with sha256 {}", version.version, to_hex(&version.sha256))
}

fn first(id: &'static str, version: u64) -> Check {
    Check::passed(id, format!("version {version}, none seen before"))
}
