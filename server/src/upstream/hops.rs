//! How many servers a request came through (`X-Forwarded-For`), so that servers that ask each other come to an end.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// As many commas in `X-Forwarded-For` are too many (elfutils, `--forwarded-ttl-limit`).
const LIMIT: usize = 8;
/// A longer list is one that nobody should add to, in bytes.
const LENGTH_LIMIT: usize = 2048;
/// Bytes of a client's name that are passed on.
const AGENT_LIMIT: usize = 200;

/// What elfutils' server says then, word by word: clients and servers may look for it.
pub(crate) const TOO_MANY: &str = "not found, --forwared-ttl-limit reached and will not query the upstream servers";

/// A request's way so far.
#[derive(Debug, Clone)]
pub(crate) struct Hops {
    forwarded_for: String,
    agent: String,
}

impl Hops {
    /// Of a request that came from `peer`.
    pub(crate) fn of(request: &HeaderMap, peer: Option<IpAddr>) -> Self {
        let mut list: Vec<&str> =
            request.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).collect();
        let peer = peer.map(|peer| peer.to_canonical().to_string());
        list.extend(peer.as_deref());
        let agent = request.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        Self { forwarded_for: list.join(", "), agent: agent.chars().take(AGENT_LIMIT).collect() }
    }

    /// Servers before this one.
    pub(crate) fn count(&self) -> usize {
        self.forwarded_for.matches(',').count()
    }

    /// Whether no further server may be asked.
    pub(crate) fn are_too_many(&self) -> bool {
        // The own entry is in the list already.
        self.count() > LIMIT || self.forwarded_for.len() > LENGTH_LIMIT
    }

    /// What the next server is told.
    pub(super) fn headers(&self) -> HeaderMap {
        let ours = concat!("symseal/", env!("CARGO_PKG_VERSION"));
        let agent = if self.agent.is_empty() { ours.to_owned() } else { format!("{ours} ({})", self.agent) };
        let mut headers = HeaderMap::new();
        for (name, value) in [(FORWARDED_FOR, self.forwarded_for.as_str()), (header::USER_AGENT, agent.as_str())] {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_commas_are_too_many() {
        let hops = |list: &str| {
            let request = HeaderMap::from_iter([(FORWARDED_FOR, HeaderValue::from_str(list).unwrap())]);
            Hops::of(&request, Some([127, 0, 0, 1].into()))
        };
        assert_eq!(Hops::of(&HeaderMap::new(), None).count(), 0);
        assert!(!hops("a,b,c,d,e,f,g,h").are_too_many(), "seven commas came in");
        assert!(hops("a,b,c,d,e,f,g,h,i").are_too_many(), "eight commas came in");
        assert!(hops(&"1".repeat(3000)).are_too_many());
        assert_eq!(hops("10.0.0.1").headers()[FORWARDED_FOR], "10.0.0.1, 127.0.0.1");
    }

    #[test]
    fn the_next_server_sees_a_server_and_behind_it_the_client() {
        let request = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static("elfutils/0.188"))]);
        let agent = Hops::of(&request, None).headers()[header::USER_AGENT].to_str().unwrap().to_owned();
        assert!(agent.starts_with("symseal/") && agent.ends_with("(elfutils/0.188)"), "{agent}");
    }
}
