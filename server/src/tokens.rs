//! Tokens: who may read and write which repositories, and log the signatures of which keys.
//!
//! A token is 32 random bytes, shown once. The database keeps its SHA-256 alone, which is enough to find it
//! and not to use it. Tokens are made and revoked beside a running server, through the same database.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use symseal_seal::encoding::{sha256, to_hex};
use symseal_seal::{KeyId, UtcSeconds};

use crate::opened::make_data;
use crate::store::{self, DatabaseUrl, NotOpened, Store, StoreError};

pub use crate::access::{Grant, ParseGrantError};
pub use crate::repositories::{ParsePrefixError, Prefix};

/// What every token begins with, so that scanners of leaked secrets know it.
pub(crate) const PREFIX: &str = "symseal_";

/// A token as its holder has it.
pub struct TokenSecret(String);

impl std::fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenSecret(…)")
    }
}

impl TokenSecret {
    /// The length of every token.
    pub(crate) const BYTES: usize = PREFIX.len() + 64;

    fn generate() -> Result<Self, TokenError> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| TokenError::Entropy { reason: error.to_string() })?;
        Ok(Self(format!("{PREFIX}{}", to_hex(&bytes))))
    }

    /// Reads a token; `None` for a text of another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (digits.len() == 64 && digits.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// The token's text, to show it once.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What the database knows it by: the SHA-256 of its text in hex.
    pub(crate) fn hash(&self) -> String {
        to_hex(&sha256(self.0.as_bytes()))
    }
}

/// What is known of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenInfo {
    /// The first 12 hex digits of its hash: what lists show and `revoke` takes.
    pub id: String,
    /// Whose it is, in the operator's words.
    pub name: String,
    /// What it may do, in order.
    pub grants: Vec<Grant>,
    /// When it was made.
    pub created: UtcSeconds,
    /// From when on it no longer holds.
    pub expires: Option<UtcSeconds>,
    /// When it was revoked.
    pub revoked: Option<UtcSeconds>,
    /// Ids of the artifact keys whose signatures it may log, in order.
    pub keys: Vec<String>,
}

impl TokenInfo {
    /// Whether it is neither expired nor revoked.
    #[must_use]
    pub fn holds(&self, at: UtcSeconds) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| at < expires)
    }
}

/// What a new token is to be.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Whose it is.
    pub name: String,
    /// Now.
    pub created: UtcSeconds,
    /// From when on it no longer holds.
    pub expires: Option<UtcSeconds>,
    /// What it may do.
    pub grants: Vec<Grant>,
    /// The artifact keys whose signatures it may log.
    pub keys: Vec<KeyId>,
}

/// Tokens cannot be made, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The database.
    #[error("database {place}: {detail}: expected the database of a server")]
    Database {
        /// Its file, or its URL without the password.
        place: String,
        /// What it said.
        detail: String,
    },
    /// The operating system gave no random bytes.
    #[error("cannot get random bytes for a token: {reason}")]
    Entropy {
        /// What it said.
        reason: String,
    },
}

/// The tokens in a server's database.
#[derive(Debug)]
pub struct Tokens {
    place: String,
    store: Arc<dyn Store>,
}

impl Tokens {
    /// Opens the database of a URL, or that of a data directory, which is made where there is none. Servers may run
    /// beside.
    ///
    /// # Errors
    /// [`TokenError::Database`].
    pub fn open<'a>(data: &'a Path, database: Option<&'a DatabaseUrl>) -> BoxFuture<'a, Result<Self, TokenError>> {
        Box::pin(Self::opened(data, database))
    }

    async fn opened(data: &Path, database: Option<&DatabaseUrl>) -> Result<Self, TokenError> {
        let place = database.map_or_else(|| data.display().to_string(), ToString::to_string);
        let failed = |detail: String| TokenError::Database { place: place.clone(), detail };
        if database.is_none() {
            make_data(data).map_err(|error| failed(error.to_string()))?;
        }
        let refused = |NotOpened { place, detail }| TokenError::Database { place, detail };
        let store = store::open(data, database).await.map_err(refused)?;
        Ok(Self { place, store })
    }

