//! `GET /api/v1/token`: registry clients get a session for their token here, as `WWW-Authenticate` told them (the protocol
//! of the distribution project's token authentication).

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::json;

use super::ApiError;
use crate::access::{Caller, Grant, SESSION_SECONDS};
use crate::app::App;
use crate::clock::now;
use crate::http::form_values;
use crate::repositories::RepositoryName;

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
    let grants = granted(&caller, &scopes);
    let session = app.access.open_session(&caller, grants).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "open-server",
            "this server asks nobody for a token, and so has no sessions",
        )
    })?;
    let body = json!({
        "token": session,
        "access_token": session,
        "expires_in": SESSION_SECONDS,
        "issued_at": now().to_string(),
    });
    Ok(([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], Json(body)).into_response())
}

/// `repository:NAME:pull,push`, several with spaces between or in parameters of their own. Without any, or where the list
/// of repositories is asked for, everything that the caller may do in the registry.
fn granted(caller: &Caller, scopes: &[String]) -> Vec<Grant> {
    let mut grants = Vec::new();
    let mut scopes = scopes.iter().flat_map(|scope| scope.split_ascii_whitespace()).peekable();
    if scopes.peek().is_none() {
        return caller.registry_grants();
    }
    for scope in scopes {
        if scope.starts_with("registry:") {
            return caller.registry_grants();
        }
        let Some((name, actions)) = scope.strip_prefix("repository:").and_then(|rest| rest.rsplit_once(':')) else {
            continue;
        };
        // Some clients put the registry before the name.
        let Ok(name) = name.parse::<RepositoryName>() else { continue };
        let writes = actions.split(',').any(|action| matches!(action, "push" | "delete" | "*"));
        if writes && caller.may_write(&name) {
            grants.push(Grant::Write(name.into()));
        } else if caller.may_read(&name) {
            grants.push(Grant::Read(name.into()));
        }
    }
    grants.sort_unstable();
    grants.dedup();
    grants
}
