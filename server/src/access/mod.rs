//! Who may do what. Every decision of the server about that is made here.
//!
//! A server is *open* (whoever reaches it may do everything but write to the log; the default, for loopback), or it asks
//! for *tokens*. A request names its caller by a token: `Authorization: Bearer`, the password of `Authorization: Basic`, or
//! for clients that can send no header the first part of the path, `/t/<token>/…`. A token is one of this server's, a session that was opened with one, or an
//! identity token of a CI system that the operator named (`oidc`). What a caller may not read does not
//! exist for it.

mod caller;
mod credentials;
mod grant;
mod hidden;
mod known;
mod oidc;
mod scope;
mod session;

use std::sync::Arc;

use axum::http::HeaderMap;

use crate::clock::now;
use crate::config::{AccessConfig, Config};
use crate::store::{Store, StoreError};
use crate::tokens::TokenSecret;

pub(crate) use caller::Caller;
pub(crate) use credentials::{PathToken, shown_token, take_path_token};
pub use grant::{Grant, ParseGrantError};
pub(crate) use hidden::{hide_secrets, hide_tokens};
pub use oidc::{OidcIssuer, OidcRule};
pub(crate) use scope::{Action, SessionScope};
pub(crate) use session::{Session, SessionKey};

use caller::KnownToken;
use credentials::{Credentials, credentials};
use known::KnownTokens;
use oidc::{Issuers, OidcError};

/// How long a session token holds, in seconds: as long as most registries' do.
pub(crate) const SESSION_SECONDS: u32 = 300;

/// The server's rules, and the tokens that it has seen.
#[derive(Debug)]
pub(crate) struct Access {
    rules: Option<Rules>,
    known: KnownTokens,
}

#[derive(Debug)]
struct Rules {
    anonymous: Arc<[Grant]>,
    key: SessionKey,
    issuers: Issuers,
}

/// Credentials came with the request, and they do not hold. Nobody learns why: wrong, revoked or expired look the same.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallerError {
    /// They are no token of this server that holds now.
    #[error("expected a token that holds (`symseal token create` makes one), found one that does not")]
    Refused,
    /// The identity token of a pipeline held when the request began.
    #[error(
        "expected an identity token that holds until the end of the request, found one that expired meanwhile: ask the CI for a new one, and send this again"
    )]
    Expired,
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The keys of the issuer of an identity token cannot be had.
    #[error("{0}: try again later")]
    Issuer(String),
}

impl Access {
    /// The rules of a configuration.
    ///
    /// # Errors
    /// The database that keeps the key of sessions fails.
    pub(crate) async fn new(config: &Config, store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let rules = match &config.access {
            AccessConfig::Open => None,
            AccessConfig::Tokens { anonymous_read } => {
                let key = SessionKey::of_server(store.as_ref()).await?;
                let anonymous = anonymous_read.iter().cloned().map(Grant::Read).collect();
                Some(Rules { anonymous, key, issuers: Issuers::new(&config.oidc) })
            }
        };
        Ok(Self { rules, known: KnownTokens::new(store) })
    }

    /// Whether callers have to show tokens.
    pub(crate) fn asks_for_tokens(&self) -> bool {
        self.rules.is_some()
    }

    /// Whether a caller may see what an operator watches: alerts, and which ids are asked for in vain. They name repositories and tell what
    /// people debug, so where tokens are asked for the one who sees them is an auditor.
    pub(crate) fn may_watch(&self, caller: &Caller) -> bool {
        !self.asks_for_tokens() || caller.may_read_audit()
    }

    /// Whether nothing is known yet of what a request shows, so that finding out may ask the database: it is no session of this server, no
    /// identity token of a known issuer, and no token that was seen to be there. On an open server it does not matter.
    pub(crate) fn is_unproved(&self, headers: &HeaderMap, path_token: Option<&PathToken>) -> bool {
        let Some(rules) = &self.rules else { return false };
        match shown(headers, path_token) {
            Credentials::None => false,
            Credentials::Unreadable => true,
            Credentials::Token(text) => {
                let was_there = || TokenSecret::parse(&text).is_some_and(|secret| self.known.was_there(&secret.hash()));
                Session::open(&text, &rules.key, now()).is_none() && !rules.issuers.may_know(&text) && !was_there()
            }
        }
    }