    /// Makes a token. Its secret is nowhere but in the answer.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn create(&self, new: NewToken) -> Result<(TokenSecret, TokenInfo), TokenError> {
        let secret = TokenSecret::generate()?;
        let hash = secret.hash();
        let mut keys: Vec<String> = new.keys.iter().map(ToString::to_string).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut grants = new.grants;
        grants.sort_unstable();
        grants.dedup();
        let token = TokenInfo {
            id: id_of(&hash),
            name: new.name,
            grants,
            created: new.created,
            expires: new.expires,
            revoked: None,
            keys,
        };
        self.store.put_token(&hash, &token).await.map_err(|error| self.failed(&error))?;
        Ok((secret, token))
    }

    /// All tokens, the oldest first, also those that no longer hold.
    ///
    /// # Errors
    /// [`TokenError::Database`].
    pub async fn list(&self) -> Result<Vec<TokenInfo>, TokenError> {
        self.store.tokens().await.map_err(|error| self.failed(&error))
    }

    /// Revokes the token with this id; it holds no longer from the next request on. `false` if there is none.
    ///
    /// # Errors
    /// [`TokenError::Database`].
    pub async fn revoke(&self, id: &str, at: UtcSeconds) -> Result<bool, TokenError> {
        self.store.revoke_token(id, at).await.map_err(|error| self.failed(&error))
    }

    /// Lets the token with this id hold until another time, whether it has expired or not. `false` if there is none, or it was revoked.
    ///
    /// # Errors
    /// [`TokenError::Database`].
    pub async fn renew(&self, id: &str, expires: UtcSeconds) -> Result<bool, TokenError> {
        self.store.renew_token(id, expires).await.map_err(|error| self.failed(&error))
    }

    /// Where they are kept: a data directory, or a URL without its password.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    fn failed(&self, error: &StoreError) -> TokenError {
        TokenError::Database { place: self.place.clone(), detail: error.to_string() }
    }
}

/// The id of the token with this hash.
pub(crate) fn id_of(hash: &str) -> String {
    hash.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_one_form_and_its_debug_output_does_not_show_it() {
        let secret = TokenSecret::generate().unwrap();
        let text = secret.expose().to_owned();
        assert_eq!(TokenSecret::parse(&text).unwrap().hash(), secret.hash());
        assert!(!format!("{secret:?}").contains(&text));
        for bad in ["", "symseal_", &text[1..], &text[..71], &text.to_uppercase(), &format!("{text}0")] {
            assert!(TokenSecret::parse(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_token_is_found_by_its_hash_until_it_is_revoked_or_expires() {
        let data = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(data.path(), None).await.unwrap();
        let key = symseal_seal::key_id(b"a key");
        let new = NewToken {
            name: "ci".into(),
            created: UtcSeconds(1_000),
            expires: Some(UtcSeconds(2_000)),
            grants: vec![Grant::WriteLog, "read:team".parse().unwrap(), Grant::WriteLog],
            keys: vec![key, key],
        };
        let (secret, token) = tokens.create(new).await.unwrap();
        assert_eq!(token.keys, [key.to_string()]);
        assert_eq!(token.grants, ["read:team".parse().unwrap(), Grant::WriteLog]);
        let found = tokens.store.token(&secret.hash()).await.unwrap().unwrap();
        assert_eq!(found, token);
        assert!(found.holds(UtcSeconds(1_999)) && !found.holds(UtcSeconds(2_000)));
        assert_eq!(tokens.list().await.unwrap(), std::slice::from_ref(&token));
        assert!(!tokens.revoke("000000000000", UtcSeconds(1_500)).await.unwrap());
        assert!(tokens.revoke(&token.id, UtcSeconds(1_500)).await.unwrap());
        let found = tokens.store.token(&secret.hash()).await.unwrap().unwrap();
        assert!(!found.holds(UtcSeconds(1_600)) && found.revoked == Some(UtcSeconds(1_500)));
        assert_eq!(tokens.store.token("").await.unwrap(), None);
        // The secret itself is in none of the database's files.
        for file in std::fs::read_dir(data.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(64).any(|part| part == &secret.expose().as_bytes()[8..]));
        }
    }
}
