//! One server, and what is sent to it.

use std::fmt;

use reqwest::Url;
use reqwest::header::HeaderMap;

use super::OnlineError;
use crate::without_secrets;

/// A server.
pub(super) struct Server {
    base: Url,
    /// What a person gave for this server, and for no other: it may be secret.
    headers: HeaderMap,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("base", &self.name()).field("headers", &self.headers.len()).finish()
    }
}

impl Server {
    pub(super) fn parse(text: &str, headers: HeaderMap) -> Result<Self, OnlineError> {
        let wrong = |problem: String| OnlineError::Url { url: without_secrets(text), problem };
        let mut base = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(wrong("found another scheme, or no host".to_owned()));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(Self { base, headers })
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
}

/// A URL without user, password, query and tokens.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = (url.set_username(""), url.set_password(None));
    without_secrets(url.as_str())
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
        let debug = format!("{server:?}");
        assert!(debug.contains("host.example") && !debug.contains("secret"), "{debug}");
        for wrong in ["htp://me:secret@host/", "secret://host/", "http://me:sec/secret@host/", "secret:pass//host/"] {
            let error = Server::parse(wrong, HeaderMap::new()).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("http://HOST"), "{error}");
        }
    }
}
