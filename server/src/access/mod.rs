//! Who may do what. Every decision of the server about that is made here.
//!
//! A server is *open* (whoever reaches it may do everything but write to the log; the default, for loopback), or it asks
//! for *tokens*. A request names its caller by a token: `Authorization: Bearer`, the password of `Authorization: Basic`, or
//! for clients that can send no header the first part of the path, `/t/<token>/…`. What a caller may not read does not
//! exist for it.

mod caller;
mod credentials;
mod grant;
mod known;
mod session;

use std::sync::Arc;

use axum::http::HeaderMap;

use crate::clock::now;
use crate::config::AccessConfig;
use crate::store::{Store, StoreError};
use crate::tokens::TokenSecret;

pub(crate) use caller::Caller;
pub(crate) use credentials::{PathToken, shown_token, take_path_token};
pub use grant::{Grant, ParseGrantError};
pub(crate) use session::{Session, SessionKey};

use caller::KnownToken;
use credentials::{Credentials, credentials};
use known::KnownTokens;

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
}

/// Credentials came with the request, and they do not hold. Nobody learns why: wrong, revoked or expired look the same.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallerError {
    /// They are no token of this server that holds now.
    #[error("expected a token that holds (`symseal token create` makes one), found one that does not")]
    Refused,
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Access {
    /// The rules of a configuration.
    ///
    /// # Errors
    /// The database that keeps the key of sessions fails.
    pub(crate) async fn new(config: &AccessConfig, store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let rules = match config {
            AccessConfig::Open => None,
            AccessConfig::Tokens { anonymous_read } => {
                let key = SessionKey::of_server(store.as_ref()).await?;
                let anonymous = anonymous_read.iter().cloned().map(Grant::Read).collect();
                Some(Rules { anonymous, key })
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

    /// Who sends a request. An open server takes everybody, whatever is shown.
    ///
    /// # Errors
    /// [`CallerError`] when something was shown that does not hold.
    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        path_token: Option<&PathToken>,
    ) -> Result<Caller, CallerError> {
        let shown = match path_token {
            Some(token) => Credentials::Token(token.secret().to_owned()),
            None => credentials(headers),
        };
        let Some(rules) = &self.rules else {
            let Credentials::Token(text) = shown else { return Ok(Caller::anyone(None)) };
            return Ok(Caller::anyone(self.find(&text).await?));
        };
        match shown {
            Credentials::None => Ok(Caller::stranger(&rules.anonymous, false)),
            Credentials::Unreadable => Err(CallerError::Refused),
            Credentials::Token(text) => match Session::open(&text, &rules.key, now()) {
                Some(session) => self.of_session(rules, session).await,
                None => {
                    let token = self.find(&text).await?.ok_or(CallerError::Refused)?;
                    Ok(Caller::holder(&rules.anonymous, token))
                }
            },
        }
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
        let token = self.known.find(hash).await?.ok_or(CallerError::Refused)?;
        Ok(Caller::session(&rules.anonymous, token, session.grants))
    }

    /// A session token for a caller, that lets it do what `grants` say; `None` on an open server.
    pub(crate) fn open_session(&self, caller: &Caller, grants: Vec<Grant>) -> Option<String> {
        let rules = self.rules.as_ref()?;
        let expires = now().0.saturating_add(i64::from(SESSION_SECONDS));
        Some(Session { token: caller.token_hash().map(str::to_owned), grants, expires }.seal(&rules.key))
    }
}
