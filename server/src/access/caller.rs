//! Who sends a request, and what that one may do.

use std::sync::Arc;

use symseal_seal::UtcSeconds;

use super::Grant;
use crate::repositories::{Prefix, RepositoryName};
use crate::tokens::TokenInfo;

/// Who sends a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Who);

#[derive(Debug, Clone)]
enum Who {
    /// Of an open server: may do everything that does not ask for a token by itself. One that was shown says who it is.
    Anyone { token: Option<Arc<KnownToken>> },
    /// Showed no token, or a session that was opened without one.
    Stranger { anonymous: Arc<[Grant]>, in_session: bool },
    /// Showed a token.
    Holder { anonymous: Arc<[Grant]>, token: Arc<KnownToken>, narrowed: Option<Arc<[Grant]>> },
}

/// A token with the hash that it is known by.
#[derive(Debug)]
pub(crate) struct KnownToken {
    /// SHA-256 of its text, in hex.
    pub(crate) hash: String,
    /// What the database says of it.
    pub(crate) info: TokenInfo,
}

impl Caller {
    pub(super) fn anyone(token: Option<Arc<KnownToken>>) -> Self {
        Self(Who::Anyone { token })
    }

    pub(super) fn stranger(anonymous: &Arc<[Grant]>, in_session: bool) -> Self {
        Self(Who::Stranger { anonymous: Arc::clone(anonymous), in_session })
    }

    pub(super) fn holder(anonymous: &Arc<[Grant]>, token: Arc<KnownToken>) -> Self {
        Self(Who::Holder { anonymous: Arc::clone(anonymous), token, narrowed: None })
    }

    pub(super) fn session(anonymous: &Arc<[Grant]>, token: Arc<KnownToken>, grants: Vec<Grant>) -> Self {
        Self(Who::Holder { anonymous: Arc::clone(anonymous), token, narrowed: Some(grants.into()) })
    }

    /// Whether it showed nothing where something is asked for.
    pub(crate) fn showed_nothing(&self) -> bool {
        matches!(self.0, Who::Stranger { in_session: false, .. })
    }

    /// Whether it showed a session in the place of a token.
    pub(crate) fn is_in_session(&self) -> bool {
        match &self.0 {
            Who::Anyone { .. } => false,
            Who::Stranger { in_session, .. } => *in_session,
            Who::Holder { narrowed, .. } => narrowed.is_some(),
        }
    }

    /// Whether a token that it may have, or another session of its token, would let it read a repository: then it is told to show that.
    pub(crate) fn may_show_reading(&self, repository: &RepositoryName) -> bool {
        self.may_show(|grant| grant.reads(repository))
    }

    /// [`Self::may_show_reading`], for writing.
    pub(crate) fn may_show_writing(&self, repository: &RepositoryName) -> bool {
        self.may_show(|grant| grant.writes(repository))
    }

    fn may_show(&self, wanted: impl Fn(&Grant) -> bool) -> bool {
        match &self.0 {
            Who::Anyone { .. } => false,
            Who::Stranger { .. } => true,
            Who::Holder { token, narrowed, .. } => narrowed.is_some() && token.info.grants.iter().any(wanted),
        }
    }

    /// Whether nobody knows who it is, where that is asked.
    pub(crate) fn is_stranger(&self) -> bool {
        matches!(self.0, Who::Stranger { .. })
    }

    fn token(&self) -> Option<&KnownToken> {
        match &self.0 {
            Who::Anyone { token } => token.as_deref(),
            Who::Holder { token, .. } => Some(token),
            Who::Stranger { .. } => None,
        }
    }

    /// The id of its token, for the logs.
    pub(crate) fn token_id(&self) -> Option<&str> {
        Some(&self.token()?.info.id)
    }

    /// From when on its token no longer holds.
    pub(super) fn token_expires(&self) -> Option<UtcSeconds> {
        self.token()?.info.expires
    }

    pub(super) fn token_hash(&self) -> Option<&str> {
        Some(&self.token()?.hash)
    }

    /// What it may do; `None` for everything.
    fn grants(&self) -> Option<impl Iterator<Item = &Grant>> {
        let (anonymous, own): (&[Grant], &[Grant]) = match &self.0 {
            Who::Anyone { .. } => return None,
            Who::Stranger { anonymous, .. } => (anonymous, &[]),
            Who::Holder { anonymous, token, narrowed } => {
                (anonymous, narrowed.as_deref().unwrap_or(&token.info.grants))
            }
        };
        Some(anonymous.iter().chain(own))
    }

    fn may(&self, wanted: impl Fn(&Grant) -> bool) -> bool {
        self.grants().is_none_or(|mut grants| grants.any(wanted))
    }

    /// Whether it may read a repository, and so have its blobs mounted elsewhere.
    pub(crate) fn may_read(&self, repository: &RepositoryName) -> bool {
        self.may(|grant| grant.reads(repository))
    }

    /// Whether it may push to a repository and delete from it.
    pub(crate) fn may_write(&self, repository: &RepositoryName) -> bool {
        self.may(|grant| grant.writes(repository))
    }

    /// The repositories that it may read; `None` for all.
    pub(crate) fn readable(&self) -> Option<Arc<[Prefix]>> {
        let prefixes: Vec<Prefix> = self
            .grants()?
            .filter_map(|grant| match grant {
                Grant::Read(prefix) | Grant::Write(prefix) => Some(prefix.clone()),
                _ => None,
            })
            .collect();
        (!prefixes.iter().any(Prefix::holds_all)).then(|| prefixes.into())
    }

    /// Whether it may read every repository.
    pub(crate) fn may_read_all(&self) -> bool {
        self.readable().is_none()
    }

    /// Whether it may read traces.
    pub(crate) fn may_read_traces(&self) -> bool {
        self.may(|grant| matches!(grant, Grant::ReadTraces | Grant::WriteTraces))
    }

    /// Whether it may store traces.
    pub(crate) fn may_write_traces(&self) -> bool {
        self.may(|grant| *grant == Grant::WriteTraces)
    }

    /// Whether it may read the audit log: on an open server too, by a token alone.
    pub(crate) fn may_read_audit(&self) -> bool {
        match &self.0 {
            Who::Anyone { token } => token.as_ref().is_some_and(|token| token.info.grants.contains(&Grant::ReadAudit)),
            Who::Stranger { .. } | Who::Holder { .. } => self.may(|grant| *grant == Grant::ReadAudit),
        }
    }

    /// Everything that it may do in the registry.
    pub(crate) fn registry_grants(&self) -> Vec<Grant> {
        let grants = self.grants().into_iter().flatten();
        grants.filter(|grant| matches!(grant, Grant::Read(_) | Grant::Write(_))).cloned().collect()
    }
}
