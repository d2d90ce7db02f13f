//! What the operator writes down of an issuer.

use std::collections::BTreeMap;
use std::net::IpAddr;

use reqwest::Url;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use symseal_resolver::without_secrets;

use super::super::Grant;

/// An issuer of identity tokens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcIssuer {
    /// Its URL, exactly as its tokens say it in `iss`, such as `https://token.actions.githubusercontent.com`.
    pub issuer: String,
    /// Whom a token must be meant for (`aud`): best this server's own URL, so that a token for another service is none here.
    pub audience: String,
    /// What its claims give.
    pub rules: Vec<OidcRule>,
}

/// Claims, and what a token that has all of them may do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcRule {
    /// Claims by name with their values; `*` in a value stands for any text.
    pub claims: BTreeMap<String, String>,
    /// What they give.
    #[serde(deserialize_with = "grants")]
    pub grants: Vec<Grant>,
}

/// Claims that every token has which is taken at all, or whose values tell nobody apart (RFC 7519, section 4.1).
const OF_EVERY_TOKEN: [&str; 5] = ["iss", "aud", "exp", "nbf", "iat"];

/// Whether a text is an issuer's URL (OpenID Connect Core 1.0, section 2, `iss`): by TLS, as keys come from there; on this machine plain.
fn is_sound(issuer: &str) -> bool {
    let Ok(url) = Url::parse(issuer) else { return false };
    let is_local = match url.host_str() {
        Some("localhost") => true,
        Some(host) => host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
        None => return false,
    };
    let is_bare = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    is_bare && url.password().is_none() && (url.scheme() == "https" || (url.scheme() == "http" && is_local))
}

impl OidcIssuer {
    /// It in the ids of its callers: its URL without the scheme.
    pub(super) fn name(&self) -> &str {
        self.issuer.split_once("://").map_or(self.issuer.as_str(), |(_, rest)| rest)
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<String> {
        if !is_sound(&self.issuer) {
            return Some(format!(
                "{:?}: expected an issuer's URL that begins with https://, without ? and # (http:// for this machine alone)",
                without_secrets(&self.issuer)
            ));
        }
        if self.audience.is_empty() {
            return Some("expected an audience: the URL of this server, as pipelines ask for it".to_owned());
        }
        if self.rules.is_empty() {
            return Some(format!("{}: expected rules: without them its tokens give nothing", self.issuer));
        }
        // Whoever has a repository at a public CI gets its tokens.
        let narrows = |(name, value): (&String, &String)| {
            !OF_EVERY_TOKEN.contains(&name.as_str()) && !value.chars().all(|c| c == '*')
        };
        let open = |rule: &&OidcRule| !rule.claims.iter().any(narrows);
        let open = self.rules.iter().find(open)?;
        let grants: Vec<String> = open.grants.iter().map(ToString::to_string).collect();
        Some(format!(
            "{}: a rule without a claim that not every token has would give {} to everybody whom the issuer knows",
            self.issuer,
            grants.join(", ")
        ))
    }

    /// What the rules give these claims.
    pub(super) fn grants(&self, claims: &Map<String, Value>) -> Vec<Grant> {
        self.rules.iter().filter(|rule| rule.holds(claims)).flat_map(|rule| rule.grants.clone()).collect()
    }
}

impl OidcRule {
    fn holds(&self, claims: &Map<String, Value>) -> bool {
        self.claims.iter().all(|(name, wanted)| match claims.get(name) {
            Some(Value::String(text)) => matches(wanted, text),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => matches(wanted, &value.to_string()),
            _ => false,
        })
    }
}

/// Whether a text is of a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

fn grants<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Grant>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("refs/tags/*", "refs/tags/v1", true),
            ("refs/tags/*", "refs/heads/v1", false),
            ("acme/app", "acme/app", true),
            ("acme/app", "acme/apple", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*aa", "a", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_issuer_that_would_let_everybody_in_is_refused() {
        let rule = |claims: &[(&str, &str)]| OidcRule {
            claims: claims.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            grants: vec!["write:team".parse().unwrap()],
        };
        let issuer = |url: &str, audience: &str, rules: Vec<OidcRule>| OidcIssuer {
            issuer: url.into(),
            audience: audience.into(),
            rules,
        };
        let sound = rule(&[("repository", "acme/app")]);
        assert_eq!(issuer("https://ci.example.org", "us", vec![sound.clone()]).problem(), None);
        assert_eq!(issuer("http://127.0.0.1:1", "us", vec![sound.clone()]).problem(), None);
        assert_eq!(issuer("http://[::1]:1/realms/a", "us", vec![sound.clone()]).problem(), None);
        for wrong in [
            issuer("http://ci.example.org", "us", vec![sound.clone()]),
            issuer("http://localhost.evil.example", "us", vec![sound.clone()]),
            issuer("http://127.0.0.1.evil.example", "us", vec![sound.clone()]),
            issuer("http://localhost@evil.example", "us", vec![sound.clone()]),
            issuer("https://ci.example.org/#a", "us", vec![sound.clone()]),
            issuer("https://ci.example.org", "us", vec![rule(&[("iss", "https://ci.example.org"), ("aud", "us")])]),
            issuer("https://ci.example.org", "", vec![sound.clone()]),
            issuer("https://ci.example.org", "us", vec![]),
            issuer("https://ci.example.org", "us", vec![sound.clone(), rule(&[])]),
            issuer("https://ci.example.org", "us", vec![rule(&[("sub", "*")])]),
        ] {
            assert!(wrong.problem().is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn every_claim_of_a_rule_must_be_there() {
        let rule = OidcRule {
            claims: [("repository".to_owned(), "acme/app".to_owned()), ("protected".to_owned(), "true".to_owned())]
                .into(),
            grants: Vec::new(),
        };
        let holds = |text: &str| rule.holds(serde_json::from_str::<Value>(text).unwrap().as_object().unwrap());
        assert!(holds(r#"{"repository":"acme/app","protected":true}"#));
        assert!(!holds(r#"{"repository":"acme/app"}"#));
        assert!(!holds(r#"{"repository":["acme/app"],"protected":true}"#));
    }
}
