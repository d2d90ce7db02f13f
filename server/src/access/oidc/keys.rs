//! An issuer's keys, as it publishes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use futures_util::StreamExt as _;
use jsonwebtoken::jwk::{Jwk, JwkSet, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use tokio::sync::Mutex;

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
    known: ArcSwapOption<Known>,
    /// Held while the issuer is asked: all who cannot go on without it share one question.
    asking: Mutex<Asked>,
}

/// What the issuer said last.
#[derive(Debug)]
struct Known {
    at: Instant,
    keys: JwkSet,
}

/// When the issuer was asked last, and why that was in vain.
#[derive(Debug, Default)]
struct Asked {
    at: Option<Instant>,
    problem: String,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// A key set as it is published (RFC 7517, section 5).
#[derive(Deserialize)]
struct Published {
    keys: Vec<serde_json::Value>,
}

impl Published {
    /// The keys for signatures. Those of kinds that nobody here knows are passed over, as the section asks for.
    fn for_signatures(self) -> JwkSet {
        let known = self.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        JwkSet { keys: known.filter(verifies).collect() }
    }
}

/// Whether a key is meant to verify signatures, where it says what it is for (RFC 7517, sections 4.2 and 4.3).
fn verifies(key: &Jwk) -> bool {
    let is_of_signatures = key.common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
    let may_verify = |operations: &Vec<KeyOperations>| operations.contains(&KeyOperations::Verify);
    is_of_signatures && key.common.key_operations.as_ref().is_none_or(may_verify)
}

impl IssuerKeys {
    pub(super) fn new(issuer: &OidcIssuer) -> Self {
        let (known, asking) = Default::default();
        Self { issuer: issuer.issuer.clone(), known, asking }
    }

    /// The key of an id; without one, the only key of the issuer.
    pub(super) async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, OidcError> {
        let known = self.known.load_full();
        let holds = known.as_ref().is_some_and(|known| known.is_usable() && find(&known.keys, id).is_some());
        let is_fresh = known.as_ref().is_some_and(|known| known.at.elapsed() < FRESH);
        let mut problem = String::new();
        if !(holds && is_fresh) {
            // A key that is known need not wait for others' questions: whoever makes up ids holds up nobody but himself.
            let turn = if holds { self.asking.try_lock().ok() } else { Some(self.asking.lock().await) };
            if let Some(mut asked) = turn {
                self.ask_again(&mut asked, id).await;
                problem.clone_from(&asked.problem);
            }
        }
        let known = self.known.load_full().filter(|known| known.is_usable());
        let known = known.ok_or_else(|| OidcError::Away { issuer: self.issuer.clone(), problem })?;
        let refused = |problem: &str| OidcError::Refused(problem.to_owned());
        let key = find(&known.keys, id).ok_or_else(|| refused("its issuer has no such key for signatures"))?;
        if key.common.key_algorithm.is_some_and(|of_key| of_key.to_string() != format!("{algorithm:?}")) {
            return Err(refused("its key is for another algorithm"));
        }
        DecodingKey::from_jwk(key).map_err(|error| OidcError::Refused(error.to_string()))
    }

    /// Asks the issuer, unless another has done so meanwhile.
    async fn ask_again(&self, asked: &mut Asked, id: Option<&str>) {
        let known = self.known.load_full();
        let is_answered =
            known.as_ref().is_some_and(|known| known.at.elapsed() < FRESH && find(&known.keys, id).is_some());
        if is_answered || asked.at.is_some_and(|at| at.elapsed() <= PAUSE) {
            return;
        }
        asked.at = Some(Instant::now());
        match ask(&self.issuer).await {
            Ok(keys) => self.known.store(Some(Arc::new(Known { at: Instant::now(), keys }))),
            Err(problem) => {
                tracing::warn!(issuer = self.issuer, problem, "an issuer's keys cannot be had");
                asked.problem = problem;
            }
        }
    }
}

impl Known {
    fn is_usable(&self) -> bool {
        self.at.elapsed() < USABLE
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
    let client = crate::http::client().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).build();
    let client = client.map_err(|error| error.to_string())?;
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let found: Discovery = get(&client, &url).await?;
    if found.issuer != issuer {
        return Err(format!("{url}: expected the issuer {issuer}, found {}", found.issuer));
    }
    if issuer.starts_with("https://") && !found.jwks_uri.starts_with("https://") {
        return Err(format!("{url}: expected a jwks_uri that begins with https://, found {}", found.jwks_uri));
    }
    Ok(get::<Published>(&client, &found.jwks_uri).await?.for_signatures())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_has_a_known_key_does_not_wait_for_those_who_have_none() {
        let issuer = OidcIssuer { issuer: "https://ci.example.org".into(), audience: "us".into(), rules: Vec::new() };
        let keys = IssuerKeys::new(&issuer);
        // The example of RFC 7517, appendix A.1.
        let known = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"1","alg":"ES256",
            "x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;
        let known = Known { at: Instant::now(), keys: serde_json::from_str(known).unwrap() };
        keys.known.store(Some(Arc::new(known)));
        // Somebody asks the issuer for a key that is not known, and it takes its time.
        let _asking = keys.asking.lock().await;
        let found = tokio::time::timeout(Duration::from_secs(1), keys.find(Some("1"), Algorithm::ES256)).await;
        assert!(found.unwrap().is_ok());
        let unknown = tokio::time::timeout(Duration::from_millis(50), keys.find(Some("2"), Algorithm::ES256)).await;
        assert!(unknown.is_err(), "that one waits");
    }

    #[test]
    fn keys_that_are_not_for_signatures_and_keys_of_unknown_kinds_are_passed_over() {
        // The example of RFC 7517, appendix A.1, said to be for different things.
        let key = |more: &str| {
            format!(
                r#"{{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
                "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"{more}}}"#
            )
        };
        for (more, expected) in [
            ("", true),
            (r#","use":"sig""#, true),
            (r#","key_ops":["verify"]"#, true),
            (r#","use":"sig","key_ops":["verify","sign"]"#, true),
            (r#","use":"enc""#, false),
            (r#","use":"tls""#, false),
            (r#","key_ops":[]"#, false),
            (r#","key_ops":["deriveBits"]"#, false),
            (r#","use":"sig","key_ops":["encrypt"]"#, false),
            (r#","use":"enc","alg":"ECDH-ES""#, false),
        ] {
            let text = format!(r#"{{"keys":[{},{{"kty":"new","n":1}}]}}"#, key(more));
            let found = serde_json::from_str::<Published>(&text).unwrap().for_signatures();
            assert_eq!(found.keys.len(), usize::from(expected), "{more}");
            // Without an id it is the only one there is.
            assert_eq!(find(&found, None).is_some(), expected, "{more}");
        }
    }
}
