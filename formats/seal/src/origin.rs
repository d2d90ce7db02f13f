//! A log's origin: the name under which it signs, and the host that Sigstore clients know it by.

use std::fmt;
use std::str::FromStr;

use crate::encoding::decimal;

/// The name of a log, in one of two forms:
///
/// * a bare host name, with no scheme, port or path: embedded logs and Rekor v2. Sigstore clients compare
///   it with the host of the trusted root's `baseUrl`, so anything else fails in them;
/// * `<host> - <tree id>`: one tree (shard) of a Rekor v1, which signs as `<host>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    text: String,
    /// How much of the text is the host.
    host: usize,
}

/// The text is no origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a log origin that is a bare, unique host name such as log-0123456789abcdef.symseal.internal (lower-case letters, digits, '-' and '.'; never localhost or an IP address), or of a Rekor v1 \"<host> - <tree id>\", found {found:?}"
)]
pub struct OriginError {
    found: String,
}

/// The longest host name (RFC 1035).
const MAX_HOST_BYTES: usize = 253;
/// The longest label of one.
const MAX_LABEL_BYTES: usize = 63;

impl Origin {
    /// The origin as text: the first line of the log's checkpoints.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host name: the name in its signature lines, and the host of its `baseUrl`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.get(..self.host).unwrap_or_default()
    }

    /// Whether it is a tree of a Rekor v1.
    #[must_use]
    pub fn is_rekor_v1(&self) -> bool {
        self.host < self.text.len()
    }
}

/// What stands between host and tree id in the checkpoints of Rekor v1.
const TREE_ID_SEPARATOR: &str = " - ";

fn is_host(text: &str) -> bool {
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
        let (host, tree_id) = match text.split_once(TREE_ID_SEPARATOR) {
            Some((host, tree_id)) => (host, Some(tree_id)),
            None => (text, None),
        };
        // Trillian's tree ids are positive 63-bit numbers.
        let is_tree_id = |id: &str| decimal(id).is_some_and(|id| id > 0 && i64::try_from(id).is_ok());
        if is_host(host) && tree_id.is_none_or(is_tree_id) {
            Ok(Self { text: text.to_owned(), host: host.len() })
        } else {
            Err(OriginError { found: text.chars().take(80).collect() })
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
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
            "rekor.example - 0",
            "rekor.example - 0123",
            "rekor.example - +123",
            "rekor.example - 9223372036854775808",
            "rekor.example -  123",
            "rekor.example - 123 - 4",
            "rekor.example - ",
            "rekor.example-123 ",
            "log+1.example",
            "log example",
            "lög.example",
            long.as_str(),
        ] {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tree_of_a_rekor_v1_signs_under_its_host() {
        let origin: Origin = "rekor.example - 1193050959916656506".parse().unwrap();
        assert_eq!((origin.as_str(), origin.name()), ("rekor.example - 1193050959916656506", "rekor.example"));
        assert!(origin.is_rekor_v1());
        let origin: Origin = "rekor.example".parse().unwrap();
        assert_eq!((origin.as_str(), origin.name()), ("rekor.example", "rekor.example"));
        assert!(!origin.is_rekor_v1());
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
