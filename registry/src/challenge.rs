//! What a registry asks for when it answers 401, and the token that a token server gives for it (RFC 9110, "WWW-Authenticate"; the
//! "Docker Registry v2 authentication via central service" that every registry follows).

use std::net::IpAddr;

use oci_client::secrets::RegistryAuth;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use crate::RegistryError;
use crate::session::Failure;
use crate::transfer::gather;

/// The largest answer of a token server that is read, in bytes.
const TOKEN_LIMIT: u64 = 1 << 20;

/// The user name that stands for "the secret is an identity token" in credential files and helpers.
pub(crate) const IDENTITY_TOKEN_USER: &str = "<token>";

/// One way in that a registry offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// User name and password with every request.
    Basic,
    /// A token from a token server.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// The challenges of an answer, in the registry's order; schemes that are not spoken here are left out.
pub(crate) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let lines = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(parse).collect()
}

fn parse(line: &str) -> Vec<Challenge> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let Some((word, after)) = rest.split_at_checked(end) else { break };
        if word.is_empty() && after.is_empty() {
            break;
        }
        match after.strip_prefix('=') {
            Some(value) => {
                let (value, after) = parameter_value(value);
                if let Some((_, parameters)) = found.last_mut() {
                    parameters.push((word.to_ascii_lowercase(), value));
                }
                rest = after;
            }
            None => {
                found.push((word.to_ascii_lowercase(), Vec::new()));
                rest = after;
            }
        }
    }
    found.iter().filter_map(|(scheme, parameters)| Challenge::of(scheme, parameters)).collect()
}

/// A token or a quoted string, and what follows it.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        return text.split_at_checked(end).map_or((String::new(), ""), |(value, rest)| (value.to_owned(), rest));
    };
    let (mut value, mut chars) = (String::new(), quoted.chars());
    while let Some(char) = chars.next() {
        match char {
            '"' => break,
            '\\' => value.extend(chars.next()),
            char => value.push(char),
        }
    }
    (value, chars.as_str())
}

impl Challenge {
    fn of(scheme: &str, parameters: &[(String, String)]) -> Option<Self> {
        let value = |name: &str| parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        match scheme {
            "basic" => Some(Self::Basic),
            "bearer" => Some(Self::Bearer { realm: value("realm")?, service: value("service"), scope: value("scope") }),
            _ => None,
        }
    }
}

/// The header with which to ask again; `None` where there is nothing to offer for a challenge.
///
/// `scopes` are what this session needs; the challenge may name further ones.
pub(crate) async fn answer(
    http: &Client,
    challenge: &Challenge,
    auth: &RegistryAuth,
    scopes: &[String],
) -> Result<Option<HeaderValue>, Failure> {
    match (challenge, auth) {
        (Challenge::Basic, RegistryAuth::Basic(user, password)) => Ok(basic(user, password)),
        (Challenge::Basic, _) => Ok(None),
        (Challenge::Bearer { .. }, RegistryAuth::Bearer(token)) => Ok(bearer(token)),
        (Challenge::Bearer { realm, service, scope }, auth) => {
            let mut wanted: Vec<&str> = scopes.iter().map(String::as_str).collect();
            // Several scopes in one parameter are separated by blanks.
            for scope in scope.iter().flat_map(|scope| scope.split(' ')) {
                if !scope.is_empty() && !wanted.iter().any(|known| covers(known, scope)) {
                    wanted.push(scope);
                }
            }
            token(http, realm, service.as_deref(), &wanted, auth).await.map(|token| bearer(&token))
        }
    }
}

/// Whether a scope such as `repository:a:pull,push` allows what another one asks for.
fn covers(known: &str, other: &str) -> bool {
    match (known.rsplit_once(':'), other.rsplit_once(':')) {
        (Some((known, may)), Some((other, wants))) => {
            known == other && wants.split(',').all(|wants| may.split(',').any(|may| may == wants))
        }
        _ => known == other,
    }
}

