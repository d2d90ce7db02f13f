//! One server, and whether it is dead.

use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Url;

use super::OnlineError;

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    base: Url,
    is_dead: AtomicBool,
}

impl Server {
    pub(super) fn parse(text: &str) -> Result<Self, OnlineError> {
        let wrong = |problem: String| OnlineError::Url { url: without_secrets(text), problem };
        let mut base = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(wrong(format!("found the scheme {}", base.scheme())));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(Self { base, is_dead: AtomicBool::new(false) })
    }

    /// The URL of a path, which has no slash at its start.
    pub(super) fn url(&self, path: &str) -> Option<Url> {
        self.base.join(path).ok().filter(|url| url.as_str().starts_with(self.base.as_str()))
    }

    /// The URL without what is secret in it.
    pub(super) fn name(&self) -> String {
        shown(&self.base)
    }

    /// Whether it is not asked any more in this run.
    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// It cannot be reached, or keeps silent. One that answers, be it with an error, is asked for the next file: what came before, or beside it,
    /// decides nothing.
    pub(super) fn is_silent(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }
}

/// A URL without user, password and query.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.to_string()
}

fn without_secrets(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_and_its_paths_stay_below_it() {
        for wrong in ["", "server", "ftp://server/", "file:///x", "http://"] {
            assert!(Server::parse(wrong).is_err(), "{wrong}");
        }
        let server = Server::parse("https://me:secret@host.example/debug").unwrap();
        assert_eq!(server.name(), "https://host.example/debug/");
        let url = server.url("buildid/ab/debuginfo").unwrap();
        assert_eq!(shown(&url), "https://host.example/debug/buildid/ab/debuginfo");
        for outside in ["../x", "//other.example/x", "https://other.example/", "/x"] {
            assert!(server.url(outside).is_none(), "{outside}");
        }
        let error = Server::parse("htp://me:secret@host/").unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("host"), "{error}");
    }

    #[test]
    fn a_server_that_keeps_silent_is_left_alone() {
        let server = Server::parse("http://host/").unwrap();
        assert!(!server.is_dead());
        server.is_silent();
        assert!(server.is_dead());
    }
}
