//! An issuer's keys, as it publishes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

use super::{OidcError, OidcIssuer};

/// How long keys are used before they are asked for again.
const FRESH: Duration = Duration::from_secs(3600);

/// How long they are used while the issuer does not answer.
const USABLE: Duration = Duration::from_secs(24 * 3600);

/// The shortest time between two questions to the issuer: whoever makes up key ids does not make us ask.
const PAUSE: Duration = Duration::from_secs(10);

/// How long the issuer may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest answer that is read, in bytes.
const ANSWER_LIMIT: usize = 1 << 20;

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct IssuerKeys {
    issuer: String,
    /// Held while the issuer is asked: all who wait share one question.
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: Option<(Instant, Arc<JwkSet>)>,
    asked: Option<Instant>,
    problem: String,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl IssuerKeys {
    pub(super) fn new(issuer: &OidcIssuer) -> Self {
        Self { issuer: issuer.issuer.clone(), state: tokio::sync::Mutex::default() }
    }

    /// The key of an id; without one, the only key of the issuer.
    pub(super) async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, OidcError> {
        let mut state = self.state.lock().await;
        let is_fresh = state.known.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH);
        let is_known = state.known.as_ref().is_some_and(|(_, keys)| find(keys, id).is_some());
        let may_ask = state.asked.is_none_or(|at| at.elapsed() > PAUSE);
        if !(is_fresh && is_known) && may_ask {
            state.asked = Some(Instant::now());
            match ask(&self.issuer).await {
                Ok(keys) => state.known = Some((Instant::now(), Arc::new(keys))),
                Err(problem) => {
                    tracing::warn!(issuer = self.issuer, problem, "an issuer's keys cannot be had");
                    state.problem = problem;
                }
            }
        }
        let usable = state.known.as_ref().filter(|(at, _)| at.elapsed() < USABLE).map(|(_, keys)| Arc::clone(keys));
        let away = || OidcError::Away { issuer: self.issuer.clone(), problem: state.problem.clone() };
        let keys = usable.ok_or_else(away)?;
        let refused = |problem: &str| OidcError::Refused(problem.to_owned());
        let key = find(&keys, id).ok_or_else(|| refused("its issuer has no such key"))?;
        if key.common.key_algorithm.is_some_and(|of_key| of_key.to_string() != format!("{algorithm:?}")) {
            return Err(refused("its key is for another algorithm"));
        }
        DecodingKey::from_jwk(key).map_err(|error| OidcError::Refused(error.to_string()))
    }
}

fn find<'k>(keys: &'k JwkSet, id: Option<&str>) -> Option<&'k Jwk> {
    match (id, keys.keys.as_slice()) {
        (Some(id), _) => keys.find(id),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
}

/// Asks for the discovery document, and then for the keys.
async fn ask(issuer: &str) -> Result<JwkSet, String> {
    // A redirection would be another's word.
    let client = reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).build();
    let client = client.map_err(|error| error.to_string())?;
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let found: Discovery = get(&client, &url).await?;
    if found.issuer != issuer {
        return Err(format!("{url}: expected the issuer {issuer}, found {}", found.issuer));
    }
    if issuer.starts_with("https://") && !found.jwks_uri.starts_with("https://") {
        return Err(format!("{url}: expected a jwks_uri that begins with https://, found {}", found.jwks_uri));
    }
    get(&client, &found.jwks_uri).await
}

async fn get<T: for<'de> Deserialize<'de>>(client: &reqwest::Client, url: &str) -> Result<T, String> {
    let failed = |error: reqwest::Error| format!("{url}: {error}");
    let answer = client.get(url).send().await.map_err(failed)?.error_for_status().map_err(failed)?;
    let mut body = answer.bytes_stream();
    let mut bytes = Vec::new();
    while let Some(part) = body.next().await {
        bytes.extend_from_slice(&part.map_err(failed)?);
        if bytes.len() > ANSWER_LIMIT {
            return Err(format!("{url}: expected at most {ANSWER_LIMIT} bytes"));
        }
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("{url}: {error}"))
}
