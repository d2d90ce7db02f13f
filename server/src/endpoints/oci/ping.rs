//! `GET /v2/`: this is a registry.

use axum::Json;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde_json::json;

const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");

/// Says that the API is here.
pub(crate) async fn get() -> Response {
    ([(API_VERSION, HeaderValue::from_static("registry/2.0"))], Json(json!({}))).into_response()
}
