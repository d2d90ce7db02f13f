//! Who keeps silent, and is left alone for a while.

use reqwest::Url;

use super::remembered::Remembered;

/// Hosts that cannot be reached or keep silent, by scheme, name and port. Which server was asked is no matter: one that sends its clients
/// to a dead host is alive itself.
#[derive(Debug, Default)]
pub(super) struct SilentHosts(Remembered<()>);

impl SilentHosts {
    /// Whether the host of a URL is left alone.
    pub(super) fn contain(&self, url: &Url) -> bool {
        self.0.get(&host_of(url)).is_some()
    }

    /// The host of a URL cannot be reached, or keeps silent. One that answers, be it with an error, is asked for the next file: what came
    /// before, or beside it, decides nothing.
    pub(super) fn note(&self, url: &Url) {
        self.0.note(host_of(url), ());
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
