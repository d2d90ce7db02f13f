//! Changing a trust directory: a new policy version, or a new root, signed by root keys.

use std::path::{Path, PathBuf};

use symseal_seal::trust::policy::{PolicyDocument, PolicyKeyDocument, PolicyLogDocument, RevocationDocument};
use symseal_seal::trust::root::{KeyDocument, read_chain, write_chain};
use symseal_seal::trust::{RootDocument, RootSignature, SignedRoot, TrustedLog, trusted_root};
use symseal_seal::{ArtifactPublicKey, LogIdentity, Trust, TrustError, UtcSeconds};

use super::difference::{Difference, difference};
use super::edit::{KeyChange, LogChange, Refused, RevocationChange};
use super::files::lock;
use super::sense::nonsense;
use super::{LoadTrustError, TrustFiles, TrustInitError};
use crate::keys::ArtifactKey;

/// A trust directory cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum TrustChangeError {
    /// It cannot be read.
    #[error(transparent)]
    Load(#[from] LoadTrustError),
    /// What was asked for makes no usable trust directory.
    #[error("the changed trust directory could not be used: {0}; nothing was written")]
    Unusable(#[from] TrustError),
    /// Too few root keys, or none of this directory.
    #[error("{}: expected {expected}, found {found}", directory.display())]
    RootKeys {
        /// The directory.
        directory: PathBuf,
        /// Which keys are needed.
        expected: String,
        /// Which were given.
        found: String,
    },
    /// What was named is not there, or there already.
    #[error("{}: expected {expected}, found {found}", directory.display())]
    Item {
        /// The directory.
        directory: PathBuf,
        /// What was looked for.
        expected: String,
        /// What was found.
        found: String,
    },
    /// Somebody else changed it since it was read.
    #[error(
        "{}: expected the policy of version {version}, from which the change was made, found that it was changed meanwhile; nothing was written, give the command again",
        directory.display()
    )]
    Raced {
        /// The directory.
        directory: PathBuf,
        /// The policy's version when it was read.
        version: u64,
    },
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] TrustInitError),
}

/// The next root.
#[derive(Debug, Clone)]
pub struct RootChange {
    /// Its keys.
    pub keys: Vec<ArtifactPublicKey>,
    /// How many of them must sign.
    pub threshold: u64,
    /// Last second of use.
    pub expires: Option<UtcSeconds>,
}

/// A trust directory with changes that are not signed yet.
#[derive(Debug)]
pub struct TrustChange {
    directory: PathBuf,
    old: TrustFiles,
    trust: Trust,
    before: PolicyDocument,
    policy: PolicyDocument,
    logs: Vec<u8>,
    root: Option<RootDocument>,
}

impl TrustChange {
    /// Reads the directory, and checks its signatures.
    ///
    /// # Errors
    /// [`TrustChangeError::Load`].
    pub fn open(directory: &Path) -> Result<Self, TrustChangeError> {
        let old = TrustFiles::read(directory)?;
        let wrong = |source| LoadTrustError::Trust { directory: directory.to_owned(), source };
        let trust = old.verify().map_err(wrong)?;
        let policy = PolicyDocument::read_unverified(&old.policy).map_err(wrong)?;
        let (directory, logs) = (directory.to_owned(), old.logs.clone());
        Ok(Self { directory, logs, old, trust, before: policy.clone(), policy, root: None })
    }

    /// What the directory says before the changes.
    #[must_use]
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The policy to be; its version rises when it is signed.
    pub fn policy(&mut self) -> &mut PolicyDocument {
        &mut self.policy
    }

    fn item(&self, expected: impl Into<String>, found: impl Into<String>) -> TrustChangeError {
        TrustChangeError::Item { directory: self.directory.clone(), expected: expected.into(), found: found.into() }
    }

    fn refused(&self, (expected, found): Refused) -> TrustChangeError {
        self.item(expected, found)
    }

    /// What the changes do to the policy.
    #[must_use]
    pub fn differences(&self) -> Vec<Difference> {
        difference(&self.before, &self.policy)
    }

    /// Adds a key, valid from `now` where nothing else is said; or changes what the policy says of it.
    ///
    /// # Errors
    /// [`TrustChangeError::Item`] where a new key has no name that it may sign.
    pub fn add_key(
        &mut self,
        key: &ArtifactPublicKey,
        change: KeyChange,
        now: UtcSeconds,
    ) -> Result<(), TrustChangeError> {
        let new = PolicyKeyDocument::new(key, &[], Some(now));
        let place = self.policy.keys.iter().position(|known| known.key_id == new.key_id);
        let mut document = place.and_then(|place| self.policy.keys.get(place).cloned()).unwrap_or(new);
        change.apply(&mut document).map_err(|refused| self.refused(refused))?;
        match place.and_then(|place| self.policy.keys.get_mut(place)) {
            Some(known) => *known = document,
            None => self.policy.keys.push(document),
        }
        Ok(())
    }

