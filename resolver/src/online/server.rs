//! One server, and whether it is dead.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Url;
use reqwest::header::HeaderMap;

use super::OnlineError;

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    base: Url,
    /// What a person gave for this server, and for no other: it may be secret.
    headers: HeaderMap,
    /// When it fell silent.
    silent_since: Mutex<Option<Instant>>,
}

/// For so long a server that fell silent is left alone: for longer than a command runs, and not for as long as a profiler does.
const LEFT_ALONE: Duration = Duration::from_secs(600);

impl Server {
    pub(super) fn parse(text: &str, headers: HeaderMap) -> Result<Self, OnlineError> {
        let wrong = |problem: String| OnlineError::Url { url: without_secrets(text), problem };
        let mut base = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(wrong(format!("found the scheme {}", base.scheme())));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(Self { base, headers, silent_since: Mutex::default() })
    }

    /// The URL of a path, which has no slash at its start.
    pub(super) fn url(&self, path: &str) -> Option<Url> {
        self.base.join(path).ok().filter(|url| url.as_str().starts_with(self.base.as_str()))
    }

    /// The URL without what is secret in it.
    pub(super) fn name(&self) -> String {
        shown(&self.base)
    }

    /// What is sent to it with each request.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Whether it is left alone.
    pub(super) fn is_dead(&self) -> bool {
        let since = *self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < LEFT_ALONE)
    }

    /// It cannot be reached, or keeps silent. One that answers, be it with an error, is asked for the next file: what came before, or beside it,
    /// decides nothing.
    pub(super) fn is_silent(&self) {
        *self.silent_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
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
            assert!(Server::parse(wrong, HeaderMap::new()).is_err(), "{wrong}");
        }
        let server = Server::parse("https://me:secret@host.example/debug", HeaderMap::new()).unwrap();
        assert_eq!(server.name(), "https://host.example/debug/");
        let url = server.url("buildid/ab/debuginfo").unwrap();
        assert_eq!(shown(&url), "https://host.example/debug/buildid/ab/debuginfo");
        for outside in ["../x", "//other.example/x", "https://other.example/", "/x"] {
            assert!(server.url(outside).is_none(), "{outside}");
        }
        let error = Server::parse("htp://me:secret@host/", HeaderMap::new()).unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("host"), "{error}");
    }

    #[test]
    fn a_server_that_keeps_silent_is_left_alone() {
        let server = Server::parse("http://host/", HeaderMap::new()).unwrap();
        assert!(!server.is_dead());
        server.is_silent();
        assert!(server.is_dead());
    }
}
