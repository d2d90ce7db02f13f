//! Other servers, asked for what no bundle here has.
//!
//! What they send is streamed through while it is stored, one flight a file for all who wait for it. Their answers are not trusted: a
//! file is kept, and its last byte sent, only when it is the module that was asked for. A server that is dead costs nothing once that is
//! known; "there is no such file" is believed for a short time, and nothing else of an error is.

mod breaker;
mod check;
mod elf_start;
mod flight;
mod hops;
mod metadata;
mod pace;
mod packed;
mod resting;
mod server;
mod silence;
mod sought;
mod wanted;

pub(crate) use breaker::{Admission, Breaker};
pub(crate) use check::Expected;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use elf_start::build_ids_at_start;
pub(crate) use flight::{Flight, Pilot, Progress};
pub(crate) use hops::{Hops, TOO_MANY as TOO_MANY_HOPS};
pub(crate) use metadata::ToldFile;
pub(crate) use silence::{Unanswered, answered};
pub(crate) use sought::{Sought, UpstreamAway};
pub(crate) use wanted::Wanted;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::file_cache::{CacheKey, CachedFile, FileCache};
use crate::origins::Patience;
use crate::pool::Pool;
use crate::takedown::TakenDown;
use server::UpstreamServer;
pub(crate) use server::name_of;

/// Files that are known to be absent, and those that a server did not bring; beyond that the memory starts anew.
const REMEMBERED: usize = 100_000;

/// What upstreams have.
pub(crate) enum Outcome {
    /// The file, checked.
    Cached(CachedFile),
    /// The file, on its way.
    Flying(Arc<Flight>),
    /// None of them has it.
    Absent,
    /// The request went through too many servers already.
    TooManyHops,
    /// It cannot be told: one of them does not answer, or answers with another file.
    Unavailable(String),
}

/// Servers of one kind.
#[derive(Debug)]
pub(crate) struct Upstreams {
    servers: Vec<Arc<UpstreamServer>>,
    http: reqwest::Client,
    patience: Patience,
    /// Questions that all servers are asked which files they have.
    asking: Semaphore,
    /// Debug files for those who name addresses.
    bringing: Semaphore,
    cache: Arc<FileCache>,
    taken_down: Arc<TakenDown>,
    pool: Pool,
    making: Pool,
    /// Files on their way, by question and hops: a request that came back to us must not wait for itself.
    flights: Mutex<HashMap<(CacheKey, usize), Arc<Flight>>>,
    /// Questions to which nobody had an answer.
    absences: Mutex<HashMap<CacheKey, Instant>>,
    /// Servers, by their place in the list, that began to send a file and did not bring it.
    failures: Mutex<HashMap<(CacheKey, usize), Instant>>,
    /// Servers that sent a file of the module of another kind: they have none of the kind that is asked for.
    other_kinds: Mutex<HashMap<(CacheKey, usize), Instant>>,
}

/// What came, and is not in the cache all the same.
fn lost() -> Outcome {
    Outcome::Unavailable("the cache lost it".to_owned())
}

impl Upstreams {
    /// Whether these are URLs of servers that can be asked.
    pub(crate) fn check(urls: &[String], patience: Patience) -> Result<(), String> {
        urls.iter().try_for_each(|url| UpstreamServer::new(url, patience).map(drop))
    }

    /// The servers at these base URLs.
    ///
    /// # Errors
    /// What is wrong with a URL.
    pub(crate) fn new(
        urls: &[String],
        patience: Patience,
        (cache, taken_down): (Arc<FileCache>, Arc<TakenDown>),
        (pool, making): (Pool, Pool),
    ) -> Result<Self, String> {
        let servers = urls.iter().map(|url| UpstreamServer::new(url, patience).map(Arc::new));
        Ok(Self {
            servers: servers.collect::<Result<_, _>>()?,
            http: server::client(patience)?,
            patience,
            asking: Semaphore::new(metadata::AT_ONCE),
            bringing: Semaphore::new(sought::AT_ONCE),
            cache,
            taken_down,
            pool,
            making,
            flights: Mutex::default(),
            absences: Mutex::default(),
            failures: Mutex::default(),
            other_kinds: Mutex::default(),
        })
    }

