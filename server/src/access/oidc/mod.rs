//! Identity tokens of CI systems (OpenID Connect): a pipeline shows what its CI signed for this one run, and no secret is kept anywhere.
//!
//! An operator names the issuer, whom its tokens must be meant for, and rules: which claims give which grants. Keys come from the issuer, by
//! its discovery document, and are kept; a token of a key that is not known yet asks for them again, but not for every such token.

mod keys;
mod rule;

use std::sync::Arc;

use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde_json::{Map, Value};
use symseal_seal::UtcSeconds;

pub use rule::{OidcIssuer, OidcRule};

use super::Grant;
use super::caller::KnownToken;
use crate::clock::now;
use crate::tokens::TokenInfo;
use keys::IssuerKeys;

/// What the id of such a caller begins with, in the audit log and in sessions.
const MARK: &str = "oidc:";

/// How far the clocks of issuer and server may be apart, in seconds.
const LEEWAY: u64 = 30;

/// The longest subject that is told to the logs, in bytes.
const SUBJECT_LIMIT: usize = 200;

/// Signatures by keys that others know to verify: never a shared secret, never none.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The issuers whose tokens are taken.
#[derive(Debug)]
pub(super) struct Issuers(Vec<(OidcIssuer, IssuerKeys)>);

/// Why a token gives nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum OidcError {
    /// It is none of an issuer that is named, or does not hold.
    #[error("{0}")]
    Refused(String),
    /// The issuer's keys cannot be had at this moment.
    #[error("the keys of {issuer} cannot be had: {problem}")]
    Away {
        /// The issuer.
        issuer: String,
        /// What happened.
        problem: String,
    },
}

impl Issuers {
    pub(super) fn new(issuers: &[OidcIssuer]) -> Self {
        Self(issuers.iter().map(|issuer| (issuer.clone(), IssuerKeys::new(issuer))).collect())
    }

    /// Whether a text may be an identity token: it has the three parts of one. Our own tokens have none.
    pub(super) fn may_know(&self, text: &str) -> bool {
        !self.0.is_empty() && text.split('.').count() == 3
    }

    /// Whether the issuer of what a session's caller is known by is one of these.
    pub(super) fn have(&self, hash: &str) -> bool {
        let issuer = hash.strip_prefix(MARK).and_then(|id| id.split_once('#')).map(|(issuer, _)| issuer);
        issuer.is_some_and(|issuer| self.0.iter().any(|(known, _)| known.name() == issuer))
    }

    /// The caller that a token names, with what the rules give it.
    pub(super) async fn caller(&self, text: &str) -> Result<Arc<KnownToken>, OidcError> {
        let refused = |error: jsonwebtoken::errors::Error| OidcError::Refused(error.to_string());
        let header = decode_header(text).map_err(refused)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(OidcError::Refused(format!("signed by {:?}", header.alg)));
        }
        if has_critical(text) {
            return Err(OidcError::Refused(
                "its header has extensions (crit) that must be understood, and are not".to_owned(),
            ));
        }
        let claimed = claimed_issuer(text).ok_or_else(|| OidcError::Refused("it names no issuer".to_owned()))?;
        let (issuer, keys) = self
            .0
            .iter()
            .find(|(issuer, _)| issuer.issuer == claimed)
            .ok_or_else(|| OidcError::Refused("its issuer is not one that the server was told of".to_owned()))?;
        let key = keys.find(header.kid.as_deref(), header.alg).await?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[&issuer.issuer]);
        validation.set_audience(&[&issuer.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let claims = decode::<Map<String, Value>>(text, &key, &validation).map_err(refused)?.claims;
        if !is_past(&claims, "iat", now()) {
            return Err(OidcError::Refused("it was issued (iat) in the future".to_owned()));
        }
        // What has another form than the library reads counts for it as if it were not there.
        if !is_past(&claims, "nbf", now()) {
            return Err(OidcError::Refused("it holds from a later time on (nbf)".to_owned()));
        }
        let grants = issuer.grants(&claims);
        if grants.is_empty() {
            return Err(OidcError::Refused("no rule of the server gives its claims anything".to_owned()));
        }
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        let expires = seconds(&claims, "exp")
            .ok_or_else(|| OidcError::Refused("the time when it expires (exp) is none".to_owned()))?;
        // Two issuers may know the same subject; no issuer has a `#` in its name.
        let id = format!("{MARK}{}#{}", issuer.name(), shown(subject));
        Ok(Arc::new(known(&id, grants, expires)))
    }
}