    /// Adds a log and its key, valid from `now` where nothing else is said; or changes what the policy says of it.
    ///
    /// # Errors
    /// [`TrustChangeError::Item`] where the log has another key, or would be weaker without a word;
    /// [`TrustChangeError::Unusable`] where `trusted_root.json` is none.
    pub fn add_log(&mut self, log: &LogIdentity, change: LogChange, now: UtcSeconds) -> Result<(), TrustChangeError> {
        let new = PolicyLogDocument::new(log, "", Some(now));
        let place = self.policy.logs.iter().position(|known| known.origin == new.origin);
        let known = place.and_then(|place| self.policy.logs.get(place).cloned());
        if let Some(other) = known.as_ref().filter(|known| known.log_id != new.log_id) {
            let expected = format!(
                "the key of log {} with id {}; a log with a new key has a new origin, or the old one is revoked first",
                other.origin, other.log_id
            );
            return Err(self.item(expected, format!("one with id {}", new.log_id)));
        }
        let start = change.not_before;
        let mut document = known.clone().unwrap_or(new);
        change.apply(&mut document).map_err(|refused| self.refused(refused))?;
        // The key's own start in `trusted_root.json` follows the policy's, so that an earlier one has an effect.
        if known.is_none() || start.is_some() {
            let end = trusted_root::parse(&self.logs)?.into_iter().find(|one| one.id == log.id());
            let validity = (start.unwrap_or(now), end.and_then(|known| known.validity.1));
            let trusted = TrustedLog { validity, ..TrustedLog::new(log, now) };
            self.logs = trusted_root::with_log(&self.logs, &trusted)?;
        }
        match place.and_then(|place| self.policy.logs.get_mut(place)) {
            Some(known) => *known = document,
            None => self.policy.logs.push(document),
        }
        Ok(())
    }

    /// Closes a log: entries from `index` on do not count.
    ///
    /// # Errors
    /// [`TrustChangeError::Item`] where the policy does not name it, or closed it at an earlier place.
    pub fn close_log(&mut self, origin: &str, index: u64) -> Result<(), TrustChangeError> {
        let known = self.origins();
        let Some(log) = self.policy.logs.iter_mut().find(|log| log.origin == origin) else {
            return Err(self.item(format!("one of the logs {known}"), origin));
        };
        if let Some(closed) = log.entries_before.filter(|closed| *closed < index) {
            let expected =
                format!("a place of at most {closed}, where {origin} was closed (add-log --reopen opens it)");
            return Err(self.item(expected, index.to_string()));
        }
        log.entries_before = Some(index);
        Ok(())
    }

    /// Takes a log out of the policy and out of `trusted_root.json`: nothing in it counts any more.
    ///
    /// # Errors
    /// [`TrustChangeError::Item`] where the policy does not name it.
    pub fn remove_log(&mut self, origin: &str) -> Result<(), TrustChangeError> {
        let known = self.origins();
        let Some(place) = self.policy.logs.iter().position(|log| log.origin == origin) else {
            return Err(self.item(format!("one of the logs {known}"), origin));
        };
        let removed = self.policy.logs.remove(place);
        // Trees of one Rekor v1 share a key: it goes with the last of them.
        let shared = self.policy.logs.iter().any(|log| log.log_id == removed.log_id);
        if let (Some(id), false) = (symseal_seal::LogId::parse(&removed.log_id), shared) {
            self.logs = trusted_root::without_log(&self.logs, id)?;
        }
        Ok(())
    }

    fn origins(&self) -> String {
        let origins: Vec<&str> = self.policy.logs.iter().map(|log| log.origin.as_str()).collect();
        origins.join(", ")
    }

