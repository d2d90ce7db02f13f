//! What a request shows to say who sends it.

use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Request, Uri, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The longest header that is looked at, in bytes: a session token of a caller with many grants.
const SHOWN_LIMIT: usize = 8 << 10;

/// What was shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    /// Nothing.
    None,
    /// Something that holds no token.
    Unreadable,
    /// What may be a token.
    Token(String),
}

/// Reads `Authorization`. Of `Basic` the password counts, as registry clients insist on a user's name; who gives an empty
/// password may give the token as the name.
pub(super) fn credentials(headers: &HeaderMap) -> Credentials {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Credentials::None };
    if all.next().is_some() {
        // A proxy may have gone by another one.
        return Credentials::Unreadable;
    }
    let Some((scheme, shown)) = value.to_str().ok().filter(|text| text.len() <= SHOWN_LIMIT).and_then(split) else {
        return Credentials::Unreadable;
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        return Credentials::Token(shown.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Credentials::Unreadable;
    }
    let decoded = STANDARD.decode(shown).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded.as_deref().and_then(|pair| pair.split_once(':')) {
        Some((name, "")) => Credentials::Token(name.to_owned()),
        Some((_, password)) => Credentials::Token(password.to_owned()),
        None => Credentials::Unreadable,
    }
}

/// What may be a token in `Authorization`.
pub(crate) fn shown_token(headers: &HeaderMap) -> Option<String> {
    match credentials(headers) {
        Credentials::Token(text) => Some(text),
        Credentials::None | Credentials::Unreadable => None,
    }
}

fn split(text: &str) -> Option<(&str, &str)> {
    let (scheme, shown) = text.trim().split_once(' ')?;
    Some((scheme, shown.trim()))
}

/// The token that a request's path began with.
#[derive(Clone)]
pub(crate) struct PathToken(String);

impl PathToken {
    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// Puts the token before the paths that an answer leads to, so that whoever follows them is known there too.
    pub(crate) fn put_back(&self, answer: &mut HeaderMap) {
        for (name, opening) in [(header::LOCATION, ""), (header::LINK, "<")] {
            let Some(value) = answer.get(&name).and_then(|value| value.to_str().ok()) else { continue };
            let Some(path) = value.strip_prefix(opening).filter(|path| path.starts_with('/')) else { continue };
            if let Ok(value) = HeaderValue::try_from(format!("{opening}{PATH_TOKEN}{}{path}", self.0)) {
                answer.insert(name, value);
            }
        }
    }
}

/// The part of a path before its token.
pub(super) const PATH_TOKEN: &str = "/t/";

/// Takes `/t/<token>` off the path and keeps it beside the request, so that no log shows it.
pub(crate) fn take_path_token<B>(request: &mut Request<B>) -> Option<PathToken> {
    let text = request.uri().path_and_query().map(PathAndQuery::as_str)?;
    let (token, rest) = text.strip_prefix(PATH_TOKEN)?.split_once('/')?;
    let token = PathToken(token.to_owned());
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(format!("/{rest}").parse().ok()?);
    let uri = Uri::from_parts(parts).ok()?;
    *request.uri_mut() = uri;
    request.extensions_mut().insert(token.clone());
    Some(token)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn shown(value: &str) -> Credentials {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        credentials(&headers)
    }

    #[test]
    fn bearer_and_basic_hold_a_token() {
        let token = |text: &str| Credentials::Token(text.to_owned());
        assert_eq!(credentials(&HeaderMap::new()), Credentials::None);
        let mut two = HeaderMap::new();
        two.append(header::AUTHORIZATION, "Bearer abc".parse().unwrap());
        two.append(header::AUTHORIZATION, "Bearer abd".parse().unwrap());
        assert_eq!(credentials(&two), Credentials::Unreadable);
        assert_eq!(shown("Bearer abc"), token("abc"));
        assert_eq!(shown("bearer  abc "), token("abc"));
        // ci:abc, abc:
        assert_eq!(shown("Basic Y2k6YWJj"), token("abc"));
        assert_eq!(shown("Basic YWJjOg=="), token("abc"));
        for bad in ["Bearer", "Basic !", "Basic YWJj", "Digest abc", ""] {
            assert_eq!(shown(bad), Credentials::Unreadable, "{bad}");
        }
    }

    #[test]
    fn a_path_token_is_taken_off_the_path() {
        let mut request = Request::new(());
        *request.uri_mut() = "/t/secret/buildid/ab/source//a%20b?x=1".parse().unwrap();
        take_path_token(&mut request);
        assert_eq!(request.uri(), "/buildid/ab/source//a%20b?x=1");
        assert_eq!(request.extensions().get::<PathToken>().unwrap().secret(), "secret");
        for other in ["/t/secret", "/tt/a/b", "/"] {
            *request.uri_mut() = other.parse().unwrap();
            assert!(take_path_token(&mut request).is_none());
            assert_eq!(request.uri(), other);
        }
    }

    #[test]
    fn what_an_answer_leads_to_is_below_the_token_as_well() {
        let put_back = |name: HeaderName, value: &'static str| {
            let mut headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static(value))]);
            PathToken("secret".to_owned()).put_back(&mut headers);
            headers[name].to_str().unwrap().to_owned()
        };
        assert_eq!(put_back(header::LOCATION, "/v2/a/blobs/uploads/1"), "/t/secret/v2/a/blobs/uploads/1");
        assert_eq!(
            put_back(header::LINK, "</v2/a/tags/list?n=1>; rel=\"next\""),
            "</t/secret/v2/a/tags/list?n=1>; rel=\"next\""
        );
        for elsewhere in ["./", "../../app/1/a.sym", "https://h.example/"] {
            assert_eq!(put_back(header::LOCATION, elsewhere), elsewhere);
        }
    }
}
