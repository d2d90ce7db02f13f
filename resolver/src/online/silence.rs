//! Who keeps silent, and is left alone for a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Url;

/// For so long a host that fell silent is left alone: for longer than a command runs, and not for as long as a profiler does.
const LEFT_ALONE: Duration = Duration::from_secs(600);

/// Hosts that are remembered. Each of them has cost a time-out, so that nobody comes by as many in that while.
const HOSTS: usize = 4096;

/// Hosts that cannot be reached or keep silent, by scheme, name and port. Which server was asked is no matter: one that sends its clients
/// to a dead host is alive itself.
#[derive(Debug, Default)]
pub(super) struct SilentHosts(Mutex<HashMap<String, Instant>>);

impl SilentHosts {
    /// Whether the host of a URL is left alone.
    pub(super) fn contain(&self, url: &Url) -> bool {
        let hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(&host_of(url)).is_some_and(|since| since.elapsed() < LEFT_ALONE)
    }

    /// The host of a URL cannot be reached, or keeps silent. One that answers, be it with an error, is asked for the next file: what came
    /// before, or beside it, decides nothing.
    pub(super) fn note(&self, url: &Url) {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS {
            hosts.retain(|_, since| since.elapsed() < LEFT_ALONE);
        }
        if hosts.len() < HOSTS {
            hosts.insert(host_of(url), Instant::now());
        }
    }
}

fn host_of(url: &Url) -> String {
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
}
