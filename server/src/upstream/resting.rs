//! Files that nothing can be held against, and how long they are believed.
//!
//! A source file may be anything. Where an upstream sent another one once, or what came was cut short, that must not stay for good: what was kept is asked
//! for again after an hour, and of the same upstreams alone.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Expected, Flight, Hops, Outcome, Progress, Upstreams, Wanted, lost};
use crate::file_cache::{CacheKey, CachedFile};

/// How long such a file is given without asking again.
const BELIEVED: Duration = Duration::from_secs(3600);

impl Wanted {
    /// Whether a file of the cache has to be asked for again.
    pub(super) fn has_rested(&self, found: &CachedFile) -> bool {
        // A time in the future is no time.
        let age = found.blob.modified.and_then(|since| SystemTime::now().duration_since(since).ok());
        self.expected == Expected::Anything && age.is_none_or(|age| age > BELIEVED)
    }
}

impl Upstreams {
    /// What a file is called in the cache. One that proves nothing is whatever these upstreams say it is, and nothing to those who ask others.
    pub(super) fn key(&self, wanted: &Wanted) -> CacheKey {
        if wanted.expected != Expected::Anything {
            return CacheKey::of(&wanted.name);
        }
        let mut servers: Vec<&str> = self.servers.iter().map(|server| server.name()).collect();
        servers.sort_unstable();
        CacheKey::of(&format!("{} of {}", wanted.name, servers.join(" ")))
    }

    /// Asks again for a file that was `kept` too long. It is given on where none of the upstreams can tell; where all say that there is no such file, there
    /// is none.
    pub(super) async fn find_again(
        self: &Arc<Self>,
        (key, wanted): (&CacheKey, &Wanted),
        hops: &Hops,
        kept: CachedFile,
    ) -> Outcome {
        let why = match hops.are_too_many() {
            true => "the request came through too many servers".to_owned(),
            false => {
                let flight = self.join(key, wanted, hops, true);
                // Whole, so that there is still something to give where it breaks off.
                match self.landed(flight).await {
                    Ok(true) => return self.cached(key).await.map_or_else(lost, |found| self.unless_taken_down(found)),
                    Ok(false) => return self.gone(key, wanted, &kept).await,
                    Err(why) => why,
                }
            }
        };
        tracing::info!(
            path = wanted.path,
            why,
            "a source file cannot be asked for again: what was kept of it is given"
        );
        self.unless_taken_down(kept)
    }

    /// There is no such file any more, unless somebody who asked otherwise has brought it meanwhile.
    async fn gone(self: &Arc<Self>, key: &CacheKey, wanted: &Wanted, kept: &CachedFile) -> Outcome {
        match self.cached(key).await {
            Some(found) if found.blob.modified != kept.blob.modified => return self.unless_taken_down(found),
            _ => {}
        }
        // What is not noted as absent is taken down here: that of the cache may be other bytes.
        if self.is_absent(&wanted.question()) {
            let (cache, key) = (Arc::clone(&self.cache), key.clone());
            let _ = self.pool.run(move || cache.forget(&key)).await;
        }
        Outcome::Absent
    }

    /// Whether there is the file of a flight, once that is known.
    async fn landed(&self, flight: Option<Arc<Flight>>) -> Result<bool, String> {
        let Some(flight) = flight else { return Ok(true) };
        match flight.arrived().await {
            Progress::Whole { .. } => Ok(true),
            Progress::Absent => Ok(false),
            Progress::TooManyHops => Err("it went through too many servers".to_owned()),
            Progress::Asking | Progress::Streaming { .. } | Progress::Lost(_) => Err(flight.reason()),
        }
    }
}
