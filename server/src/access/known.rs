//! Tokens that were seen a moment ago, so that a GET asks no database.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::caller::KnownToken;
use crate::clock::now;
use crate::store::{Store, StoreError};

/// How long an answer of the database is believed: a token that is revoked holds for this long at most.
const BELIEVED: Duration = Duration::from_secs(2);

/// How long the last answer is believed while the database is away. Where it is away for everybody nothing can be revoked in it meanwhile; where
/// it is out of this server's reach alone, a token that is revoked elsewhere holds here for this long at most.
const BELIEVED_WITHOUT_DATABASE: Duration = Duration::from_secs(10 * 60);

/// Answers kept at once; beyond, those go that say that there is no such token, of which whoever tries many makes many, and then all.
const ANSWERS: usize = 4096;

/// When the database was asked, and what it said.
type Heard = (Instant, Option<Arc<KnownToken>>);

/// What the database said of tokens.
#[derive(Debug)]
pub(super) struct KnownTokens {
    store: Arc<dyn Store>,
    answers: Mutex<HashMap<String, Heard>>,
    away: Arc<Away>,
}

/// Whether the database does not answer, so that requests need not wait to find out.
#[derive(Debug, Default)]
struct Away {
    is_away: AtomicBool,
    is_asked: AtomicBool,
}

impl KnownTokens {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, answers: Mutex::default(), away: Arc::default() }
    }

    /// The token with this hash, if it holds now.
    pub(super) async fn find(&self, hash: &str) -> Result<Option<Arc<KnownToken>>, StoreError> {
        let token = match self.remembered(hash) {
            Some(token) => token,
            None => self.ask(hash).await?,
        };
        Ok(token.filter(|token| token.info.holds(now())))
    }

    /// Whether the last answer, of whatever age, was that there is a token with this hash.
    pub(super) fn was_there(&self, hash: &str) -> bool {
        self.answers().get(hash).is_some_and(|(_, token)| token.is_some())
    }

    /// What was said a moment ago; while the database is away, what it said last.
    fn remembered(&self, hash: &str) -> Option<Option<Arc<KnownToken>>> {
        let (at, token) = self.answers().get(hash).cloned()?;
        if at.elapsed() < BELIEVED {
            return Some(token);
        }
        if self.away.is_away.load(Ordering::Relaxed) && at.elapsed() < BELIEVED_WITHOUT_DATABASE {
            self.look_for_database();
            return Some(token);
        }
        None
    }

    async fn ask(&self, hash: &str) -> Result<Option<Arc<KnownToken>>, StoreError> {
        let info = match self.store.token(hash).await {
            Ok(info) => info,
            Err(error @ StoreError::Away(_)) => {
                self.away.is_away.store(true, Ordering::Relaxed);
                return self.remembered(hash).ok_or(error);
            }
            Err(error) => return Err(error),
        };
        let token = info.map(|info| Arc::new(KnownToken { hash: hash.to_owned(), info }));
        let mut answers = self.answers();
        if answers.len() >= ANSWERS {
            answers.retain(|_, (_, token)| token.is_some());
            if answers.len() >= ANSWERS {
                answers.clear();
            }
        }
        answers.insert(hash.to_owned(), (Instant::now(), token.clone()));
        Ok(token)
    }

    /// Asks beside the requests whether the database is there again.
    fn look_for_database(&self) {
        if self.away.is_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, away) = (Arc::clone(&self.store), Arc::clone(&self.away));
        tokio::spawn(async move {
            away.is_away.store(store.ping().await.is_err(), Ordering::Relaxed);
            away.is_asked.store(false, Ordering::Release);
        });
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<String, Heard>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
