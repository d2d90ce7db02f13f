//! Seals without a key of one's own: an OIDC provider says who asks, Fulcio certifies a key that lives for this one
//! signature, a Rekor logs it, and a timestamp authority says when.
//!
//! The services are asked by the crates of sigstore-rust; what they give is verified as a stranger would verify it before
//! anything is made of it. Such a seal is a Sigstore bundle with a certificate. It is verified by
//! [`verify_foreign`](crate::foreign::verify_foreign) and by Sigstore's own clients; a trust directory names keys, so that
//! for [`symseal_seal::verify_seal`] it is no seal.

use std::time::Duration;

use sigstore_sign::oidc::IdentityToken;
use sigstore_sign::rekor::RekorApiVersion;
use sigstore_sign::{SigningContext, SigningServices};
use symseal_seal::{Statement, StatementError};

use crate::anchor::RekorVersion;
use crate::foreign::{ForeignArtifact, ForeignRoot, ForeignSigner, Refusal, verify_foreign};
use crate::online;

/// The largest identity token that is taken, in bytes.
pub const TOKEN_LIMIT: usize = 64 << 10;

/// Whom to ask.
#[derive(Debug, Clone)]
pub struct KeylessServices {
    /// The certificate authority, without a slash at the end.
    pub fulcio: String,
    /// The transparency log, likewise.
    pub rekor: String,
    /// Its API.
    pub version: RekorVersion,
    /// The timestamp authority's whole URL. A Rekor v2 says no time, so that its seals need one.
    pub timestamp_authority: Option<String>,
    /// How long all of it may take.
    pub limit: Duration,
}

/// What a seal must say when it is made, which is what its verifiers will ask for.
pub struct KeylessExpectation<'a> {
    /// Identity and issuer of the certificate.
    pub signer: &'a ForeignSigner,
    /// Whom to trust.
    pub root: &'a ForeignRoot,
}

/// There is no seal.
#[derive(Debug, thiserror::Error)]
pub enum KeylessError {
    /// The statement cannot be sealed.
    #[error("the statement cannot be sealed: {0}")]
    Statement(#[from] StatementError),
    /// The token is none that Fulcio could take.
    #[error("identity token: expected a JWT that is valid now, {found}; nothing was sent")]
    Token {
        /// What is there instead.
        found: String,
    },
    /// One of the services did not do its part.
    #[error("{step}; nothing was sealed, trying again is safe")]
    Service {
        /// Which, and what it said.
        step: String,
    },
    /// What the services gave does not hold.
    #[error("the seal that the services gave does not hold, and is not kept: {0}")]
    Refused(#[from] Refusal),
}

/// Signs the statement with a key that nobody keeps, and gives the seal: the JSON of a Sigstore bundle v0.3 with a
/// certificate. It was verified.
///
/// # Errors
/// [`KeylessError`]. A log may have an entry of a seal that was not made; trying again makes another one.
pub fn seal_keyless(
    statement: &Statement,
    services: &KeylessServices,
    token: &str,
    expected: &KeylessExpectation<'_>,
) -> Result<Vec<u8>, KeylessError> {
    let payload = crate::seal::payload(statement)?;
    crate::foreign::install_provider();
    let token = identity(token)?;
    let seal = ask(services, token, &payload)?;
    let index = statement.subject_digest(symseal_seal::statement::INDEX_SUBJECT).unwrap_or_default();
    verify_foreign(&seal, ForeignArtifact::Sha256(index), expected.signer, expected.root)?;
    Ok(seal)
}

/// Reads the token's claims. Fulcio decides whether they are true.
fn identity(token: &str) -> Result<IdentityToken, KeylessError> {
    let wrong = |found: &str| KeylessError::Token { found: found.to_owned() };
    if token.len() > TOKEN_LIMIT {
        return Err(wrong("found one of more than 64 KiB"));
    }
    // What the reader says may repeat parts of the token, which is a secret.
    let token = IdentityToken::from_jwt(token.trim()).map_err(|_| wrong("found other text"))?;
    if token.is_expired() {
        return Err(wrong(&format!("found one that expired at {}", token.expiration())));
    }
    Ok(token)
}

fn ask(services: &KeylessServices, token: IdentityToken, payload: &[u8]) -> Result<Vec<u8>, KeylessError> {
    let failed = |step: String| KeylessError::Service { step };
    let asking = async || {
        let client = online::client().timeout(services.limit).build().map_err(|error| failed(error.to_string()))?;
        let signer = SigningContext::new(chosen(services)).with_http_client(client).signer(token);
        let bundle = signer.sign_raw_statement(payload).await.map_err(|error| failed(step(services, &error)))?;
        bundle.to_json().map(String::into_bytes).map_err(|error| failed(error.to_string()))
    };
    online::within(services.limit, asking, failed)
}

fn chosen(services: &KeylessServices) -> SigningServices {
    let version = match services.version {
        RekorVersion::V1 => RekorApiVersion::V1,
        RekorVersion::V2 => RekorApiVersion::V2,
    };
    let chosen = SigningServices::new(&services.fulcio, &services.rekor).with_rekor(&services.rekor, version);
    match &services.timestamp_authority {
        Some(url) => chosen.with_tsa_url(url),
        None => chosen,
    }
}

/// Which service failed, by its address.
fn step(services: &KeylessServices, error: &sigstore_sign::Error) -> String {
    use sigstore_sign::Error;
    let said: String = error.to_string().chars().filter(|c| !c.is_control()).take(400).collect();
    match error {
        Error::Fulcio(_) => format!("Fulcio {}: {said}", services.fulcio),
        Error::Rekor(_) => format!("log {}: {said}", services.rekor),
        Error::Tsa(_) => {
            format!("timestamp authority {}: {said}", services.timestamp_authority.as_deref().unwrap_or_default())
        }
        _ => said,
    }
}
