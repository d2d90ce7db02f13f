//! Session tokens: what registry clients get for their token, and show for some minutes in its place.
//!
//! `symsess_` and two base64url texts with a dot between: the claims in JSON, and their HMAC-SHA-256 by a key that the
//! servers of one database share.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde::{Deserialize, Serialize};
use symseal_seal::UtcSeconds;

use super::{Grant, SessionScope};
use crate::store::{Store, StoreError, hmac_key};

/// What every session token begins with.
pub(super) const PREFIX: &str = "symsess_";

/// The name of the key in the database.
const KEY_NAME: &str = "session-key";

/// What a session lets its holder do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// The hash of the token that it was opened with; `None` for a stranger's.
    pub(crate) token: Option<String>,
    /// What of its token's grants it has.
    pub(crate) scope: SessionScope,
    /// These, where nobody keeps them: an identity token's.
    pub(crate) grants: Vec<Grant>,
    /// From when on it no longer holds, in seconds since 1970.
    pub(crate) expires: i64,
    /// The same of the token that it was opened with, where nobody keeps that: an identity token's.
    pub(crate) token_expires: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// Of everything, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    /// Not left out where it is empty: a session of a server from before has none, and is not one of everything.
    token_grants: Vec<String>,
    exp: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_exp: Option<i64>,
}

/// The key that sessions are sealed with.
pub(crate) struct SessionKey(hmac::Key);

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(…)")
    }
}

impl SessionKey {
    /// The key that all servers of a database use: made by the first of them.
    pub(super) async fn of_server(store: &dyn Store) -> Result<Self, StoreError> {
        hmac_key(store, KEY_NAME).await.map(Self)
    }
}

impl Session {
    /// The session's token.
    pub(super) fn seal(&self, key: &SessionKey) -> String {
        let claims = Claims {
            token: self.token.clone(),
            scope: self.scope.text(),
            token_grants: self.grants.iter().map(Grant::to_string).collect(),
            exp: self.expires,
            token_exp: self.token_expires,
        };
        // Of strings and a number: nothing in it can fail.
        let claims = serde_json::to_vec(&claims).unwrap_or_default();
        let mac = hmac::sign(&key.0, &claims);
        format!("{PREFIX}{}.{}", URL_SAFE_NO_PAD.encode(&claims), URL_SAFE_NO_PAD.encode(mac))
    }

    /// The session of a token that this key sealed and that holds at `at`.
    pub(super) fn open(text: &str, key: &SessionKey, at: UtcSeconds) -> Option<Self> {
        let (claims, mac) = text.strip_prefix(PREFIX)?.split_once('.')?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        hmac::verify(&key.0, &claims, &URL_SAFE_NO_PAD.decode(mac).ok()?).ok()?;
        let claims: Claims = serde_json::from_slice(&claims).ok()?;
        let grants = claims.token_grants.iter().map(|grant| grant.parse().ok()).collect::<Option<Vec<Grant>>>()?;
        let Claims { token, scope, exp, token_exp, .. } = claims;
        let scope = SessionScope::of_text(scope.as_deref());
        (at.0 < exp).then_some(Self { token, scope, grants, expires: exp, token_expires: token_exp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SessionKey {
        SessionKey(hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32]))
    }

    #[test]
    fn a_session_holds_with_its_key_and_until_it_expires() {
        let grants = vec!["read:team".parse().unwrap(), "write:team/app".parse().unwrap()];
        let scope = SessionScope::of(&["repository:team/app:pull,push registry:catalog:*".to_owned()]);
        let session = Session { token: Some("ab".into()), scope, grants, expires: 1_000, token_expires: Some(2_000) };
        let text = session.seal(&key(1));
        assert_eq!(Session::open(&text, &key(1), UtcSeconds(999)), Some(session));
        assert_eq!(Session::open(&text, &key(1), UtcSeconds(1_000)), None);
        assert_eq!(Session::open(&text, &key(2), UtcSeconds(999)), None);
    }

    #[test]
    fn a_session_with_any_byte_changed_does_not_hold() {
        let (scope, grants) = (SessionScope::of(&[]), vec!["read:*".parse().unwrap()]);
        let session = Session { token: None, scope, grants, expires: 1_000, token_expires: None };
        let text = session.seal(&key(1));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert_eq!(Session::open(&changed, &key(1), UtcSeconds(0)), None, "{changed}");
            }
        }
        for bad in ["", "symsess_", "symsess_.", "symsess_e30.", "symsess_a.b.c"] {
            assert_eq!(Session::open(bad, &key(1), UtcSeconds(0)), None);
        }
    }
}
