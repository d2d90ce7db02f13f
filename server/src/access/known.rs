//! Tokens that were seen a moment ago, so that a GET asks no database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::caller::KnownToken;
use crate::clock::now;
use crate::store::{Store, StoreError};

/// How long an answer of the database is believed: a token that is revoked holds for this long at most.
const BELIEVED: Duration = Duration::from_secs(2);

/// Answers kept at once; beyond, all are forgotten. Whoever tries many tokens fills it with what does not exist.
const ANSWERS: usize = 4096;

/// When the database was asked, and what it said.
type Heard = (Instant, Option<Arc<KnownToken>>);

/// What the database said of tokens.
#[derive(Debug)]
pub(super) struct KnownTokens {
    store: Arc<dyn Store>,
    answers: Mutex<HashMap<String, Heard>>,
}

impl KnownTokens {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, answers: Mutex::default() }
    }

    /// The token with this hash, if it holds now.
    pub(super) async fn find(&self, hash: &str) -> Result<Option<Arc<KnownToken>>, StoreError> {
        let remembered =
            self.answers().get(hash).filter(|(at, _)| at.elapsed() < BELIEVED).map(|(_, token)| token.clone());
        let token = match remembered {
            Some(token) => token,
            None => {
                let info = self.store.token(hash).await?;
                let token = info.map(|info| Arc::new(KnownToken { hash: hash.to_owned(), info }));
                let mut answers = self.answers();
                if answers.len() >= ANSWERS {
                    answers.clear();
                }
                answers.insert(hash.to_owned(), (Instant::now(), token.clone()));
                token
            }
        };
        Ok(token.filter(|token| token.info.holds(now())))
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<String, Heard>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
