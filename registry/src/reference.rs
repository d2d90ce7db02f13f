//! `host[:port]/repository[:tag|@digest]`.

use std::fmt;
use std::net::IpAddr;

use symseal_bundle::Digest;

use crate::Tls;

/// The tag of a reference that names none.
const DEFAULT_TAG: &str = "latest";

/// A place in a registry.
///
/// Unlike with container tools the host is not optional: nothing is sent to a registry that was not named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    repository: String,
    target: Target,
}

/// What of a repository is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A name that may move.
    Tag(String),
    /// Content.
    Digest(Digest),
}

impl Reference {
    /// Reads a reference. A missing tag means `latest`.
    ///
    /// # Errors
    /// [`ParseReferenceError`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ParseReferenceError> {
        let error = |problem: String| ParseReferenceError { text: text.to_owned(), problem };
        let (registry, path) = text.split_once('/').ok_or_else(|| error("it names no host".to_owned()))?;
        let is_host = registry == "localhost" || registry.contains(['.', ':']);
        if !is_host {
            return Err(error(format!("{registry:?} is no host: write the registry's address before the first slash")));
        }
        // oci-client knows the grammar; the host's form is checked above, so that it cannot fall back to docker.io.
        let parsed: oci_client::Reference = match text.strip_prefix('[') {
            // It does not know IPv6 addresses: any host serves to check the rest.
            Some(_) => format!("localhost/{path}").parse(),
            None => text.parse(),
        }
        .map_err(|source: oci_client::ParseError| error(source.to_string()))?;
        let target = match (parsed.digest(), parsed.tag()) {
            (Some(digest), _) => Target::Digest(digest.parse().map_err(|source| error(format!("{source}")))?),
            (None, tag) => Target::Tag(tag.unwrap_or(DEFAULT_TAG).to_owned()),
        };
        Ok(Self { registry: registry.to_owned(), repository: parsed.repository().to_owned(), target })
    }

    /// Host and port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository's name.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag or digest.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The tag, if one is meant.
    pub fn tag(&self) -> Option<&str> {
        match &self.target {
            Target::Tag(tag) => Some(tag),
            Target::Digest(_) => None,
        }
    }

    /// The same repository's content with this digest.
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { target: Target::Digest(digest), ..self.clone() }
    }

    /// Where the registry's API is, without a slash at the end.
    pub(crate) fn base_url(&self, tls: Tls) -> String {
        let scheme = match tls {
            Tls::ByPlace if is_loopback(&self.registry) => "http",
            Tls::Never => "http",
            Tls::ByPlace | Tls::Always => "https",
        };
        format!("{scheme}://{}", self.registry)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}{}", self.registry, self.repository, self.target)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => write!(f, ":{tag}"),
            Self::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

impl std::str::FromStr for Reference {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// A text that is no reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no reference: {problem}; expected host[:port]/repository[:tag|@sha256:…]")]
pub struct ParseReferenceError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Whether a registry is on this machine: only then is it spoken to without TLS.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => registry.rsplit_once(':').map_or(registry, |(host, _)| host),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, registry: &str, repository: &str, target: &str, url: &str) {
        let reference = Reference::parse(text).unwrap();
        assert_eq!(reference.registry(), registry);
        assert_eq!(reference.repository(), repository);
        assert_eq!(reference.target().to_string(), target);
        assert_eq!(reference.base_url(Tls::ByPlace), url);
    }

    #[test]
    fn host_port_repository_and_target_are_told_apart() {
        let digest = Digest::of(b"x");
        check("localhost:5000/a/b:v1", "localhost:5000", "a/b", ":v1", "http://localhost:5000");
        check("127.0.0.1:80/a", "127.0.0.1:80", "a", ":latest", "http://127.0.0.1:80");
        check("ghcr.io/o/r:1.2", "ghcr.io", "o/r", ":1.2", "https://ghcr.io");
        check("[::1]:5000/a:v", "[::1]:5000", "a", ":v", "http://[::1]:5000");
        check(&format!("r.example/a@{digest}"), "r.example", "a", &format!("@{digest}"), "https://r.example");
        check(&format!("r.example/a:v@{digest}"), "r.example", "a", &format!("@{digest}"), "https://r.example");
        check("10.0.0.1/a", "10.0.0.1", "a", ":latest", "https://10.0.0.1");
    }

    #[test]
    fn what_names_no_host_or_breaks_the_grammar_is_refused() {
        for text in [
            "",
            "a",
            "a/b",
            "/a",
            "localhost:5000/",
            "localhost/A",
            "localhost/a:",
            "localhost/a@sha256:1",
            "localhost/a:.x",
            "localhost/a@md5:d41d8cd98f00b204e9800998ecf8427e",
        ] {
            let error = Reference::parse(text).unwrap_err();
            assert!(error.to_string().contains("expected host[:port]/repository"), "{error}");
        }
    }

    #[test]
    fn a_reference_prints_as_it_was_written() {
        for text in ["localhost:5000/a/b:v1", "[::1]:5000/a:v"] {
            assert_eq!(Reference::parse(text).unwrap().to_string(), text);
        }
    }
}
