//! Changing a trust directory: a new policy version, or a new root, signed by root keys.

use std::path::{Path, PathBuf};

use symseal_seal::trust::policy::{
    LogPlaceDocument, PolicyDocument, PolicyKeyDocument, PolicyLogDocument, RevocationDocument,
};
use symseal_seal::trust::root::{KeyDocument, read_chain, write_chain};
use symseal_seal::trust::{RootDocument, RootSignature, SignedRoot, TrustedLog, trusted_root};
use symseal_seal::{ArtifactPublicKey, LogIdentity, Trust, TrustError, UtcSeconds};

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
        Ok(Self { directory: directory.to_owned(), logs: old.logs.clone(), old, trust, policy, root: None })
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

    /// Adds a key, or replaces what the policy says of it.
    pub fn add_key(&mut self, key: PolicyKeyDocument) {
        self.policy.keys.retain(|other| other.key_id != key.key_id);
        self.policy.keys.push(key);
    }

    /// Adds a log and its key, or replaces what the policy says of it.
    ///
    /// # Errors
    /// [`TrustChangeError::Unusable`] where `trusted_root.json` is none.
    pub fn add_log(
        &mut self,
        log: &LogIdentity,
        document: PolicyLogDocument,
        start: UtcSeconds,
    ) -> Result<(), TrustChangeError> {
        self.policy.logs.retain(|other| other.origin != document.origin);
        self.policy.logs.push(document);
        self.logs = trusted_root::with_log(&self.logs, &TrustedLog::new(log, start))?;
        Ok(())
    }

    /// Closes a log: entries from `index` on do not count.
    ///
    /// # Errors
    /// [`TrustChangeError::Item`] where the policy does not name it.
    pub fn close_log(&mut self, origin: &str, index: u64) -> Result<(), TrustChangeError> {
        let known = self.origins();
        match self.policy.logs.iter_mut().find(|log| log.origin == origin) {
            Some(log) => log.entries_before = Some(index),
            None => return Err(self.item(format!("one of the logs {known}"), origin)),
        }
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

    /// Revokes a key, but for digests (`sha256:…`) and what stands before places in logs.
    ///
    /// # Errors
    /// [`TrustChangeError::Item`] where the policy does not name the key, or a log of an exception.
    pub fn revoke_key(
        &mut self,
        key_id: &str,
        reason: &str,
        except_digests: Vec<String>,
        except_before: Vec<(String, u64)>,
    ) -> Result<(), TrustChangeError> {
        if !self.policy.keys.iter().any(|key| key.key_id == key_id) {
            let known: Vec<&str> = self.policy.keys.iter().map(|key| key.key_id.as_str()).collect();
            return Err(self.item(format!("one of the keys {}", known.join(", ")), key_id));
        }
        if let Some((origin, _)) =
            except_before.iter().find(|(origin, _)| !self.policy.logs.iter().any(|log| log.origin == *origin))
        {
            return Err(self.item(format!("exceptions in the logs {}", self.origins()), origin.as_str()));
        }
        self.policy.revocations.retain(|other| other.key_id != key_id);
        self.policy.revocations.push(RevocationDocument {
            key_id: key_id.to_owned(),
            reason: reason.to_owned(),
            except_digests,
            except_before: except_before
                .into_iter()
                .map(|(origin, index)| LogPlaceDocument { origin, index })
                .collect(),
        });
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
