//! The time of day, as what is written down has it, and the time that has passed.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use symseal_seal::UtcSeconds;

/// The time by this machine's clock.
pub(crate) fn now() -> UtcSeconds {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UtcSeconds(i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX))
}

/// A moment of this machine's clock, between the question and the answer that tells of another's.
pub(crate) fn between(asked: SystemTime, answered: SystemTime) -> SystemTime {
    asked + answered.duration_since(asked).unwrap_or_default() / 2
}

/// A moment, from which time passes also while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    running: Instant,
    of_day: SystemTime,
}

impl Moment {
    /// This one.
    pub(crate) fn now() -> Self {
        Self { running: Instant::now(), of_day: SystemTime::now() }
    }

    /// How long ago it was: rather too long than too short.
    pub(crate) fn elapsed(&self) -> Duration {
        // The one stands still in a suspended machine, the other may be set.
        self.running.elapsed().max(self.of_day.elapsed().unwrap_or_default())
    }
}
