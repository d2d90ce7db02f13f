//! What the operator writes down of an issuer.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

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

impl OidcIssuer {
    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<String> {
        let host = self.issuer.split_once("://").map_or("", |(_, rest)| rest);
        let is_local = ["127.0.0.1", "localhost", "[::1]"].iter().any(|local| host.starts_with(local));
        let is_plain_and_local = self.issuer.starts_with("http://") && is_local;
        if !self.issuer.starts_with("https://") && !is_plain_and_local {
            return Some(format!("{:?}: expected an issuer's URL that begins with https://", self.issuer));
        }
        if self.audience.is_empty() {
            return Some("expected an audience: the URL of this server, as pipelines ask for it".to_owned());
        }
        if self.rules.is_empty() {
            return Some(format!("{}: expected rules: without them its tokens give nothing", self.issuer));
        }
        // Whoever has a repository at a public CI gets its tokens.
        let open = |rule: &&OidcRule| rule.claims.values().all(|value| value.chars().all(|c| c == '*'));
        let open = self.rules.iter().find(open)?;
        let grants: Vec<String> = open.grants.iter().map(ToString::to_string).collect();
        Some(format!(
            "{}: a rule without a claim would give {} to everybody whom the issuer knows",
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
        for wrong in [
            issuer("http://ci.example.org", "us", vec![sound.clone()]),
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
