//! `POST /api/v2/log/entries`: a token holder logs a signature of a key that is registered with the token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use symseal_seal::entry::{ENTRY_REQUEST_LIMIT, EntryRequestError, HashedRekordRequest};

use super::LogApiError;
use super::files::no_log;
use crate::access::shown_token;
use crate::app::App;
use crate::clock::now;
use crate::http::{NotGathered, Share};
use crate::tokens::{Grant, TokenInfo, TokenSecret};

/// 201 with the entry and its proof, once it is durable; 409 with its index where it stands already.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Result<Response, LogApiError> {
    let log = app.log.as_ref().ok_or_else(no_log)?;
    let (parts, body) = request.into_parts();
    // Before the body: who has no token sends none.
    holder(&app, &parts.headers).await?;
    let bytes = app.memory.gather(Share::Writes, body, ENTRY_REQUEST_LIMIT).await.map_err(|why| not_gathered(&why))?;
    // And after it, which may have taken its time.
    let token = holder(&app, &parts.headers).await?;
    let entry = app.pool.run(move || check(&bytes, &token)).await??;
    let appended = log.append(entry.clone()).await?;
    if appended.duplicate {
        return Err(LogApiError::duplicate(appended.index));
    }
    let content_type = HeaderValue::from_static("application/json");
    let json = appended.into_entry(entry).to_json();
    Ok((StatusCode::CREATED, [(header::CONTENT_TYPE, content_type)], json).into_response())
}

/// The token of a request, which holds now and may write to the log.
async fn holder(app: &App, headers: &HeaderMap) -> Result<TokenInfo, LogApiError> {
    let wanted =
        "expected a token that may write to the log (Authorization: Bearer …), as `symseal token create` makes it";
    let shown = shown_token(headers).ok_or_else(|| LogApiError::unauthenticated(format!("{wanted}; found none")))?;
    // One answer for a token that is wrong, revoked or expired: nobody learns which it was.
    let refused = || LogApiError::unauthenticated(format!("{wanted}; found one that does not hold"));
    let secret = TokenSecret::parse(&shown).ok_or_else(refused)?;
    let token = app.store.token(&secret.hash()).await?.filter(|token| token.holds(now())).ok_or_else(refused)?;
    if !token.grants.contains(&Grant::WriteLog) {
        return Err(LogApiError::new(
            StatusCode::FORBIDDEN,
            format!("the token {} may not write to the log ({})", token.id, Grant::WriteLog),
        ));
    }
    Ok(token)
}

fn not_gathered(why: &NotGathered) -> LogApiError {
    match why {
        NotGathered::TooLarge => {
            let message = format!("expected a request of at most {ENTRY_REQUEST_LIMIT} bytes, found more");
            LogApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        }
        NotGathered::Stalled => LogApiError::new(StatusCode::REQUEST_TIMEOUT, why),
        NotGathered::Broken(_) => LogApiError::new(StatusCode::BAD_REQUEST, why),
        NotGathered::NoRoom(_) => LogApiError::busy(why),
    }
}

/// The entry's body, if the request is sound, its key is the token's, and its signature holds.
fn check(bytes: &[u8], token: &TokenInfo) -> Result<Vec<u8>, LogApiError> {
    let request = HashedRekordRequest::parse(bytes)?;
    let key_id = request.key.key_id().to_string();
    if !token.keys.contains(&key_id) {
        let message = format!(
            "expected a signature by a key of the token {} ({}), found one by {key_id}",
            token.id,
            token.keys.join(", ")
        );
        return Err(LogApiError::new(StatusCode::FORBIDDEN, message));
    }
    if !request.signature_holds() {
        let message = format!("the signature is not the one of the key {key_id} over this digest");
        return Err(LogApiError::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(request.body())
}

impl From<EntryRequestError> for LogApiError {
    fn from(error: EntryRequestError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }
}