async fn token(
    http: &Client,
    realm: &str,
    service: Option<&str>,
    scopes: &[&str],
    auth: &RegistryAuth,
) -> Result<String, Failure> {
    let refused = |problem: &str| {
        let (url, problem) = (realm.to_owned(), format!("as the server of tokens: {problem}"));
        Failure::lasting(RegistryError::Protocol { url, problem })
    };
    let mut url = Url::parse(realm).map_err(|error| refused(&error.to_string()))?;
    if url.scheme() != "https" && !is_loopback(&url) {
        return Err(refused("credentials are not sent without TLS"));
    }
    let request = match auth {
        RegistryAuth::Basic(user, secret) if user == IDENTITY_TOKEN_USER => {
            let mut form = vec![("grant_type", "refresh_token"), ("client_id", "symseal"), ("refresh_token", secret)];
            form.extend(service.map(|service| ("service", service)));
            let scope = scopes.join(" ");
            form.push(("scope", &scope));
            let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
            http.post(url.clone()).header(CONTENT_TYPE, form_type).body(form_encoded(&form))
        }
        auth => {
            {
                let mut query = url.query_pairs_mut();
                query.extend_pairs(service.map(|service| ("service", service)));
                query.extend_pairs(scopes.iter().map(|scope| ("scope", scope)));
            }
            let request = http.get(url.clone());
            match auth {
                RegistryAuth::Basic(user, password) => match basic(user, password) {
                    Some(header) => request.header(AUTHORIZATION, header),
                    None => request,
                },
                _ => request,
            }
        }
    };
    let response = request.send().await.map_err(|error| Failure::broken(&url, &error))?;
    if response.status() != StatusCode::OK {
        return Err(Failure::of(response, "200 (a token)").await);
    }
    #[derive(Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
    }
    let bytes = gather(response, TOKEN_LIMIT).await?;
    let answer: Answer = serde_json::from_slice(&bytes).map_err(|error| refused(&format!("no token: {error}")))?;
    let token = answer.token.or(answer.access_token).filter(|token| !token.is_empty());
    token.ok_or_else(|| refused("its answer holds no token"))
}

/// `application/x-www-form-urlencoded`, which is how a URL's query is written.
fn form_encoded(pairs: &[(&str, &str)]) -> String {
    let mut url = Url::parse("http://localhost/").ok();
    if let Some(url) = &mut url {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    url.as_ref().and_then(Url::query).unwrap_or_default().to_owned()
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    use base64::Engine as _;
    let credentials = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    sensitive(&format!("Basic {credentials}"))
}

pub(crate) fn bearer(token: &str) -> Option<HeaderValue> {
    sensitive(&format!("Bearer {token}"))
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_server(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Challenge::Bearer { realm: realm.to_owned(), service: owned(service), scope: owned(scope) }
    }

    #[test]
    fn challenges_are_read_in_all_their_spellings() {
        let full =
            r#"Bearer realm="https://a.example/token?x=1,2",service="r \"one\"",scope="repository:a/b:pull,push""#;
        let expected =
            token_server("https://a.example/token?x=1,2", Some("r \"one\""), Some("repository:a/b:pull,push"));
        assert_eq!(parse(full), [expected]);
        assert_eq!(parse("Basic realm=\"x\""), [Challenge::Basic]);
        assert_eq!(parse("basic"), [Challenge::Basic]);
        assert_eq!(
            parse("bearer realm=https://t, Basic realm=\"x\""),
            [token_server("https://t", None, None), Challenge::Basic]
        );
        assert_eq!(parse("Negotiate, NTLM abc==, Basic"), [Challenge::Basic]);
        for text in ["", " ,, ", "Bearer", "Bearer service=\"x\"", "=", "\"", "Bearer realm=\"open"] {
            assert!(parse(text).iter().all(|one| matches!(one, Challenge::Bearer { .. })), "{text}");
        }
    }

    #[test]
    fn a_scope_is_asked_for_once() {
        assert!(covers("repository:a:pull,push", "repository:a:pull"));
        assert!(covers("repository:a:pull,push", "repository:a:push,pull"));
        assert!(!covers("repository:a:pull", "repository:a:pull,push"));
        assert!(!covers("repository:a:pull", "repository:b:pull"));
    }

    #[test]
    fn a_form_is_encoded_as_browsers_do() {
        assert_eq!(form_encoded(&[("a", "b c"), ("d", "&=é")]), "a=b+c&d=%26%3D%C3%A9");
    }

    #[tokio::test]
    async fn credentials_are_not_sent_to_a_token_server_without_tls() {
        let challenge = token_server("http://elsewhere.example/token", None, None);
        let auth = RegistryAuth::Basic("user".into(), "secret".into());
        let client = crate::client::client().build().unwrap();
        let failure = answer(&client, &challenge, &auth, &[]).await.err().unwrap();
        assert!(failure.into_error(1).to_string().contains("without TLS"));
    }
}
