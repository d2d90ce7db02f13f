//! Where a server may lead its client.

use reqwest::Url;
use reqwest::redirect::Policy;

/// Redirections of one request that are followed where anything is allowed, as HTTP clients do by default.
const REDIRECTIONS: usize = 10;

/// Where a registry's redirections, and the server of tokens that it names, may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Redirections {
    /// Anywhere: the registry was named by whoever runs the program.
    #[default]
    Anywhere,
    /// At the same server, or by https at a host with a name that has a dot in it: a registry must not make us ask machines that it cannot
    /// reach itself.
    Named,
}

/// The policy of [`Redirections::Named`] for a client of one's own, which follows `limit` redirections.
pub fn redirects(limit: usize) -> Policy {
    Policy::custom(move |attempt| {
        let is_allowed = attempt.previous().first().is_some_and(|first| may_lead(first, attempt.url()));
        match attempt.previous().len() {
            hops if hops > limit => attempt.error("too many redirections"),
            _ if is_allowed => attempt.follow(),
            _ => attempt.error("it leads to another place without https and a host name"),
        }
    })
}

impl Redirections {
    pub(crate) fn policy(self) -> Policy {
        match self {
            Self::Anywhere => Policy::limited(REDIRECTIONS),
            Self::Named => redirects(REDIRECTIONS),
        }
    }

    /// Whether a server at `from` may lead to `to`.
    pub(crate) fn allow(self, from: &Url, to: &Url) -> bool {
        self == Self::Anywhere || may_lead(from, to)
    }
}

fn may_lead(from: &Url, to: &Url) -> bool {
    from.origin() == to.origin() || to.scheme() == "https" && to.domain().is_some_and(is_named_for_all)
}

/// Whether a host name means the same to everybody: it has a dot within it, and is no name of the machine itself (RFC 6761, 6.3).
fn is_named_for_all(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name.contains('.') && name.rsplit('.').next() != Some("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_leads_to_itself_and_to_named_hosts_by_https() {
        let from = Url::parse("http://127.0.0.1:5000/v2/").unwrap();
        for (to, expected) in [
            ("http://127.0.0.1:5000/blob", true),
            ("https://store.example/blob", true),
            ("http://127.0.0.1:5001/blob", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("https://169.254.169.254/latest/meta-data", false),
            ("https://[::1]/", false),
            ("http://store.example/blob", false),
            ("https://localhost/", false),
            ("https://localhost./", false),
            ("https://intranet./", false),
            ("https://app.localhost/", false),
            ("https://app.localhost./", false),
            ("https://store.example./blob", true),
            ("file:///etc/passwd", false),
        ] {
            let to = Url::parse(to).unwrap();
            assert_eq!(Redirections::Named.allow(&from, &to), expected, "{to}");
            assert!(Redirections::Anywhere.allow(&from, &to));
        }
    }
}