    /// Who sends a request. An open server takes everybody, whatever is shown.
    ///
    /// # Errors
    /// [`CallerError`] when something was shown that does not hold.
    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        path_token: Option<&PathToken>,
    ) -> Result<Caller, CallerError> {
        let shown = shown(headers, path_token);
        let Some(rules) = &self.rules else {
            let Credentials::Token(text) = shown else { return Ok(Caller::anyone(None)) };
            return Ok(Caller::anyone(self.find(&text).await?));
        };
        match shown {
            Credentials::None => Ok(Caller::stranger(&rules.anonymous, false)),
            Credentials::Unreadable => Err(CallerError::Refused),
            Credentials::Token(text) => match Session::open(&text, &rules.key, now()) {
                Some(session) => self.of_session(rules, session).await,
                None if rules.issuers.may_know(&text) => of_pipeline(rules, &text).await,
                None => {
                    let token = self.find(&text).await?.ok_or(CallerError::Refused)?;
                    Ok(Caller::holder(&rules.anonymous, token))
                }
            },
        }
    }

    /// Whether the token of a request that began a while ago holds still, for what is about to be kept of it. Requests without one go on.
    ///
    /// # Errors
    /// [`CallerError`]: it was revoked, or expired, meanwhile; or nobody can tell.
    pub(crate) async fn check_again(&self, caller: &Caller) -> Result<(), CallerError> {
        let Some(hash) = caller.token_hash().filter(|_| self.rules.is_some()) else { return Ok(()) };
        if oidc::is_of_pipeline(hash) {
            // Nobody revokes one: it ends by itself.
            let holds = caller.token_expires().is_none_or(|expires| oidc::holds(expires, now()));
            return if holds { Ok(()) } else { Err(CallerError::Expired) };
        }
        self.known.find(hash).await?.map_or(Err(CallerError::Refused), |_| Ok(()))
    }

    async fn find(&self, text: &str) -> Result<Option<Arc<KnownToken>>, StoreError> {
        match TokenSecret::parse(text) {
            Some(secret) => self.known.find(&secret.hash()).await,
            None => Ok(None),
        }
    }

    /// A session holds while the token that it was opened with does.
    async fn of_session(&self, rules: &Rules, session: Session) -> Result<Caller, CallerError> {
        let Some(hash) = &session.token else { return Ok(Caller::stranger(&rules.anonymous, true)) };
        let expires = session.token_expires.unwrap_or(session.expires);
        let token = match oidc::of_session(hash, &session.grants, expires) {
            // Who runs the server may have taken the issuer off its list.
            Some(_) if !rules.issuers.have(hash) => return Err(CallerError::Refused),
            Some(pipeline) => pipeline,
            None => self.known.find(hash).await?.ok_or(CallerError::Refused)?,
        };
        Ok(Caller::session(&rules.anonymous, token, session.scope))
    }

    /// A session token for a caller, with what `scope` says of its grants, and the seconds that it holds; `None` on an open server.
    pub(crate) fn open_session(&self, caller: &Caller, scope: SessionScope) -> Option<(String, i64)> {
        let rules = self.rules.as_ref()?;
        let at = now().0;
        let expires = at.saturating_add(i64::from(SESSION_SECONDS));
        let expires = caller.token_expires().map_or(expires, |of_token| expires.min(of_token.0));
        let token = caller.token_hash().map(str::to_owned);
        let is_of_pipeline = token.as_deref().is_some_and(oidc::is_of_pipeline);
        let token_expires = caller.token_expires().filter(|_| is_of_pipeline).map(|time| time.0);
        let grants = if is_of_pipeline { caller.registry_grants() } else { Vec::new() };
        Some((Session { token, scope, grants, expires, token_expires }.seal(&rules.key), expires.saturating_sub(at)))
    }
}

/// What a request shows of who sends it; the path goes before the header.
fn shown(headers: &HeaderMap, path_token: Option<&PathToken>) -> Credentials {
    match path_token {
        Some(token) => Credentials::Token(token.secret().to_owned()),
        None => credentials(headers),
    }
}

/// Who shows an identity token of a CI system.
async fn of_pipeline(rules: &Rules, text: &str) -> Result<Caller, CallerError> {
    match rules.issuers.caller(text).await {
        Ok(pipeline) => Ok(Caller::holder(&rules.anonymous, pipeline)),
        Err(OidcError::Refused(why)) => {
            tracing::info!(why, "an identity token was refused");
            Err(CallerError::Refused)
        }
        Err(error @ OidcError::Away { .. }) => Err(CallerError::Issuer(error.to_string())),
    }
}
