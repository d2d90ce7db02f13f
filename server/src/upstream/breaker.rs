//! Which upstream is left alone because it is dead.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Answers that were too late or broke off, one after the other, until a server is dead. One that cannot be connected is at once.
const FAILURES: u32 = 2;
/// The pause is doubled so many times at most.
const DOUBLINGS: u32 = 4;

/// What a request may do with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Ask it.
    Ask,
    /// Leave it alone.
    Dead,
    /// Leave it alone, and find out beside the request whether it lives again.
    Probe,
}

/// The state of one server.
#[derive(Debug)]
pub(crate) struct Breaker {
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Alive { failures: u32 },
    Dead { until: Instant, doublings: u32 },
    Probed { doublings: u32 },
}

impl Breaker {
    /// A server that is alive; `pause`: see [`Patience::pause`](crate::Patience::pause).
    pub(crate) fn new(pause: Duration) -> Self {
        Self { pause, state: Mutex::new(State::Alive { failures: 0 }) }
    }

    /// What a request may do now. After `Probe` one of the two below must be called.
    pub(crate) fn admit(&self, now: Instant) -> Admission {
        let mut state = self.lock();
        match *state {
            State::Alive { .. } => Admission::Ask,
            State::Dead { until, doublings } if until <= now => {
                *state = State::Probed { doublings };
                Admission::Probe
            }
            State::Dead { .. } | State::Probed { .. } => Admission::Dead,
        }
    }

    /// It answered, whatever it said.
    pub(crate) fn lives(&self) {
        *self.lock() = State::Alive { failures: 0 };
    }

    /// It did not answer; `connected`: it did as far as the connection. Whether it is dead from now on.
    pub(crate) fn failed(&self, connected: bool, now: Instant) -> bool {
        let mut state = self.lock();
        let doublings = match *state {
            State::Alive { failures } if connected && failures + 1 < FAILURES => {
                *state = State::Alive { failures: failures + 1 };
                return false;
            }
            State::Alive { .. } => 0,
            // A request that was under way when it was found dead says nothing new.
            State::Dead { .. } => return false,
            State::Probed { doublings } => (doublings + 1).min(DOUBLINGS),
        };
        *state = State::Dead { until: now + self.pause.saturating_mul(1 << doublings), doublings };
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(10);

    #[test]
    fn a_server_that_cannot_be_connected_is_dead_at_once_and_is_probed_after_longer_and_longer_pauses() {
        let (breaker, start) = (Breaker::new(PAUSE), Instant::now());
        assert_eq!(breaker.admit(start), Admission::Ask);
        assert!(breaker.failed(false, start));
        let mut at = start;
        for pause in [1, 2, 4, 8, 16, 16] {
            assert_eq!(breaker.admit(at + PAUSE * pause - Duration::from_millis(1)), Admission::Dead);
            at += PAUSE * pause;
            assert_eq!(breaker.admit(at), Admission::Probe);
            assert_eq!(breaker.admit(at), Admission::Dead, "one probe at a time");
            assert!(breaker.failed(false, at));
        }
        assert_eq!(breaker.admit(at + PAUSE * 16), Admission::Probe);
        breaker.lives();
        assert_eq!(breaker.admit(at), Admission::Ask);
    }

    #[test]
    fn late_answers_must_follow_each_other() {
        let (breaker, now) = (Breaker::new(PAUSE), Instant::now());
        assert!(!breaker.failed(true, now));
        breaker.lives();
        assert!(!breaker.failed(true, now));
        assert!(breaker.failed(true, now));
        assert!(!breaker.failed(true, now), "it is known");
        assert_eq!(breaker.admit(now), Admission::Dead);
    }
}