    /// Asks for a file, or joins those who did.
    pub(crate) async fn find(self: &Arc<Self>, wanted: Wanted, hops: &Hops) -> Outcome {
        let (key, question) = (self.key(&wanted), wanted.question());
        loop {
            if let Some(found) = self.cached(&key).await {
                return match wanted.has_rested(&found) {
                    false => self.unless_taken_down(found),
                    true => self.find_again((&key, &wanted), hops, found).await,
                };
            }
            if self.is_absent(&question) {
                return Outcome::Absent;
            }
            if hops.are_too_many() {
                return Outcome::TooManyHops;
            }
            let Some(flight) = self.join(&key, &wanted, hops, false) else { continue };
            return match flight.departed().await {
                Progress::Asking | Progress::Lost(_) => Outcome::Unavailable(flight.reason()),
                Progress::Absent => Outcome::Absent,
                Progress::TooManyHops => Outcome::TooManyHops,
                Progress::Streaming { .. } | Progress::Whole { .. } => Outcome::Flying(flight),
            };
        }
    }

    /// Waits for the whole file.
    pub(crate) async fn find_whole(self: &Arc<Self>, wanted: Wanted, hops: &Hops) -> Outcome {
        let key = self.key(&wanted);
        match self.find(wanted, hops).await {
            Outcome::Flying(flight) => match flight.arrived().await {
                Progress::Whole { .. } => {
                    self.cached(&key).await.map_or_else(lost, |found| self.unless_taken_down(found))
                }
                _ => Outcome::Unavailable(flight.reason()),
            },
            other => other,
        }
    }

    /// What the cache has under a key.
    async fn cached(&self, key: &CacheKey) -> Option<CachedFile> {
        if !self.cache.has(key) {
            return None;
        }
        let (cache, key) = (Arc::clone(&self.cache), key.clone());
        self.pool.run(move || cache.find(&key)).await.ok().flatten()
    }

    fn unless_taken_down(&self, found: CachedFile) -> Outcome {
        if self.taken_down.has_sha256(&found.note.sha256) { Outcome::Absent } else { Outcome::Cached(found) }
    }

    /// The flight that brings the file, `again` where it is here already; else none when it has just arrived.
    fn join(self: &Arc<Self>, key: &CacheKey, wanted: &Wanted, hops: &Hops, again: bool) -> Option<Arc<Flight>> {
        let place = (wanted.question(), hops.count());
        let mut flights = lock(&self.flights);
        if let Some(flight) = flights.get(&place) {
            return Some(Arc::clone(flight));
        }
        // It leaves the flights only after it came into the cache.
        if !again && self.cache.has(key) {
            return None;
        }
        let (flight, pilot) = Flight::new();
        flights.insert(place.clone(), Arc::clone(&flight));
        let (this, key, wanted, hops) = (Arc::clone(self), key.clone(), wanted.clone(), hops.clone());
        tokio::spawn(async move {
            // Also when the task ends early: nobody waits for a flight without a pilot.
            let _landing = Landing { upstreams: &this, place };
            this.fly(&key, &wanted, &hops, pilot).await;
        });
        Some(flight)
    }

    fn is_absent(&self, question: &CacheKey) -> bool {
        is_remembered(&self.absences, question)
    }

    fn note_absence(&self, question: CacheKey) {
        self.remember(&self.absences, question);
    }

    fn has_failed(&self, key: &CacheKey, server: usize) -> bool {
        is_remembered(&self.failures, &(key.clone(), server))
    }

    fn note_failure(&self, key: &CacheKey, server: usize) {
        self.remember(&self.failures, (key.clone(), server));
    }

    fn has_other_kind(&self, key: &CacheKey, server: usize) -> bool {
        is_remembered(&self.other_kinds, &(key.clone(), server))
    }

    fn note_other_kind(&self, key: &CacheKey, server: usize) {
        self.remember(&self.other_kinds, (key.clone(), server));
    }

    fn remember<K: Eq + Hash>(&self, what: &Mutex<HashMap<K, Instant>>, key: K) {
        let mut known = lock(what);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, Instant::now() + self.patience.absence);
    }
}

fn is_remembered<K: Eq + Hash>(what: &Mutex<HashMap<K, Instant>>, key: &K) -> bool {
    lock(what).get(key).is_some_and(|until| *until > Instant::now())
}

struct Landing<'u> {
    upstreams: &'u Upstreams,
    place: (CacheKey, usize),
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        lock(&self.upstreams.flights).remove(&self.place);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
