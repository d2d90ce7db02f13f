//! The time of day, as what is written down has it.

use std::time::{SystemTime, UNIX_EPOCH};

use symseal_seal::UtcSeconds;

/// The time by this machine's clock.
pub(crate) fn now() -> UtcSeconds {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UtcSeconds(i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX))
}
