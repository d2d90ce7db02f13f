//! The connections of a server: as many as its open files allow, and for one more the one that has asked for nothing for the longest time goes.
//!
//! Each connection is an open file, as is what it is sent. A server that takes connections until there is none left answers nobody, however many of them
//! say nothing. So a part of the open files is kept for its own work. A connection on which a request is under way is never closed for another: where
//! that is so of all, some of what is kept goes to further ones, so that those who ask whether the server lives are answered.

mod seat;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::doctor::{open_file_count, open_file_limits};
pub(crate) use seat::{During, Place, Seat};

/// Open files that are kept for the server's own work; of few it is half of them.
const KEPT: usize = 1024;

/// So long a connection may say nothing in any case: whoever was just accepted is about to ask.
const LEAST: Duration = Duration::from_millis(100);

/// So many may be on their way out at once, or a quarter of all: they still are open.
const LEAVING: usize = 128;

/// All connections of one listener.
#[derive(Debug)]
pub(crate) struct Crowd {
    most: usize,
    /// How many more while a request is under way on each.
    spare: usize,
    places: Mutex<Places>,
    /// One ended, or has no request any more.
    changed: Notify,
    sent_away: AtomicU64,
}

#[derive(Debug, Default)]
struct Places {
    open: usize,
    /// Of these, those that were told to go.
    leaving: usize,
    /// Behind the number of each that has come without a request, or become so.
    last: u64,
    /// Those without a request, the one that is so for the longest time first.
    idle: BTreeMap<u64, (Instant, Arc<Notify>)>,
}

impl Crowd {
    /// As many connections as the process may have beside the files that it has open now and what is kept for its work, and at most so many.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        // Where the system does not say it, a failed accept does.
        let limit = open_file_limits(None).map_or(u64::MAX, |(now, _)| now);
        let open = open_file_count(std::process::id()).unwrap_or_default();
        let room = connections(limit, open);
        Self::of(room.min(most), room.min(KEPT) / 2)
    }

    fn of(most: usize, spare: usize) -> Arc<Self> {
        let (places, changed) = (Mutex::default(), Notify::new());
        Arc::new(Self { most: most.max(1), spare, places, changed, sent_away: AtomicU64::new(0) })
    }

    /// Completes when one more may be accepted.
    pub(crate) async fn has_room(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            let wait = {
                let places = self.places();
                let is_busy = places.idle.is_empty() && places.leaving == 0;
                if places.staying() < self.most || is_busy && places.open < self.most + self.spare {
                    return;
                }
                let oldest = places.idle.values().next().filter(|_| places.leaving <= (self.most / 4).min(LEAVING));
                oldest.map(|(since, _)| LEAST.saturating_sub(since.elapsed()))
            };
            match wait {
                Some(Duration::ZERO) => return,
                Some(wait) => drop(tokio::time::timeout(wait, changed).await),
                None => changed.await,
            }
        }
    }

    /// The place of a connection that was accepted. Where there are too many now, another one goes.
    pub(crate) fn enter(self: &Arc<Self>) -> Place {
        let is_full = self.places().staying() >= self.most;
        if is_full {
            self.send_one_away();
        }
        self.places().open += 1;
        Place::new(self)
    }

    /// Tells the connection that has asked for nothing for the longest time to go, if there is one.
    pub(crate) fn send_one_away(&self) {
        let mut places = self.places();
        if let Some((_, (_, leave))) = places.idle.pop_first() {
            places.leaving += 1;
            self.sent_away.fetch_add(1, Ordering::Relaxed);
            leave.notify_one();
        }
    }

    /// How many are open, how many may be, and how many had to go for others so far.
    pub(crate) fn counts(&self) -> (usize, usize, u64) {
        (self.places().open, self.most, self.sent_away.load(Ordering::Relaxed))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn staying(&self) -> usize {
        self.open.saturating_sub(self.leaving)
    }
}

/// How many connections there may be, where a process may have so many files open, and has some.
fn connections(limit: u64, open: u64) -> usize {
    let room = usize::try_from(limit.saturating_sub(open)).unwrap_or(usize::MAX);
    room - (room / 2).min(KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it was told to go.
    async fn leaves(seat: &Arc<Seat>) -> bool {
        tokio::time::timeout(Duration::from_millis(5), seat.told_to_leave()).await.is_ok()
    }

    async fn has_room(crowd: &Crowd) -> bool {
        tokio::time::timeout(LEAST * 3, crowd.has_room()).await.is_ok()
    }

    #[test]
    fn of_few_open_files_half_are_kept_and_of_many_a_thousand() {
        assert_eq!(connections(64, 20), 22);
        assert_eq!(connections(1024, 24), 500);
        assert_eq!(connections(20_000, 0), 18_976);
        assert_eq!(connections(10, 20), 0);
        assert!(connections(u64::MAX, 20) > 1 << 40);
    }

    #[tokio::test]
    async fn for_one_more_the_connection_goes_that_has_asked_for_nothing_for_the_longest_time() {
        let crowd = Crowd::of(3, 0);
        let places: Vec<Place> = (0..3).map(|_| crowd.enter()).collect();
        // The first one asked, and was answered since.
        drop(places[0].seat().begin());
        places[0].seat().flushed();
        let under_way = places[1].seat().begin();
        assert!(has_room(&crowd).await);
        let fourth = crowd.enter();
        assert!(leaves(places[2].seat()).await);
        for place in [&places[0], &places[1], &fourth] {
            assert!(!leaves(place.seat()).await);
        }
        assert_eq!(crowd.counts(), (4, 3, 1));
        drop((under_way, fourth, places));
        assert_eq!(crowd.counts(), (0, 3, 1));
        assert!(crowd.places().idle.is_empty() && crowd.places().leaving == 0);
    }

    #[tokio::test]
    async fn where_a_request_is_under_way_on_every_connection_some_more_are_taken() {
        let crowd = Crowd::of(2, 1);
        let busy = [crowd.enter(), crowd.enter()];
        let requests = busy.each_ref().map(|place| place.seat().begin());
        assert!(has_room(&crowd).await);
        let third = crowd.enter();
        let asked = third.seat().begin();
        assert!(!has_room(&crowd).await);
        drop(asked);
        third.seat().flushed();
        // It has asked, and goes for the next one.
        assert!(has_room(&crowd).await);
        drop((crowd.enter(), requests));
        assert!(leaves(third.seat()).await);
    }

    #[tokio::test]
    async fn a_request_under_way_keeps_its_connection_until_the_answer_is_out() {
        let crowd = Crowd::of(1, 0);
        let place = crowd.enter();
        let (request, answer) = (place.seat().begin(), place.seat().begin());
        drop(request);
        place.seat().flushed();
        assert!(!has_room(&crowd).await);
        crowd.send_one_away();
        drop(answer);
        // The answer is made, and the client does not take it.
        assert!(!has_room(&crowd).await);
        crowd.send_one_away();
        assert!(!leaves(place.seat()).await);
        place.seat().flushed();
        assert!(has_room(&crowd).await);
        drop(crowd.enter());
        assert!(leaves(place.seat()).await);
        // Who asks at the same moment is answered, and counts.
        let asked = place.seat().begin();
        assert_eq!(crowd.places().staying(), 1);
        drop((asked, place));
        assert_eq!(crowd.counts().0, 0);
        assert!(has_room(&crowd).await);
    }
}