/// The caller of a session that was opened with an identity token; `None` where it was another one.
pub(super) fn of_session(token: &str, grants: &[Grant], expires: i64) -> Option<Arc<KnownToken>> {
    is_of_pipeline(token).then(|| Arc::new(known(token, grants.to_vec(), expires)))
}

/// Whether what a caller is known by is an identity token's.
pub(super) fn is_of_pipeline(hash: &str) -> bool {
    hash.starts_with(MARK)
}

/// Whom a pipeline counts as where callers are limited: all that an issuer vouches for and that have the same rights are one, as all holders of one token
/// are. By their subjects whoever makes a branch would be somebody new. `None`: it is none.
pub(super) fn account(hash: &str, grants: &[Grant]) -> Option<String> {
    let (issuer, _) = hash.strip_prefix(MARK)?.split_once('#')?;
    // They are sorted, each once.
    let grants: Vec<String> = grants.iter().map(ToString::to_string).collect();
    Some(format!("{MARK}{issuer}#{}", grants.join(",")))
}

/// Whether a token that expires then holds at a time, as it does at the start of a request.
pub(super) fn holds(expires: UtcSeconds, at: UtcSeconds) -> bool {
    let leeway = i64::try_from(LEEWAY).unwrap_or_default();
    at.0 <= expires.0.saturating_add(leeway)
}

fn known(id: &str, mut grants: Vec<Grant>, expires: i64) -> KnownToken {
    grants.sort_unstable();
    grants.dedup();
    let info = TokenInfo {
        id: id.to_owned(),
        name: id.to_owned(),
        grants,
        created: now(),
        expires: Some(UtcSeconds(expires)),
        revoked: None,
        keys: Vec::new(),
    };
    KnownToken { hash: id.to_owned(), info }
}

/// A subject as logs show it.
fn shown(subject: &str) -> String {
    let mut text = String::new();
    for c in subject.chars().filter(|c| !c.is_control()) {
        if text.len().saturating_add(c.len_utf8()) > SUBJECT_LIMIT {
            break;
        }
        text.push(c);
    }
    text
}

/// Whom a token says it is from: nothing is believed of it but whose keys to try.
fn claimed_issuer(text: &str) -> Option<String> {
    Some(part(text, 1)?.get("iss")?.as_str()?.to_owned())
}

/// Whether a token names extensions that whoever takes it must understand (RFC 7515, section 4.1.11). None is understood here, and an empty list is none
/// that the section allows.
fn has_critical(text: &str) -> bool {
    part(text, 0).is_none_or(|header| header.get("crit").is_some())
}

/// Whether a claim is a time (RFC 7519, section 2, a NumericDate) that is past then, or is not there.
fn is_past(claims: &Map<String, Value>, claim: &str, at: UtcSeconds) -> bool {
    let latest = at.0.saturating_add(i64::try_from(LEEWAY).unwrap_or_default());
    claims.get(claim).is_none_or(|time| time.as_f64().is_some_and(|time| time <= latest as f64))
}

/// The whole seconds of a time, which may have a fraction (RFC 7519, section 2).
fn seconds(claims: &Map<String, Value>, claim: &str) -> Option<i64> {
    let time = claims.get(claim)?;
    // Beyond that a number of seconds is not told from its neighbours.
    let exact = |time: &f64| (0.0..=9_007_199_254_740_992.0).contains(time);
    time.as_i64().or_else(|| time.as_f64().filter(exact).map(|time| time as i64))
}

/// A part of a token as JSON.
fn part(text: &str, which: usize) -> Option<Value> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text.split('.').nth(which)?).ok()?;
    serde_json::from_slice(&bytes).ok()
}
