//! Who keeps silent, or fails only after a while, and is left alone.

use std::time::Duration;

use reqwest::Url;

use super::remembered::Remembered;

/// Who fails later than that would cost as much for the next file.
pub(super) const SLOW: Duration = Duration::from_secs(2);

/// Hosts that cannot be reached, keep silent, or take their time to fail, by scheme, name and port. Which server was asked is no matter: one that sends its clients
/// to a dead host is alive itself.
#[derive(Debug, Default)]
pub(super) struct SilentHosts(Remembered<()>);

impl SilentHosts {
    /// Whether the host of a URL is left alone.
    pub(super) fn contain(&self, url: &Url) -> bool {
        self.0.get(&host_of(url)).is_some()
    }

    /// The host of a URL cannot be reached, keeps silent, or took longer than [`SLOW`] to fail. One that answers at once, be it with an error, is
    /// asked for the next file: what came before, or beside it, decides nothing.
    pub(super) fn note(&self, url: &Url) {
        self.0.note(host_of(url), ());
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
}
