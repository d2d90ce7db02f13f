//! Requests that a page of somebody else's has a browser send, which reaches what that page's owner does not.
//!
//! Two ways lead here. A page may send a form's worth of bytes anywhere without reading the answer, and the browser adds a password that it was told once;
//! and a page under a name of its own may have that name lead to an address of this machine, and is then no foreign page to the browser. (Fetch standard,
//! "CORS protocol and HTTP caches" and "Fetch metadata"; "DNS rebinding")

use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::Response;

use crate::config::{AccessConfig, Config};
use crate::endpoints::plain;
use crate::http::{BreakConnection, is_this_machine, name_of_host};
use crate::metrics::Face;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// By what names a server is reached.
#[derive(Debug)]
pub(crate) struct OwnNames {
    /// Whoever reaches it may do everything, and that is meant to be this machine: it listens there, and has no other name.
    is_for_this_machine: bool,
    /// The name or address in the URL that the operator says.
    public: Option<String>,
}

impl OwnNames {
    pub(crate) fn of(config: &Config) -> Self {
        // As clients read it: names of other scripts become those that are asked for.
        let url = config.public_url.as_deref().and_then(|url| reqwest::Url::parse(url).ok());
        let is_open = config.access == AccessConfig::Open && config.listen.ip().to_canonical().is_loopback();
        Self {
            is_for_this_machine: is_open && config.public_url.is_none(),
            public: url.and_then(|url| Some(url.host_str()?.trim_matches(['[', ']']).to_ascii_lowercase())),
        }
    }

    /// What is answered to a request that a foreign page sent; `None` where it is nobody's.
    pub(crate) fn refusal(&self, face: Face, method: &Method, headers: &HeaderMap) -> Option<Response> {
        let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or("?"));
        if self.is_for_this_machine && hosts.any(|host| !is_this_machine(host)) {
            let mut refusal = plain(
                StatusCode::MISDIRECTED_REQUEST,
                "this server lets this machine do everything, and is called localhost or by its loopback address; where others are to reach it through a proxy, set public_url",
            );
            if matches!(face, Face::Debuginfod | Face::Symbols) {
                // Debuggers keep any answer as "there is no such file".
                refusal.extensions_mut().insert(BreakConnection);
            }
            return Some(refusal);
        }
        let changes = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
        // Pages of others may ask for names: profilers do.
        if changes && face != Face::Symbolicate && self.is_foreign(headers) {
            return Some(plain(StatusCode::FORBIDDEN, "a page of another site may not write here"));
        }
        None
    }

    /// Whether a browser says that a page of another site sends it. Other programs say nothing of pages.
    fn is_foreign(&self, headers: &HeaderMap) -> bool {
        if let Some(site) = text(headers, &FETCH_SITE) {
            return !matches!(site, "same-origin" | "none");
        }
        // Told of encrypted connections and of this machine alone; the origin is told always.
        let Some(origin) = text(headers, &header::ORIGIN) else { return false };
        let Some((_, host)) = origin.split_once("://") else { return true };
        // A proxy may put its own in the place of the name that the browser used.
        let asked = [header::HOST, FORWARDED_HOST].into_iter().filter_map(|name| text(headers, &name));
        let is_asked = asked.into_iter().any(|asked| asked.eq_ignore_ascii_case(host));
        !is_asked && self.public.as_deref() != Some(name_of_host(host).to_ascii_lowercase().as_str())
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    // What is no text is no name of ours.
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn with_tokens() -> AccessConfig {
        AccessConfig::Tokens { anonymous_read: Vec::new() }
    }

    fn names(access: AccessConfig, listen: [u8; 4], public_url: Option<&str>) -> OwnNames {
        let config = Config::new("data", (listen, 80).into());
        OwnNames::of(&Config { access, public_url: public_url.map(str::to_owned), ..config })
    }

    fn status(names: &OwnNames, method: &Method, face: Face, headers: &[(&'static str, &str)]) -> Option<u16> {
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        names.refusal(face, method, &headers.collect()).map(|answer| answer.status().as_u16())
    }

    #[test]
    fn an_open_server_on_loopback_is_called_by_names_of_this_machine_or_as_the_operator_says() {
        let loopback = [127, 0, 0, 1];
        let asked = |names: &OwnNames, host: &str| status(names, &Method::GET, Face::Oci, &[("host", host)]);
        let open = names(AccessConfig::Open, loopback, None);
        for (host, expected) in
            [("localhost:80", None), ("127.0.0.1", None), ("[::1]:80", None), ("evil.example:80", Some(421))]
        {
            assert_eq!(asked(&open, host), expected, "{host}");
        }
        assert_eq!(status(&open, &Method::GET, Face::Oci, &[]), None, "HTTP/1.0 has no Host");
        // A proxy calls it by whatever name it has for it.
        let behind_proxy = names(AccessConfig::Open, loopback, Some("https://symbols.example"));
        let to_others = [names(AccessConfig::Open, [10, 0, 0, 1], None), names(with_tokens(), loopback, None)];
        for others in to_others.iter().chain([&behind_proxy]) {
            assert_eq!(asked(others, "backend"), None);
        }
        let for_debuggers = open.refusal(
            Face::Debuginfod,
            &Method::GET,
            &[(header::HOST, HeaderValue::from_static("backend"))].into_iter().collect(),
        );
        assert!(for_debuggers.unwrap().extensions().get::<BreakConnection>().is_some());
    }

    #[test]
    fn what_a_page_of_another_site_sends_changes_nothing() {
        let own = names(with_tokens(), [10, 0, 0, 1], Some("https://symbols.example"));
        let host = ("host", "10.0.0.1:8790");
        for (headers, expected) in [
            (&[host][..], None),
            (&[host, ("sec-fetch-site", "same-origin"), ("origin", "https://proxy.example")], None),
            (&[host, ("sec-fetch-site", "none")], None),
            (&[host, ("sec-fetch-site", "cross-site")], Some(403)),
            (&[host, ("sec-fetch-site", "same-site")], Some(403)),
            (&[host, ("origin", "http://10.0.0.1:8790")], None),
            (&[host, ("origin", "https://symbols.example")], None),
            (&[host, ("origin", "http://evil.example")], Some(403)),
            (&[host, ("origin", "null")], Some(403)),
            (&[host, ("origin", "https://a.example"), ("x-forwarded-host", "a.example")], None),
        ] {
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                assert_eq!(status(&own, &method, Face::Oci, headers), expected, "{method} {headers:?}");
            }
            assert_eq!(status(&own, &Method::GET, Face::Oci, headers), None);
            assert_eq!(status(&own, &Method::POST, Face::Symbolicate, headers), None);
        }
    }
}
