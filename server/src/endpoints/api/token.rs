//! `GET /api/v1/token`: registry clients get a session for their token here, as `WWW-Authenticate` told them (the protocol
//! of the distribution project's token authentication).

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::json;

use super::ApiError;
use crate::access::{Caller, CallerError, SessionScope};
use crate::app::App;
use crate::clock::now;
use crate::http::form_values;

/// The session, with what of the asked scopes the caller may do; for those who show nothing, with what anybody may.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    // A session that opened others would never end.
    if caller.is_in_session() {
        let message = "expected a token, found a session: it opens no other";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let scopes = form_values(query.as_deref(), "scope");
    let scope = SessionScope::of(&scopes).within(|name, action| caller.may_do(name, action));
    let (session, seconds) = app.access.open_session(&caller, scope).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "open-server",
            "this server asks nobody for a token, and so has no sessions",
        )
    })?;
    if seconds <= 0 {
        // A pipeline's, whose clock is allowed to be off.
        return Err(CallerError::Expired.into());
    }
    let body = json!({
        "token": session,
        "access_token": session,
        "expires_in": seconds,
        "issued_at": now().to_string(),
    });
    Ok(([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], Json(body)).into_response())
}