    /// Revokes a key, or adds exceptions to its revocation.
    ///
    /// # Errors
    /// [`TrustChangeError::Item`] where the policy does not name the key, or a log of an exception.
    pub fn revoke_key(&mut self, key_id: &str, change: RevocationChange) -> Result<(), TrustChangeError> {
        if !self.policy.keys.iter().any(|key| key.key_id == key_id) {
            let known: Vec<&str> = self.policy.keys.iter().map(|key| key.key_id.as_str()).collect();
            return Err(self.item(format!("one of the keys {}", known.join(", ")), key_id));
        }
        let is_known = |origin: &str| self.policy.logs.iter().any(|log| log.origin == origin);
        if let Some((origin, _)) = change.except_before.iter().find(|(origin, _)| !is_known(origin)) {
            return Err(self.item(format!("exceptions in the logs {}", self.origins()), origin.as_str()));
        }
        match self.policy.revocations.iter_mut().find(|known| known.key_id == key_id) {
            Some(known) => change.apply(known),
            None => {
                let mut new = RevocationDocument {
                    key_id: key_id.to_owned(),
                    reason: String::new(),
                    except_digests: Vec::new(),
                    except_before: Vec::new(),
                };
                change.apply(&mut new);
                self.policy.revocations.push(new);
            }
        }
        Ok(())
    }

    /// Replaces the root by its next version.
    pub fn rotate(&mut self, change: &RootChange) {
        self.root = Some(RootDocument {
            schema: symseal_seal::trust::root::ROOT_SCHEMA.into(),
            version: self.trust.root.version.saturating_add(1),
            expires: change.expires,
            threshold: change.threshold,
            keys: change.keys.iter().map(KeyDocument::from).collect(),
        });
    }

    /// Signs root (where it changed) and policy, checks that the whole can be used, and writes it.
    ///
    /// # Errors
    /// [`TrustChangeError`]; the directory is as it was.
    pub fn sign(mut self, roots: &[ArtifactKey]) -> Result<Trust, TrustChangeError> {
        let old_keys = &self.trust.root.keys;
        let (root_file, keys, threshold) = match &self.root {
            None => (self.old.root.clone(), old_keys.clone(), self.trust.root.threshold),
            Some(root) => {
                let message = root.signed_bytes();
                let new_keys = public_keys(root)?;
                let signatures: Vec<RootSignature> = distinct(roots)
                    .filter(|key| old_keys.contains(key.public()) || new_keys.contains(key.public()))
                    .map(|key| RootSignature::new(&key.key_id().to_string(), &key.sign(&message)))
                    .collect();
                self.enough(roots, old_keys, self.trust.root.threshold, "the present root")?;
                let mut chain = read_chain(&self.old.root)?;
                chain.push(SignedRoot { root: root.clone(), signatures });
                (write_chain(&chain), new_keys, root.threshold)
            }
        };
        self.enough(roots, &keys, threshold, if self.root.is_some() { "the next root" } else { "the root" })?;
        self.policy.version = self.policy.version.saturating_add(1);
        let message = self.policy.signed_bytes();
        let signatures = distinct(roots)
            .filter(|key| keys.contains(key.public()))
            .map(|key| (key.key_id().to_string(), key.sign(&message)))
            .collect();
        let files = TrustFiles { root: root_file, policy: self.policy.to_file_of(signatures), logs: self.logs };
        let trust = files.verify()?;
        if let Some((expected, found)) = nonsense(&trust) {
            return Err(TrustChangeError::Item { directory: self.directory, expected, found });
        }
        let _lock = lock(&self.directory)?;
        if TrustFiles::read(&self.directory)? != self.old {
            return Err(TrustChangeError::Raced { directory: self.directory, version: self.before.version });
        }
        files.replace(&self.directory, &self.old)?;
        Ok(trust)
    }

    fn enough(
        &self,
        given: &[ArtifactKey],
        keys: &[ArtifactPublicKey],
        threshold: u64,
        whose: &str,
    ) -> Result<(), TrustChangeError> {
        let own: Vec<String> =
            distinct(given).filter(|key| keys.contains(key.public())).map(|key| key.key_id().to_string()).collect();
        if own.len() as u64 >= threshold {
            return Ok(());
        }
        let ids: Vec<String> = keys.iter().map(|key| key.key_id().to_string()).collect();
        Err(TrustChangeError::RootKeys {
            directory: self.directory.clone(),
            expected: format!("{threshold} root keys of {whose} ({}), each given with --root-key", ids.join(", ")),
            found: if own.is_empty() { "none of them".into() } else { own.join(", ") },
        })
    }
}

/// The keys, each once.
fn distinct(keys: &[ArtifactKey]) -> impl Iterator<Item = &ArtifactKey> {
    keys.iter().enumerate().filter_map(move |(n, key)| {
        let seen = keys.iter().take(n).any(|other| other.key_id() == key.key_id());
        (!seen).then_some(key)
    })
}

fn public_keys(root: &RootDocument) -> Result<Vec<ArtifactPublicKey>, TrustError> {
    root.keys.iter().map(|key| key.read(symseal_seal::trust::TrustFile::Root)).collect()
}
