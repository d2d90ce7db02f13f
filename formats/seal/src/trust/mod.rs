//! The trust directory: who may sign what, and which logs count.
//!
//! Three files: `root.json` (the root keys, signed by themselves), `policy.dsse.json` (signed by the root
//! keys) and `trusted_root.json` (the logs' keys in Sigstore's form). The chain is root → policy → keys
//! and logs; `trusted_root.json` is believed only where a log id in the policy pins its key.

mod document;
pub mod policy;
pub mod root;
pub mod trusted_root;

use crate::checks::{Check, Sides, id};
use crate::time::UtcSeconds;
pub use policy::{Policy, PolicyDocument, PolicyKey, PolicyLog, Revocation};
pub use root::{Root, RootDocument, RootSignature, SignedRoot};
pub use trusted_root::{TRUSTED_ROOT_MEDIA_TYPE, TrustedLog};

/// File name of the root in a trust directory.
pub const ROOT_FILE: &str = "root.json";
/// File name of the policy.
pub const POLICY_FILE: &str = "policy.dsse.json";
/// File name of the logs' keys.
pub const TRUSTED_ROOT_FILE: &str = "trusted_root.json";
/// The largest of these files that is read, in bytes.
pub const TRUST_FILE_LIMIT: usize = 1024 * 1024;

/// How many days ahead an end of validity is warned of.
pub const WARNING_DAYS: u32 = 30;

/// One of the three files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustFile {
    /// [`ROOT_FILE`].
    Root,
    /// [`POLICY_FILE`].
    Policy,
    /// [`TRUSTED_ROOT_FILE`].
    TrustedRoot,
}

impl TrustFile {
    /// The file's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => ROOT_FILE,
            Self::Policy => POLICY_FILE,
            Self::TrustedRoot => TRUSTED_ROOT_FILE,
        }
    }

    /// The check that a fault in it fails.
    #[must_use]
    pub fn check_id(self) -> &'static str {
        match self {
            Self::Root => id::TRUST_ROOT,
            Self::Policy => id::TRUST_POLICY,
            Self::TrustedRoot => id::TRUST_LOGS,
        }
    }
}

/// A trust directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}: expected {expected}, found {found}", file.check_id(), file.name())]
pub struct TrustError {
    /// The file at fault.
    pub file: TrustFile,
    /// What had to be found.
    pub expected: String,
    /// What was found.
    pub found: String,
}

impl TrustError {
    pub(crate) fn new(file: TrustFile, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { file, expected: expected.into(), found: found.into() }
    }

    /// A file at fault by a reader's error, whose own sides are not nested (see [`Check::refused_by`]).
    pub(crate) fn refused_by(file: TrustFile, expected: &str, error: &impl std::fmt::Display) -> Self {
        let text = error.to_string();
        match Sides::of(&text) {
            Some(Sides { expected, found, .. }) => Self::new(file, expected, found),
            None => Self::new(file, expected, text),
        }
    }

    /// The id of the check that failed: `trust.root`, `trust.policy` or `trust.logs`.
    #[must_use]
    pub fn check_id(&self) -> &'static str {
        self.file.check_id()
    }

    /// The failed check, for a report.
    #[must_use]
    pub fn to_check(&self) -> Check {
        Check::failed(self.check_id(), self.expected.as_str(), self.found.as_str()).with_detail(self.file.name())
    }
}

/// A trust directory whose chain of signatures holds. Its times are compared at verification.
#[derive(Debug, Clone)]
pub struct Trust {
    /// The root: who signs policies.
    pub root: Root,
    /// The policy: who may sign seals, and which logs count.
    pub policy: Policy,
}

impl Trust {
    /// Reads the three files and checks the chain root → policy → logs.
    ///
    /// # Errors
    /// [`TrustError`] names the file, what was expected and what was found.
    pub fn load_parts(root_json: &[u8], policy_dsse: &[u8], trusted_root: &[u8]) -> Result<Self, TrustError> {
        for (file, bytes) in
            [(TrustFile::Root, root_json), (TrustFile::Policy, policy_dsse), (TrustFile::TrustedRoot, trusted_root)]
        {
            if bytes.len() > TRUST_FILE_LIMIT {
                return Err(TrustError::new(
                    file,
                    format!("at most {TRUST_FILE_LIMIT} bytes"),
                    format!("{} bytes", bytes.len()),
                ));
            }
        }
        let root = Root::parse(root_json)?;
        let policy = policy::SignedPolicy::parse(policy_dsse, &root)?;
        let policy = policy.with_logs(&trusted_root::parse(trusted_root)?)?;
        Ok(Self { root, policy })
    }

    /// The checks `trust.root`, `trust.policy` and `trust.logs` at the time `at`.
    #[must_use]
    pub fn checks(&self, at: UtcSeconds) -> Vec<Check> {
        let expiry = |id, file: TrustFile, expires: Option<UtcSeconds>, found: String| match expires {
            Some(end) if end < at => {
                Check::failed(id, format!("{} valid at {at}", file.name()), format!("expired at {end}"))
            }
            _ => Check::passed(id, found),
        };
        let keys: Vec<String> = self.root.keys.iter().map(|key| key.key_id().to_string()).collect();
        let logs: Vec<String> = self.policy.logs.iter().map(|log| log.identity.origin.to_string()).collect();
        let signers: Vec<String> = self.policy.signed_by.iter().map(ToString::to_string).collect();
        vec![
            expiry(
                id::TRUST_ROOT,
                TrustFile::Root,
                self.root.expires,
                format!("version {}, {} of {}", self.root.version, self.root.threshold, keys.join(", ")),
            ),
            expiry(
                id::TRUST_POLICY,
                TrustFile::Policy,
                self.policy.expires,
                format!("version {} signed by root key {}", self.policy.version, signers.join(", ")),
            ),
            Check::passed(id::TRUST_LOGS, logs.join(", ")),
        ]
    }

    /// What ends within [`WARNING_DAYS`] after `at`, or has ended: one sentence each, for a person to act on.
    #[must_use]
    pub fn warnings(&self, at: UtcSeconds) -> Vec<String> {
        let soon = at.plus_days(WARNING_DAYS);
        let mut warnings = Vec::new();
        let mut look = |what: String, end: Option<UtcSeconds>, todo: &str| match end {
            Some(end) if end < at => warnings.push(format!("{what} expired at {end}: {todo}")),
            Some(end) if end <= soon => warnings.push(format!("{what} expires at {end}: {todo}")),
            _ => {}
        };
        look("the root".into(), self.root.expires, "the root keys must sign the next one (symseal trust rotate)");
        look("the policy".into(), self.policy.expires, "the root keys must sign a new one (symseal trust rotate)");
        for key in self.policy.keys.iter().filter(|key| self.policy.revocation(key.id).is_none()) {
            let todo = "add its successor (symseal trust add-key)";
            look(format!("artifact key {}", key.id), key.validity.not_after, todo);
        }
        for log in &self.policy.logs {
            let todo = "add its successor (symseal trust add-log)";
            look(format!("the key of log {}", log.identity.origin), log.validity.not_after, todo);
        }
        warnings
    }
}
