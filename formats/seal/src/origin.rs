//! A log's origin: the name under which it signs, and the host that Sigstore clients know it by.

use std::fmt;
use std::str::FromStr;

/// A bare host name: no scheme, port or path. Sigstore clients compare it with the host of the
/// trusted root's `baseUrl`, so anything else fails in them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(String);

/// The text is no origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a log origin that is a bare, unique host name such as log-0123456789abcdef.symseal.internal (lower-case letters, digits, '-' and '.'; never localhost or an IP address), found {found:?}"
)]
pub struct OriginError {
    found: String,
}

/// The longest host name (RFC 1035).
const MAX_HOST_BYTES: usize = 253;
/// The longest label of one.
const MAX_LABEL_BYTES: usize = 63;

impl Origin {
    /// The origin as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_origin(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= MAX_HOST_BYTES
        && text.split('.').all(is_label)
        // A numeric last label makes it an IPv4 address; localhost is everybody's name.
        && !last.bytes().all(|byte| byte.is_ascii_digit())
        && last != "localhost"
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        if is_origin(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(OriginError { found: text.chars().take(80).collect() })
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The host of an http or https URL, as `url.Parse(…).Hostname()` of Sigstore's clients gives it;
/// `None` for URLs with user information, which no log has.
#[must_use]
pub fn host_of_url(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port),
        None => (authority, ""),
    };
    let plain = !host.is_empty() && !host.contains('@') && port.bytes().all(|byte| byte.is_ascii_digit());
    plain.then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_unique_host_names_are_origins() {
        for good in ["log-0123456789abcdef.symseal.internal", "rekor-local", "log2025-1.rekor.sigstore.dev"] {
            assert!(good.parse::<Origin>().is_ok(), "{good}");
        }
        let long = format!("{}.example", "a".repeat(64));
        for bad in [
            "",
            "localhost",
            "log.localhost",
            "127.0.0.1",
            "[::1]",
            "log.example/log1",
            "log.example:443",
            "https://log.example",
            "Log.example",
            "log.example.",
            ".example",
            "log..example",
            "-log.example",
            "log-.example",
            "rekor.example - 123",
            "log+1.example",
            "log example",
            "lög.example",
            long.as_str(),
        ] {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_host_of_a_url_has_no_port_and_no_path() {
        for (url, host) in [
            ("https://log.example", Some("log.example")),
            ("http://log.example:3003/api", Some("log.example")),
            ("https://log.example?x", Some("log.example")),
            ("log.example", None),
            ("https://", None),
            ("https://u@log.example", None),
            ("https://log.example:80a", None),
            ("file:///log", None),
        ] {
            assert_eq!(host_of_url(url), host, "{url}");
        }
    }
}
