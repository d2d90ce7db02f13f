//! Who sends a request, and what that one may do.

use std::borrow::Cow;
use std::sync::Arc;

use symseal_seal::UtcSeconds;

use super::{Action, Grant, SessionScope, oidc};
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
    /// Showed a token, or a session of it, which has a part of its grants.
    Holder { anonymous: Arc<[Grant]>, token: Arc<KnownToken>, narrowed: Option<Arc<SessionScope>> },
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

    pub(super) fn session(anonymous: &Arc<[Grant]>, token: Arc<KnownToken>, scope: SessionScope) -> Self {
        Self(Who::Holder { anonymous: Arc::clone(anonymous), token, narrowed: Some(Arc::new(scope)) })
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

    /// Whether a token that it may have, or another session of its token, would let it do something to a repository: then it is told to show that.
    pub(crate) fn may_show(&self, repository: &RepositoryName, action: Action) -> bool {
        match &self.0 {
            Who::Anyone { .. } => false,
            Who::Stranger { .. } => true,
            Who::Holder { token, narrowed, .. } => {
                narrowed.is_some() && token.info.grants.iter().any(|grant| grant.allows(repository, action))
            }
        }
    }

    /// The same, for the list of repositories.
    pub(crate) fn may_show_listing(&self) -> bool {
        match &self.0 {
            Who::Anyone { .. } | Who::Stranger { in_session: true, .. } => false,
            Who::Stranger { in_session: false, .. } => true,
            Who::Holder { narrowed, .. } => narrowed.as_ref().is_some_and(|scope| !scope.lists()),
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

    /// Whom it counts as where callers are limited; `None`: its address.
    pub(crate) fn account(&self) -> Option<Cow<'_, str>> {
        let token = self.token()?;
        let of_pipelines = oidc::account(&token.hash, &self.registry_grants());
        Some(of_pipelines.map_or(Cow::Borrowed(token.info.id.as_str()), Cow::Owned))
    }

    /// From when on its token no longer holds.
    pub(super) fn token_expires(&self) -> Option<UtcSeconds> {
        self.token()?.info.expires
    }

    pub(super) fn token_hash(&self) -> Option<&str> {
        Some(&self.token()?.hash)
    }

    /// What it may do whatever it showed, and what its token lets it do; `None` for everything.
    fn grants(&self) -> Option<(&[Grant], &[Grant])> {
        match &self.0 {
            Who::Anyone { .. } => None,
            Who::Stranger { anonymous, .. } => Some((anonymous, &[])),
            Who::Holder { anonymous, token, .. } => Some((anonymous, &token.info.grants)),
        }
    }

    /// What its session has of its token's grants; `None` where it has them all.
    fn narrowed(&self) -> Option<&SessionScope> {
        match &self.0 {
            Who::Holder { narrowed, .. } => narrowed.as_deref(),
            Who::Anyone { .. } | Who::Stranger { .. } => None,
        }
    }

    /// Whether it may do what is none of the registry's: no session lets anybody do that.
    fn may(&self, wanted: impl Fn(&Grant) -> bool) -> bool {
        let Some((anonymous, own)) = self.grants() else { return true };
        let own = if self.narrowed().is_none() { own } else { &[] };
        anonymous.iter().chain(own).any(wanted)
    }

    /// Whether it may do something to a repository.
    pub(crate) fn may_do(&self, repository: &RepositoryName, action: Action) -> bool {
        let Some((anonymous, own)) = self.grants() else { return true };
        let allows = |grants: &[Grant]| grants.iter().any(|grant| grant.allows(repository, action));
        allows(anonymous) || (self.narrowed().is_none_or(|scope| scope.allows(repository, action)) && allows(own))
    }

    /// Whether it may read a repository, and so have its blobs mounted elsewhere.
    pub(crate) fn may_read(&self, repository: &RepositoryName) -> bool {
        self.may_do(repository, Action::Pull)
    }

    /// Whether a list of repositories shows one to it.
    pub(crate) fn may_see(&self, repository: &RepositoryName) -> bool {
        let by_list = || {
            let lists = self.narrowed().is_some_and(SessionScope::lists);
            lists
                && self.grants().is_some_and(|(_, own)| own.iter().any(|grant| grant.allows(repository, Action::Pull)))
        };
        self.may_read(repository) || by_list()
    }

    /// The repositories that it may read; `None` for all.
    pub(crate) fn readable(&self) -> Option<Arc<[Prefix]>> {
        let (anonymous, own) = self.grants()?;
        let below = |grants: &[Grant]| grants.iter().filter_map(Grant::prefix).cloned().collect::<Vec<_>>();
        let mut prefixes = below(anonymous);
        match self.narrowed().filter(|scope| !scope.is_everything()) {
            None => prefixes.extend(below(own)),
            Some(scope) => {
                let granted = scope.pulled().filter(|name| own.iter().any(|grant| grant.allows(name, Action::Pull)));
                prefixes.extend(granted.cloned().map(Prefix::of_one));
            }
        }
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

    /// Everything that its token lets it do in the registry.
    pub(super) fn registry_grants(&self) -> Vec<Grant> {
        let (_, own) = self.grants().unwrap_or_default();
        own.iter().filter(|grant| grant.prefix().is_some()).cloned().collect()
    }
}
