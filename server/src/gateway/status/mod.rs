//! How the gateway stands: `/` for people, `/status.json` for machines.

mod page;
mod standing;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::Gate;

/// Nothing but what stands in the page itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `/status.json`.
pub(super) async fn json(State(gate): State<Arc<Gate>>) -> Response {
    let Ok(standing) = gate.standing().await else { return interrupted() };
    let mut response = Json(standing).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `/`.
pub(super) async fn page(State(gate): State<Arc<Gate>>) -> Response {
    let Ok(standing) = gate.standing().await else { return interrupted() };
    let mut response = page::page(&standing).into_string().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

fn interrupted() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, "interrupted; ask again\n").into_response()
}
