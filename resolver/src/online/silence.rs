//! Who keeps silent, or fails only after a while, and is left alone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::Url;

use super::remembered::Remembered;

/// Who fails later than that would cost as much for the next file.
const SLOW: Duration = Duration::from_secs(2);

/// So do failures that took that together, with no answer between them: less than a time-out, and more than a server that is merely busy costs.
const SLOW_TOGETHER: Duration = Duration::from_secs(10);

/// Hosts whose failures are counted: servers that a person has set, and where they send their clients.
const HOSTS: usize = 1024;

/// Hosts that cannot be reached, keep silent, or take their time to fail, by scheme, name and port. Which server was asked is no matter: one that sends its clients
/// to a dead host is alive itself.
#[derive(Debug, Default)]
pub(super) struct SilentHosts {
    left_alone: Remembered<()>,
    /// By host: what its failures took since it last gave an answer.
    failed_for: Mutex<HashMap<String, Duration>>,
}

impl SilentHosts {
    /// Whether the host of a URL is left alone.
    pub(super) fn contain(&self, url: &Url) -> bool {
        self.left_alone.get(&host_of(url)).is_some()
    }

    /// The host of a URL cannot be reached, keeps silent, or is slow to fail. One that answers at once, be it with an error, is asked for the next file.
    pub(super) fn note(&self, url: &Url) {
        self.left_alone.note(host_of(url), ());
    }

    /// Counts a failure that took so long. Whether its host is to be left alone for it.
    pub(super) fn is_slow_to_fail(&self, url: &Url, waited: Duration) -> bool {
        let mut hosts = self.failed_for.lock().unwrap_or_else(PoisonError::into_inner);
        let host = host_of(url);
        let so_far = hosts.get(&host).copied().unwrap_or_default();
        let together = so_far.saturating_add(waited);
        if hosts.len() < HOSTS || so_far > Duration::ZERO {
            hosts.insert(host, together);
        }
        waited > SLOW || together > SLOW_TOGETHER
    }

    /// The host of a URL gave an answer: what it took to fail before does not count.
    pub(super) fn forgive(&self, url: &Url) {
        self.failed_for.lock().unwrap_or_else(PoisonError::into_inner).remove(&host_of(url));
    }
}

/// Scheme, name and port.
pub(super) fn host_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_keeps_silent_is_left_alone_whatever_is_asked_of_it() {
        let url = |text: &str| Url::parse(text).unwrap();
        let silent = SilentHosts::default();
        assert!(!silent.contain(&url("http://host/one")));
        silent.note(&url("http://me:secret@host/one?x"));
        assert!(silent.contain(&url("http://host/other")));
        for other in ["https://host/one", "http://host:81/one", "http://other/one"] {
            assert!(!silent.contain(&url(other)), "{other}");
        }
    }

    #[test]
    fn failures_that_took_their_time_together_count_and_an_answer_forgives_them() {
        let (url, other) = (Url::parse("http://host/one").unwrap(), Url::parse("http://other/one").unwrap());
        let silent = SilentHosts::default();
        let fails = |url: &Url, tenths: u64| silent.is_slow_to_fail(url, Duration::from_millis(100 * tenths));
        assert!(fails(&url, 21) && !fails(&other, 20));
        silent.forgive(&url);
        assert!((0..5).all(|_| !fails(&url, 19)) && fails(&url, 19));
        silent.forgive(&url);
        assert!((0..5).all(|_| !fails(&url, 19)) && !fails(&other, 19));
    }
}
